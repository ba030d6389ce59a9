"""VolumeCRF: labels of the voxels of volumes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from backfield.estimators.crf import CRF


class VolumeCRF(CRF, structure="volume"):
    """A conditional random field on the grid of voxels; parameters as in :class:`GridCRF`.

    X is a list of (D, H, W, F) arrays, y one of (D, H, W) integers (-1 = hidden).

    Parameters
    ----------
    neighbours : {6, 18, 26}
        Of a voxel: those that share a face with it, or an edge, too, or a corner, too. Weights are those of a direction.
    offsets : list of (int, int, int), optional
        Instead of ``neighbours``, the steps to them: ``[(0, 0, 1), (0, 1, 0)]`` is a field in each slice.
    spacing : (float, float, float), optional
        Size of a voxel. All edges then share one set of weights, which multiplies the inverse distance of the voxels.
    contrast : bool
        The distance of the features of its two voxels is a feature of an edge.

    Examples
    --------
    >>> crf = VolumeCRF(spacing=(50, 4, 4), inference="tree_reweighted(n_iter=5)")
    >>> crf.fit(volumes, labels).predict(volumes)  # doctest: +SKIP
    """

    if TYPE_CHECKING:  # the parameters of the structure, beside those of every CRF

        def __init__(
            self,
            inference: Any = "auto",
            *,
            neighbours: Any = None,
            offsets: Any = None,
            spacing: Any = None,
            contrast: bool = False,
            **params: Any,
        ) -> None: ...
