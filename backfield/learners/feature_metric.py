"""The curvature that features alone give: a metric in which few iterations of lbfgs go a long way.

    H0 = (p (1 - p) X'X / n + 2 l2)^-1 for each block of the layout and each of its K outputs,  p = 1 / K

This is the inverse second derivative of logistic regression at w = 0, without its terms between outputs: X are the rows of
a block over all examples, n is what the objective is divided by. Cost: one pass over the features and F^3 / 3 for each
block; an application costs F^2 K. Where one block has no X'X (networks, features by the thousand, squares that overflow) all
weights keep their own metric: blocks of different metrics would not go together. (The diagonal of X'X alone does not help
taggers.)
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.linalg import cho_factor, cho_solve

from backfield.training.protocols import HasGram, Minimisable

#: v -> H0 v
Metric = Callable[[np.ndarray], np.ndarray]
#: Share of each feature's curvature that is added to it, so that features that say the same have a solution without a ridge.
_REDUNDANT = 1e-8


def identity(v: np.ndarray) -> np.ndarray:
    """Return v: the metric of weights that are measured by themselves."""
    return v


def feature_metric(problem: Minimisable) -> Metric:
    """Return v -> H0 v from X'X of each block of weights; the identity where these are not known."""
    if not isinstance(problem, HasGram):
        return identity
    solvers = []
    for start, stop, n_outputs, gram, l2 in problem.grams():
        if gram is None or not np.isfinite(gram).all():
            return identity
        p = 1 / n_outputs
        solvers.append((start, stop, len(gram), _solver((p * (1 - p) / problem.size) * gram, 2 * l2)))

    def apply(v: np.ndarray) -> np.ndarray:
        out = np.empty_like(v)
        for start, stop, n_rows, solve in solvers:
            out[start:stop] = solve(v[start:stop].reshape(n_rows, -1)).reshape(-1)
        return out

    return apply


def _solver(curvature: np.ndarray, ridge: float) -> Metric:
    """Return the solver of (curvature + ridge) x = v, in units of each feature's curvature: scales do not matter."""
    matrix = curvature + ridge * np.eye(len(curvature))
    scale = np.sqrt(np.diagonal(matrix))[:, None]
    scale[scale == 0] = 1.0  # a feature that is always 0
    factor = cho_factor(matrix / (scale * scale.T) + _REDUNDANT * np.eye(len(matrix)), lower=True)
    return lambda v: np.asarray(cho_solve(factor, v / scale) / scale)
