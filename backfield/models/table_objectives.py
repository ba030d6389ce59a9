"""What a Markov network of a table is fitted by: values and gradients with respect to one theta for all rows.

*Likelihood*, exact or through any inference (then it is the surrogate likelihood): with m the frequencies of states and
pairs of states, each over the rows that have them,

    value = A(theta) - theta·m,      gradient = mu(theta) - m.

*Pseudolikelihood*: the mean over rows of - sum_i log p(x_i | neighbours that are known), i over the known columns.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from backfield.api import infer
from backfield.graph import Graph, Potentials
from backfield.inference.exact.elimination import TooLargeError
from backfield.inference.exact.products import Products
from backfield.models.structure import pair_counts


class Likelihood:
    """Minus the log-likelihood per row, through an inference method."""

    def __init__(self, codes: np.ndarray, graph: Graph, inference: Any) -> None:
        self.graph, self.inference = graph, inference
        self.cut = int(graph.layout.var_ptr[-1])
        labels = graph.labels.tolist()
        unary = [np.bincount(codes[codes[:, i] >= 0, i], minlength=count) for i, count in enumerate(labels)]
        pairs = [pair_counts(codes, labels, int(i), int(j)) for i, j in graph.factors]
        self.frequencies = np.concatenate([_shares(table.ravel()) for table in [*unary, *pairs]])
        self.products = None
        if inference == "exact":
            try:
                self.products = Products(graph, 2**26)
            except TooLargeError:  # exact itself will say what it would need
                self.products = None

    def __call__(self, w: np.ndarray) -> tuple[float, np.ndarray]:
        """Return value and gradient."""
        found = None if self.products is None else self.products.run(self.products.tables(w[: self.cut], w[self.cut :]))
        if found is None:
            theta = Potentials.from_flat(self.graph, w[: self.cut].copy(), w[self.cut :].copy())
            run = infer(theta, self.inference)
            found = run.log_partition, run.marginals.vector()
        return found[0] - float(w @ self.frequencies), found[1] - self.frequencies


def _shares(counts: np.ndarray) -> np.ndarray:
    total = counts.sum()
    return counts / total if total else np.full(len(counts), 1 / len(counts))


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

    def _column(self, i: int, w: np.ndarray, gradient: np.ndarray) -> float:
        rows = self.codes[self.codes[:, i] >= 0]
        own = slice(self.unary_at[i], self.unary_at[i + 1])
        logits = np.tile(w[own], (len(rows), 1))
        for c, j, first in self.near[i]:
            table, known = self._table(c, w), rows[:, j] >= 0
            logits[known] += (table.T if first else table)[rows[known, j]]
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
