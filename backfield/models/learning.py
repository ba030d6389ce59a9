"""How the weights of a Markov network are moved: L-BFGS on a loss of theta, and EM where values are missing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from backfield.graph import Graph
from backfield.inference.auto.descent import minimise
from backfield.kernels.compiling import clock
from backfield.models.expectation import Expectation
from backfield.models.table_objectives import Likelihood, exact_products
from backfield.models.tying import Tying

#: Steps of EM at the most, and the fall of the loss below which they end.
STEPS, LEAST = 200, 1e-6
#: Weights of the tables of hidden columns start at so many times a standard normal number.
SCALE = 0.5


class Weights:
    """Weights with a penalty, which become theta through their tying."""

    def __init__(self, tying: Tying, l2: float) -> None:
        self.tying, self.l2 = tying, l2

    def penalty(self, w: np.ndarray) -> float:
        """Return l2 |w|^2."""
        return self.l2 * float(w @ w)

    def start(self, graph: Graph, codes: np.ndarray, seed: int) -> np.ndarray:
        """Return zeros, and random numbers at the tables of columns of which no value is known: zeros would stay."""
        unseen = np.asarray((codes < 0).all(axis=0))
        theta = np.zeros(len(self.tying.index))
        rng, cut = np.random.default_rng(seed), int(graph.layout.var_ptr[-1])
        for c, (i, j) in enumerate(graph.factors):
            if unseen[i] or unseen[j]:
                span = slice(cut + int(graph.layout.table_ptr[c]), cut + int(graph.layout.table_ptr[c + 1]))
                theta[span] = SCALE * rng.normal(size=span.stop - span.start)
        return self.tying.gradient(theta) / np.bincount(self.tying.index)

    def move(self, loss: Callable[[np.ndarray], tuple[float, np.ndarray]], w: np.ndarray, deadline: float) -> np.ndarray:
        """Return the weights of the least penalised loss found until ``deadline``."""

        def penalised(w: np.ndarray) -> tuple[float, np.ndarray]:
            value, d_theta = loss(self.tying.theta(w))
            return value + self.penalty(w), self.tying.gradient(d_theta) + 2 * self.l2 * w

        return minimise(penalised, w, deadline, tol=1e-9)

    def fit(self, loss: Callable[[np.ndarray], tuple[float, np.ndarray]], deadline: float) -> tuple[np.ndarray, float]:
        """Return theta of the least penalised loss, and its value."""
        w = self.move(loss, np.zeros(self.tying.n_weights), deadline)
        theta = self.tying.theta(w)
        return theta, loss(theta)[0] + self.penalty(w)


def expectation_maximisation(
    codes: np.ndarray, graph: Graph, inference: Any, weights: Weights, w: np.ndarray, deadline: float
) -> tuple[np.ndarray, float]:
    """Return theta of the largest likelihood of the known values, and the penalised loss per row.

    One step where nothing is missing; else means under the model and weights by turns, until the loss stops falling.
    """
    products = exact_products(graph, inference)
    expectation = Expectation(codes, graph, inference, products)
    before = np.inf
    for _ in range(STEPS):
        known, mean = expectation(weights.tying.theta(w))
        loss = Likelihood(mean, graph, inference, products)
        value = loss.log_partition(weights.tying.theta(w))[0] - known + weights.penalty(w)
        if clock() > deadline or before - value <= LEAST * (1 + abs(value)):
            break
        before, w = value, weights.move(loss, w, deadline)
        if expectation.is_complete:
            value = loss(weights.tying.theta(w))[0] + weights.penalty(w)
            break
    return weights.tying.theta(w), value
