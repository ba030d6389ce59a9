"""The mean indicators of rows with missing values, under a model given what is known: the E step of EM.

    m = 1/N sum_r E[ f(x) | known values of row r ],      value = 1/N sum_r A(theta, known values of row r)

Rows with the same values are one. Under exact inference evidence enters the tables of the junction tree as zeros; other
methods run on blocks of rows, stacked, with observed labels. A step never lowers the likelihood of the known values where
inference is exact [DLR77].

[DLR77] Dempster, Laird and Rubin, Maximum likelihood from incomplete data via the EM algorithm, 1977.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from backfield.api import infer
from backfield.graph import Graph, Potentials
from backfield.graph.stacking import stack
from backfield.inference.exact.products import Products, Tables
from backfield.models.table_objectives import BLOCK
from backfield.registry import get


class Expectation:
    """Mean indicators of the rows of a table.

    Parameters
    ----------
    codes : (N, d) ints, -1 = missing
    graph : Graph
    inference : str
    products : Products, optional
        The junction tree, where inference is exact and it fits.
    """

    def __init__(self, codes: np.ndarray, graph: Graph, inference: Any, products: Products | None) -> None:
        self.graph, self.inference, self.products, self.n_rows = graph, inference, products, len(codes)
        self.cut = int(graph.layout.var_ptr[-1])
        self.n_theta = self.cut + int(graph.layout.table_ptr[-1])
        complete = (codes >= 0).all(axis=1)
        self.rows, self.counts = np.unique(codes[~complete], axis=0, return_counts=True)
        self.known = self._indicators(codes[complete])

    @property
    def is_complete(self) -> bool:
        """Whether no value is missing."""
        return not len(self.rows)

    def _indicators(self, codes: np.ndarray) -> np.ndarray:
        """Return the sum over complete rows of the indicators of states and pairs."""
        layout, out = self.graph.layout, np.zeros(self.n_theta)
        for i, start in enumerate(layout.var_ptr[:-1]):
            out += np.bincount(start + codes[:, i], minlength=self.n_theta)
        for c, (i, j) in enumerate(self.graph.factors):
            start = self.cut + layout.table_ptr[c]
            out += np.bincount(start + codes[:, i] * self.graph.labels[j] + codes[:, j], minlength=self.n_theta)
        return out

    def __call__(self, w: np.ndarray) -> tuple[float, np.ndarray]:
        """Return the mean of log Z given the known values, and m."""
        value, total = float(self.known @ w), self.known.copy()
        if len(self.rows):
            value, total = self._through_products(w, value, total) or self._through_blocks(w, value, total)
        return value / self.n_rows, total / self.n_rows

    def _through_products(self, w: np.ndarray, value: float, total: np.ndarray) -> tuple[float, np.ndarray] | None:
        """The same by the junction tree; None where there is none, or numbers underflow."""
        if self.products is None:
            return None
        tables = self.products.tables(w[: self.cut], w[self.cut :])
        owner = np.repeat(np.arange(self.graph.n_variables), self.graph.labels)
        label = np.arange(self.cut) - self.graph.layout.var_ptr[owner]
        total = total.copy()
        for row, count in zip(self.rows, self.counts, strict=True):
            known = row[owner]
            values = tables.values.copy()
            values[: self.cut] *= (known < 0) | (known == label)
            found = self.products.run(Tables(values, tables.constant))
            if found is None:
                return None
            value += count * found[0]
            total += count * found[1]
        return value, total

    def _through_blocks(self, w: np.ndarray, value: float, total: np.ndarray) -> tuple[float, np.ndarray]:
        total, every = total.copy(), np.repeat(self.rows, self.counts, axis=0)
        size = BLOCK if get("inference", self.inference).separable else 1
        for start in range(0, len(every), size):
            rows = every[start : start + size]
            graph = stack([self.graph] * len(rows)) if len(rows) > 1 else self.graph
            theta = Potentials.from_flat(graph, np.tile(w[: self.cut], len(rows)), np.tile(w[self.cut :], len(rows)))
            run = infer(theta, self.inference, observed=rows.ravel())
            total[: self.cut] += run.marginals.unary_flat.reshape(len(rows), -1).sum(axis=0)
            total[self.cut :] += run.marginals.factors_flat.reshape(len(rows), -1).sum(axis=0)
            value += run.log_partition
        return value, total
