"""GridCRF: labels of the pixels of images."""

from __future__ import annotations

from typing import Any

import numpy as np

from backfield.errors import InputError
from backfield.estimators._base import OneLabelSetCRF
from backfield.estimators.samples import GridSample, Sample
from backfield.graph import Graph


class GridCRF(OneLabelSetCRF):
    """A conditional random field on the 4-connected grid of pixels.

    Minimises the mean loss per labelled pixel + ``l2`` |w|^2. Weights of horizontal and vertical edges are separate.

    Parameters
    ----------
    inference : str
        Spec of the inference that is trained through and used to predict.
    loss : str
        A loss on marginals or an objective; or a name of JGMT such as ``trunc_cl_trw_5``, whose inference and gradient are
        then used instead of the two other parameters.
    gradient : str or None
        How the loss is differentiated through inference.
    learner : str
        Spec of what moves the weights: ``lbfgs``, ``sgd``, ``oracle_descent``, ``frank_wolfe``, ...
    unary, pairwise : str
        Energies: ``linear``, ``constant``, ``zero``, or a :class:`Network`; ``unary`` may be a :class:`Classifier`. With
        ``learner="oracle_descent"``, oracles: also ``boosted_trees``, ``mlp`` or one of your own.
    decoder : str
        How predictions are made of marginals or potentials: ``max_marginal``, ``map``, ``soft``, ``expected_f``, ...
    l2 : float or dict
        Ridge on all weights; ``{"unary": 0, "pairwise": 0.01}`` gives those of edges their own (penalised pseudolikelihood).
    fit_intercept : bool
        Add a constant to the features.
    start : {"independent", "zero", "random"}
        Start from the model without edges, from zero, or from standard normal numbers.
    class_weight : dict or "balanced", optional
        Weight of each class in the loss; "balanced": within each example all its classes weigh the same.
    n_labels : int, optional
        Classes are 0 .. n_labels - 1, also where some do not occur in training.
    dtype : {"float32", "float64"}
        Type of numbers to compute in; weights and sums are always float64.
    n_jobs : int
        Threads over images; -1 = all cores. Results do not depend on it.
    random_state : int
        Seed of everything random.
    verbose : int
        1 shows a progress bar on standard error.

    Attributes
    ----------
    weights_ : (number of weights,) array
    classes_ : (number of classes,) array
        The labels, in the order of the last axis of ``predict_proba``.
    trace_ : list of dict
        A row for each iteration of the learner.
    converged_ : bool
    message_ : str
        Why the learner stopped.

    Examples
    --------
    >>> crf = GridCRF(inference="tree_reweighted(n_iter=5)")
    >>> crf.fit(images, masks).predict(images)  # doctest: +SKIP
    """

    @classmethod
    def discriminative(cls, **params: Any) -> GridCRF:
        """Return a discriminative random field ([K05] §2); ``params`` change what the preset says.

        Binary labels are coded -1 and +1: one weight per feature of a pixel or an edge. Learned by ascent along the
        likelihood's gradient with the pseudo-marginals of loopy BP for marginals (PMA); ``loss="saddle_point(solver=
        'graph_cut(truncate=True)')"`` with ``decoder="map(solver='graph_cut(truncate=True)')"`` is SPA for MAP by cuts.
        """
        preset: dict[str, Any] = {"unary": "plus_minus", "pairwise": "plus_minus", "loss": "pseudo_marginal"}
        preset |= {
            "inference": "loopy_bp(n_iter=100, tol=1e-3)",
            "gradient": None,
            "learner": "ascent(step_size=2.0)",
            "l2": 0.0,
        }
        return cls(**{**preset, **params})

    def _sample(self, x: Any, number: int) -> Sample:
        edges = None
        if isinstance(x, GridSample):
            edges = (np.asarray(x.horizontal), np.asarray(x.vertical))
            x = x.features
        array = np.asarray(x)
        if array.ndim == 2:
            array = array[:, :, None]
        if array.ndim != 3 or 0 in array.shape:
            raise InputError(f"example {number}: an image must have shape (H, W, F), got {array.shape}.")
        return _sample(array, edges, number)

    def _sized_graph(self, sample: Sample, labels: int) -> Graph:
        assert sample.graph.shape is not None
        return Graph.grid(*sample.graph.shape, labels=labels)

    def _flat_labels(self, y: Any, number: int) -> np.ndarray:
        mask = np.asarray(y)
        if mask.ndim == 3:  # (H, W, L) allowed labels
            return mask.reshape(-1, mask.shape[2])
        if mask.ndim != 2 or mask.dtype.kind not in "biu":
            raise InputError(f"example {number}: a mask must be (H, W) integers, got {mask.dtype} of shape {mask.shape}.")
        return mask.astype(np.int64).reshape(-1)

    def _shaped(self, values: np.ndarray, sample: Sample, number: int) -> Any:
        assert sample.graph.shape is not None
        return values.reshape(*sample.graph.shape, *values.shape[1:])


def _sample(array: np.ndarray, edges: tuple[np.ndarray, np.ndarray] | None, number: int) -> Sample:
    height, width, count = array.shape
    across, down = height * (width - 1), (height - 1) * width
    types = np.repeat([0, 1], [across, down])
    factor_features = None
    if edges is not None:
        for edge, shape in zip(edges, ((height, width - 1), (height - 1, width)), strict=True):
            if edge.ndim != 3 or edge.shape[:2] != shape:
                raise InputError(
                    f"example {number}: edge features must have shape ({shape[0]}, {shape[1]}, D), got {edge.shape}."
                )
        if edges[0].shape[2] != edges[1].shape[2]:
            raise InputError(f"example {number}: horizontal and vertical edges must have the same number of features.")
        depth = edges[0].shape[2]
        factor_features = np.concatenate([edges[0].reshape(across, depth), edges[1].reshape(down, depth)])
    graph = Graph.grid(height, width, labels=2)
    return Sample(graph, array.reshape(height * width, count), factor_features, factor_types=types)
