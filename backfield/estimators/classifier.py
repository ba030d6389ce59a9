"""A field on top of any classifier: its log-probabilities become the unary features.

Training rows get log-probabilities out of fold, from a classifier that has not seen their example; else the field would
learn to trust a classifier that is overconfident where it was fitted.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from backfield.errors import InputError
from backfield.scikit_learn import BaseEstimator, clone


class Classifier(BaseEstimator):
    """Any estimator with ``predict_proba`` as the unary energy of a field.

    Parameters
    ----------
    estimator : scikit-learn classifier
    cv : int
        Folds over examples for the training log-probabilities; with fewer examples than folds, as many as there are. One
        example alone is cut into blocks of rows.
    floor : float
        Probabilities are kept above it before the logarithm.
    """

    def __init__(self, estimator: Any, cv: int = 5, floor: float = 1e-4) -> None:
        self.estimator = estimator
        self.cv = cv
        self.floor = floor

    def log_probabilities(self, fitted: Any, features: np.ndarray, n_labels: int) -> np.ndarray:
        """Return (N, L) log-probabilities; labels that the classifier never saw get the floor."""
        p = np.full((features.shape[0], n_labels), self.floor)
        p[:, np.asarray(fitted.classes_, dtype=np.int64)] = fitted.predict_proba(features)
        return np.log(np.maximum(p, self.floor)).astype(np.float32)

    def fit_predict(self, features: list[Any], labels: list[np.ndarray], n_labels: int) -> tuple[Any, list[np.ndarray]]:
        """Return a classifier fitted on all rows, and the out-of-fold log-probabilities of each example."""
        if not hasattr(self.estimator, "predict_proba"):
            raise InputError(f"Classifier needs an estimator with predict_proba; {self.estimator!r} has none.")
        fold = self._folds(features)
        out = [np.empty((x.shape[0], n_labels), np.float32) for x in features]
        for k in range(max(int(f.max()) for f in fold) + 1):
            fitted = self._fit(features, labels, [f != k for f in fold])
            for x, f, into in zip(features, fold, out, strict=True):
                if (f == k).any():
                    into[f == k] = self.log_probabilities(fitted, x[f == k], n_labels)
        return self._fit(features, labels, [np.ones(len(f), dtype=bool) for f in fold]), out

    def _folds(self, features: list[Any]) -> list[np.ndarray]:
        count = min(self.cv, len(features))
        if count > 1:
            return [np.full(x.shape[0], k % count) for k, x in enumerate(features)]
        blocks = max(2, self.cv)
        return [np.arange(features[0].shape[0]) * blocks // max(1, features[0].shape[0])]

    def _fit(self, features: list[Any], labels: list[np.ndarray], use: list[np.ndarray]) -> Any:
        rows = [x[u & (y >= 0)] for x, y, u in zip(features, labels, use, strict=True)]
        target = np.concatenate([y[u & (y >= 0)] for y, u in zip(labels, use, strict=True)])
        if len(target) == 0:
            raise InputError("Classifier: a fold has no labelled rows; use a smaller cv.")
        return clone(self.estimator).fit(np.concatenate(rows), target)
