"""ChainCRF: labels of the positions of sequences."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.sparse import csr_matrix

from backfield.errors import InputError
from backfield.estimators._base import OneLabelSetCRF
from backfield.estimators._lazy import opened
from backfield.estimators.samples import Sample
from backfield.graph import Graph


class ChainCRF(OneLabelSetCRF):
    """A linear-chain conditional random field; parameters as in :class:`GridCRF`, but exact inference by default.

    X is a list of (T, F) arrays, CSR matrices, or lists of {feature: value} dicts; y a list of sequences of ints or strings
    (-1 or "" = hidden). A value of a dict is a number, or a string: {"word": "the"} has the feature "word=the".
    """

    _chains = True

    def __init__(
        self,
        inference: Any = "chain",
        loss: Any = "surrogate_likelihood",
        gradient: Any = None,
        learner: Any = "lbfgs(max_iter=100)",
        unary: Any = "linear",
        pairwise: Any = "linear",
        decoder: Any = "max_marginal",
        l2: Any = 1e-3,
        fit_intercept: bool = True,
        start: str = "zero",
        class_weight: Any = None,
        n_labels: int | None = None,
        dtype: str = "float64",
        n_jobs: int = 1,
        random_state: int | None = 0,
        verbose: int = 0,
    ) -> None:
        super().__init__(
            inference=inference, loss=loss, gradient=gradient, learner=learner, unary=unary, pairwise=pairwise,
            decoder=decoder, l2=l2, fit_intercept=fit_intercept, start=start, class_weight=class_weight, n_labels=n_labels,
            dtype=dtype, n_jobs=n_jobs, random_state=random_state, verbose=verbose,
        )  # fmt: skip

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None, **options: Any) -> ChainCRF:
        """Learn the weights; feature names of dicts are learned, too."""
        X, y = opened(X, y)
        self._learn_features(X)
        super().fit(X, y, sample_weight, **options)
        return self

    def _learn_features(self, X: Any) -> None:
        self.feature_names_ = None
        if len(X) and isinstance(X[0], list) and X[0] and isinstance(X[0][0], dict):
            names: dict[str, int] = {}
            for sequence in X:
                for position in sequence:
                    for name, value in position.items():
                        names.setdefault(f"{name}={value}" if isinstance(value, str) else name, len(names))
            self.feature_names_ = names

    def _sample(self, x: Any, number: int) -> Sample:
        if isinstance(x, list) and x and isinstance(x[0], dict):
            x = self._vectorised(x, number)
        elif not hasattr(x, "tocsr"):
            x = np.asarray(x)
        if getattr(x, "ndim", 0) != 2 or x.shape[0] == 0:
            shape = getattr(x, "shape", None)
            raise InputError(f"example {number}: a sequence must have shape (T, F) with T >= 1, got {shape}.")
        return Sample(Graph.chain(x.shape[0], labels=2), x)

    def _vectorised(self, sequence: list[dict[str, Any]], number: int) -> csr_matrix:
        names = getattr(self, "feature_names_", None)
        if names is None:
            raise InputError(f"example {number} is a list of dicts, but the model was fitted on arrays.")
        columns, values, ptr = [], [], [0]
        for position in sequence:
            for name, value in position.items():
                text = isinstance(value, str)
                at = names.get(f"{name}={value}" if text else name)
                if at is not None:  # features that were never seen in training have no weight
                    columns.append(at)
                    values.append(1.0 if text else value)
            ptr.append(len(columns))
        try:
            return csr_matrix((np.array(values, dtype=np.float64), columns, ptr), shape=(len(sequence), len(names)))
        except (TypeError, ValueError):
            raise InputError(f"example {number}: values of features must be numbers or strings.") from None

    def _sized_graph(self, sample: Sample, labels: int) -> Graph:
        return Graph.chain(sample.graph.n_variables, labels=labels)

    def _flat_labels(self, y: Any, number: int) -> np.ndarray:
        labels = np.asarray(y)
        if labels.ndim == 2 and labels.dtype.kind in "bf":
            return labels
        if labels.ndim != 1 or labels.dtype.kind not in "biuU":
            raise InputError(f"example {number}: labels must be a sequence of ints or strings, got {labels.dtype}.")
        return labels if labels.dtype.kind == "U" else labels.astype(np.int64)
