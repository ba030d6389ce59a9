"""The misspecified chain of [D13] §4.3, for Figures 1 and 2.

Truth: x_1 .. x_n and y_1 .. y_n, all binary, on a ladder: theta(x_i) drawn from [-1, 1], and couplings ±t on the edges
(x_i, x_i+1), (y_i, y_i+1), (x_i, y_i), t drawn from [-1, 1]. Model: p(x | y), a chain in x with y_i attached to x_i, each
edge and variable with its own parameters. After sampling, x is shifted around a circle, so y_i stands beside the
wrong x_i: without a shift the model is right, with one it is not.

# Differs from [D13]: samples are exact (forward filtering, backward sampling over the pairs (x_i, y_i)) and not from a
# Markov chain, which it uses; the length n, the shifts and the amounts of data are not in its text.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import minimize
from scipy.special import logsumexp

from backfield.api import infer, prepare
from backfield.graph import Graph, Potentials

#: What the figures compare, by the name in their legends.
LOSSES = {
    "likelihood": "surrogate_likelihood",
    "univariate logistic": "univariate_logistic",
    "clique logistic": "clique_logistic",
}
L2 = 1e-4
MAX_ITER = 100
_EQUAL = np.array([[1.0, -1.0], [-1.0, 1.0]])


class Truth(NamedTuple):
    """Parameters of the ladder that the data come from."""

    unary: np.ndarray  # (n, 2)
    along_x: np.ndarray  # (n - 1,) couplings
    along_y: np.ndarray  # (n - 1,)
    across: np.ndarray  # (n,)


class Data(NamedTuple):
    """Examples: inputs and labels, (m, n)."""

    y: np.ndarray
    x: np.ndarray

    def shifted(self, shift: int) -> Data:
        """Return the same examples with x moved around a circle."""
        return Data(self.y, np.roll(self.x, shift, axis=1))


def random_truth(n: int, rng: np.random.Generator) -> Truth:
    """Draw a distribution."""
    return Truth(*(rng.uniform(-1, 1, size=size) for size in ((n, 2), n - 1, n - 1, n)))


def sample(truth: Truth, count: int, rng: np.random.Generator) -> Data:
    """Draw ``count`` examples from the joint distribution of x and y, exactly."""
    n = len(truth.across)
    local = truth.unary[:, :, None] + truth.across[:, None, None] * _EQUAL  # (n, x, y)
    pair = (
        truth.along_x[:, None, None, None, None] * _EQUAL[:, None, :, None]
        + truth.along_y[:, None, None, None, None] * _EQUAL[None, :, None, :]
    )  # (n - 1, x, y, x', y')
    forward = np.empty((n, 4))
    forward[0] = local[0].reshape(4)
    tables = pair.reshape(n - 1, 4, 4)
    for i in range(1, n):
        forward[i] = local[i].reshape(4) + logsumexp(forward[i - 1][:, None] + tables[i - 1], axis=0)
    states = np.empty((count, n), dtype=np.int64)
    scores = np.broadcast_to(forward[-1], (count, 4))
    for i in range(n - 1, -1, -1):
        if i < n - 1:
            scores = forward[i] + tables[i][:, states[:, i + 1]].T
        states[:, i] = (scores + rng.gumbel(size=(count, 4))).argmax(axis=1)
    return Data(states % 2, states // 2)


def true_marginals(truth: Truth, y: np.ndarray) -> np.ndarray:
    """Return p(x_i = 1 | y) of the ladder, (m, n): given y it is a chain."""
    parameters = np.concatenate(
        [
            truth.unary.ravel(),
            (truth.across[:, None, None] * _EQUAL).ravel(),
            (truth.along_x[:, None, None] * _EQUAL).ravel(),
        ]
    )
    return ChainModel(y).marginals(parameters)


class ChainModel:
    """p(x | y) for many inputs at once: a union of chains whose parameters are shared over examples."""

    def __init__(self, y: np.ndarray) -> None:
        self.y = y
        count, n = y.shape
        first = np.arange(count * n).reshape(count, n)
        self.graph = Graph.from_edges(np.stack([first[:, :-1].ravel(), first[:, 1:].ravel()], axis=1), count * n)
        self.n_parameters = 2 * n + 4 * n + 4 * (n - 1)

    def potentials(self, parameters: np.ndarray) -> Potentials:
        """Return theta of all examples."""
        count, n = self.y.shape
        unary, beside, along = np.split(parameters, [2 * n, 6 * n])
        by_input = beside.reshape(n, 2, 2).transpose(0, 2, 1)  # (n, y, x)
        theta = unary.reshape(n, 2) + by_input[np.arange(n), self.y]
        tables = np.broadcast_to(along.reshape(n - 1, 4), (count, n - 1, 4))
        return Potentials.from_flat(self.graph, theta.ravel(), tables.ravel())

    def collect(self, d_theta: Potentials) -> np.ndarray:
        """Return the adjoint of the parameters: the vjp of :meth:`potentials`."""
        count, n = self.y.shape
        each = d_theta.unary_flat.reshape(count, n, 2)
        unary = each.sum(axis=0)
        beside = np.empty((n, 2, 2))
        beside[:, :, 1] = np.einsum("mnx,mn->nx", each, self.y)
        beside[:, :, 0] = unary - beside[:, :, 1]
        along = d_theta.factors_flat.reshape(count, -1).sum(axis=0)
        return np.concatenate([unary.ravel(), beside.ravel(), along])

    def marginals(self, parameters: np.ndarray) -> np.ndarray:
        """Return p(x_i = 1 | y), (m, n)."""
        return infer(self.potentials(parameters), "chain").unary[:, 1].reshape(self.y.shape)

    def fit(self, x: np.ndarray, loss: str) -> np.ndarray:
        """Return the parameters that minimise the mean loss of an example + L2 |parameters|^2, by L-BFGS from zero."""
        count = len(x)
        start = np.zeros(self.n_parameters)
        objective, setting, target = prepare(self.potentials(start), x.ravel(), loss, "chain", None, None, None, 0)

        def function(parameters: np.ndarray) -> tuple[float, np.ndarray]:
            value, d_theta = objective.value_and_dtheta(self.potentials(parameters), target, setting)
            gradient = self.collect(d_theta) / count + 2 * L2 * parameters
            return float(value) / count + L2 * float(parameters @ parameters), gradient

        return np.asarray(minimize(function, start, jac=True, method="L-BFGS-B", options={"maxiter": MAX_ITER}).x)


def error(truth: Truth, parameters: np.ndarray | None, test: Data, shift: int) -> float:
    """Return the share of variables that the marginals get wrong; those of the truth itself without parameters."""
    if parameters is None:
        found = np.roll(true_marginals(truth, test.y), shift, axis=1)
    else:
        found = ChainModel(test.y).marginals(parameters)
    return float(((found > 0.5) != test.shifted(shift).x).mean())


def settings(**more: Any) -> dict[str, Any]:
    """Return what both figures share."""
    text = {"sampling": "exact instead of MCMC", "l2": L2, "max_iter": MAX_ITER, "learner": "L-BFGS from zero"}
    return {**text, "inference": "chain (exact)", "losses": LOSSES, **more}
