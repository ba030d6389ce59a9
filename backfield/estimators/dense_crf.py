"""DenseCRF: labels of pixels, voxels or points, every pair of which is joined."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from backfield.estimators.crf import CRF


class DenseCRF(CRF, structure="dense", defaults={"inference": "mean_field(n_iter=5)", "learner": "lbfgs(max_iter=50)"}):
    """A fully connected random field whose unary terms, kernels and bandwidths are learned through mean field.

    X is a list of images (H, W, F), volumes (D, H, W, F) or points (n, F); with ``unary="given"``, of pairs (image, class
    probabilities), or of arrays whose last ``n_labels`` features are the probabilities. Classes are then 0, 1, ...
    Other parameters as in :class:`GridCRF`.

    A fit learns from four fifths of the examples first (all, where there are fewer than five) and compares, on the rest, the
    field with its unary terms alone. Then it learns from all. Where the field was worse the kernels are switched off: a
    ``DenseCRF`` is not noticeably worse than its unary terms. ``message_`` reports the outcome. Networks as unary terms are
    not compared. ``guard=False`` learns from all examples at once and compares nothing. ``guard="labels"`` is for those who
    need labels and no probabilities: kernels become up to 16 times as strong where that means fewer errors on the rest.

    Parameters
    ----------
    unary : str, Classifier or Network
        ``linear``, ``given`` (probabilities of a network, say), ``bf.Classifier(...)``, ...
    kernels : list of str
        Where the learned kernels start: ``"position(3)"``, ``"bilateral(60, 10, weight=2)"``, ``"features(2)"``.
    learn_scales : bool
        Learn the bandwidths, too.
    compatibility : {"potts", "diagonal", "full"}
        Which labels go together: one strength for all, one for each label, or any symmetric matrix, which many labels
        need many labelled images for.
    filter : {"auto", "exact", "lattice", "published", "grid"}
        As of :class:`backfield.Kernel`.

    Examples
    --------
    >>> crf = DenseCRF(unary="given", kernels=["position(3)", "bilateral(60, 10)"])
    >>> crf.fit(list(zip(images, probabilities)), masks)  # doctest: +SKIP
    """

    if TYPE_CHECKING:  # the parameters of the structure, beside those of every CRF

        def __init__(
            self,
            inference: Any = "mean_field(n_iter=5)",
            *,
            kernels: Any = ...,
            learn_scales: bool = True,
            compatibility: str = "potts",
            filter: str = "auto",
            **params: Any,
        ) -> None: ...

    @property
    def kernels_(self) -> list[dict[str, Any]]:
        """What was learned of each kernel: its spec, the compatibility (L, L) and the bandwidths."""
        state = self._state()
        out = []
        for block in state.learned.layout.kernels:
            energy, w, count = block.energy, state.weights[block.start : block.stop], block.n_outputs
            matrix = energy.matrix(w, count)
            full = matrix if matrix.ndim == 2 else np.diag(np.broadcast_to(matrix, count))
            out.append({"kernel": energy.spec, "compatibility": np.array(full), "bandwidths": energy.scales(w, count)})
        return out
