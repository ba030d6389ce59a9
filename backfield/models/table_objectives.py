"""What a Markov network of a table is fitted by: values and gradients with respect to one theta for all rows.

*Likelihood*, exact or through any inference (then it is the surrogate likelihood): with m the mean over rows of the
indicators of states and pairs of states,

    value = A(theta) - theta·m,      gradient = mu(theta) - m.

Where values are missing, m is their mean under the model given what is known (``expectation``).

*Pseudolikelihood*: the mean over rows of - sum_i log p(x_i | neighbours that are known), i over the known columns.

*Rows*: the mean over rows of any objective of the library. A loss on marginals asks: of the known values a random share
is asked for, given the others.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from backfield.api import infer, prepare
from backfield.graph import Graph, Potentials
from backfield.graph.stacking import stack
from backfield.inference.exact.elimination import TooLargeError
from backfield.inference.exact.products import Products
from backfield.objectives import Marginal, evaluate, get_objective

#: Rows that are stacked into one graph.
BLOCK = 128
#: Most entries of cliques that are multiplied as probabilities.
MAX_PRODUCTS = 2**26


class Likelihood:
    """Minus the log-likelihood per row of given mean indicators, through an inference method."""

    def __init__(self, mean: np.ndarray, graph: Graph, inference: Any, products: Products | None) -> None:
        self.mean, self.graph, self.inference, self.products = mean, graph, inference, products
        self.cut = int(graph.layout.var_ptr[-1])

    def log_partition(self, w: np.ndarray) -> tuple[float, np.ndarray]:
        """Return A(theta) and mu."""
        found = None if self.products is None else self.products.run(self.products.tables(w[: self.cut], w[self.cut :]))
        if found is None:
            run = infer(Potentials.from_flat(self.graph, w[: self.cut].copy(), w[self.cut :].copy()), self.inference)
            found = run.log_partition, run.marginals.vector()
        return found

    def __call__(self, w: np.ndarray) -> tuple[float, np.ndarray]:
        """Return value and gradient."""
        value, mu = self.log_partition(w)
        return value - float(w @ self.mean), mu - self.mean


def exact_products(graph: Graph, inference: Any) -> Products | None:
    """Return the junction tree of probabilities where inference is exact and it fits; else the method itself answers."""
    if inference != "exact":
        return None
    try:
        return Products(graph, MAX_PRODUCTS)
    except TooLargeError:  # exact itself will say what it would need
        return None


class Rows:
    """The mean over rows of an objective of the library.

    Parameters
    ----------
    codes : (N, d) ints, -1 = missing
    graph : Graph
    objective : str
    inference : str
    asked : float
        Under a loss on marginals: the share of known values that are asked for given the others.
    seed : int
    """

    def __init__(self, codes: np.ndarray, graph: Graph, objective: str, inference: Any, asked: float, seed: int) -> None:
        self.n_rows, self.graph = len(codes), graph
        self.cut = int(graph.layout.var_ptr[-1])
        labels, observed = codes, None
        if isinstance(get_objective(objective), Marginal):
            hidden = np.random.default_rng(seed).random(codes.shape) < asked
            labels, observed = np.where(hidden, codes, -1), np.where(hidden, -1, codes)
        single = Potentials.from_flat(graph, *self._tiled(np.zeros(self.n_theta), 1))
        _, setting, _ = prepare(single, np.full(graph.n_variables, -1), objective, inference, None, None, None, seed)
        size = BLOCK if get_objective(objective).separable(single, setting) else 1
        self.blocks = []
        for start in range(0, len(codes), size):
            part = slice(start, start + size)
            count = len(codes[part])
            stacked = graph if count == 1 else stack([graph] * count)
            theta = Potentials.from_flat(stacked, *self._tiled(np.zeros(self.n_theta), count))
            known = None if observed is None else observed[part].ravel()
            self.blocks.append(
                (count, stacked, prepare(theta, labels[part].ravel(), objective, inference, None, known, None, seed))
            )

    @property
    def n_theta(self) -> int:
        """How many numbers theta has."""
        return self.cut + int(self.graph.layout.table_ptr[-1])

    def _tiled(self, w: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
        return np.tile(w[: self.cut], count), np.tile(w[self.cut :], count)

    def __call__(self, w: np.ndarray) -> tuple[float, np.ndarray]:
        """Return value and gradient."""
        value, gradient = 0.0, np.zeros_like(w)
        for count, graph, (objective, setting, target) in self.blocks:
            part, d_theta = evaluate(objective, Potentials.from_flat(graph, *self._tiled(w, count)), target, setting)
            value += float(part)
            gradient[: self.cut] += d_theta.unary_flat.reshape(count, -1).sum(axis=0)
            gradient[self.cut :] += d_theta.factors_flat.reshape(count, -1).sum(axis=0)
        return value / self.n_rows, gradient / self.n_rows


class Pseudolikelihood:
    """Minus the log-pseudolikelihood per row; neighbours that are missing are left out."""

    def __init__(self, codes: np.ndarray, graph: Graph) -> None:
        self.codes, self.graph = codes, graph
        layout = graph.layout
        cut = int(layout.var_ptr[-1])
        self.unary_at = layout.var_ptr.tolist()
        self.table_at = (cut + layout.table_ptr).tolist()
        self.near: list[list[tuple[int, int, bool]]] = [[] for _ in range(graph.n_variables)]
        for c, (i, j) in enumerate(graph.factors):
            self.near[int(i)].append((c, int(j), True))
            self.near[int(j)].append((c, int(i), False))

    def __call__(self, w: np.ndarray) -> tuple[float, np.ndarray]:
        """Return value and gradient."""
        value, gradient = 0.0, np.zeros_like(w)
        for i in range(self.graph.n_variables):
            value += self._column(i, w, gradient)
        return value / len(self.codes), gradient / len(self.codes)

    def _table(self, c: int, values: np.ndarray) -> np.ndarray:
        i, j = self.graph.factors[c]
        shape = int(self.graph.labels[i]), int(self.graph.labels[j])
        return values[self.table_at[c] : self.table_at[c + 1]].reshape(shape)

    def _logits(self, i: int, w: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """Return log p(x_i | known neighbours) of some rows, up to a constant of each."""
        logits = np.tile(w[self.unary_at[i] : self.unary_at[i + 1]], (len(rows), 1))
        for c, j, first in self.near[i]:
            table, known = self._table(c, w), rows[:, j] >= 0
            logits[known] += (table.T if first else table)[rows[known, j]]
        return logits

    def conditional(self, i: int, w: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return in which rows all neighbours of i are known, and p(x_i | neighbours) there."""
        known = np.asarray((self.codes[:, [j for _, j, _ in self.near[i]]] >= 0).all(axis=1))
        logits = self._logits(i, w, self.codes[known])
        p = np.exp(logits - logits.max(axis=1, keepdims=True))
        return known, p / p.sum(axis=1, keepdims=True)

    def _column(self, i: int, w: np.ndarray, gradient: np.ndarray) -> float:
        rows = self.codes[self.codes[:, i] >= 0]
        own = slice(self.unary_at[i], self.unary_at[i + 1])
        logits = self._logits(i, w, rows)
        top = logits.max(axis=1, keepdims=True)
        p = np.exp(logits - top)
        total = p.sum(axis=1, keepdims=True)
        at = np.arange(len(rows)), rows[:, i]
        loss = float((top[:, 0] + np.log(total[:, 0]) - logits[at]).sum())
        error = p / total
        error[at] -= 1
        gradient[own] += error.sum(axis=0)
        for c, j, first in self.near[i]:
            known = rows[:, j] >= 0
            sums = np.zeros((int(self.graph.labels[j]), error.shape[1]))
            np.add.at(sums, rows[known, j], error[known])
            self._table(c, gradient)[...] += sums.T if first else sums
        return loss
