"""Multinomial logistic regression with a bias vector for each row, by L-BFGS ([L13] §8: linear functions).

    f(x, y) = (W x)_y,    min_W  mean_k [ log sum_y exp((W x_k)_y + b_k(y)) - (W x_k)_{y_k} - b_k(y_k) ] + l2 |W|^2

One pass over the rows gives value and gradient: O(N F K) time and no (N, K) temporaries. L-BFGS works on W times the root
mean square of each feature, so features of unlike scale do no harm; the optimum is that of the problem as written.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np

from backfield.errors import InputError
from backfield.kernels.compile import kernel
from backfield.oracles._softmax import RowSums, threads
from backfield.oracles.base import Oracle, OracleFunction, OracleTask, Sums, check_columns, check_parameter, check_start


class LinearFunction(OracleFunction):
    """f(x, y) = (W x)_y, with the intercept, if any, in the last column of W."""

    n_features: int

    def __init__(self, weights: np.ndarray, n_features: int) -> None:
        self.weights = weights
        self.n_features = n_features
        self.n_classes = len(weights)

    def scores(self, features: np.ndarray) -> np.ndarray:
        """Return W x for each row, (N, K)."""
        features = _floats(check_columns("linear", features, self.n_features))
        scores = np.empty((len(features), self.n_classes))
        _linear_scores(features, self.weights, scores)
        return scores

    def arrays(self) -> dict[str, np.ndarray]:
        """Return W."""
        return {"weights": self.weights}

    def meta(self) -> dict[str, Any]:
        """Return the numbers of classes and features."""
        return {"n_classes": self.n_classes, "n_features": self.n_features}

    @classmethod
    def from_arrays(cls, arrays: dict[str, np.ndarray], meta: dict[str, Any]) -> Self:
        """Make the function again."""
        weights, n_features = np.asarray(arrays["weights"], dtype=np.float64), int(meta["n_features"])
        if weights.ndim != 2 or weights.shape[1] - n_features not in (0, 1):
            raise InputError(f"linear: weights of shape {weights.shape} do not go with {n_features} features.")
        return cls(weights, n_features)


@dataclass(frozen=True, repr=False)
class Linear(Oracle, name="linear"):
    """Linear scores, fitted to the optimum.

    Parameters
    ----------
    l2 : float
        Ridge on the mean loss per row, ``l2 * |W|^2`` over all weights, the intercept too.
    max_iter : int
        L-BFGS iterations at the most.
    fit_intercept : bool
        Add a constant to the features.
    tol : float
        Stop when no entry of the gradient of the mean loss is larger (features scaled to a root mean square of 1).
    """

    supports_soft_targets: ClassVar[bool] = True
    sums: ClassVar[bool] = True
    function_class: ClassVar[type[OracleFunction]] = LinearFunction

    l2: float = 1e-6
    max_iter: int = 100
    fit_intercept: bool = True
    tol: float = 1e-6

    def __post_init__(self) -> None:
        check_parameter("linear", "l2", self.l2, 0)
        check_parameter("linear", "max_iter", self.max_iter, 1, whole=True)
        check_parameter("linear", "tol", self.tol, 0)

    def fit(self, task: OracleTask) -> LinearFunction:
        """Return the best weights, starting at those of ``start``."""
        with threads(task.n_jobs) as pool:
            rows = RowSums(_floats(task.features), task.problem(), pool)
            return self.fit_sums(rows, n_classes=task.n_classes, start=task.start)

    def fit_sums(self, rows: Sums, *, n_classes: int, start: Any = None) -> LinearFunction:
        """Return the best weights, starting at those of ``start``."""
        n_features = rows.n_features
        check_start("linear", start, LinearFunction, n_classes, n_features)
        shape = (n_classes, n_features + self.fit_intercept)
        if start is not None and start.weights.shape != shape:
            raise InputError(f"linear: start has weights of shape {start.weights.shape}, {shape} are needed.")
        first = np.zeros(shape) if start is None else start.weights
        return LinearFunction(fit_weights(rows, n_features, first, self.l2, self.max_iter, self.tol), n_features)


def fit_weights(rows: Sums, n_features: int, first: np.ndarray, l2: float, max_iter: int, tol: float) -> np.ndarray:
    """Minimise the mean biased loss + l2 |W|^2 over W (K, F), or (K, F + 1) with an intercept, from ``first``."""
    scale = np.ones(first.shape[1])
    if n_features:
        scale[:n_features] = np.sqrt(rows.mean_squares())
        scale[scale == 0] = 1

    def loss(u: np.ndarray) -> tuple[float, np.ndarray]:
        w = u.reshape(first.shape) / scale
        value, d_w = rows.linear_gradient(w, n_features)
        return value + l2 * float(np.sum(w * w)), ((d_w + 2 * l2 * w) / scale).ravel()

    u = _centred(first) * scale
    options = {"maxiter": max_iter, "gtol": tol, "ftol": 1e-13, "maxcor": 10}
    with threads(1):  # L-BFGS's own products are the same for any number of threads
        from scipy.optimize import minimize

        run = minimize(loss, u.ravel(), jac=True, method="L-BFGS-B", options=options)
    return _centred(run.x.reshape(first.shape) / scale)


def _centred(w: np.ndarray) -> np.ndarray:
    """Take off what all classes have in common: it changes nothing but the ridge, which is smallest without it."""
    return w - w.mean(axis=0)


def _floats(features: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(features, dtype=np.float32 if features.dtype == np.float32 else np.float64)


@kernel
def _linear_scores(x, w, scores):
    """Write W x for each row; BLAS on so narrow a matrix spends its time on waking threads."""
    n_features = x.shape[1]
    for i in range(len(x)):
        for c in range(len(w)):
            t = 0.0
            for j in range(n_features):
                t += w[c, j] * x[i, j]
            scores[i, c] = t + w[c, n_features] if w.shape[1] > n_features else t
