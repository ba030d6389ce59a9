"""GridCRF: labels of the pixels of images."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from backfield.estimators.crf import CRF


class GridCRF(CRF, structure="grid"):
    """A conditional random field on the grid of pixels.

    Minimises the mean loss per labelled pixel + ``l2`` |w|^2. Edges of each direction have their own weights.

    Parameters
    ----------
    inference : str
        Spec of the inference that is trained through and used to predict. "auto": exact where graphs have no cycles, else
        ``tree_reweighted(n_iter="auto")``, which tries 5, 10 and 20 sweeps on held-out labels; ``inference_`` is the choice.
    loss : str
        A loss on marginals or an objective; or a name of JGMT such as ``trunc_cl_trw_5``, whose inference and gradient are
        then used instead of the two other parameters.
    gradient : str or None
        How the loss is differentiated through inference.
    learner : str
        Spec of what moves the weights: ``lbfgs``, ``sgd``, ``oracle_descent``, ``frank_wolfe``, ...
    unary, pairwise : str
        Energies: ``linear``, ``constant``, ``zero``, or a :class:`Network`; ``unary`` may be a :class:`Classifier`. With
        ``learner="oracle_descent"``, oracles: also ``boosted_trees``, ``mlp`` or your own.
    decoder : str
        How predictions are made of marginals or potentials: ``max_marginal``, ``map``, ``soft``, ``expected_f``, ...
    l2 : "auto", float or dict
        Ridge. "auto" is 1 / (2 n) for n labelled pixels, scikit-learn's C = 1, on weights in units of standardised features:
        scaling a column does not change the fit. A number is the ridge on all weights as they are; ``{"unary": "auto",
        "pairwise": 0.01}`` gives those of edges their own.
    fit_intercept : bool
        Add a constant to the features.
    start : {"independent", "zero", "random"}
        Start from the model without edges, from zero, or from standard normal numbers.
    guard : "auto", True or False
        Let held-out labels say how strongly edges enter, so the field is not worse than its variables alone; "auto":
        where ``inference`` is "auto". ``message_`` and ``trace_[0]["held_out"]`` say what was found.
    class_weight : dict or "balanced", optional
        Weight of each class in the loss; "balanced": within each example all its classes weigh the same.
    n_labels : int, optional
        Classes are 0 .. n_labels - 1, also where some do not occur in training.
    dtype : {"float32", "float64"}
        Type of numbers to compute in; weights and sums are always float64.
    n_jobs : int
        Threads over images; -1 = all cores. Results do not depend on it.
    random_state : int
        Random seed.
    verbose : int
        1 shows a progress bar on standard error.
    l1 : float
        Penalty on the absolute values of all weights, which makes many of them 0 (``lbfgs`` becomes ``owlqn``).
    neighbours : {4, 8}
        Of a pixel: those beside, above and below it, or the diagonal ones, too.
    offsets : list of (int, int), optional
        Instead of ``neighbours``, the steps (down, right) to them: ``[(0, 1), (1, 0), (0, 3)]``.
    spacing : (float, float), optional
        Distance of rows and of columns. All edges then share one set of weights, which multiplies the inverse distance.
    contrast : bool
        The distance of the features of its two pixels is a feature of an edge.

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
