"""Gaussian filtering written out: K_ij = exp(-|f_i - f_j|^2 / 2), the truth that the other filters approximate.

    d_f_i = - sum_j S_ij (f_i - f_j),   S = (G P' + P G') * K entry by entry,   G = diag(after) d_out,   P = diag(before) q

Any dimension. Rows of K are computed some at a time, and products with them are BLAS's. Of few points K is kept, as it is
needed in every sweep; of others it is computed again. Cost O(n^2 (d + C)), memory O(n).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from backfield.kernels.arrays import product
from backfield.kernels.compile import kernel
from backfield.kernels.gaussian.base import Collector, check_bandwidths, check_features, float_type, scaled_features
from backfield.kernels.vector_math import vector_exp

#: Entries of K that are computed at a time, and of a matrix that is kept.
_AT_ONCE, _KEPT = 2**19, 2**22


class Exact:
    """The filter of points with features (n, d), without approximation.

    Parameters
    ----------
    features
        (n, d) real numbers.
    bandwidths
        One for all features, or one for each.
    dtype
        Of the values: float32 or float64. Distances are computed in float64.
    """

    def __init__(self, features: Any, bandwidths: Any = 1.0, dtype: Any = np.float64) -> None:
        raw = check_features(features)
        self.n, self.d = raw.shape
        self.dtype = float_type(dtype)
        self.bandwidths = check_bandwidths(bandwidths, self.d)
        self.features = scaled_features(raw, self.bandwidths)
        self._columns = np.ascontiguousarray(self.features.T)
        self._matrix: np.ndarray | None = None

    def matrix(self) -> np.ndarray:
        """Return K (n, n)."""
        return np.concatenate([rows for _, rows in self._rows()])

    def apply(self, q: np.ndarray, before: np.ndarray, after: np.ndarray, out: np.ndarray) -> None:
        """Add diag(after) K diag(before) q to ``out``."""
        values = before[:, None] * q
        for part, rows in self._rows():
            out[part] += after[part, None] * product(rows, values)

    def transpose(self, d_out: np.ndarray, before: np.ndarray, after: np.ndarray, d_q: np.ndarray) -> None:
        """Add diag(before) K' diag(after) d_out to ``d_q``; K is symmetric."""
        self.apply(d_out, after, before, d_q)

    def vjp(
        self, q: np.ndarray, d_out: np.ndarray, before: np.ndarray, after: np.ndarray, d_q: np.ndarray, d: Collector
    ) -> None:
        """Add the adjoints of q, of the features and of the scales."""
        values, d_sums = before[:, None] * q, after[:, None] * d_out
        for part, rows in self._rows():
            sums, d_values = product(rows, values), product(rows, d_sums)
            d_q[part] += before[part, None] * d_values
            d.after[part] += np.einsum("ia,ia->i", d_out[part], sums)
            d.before[part] += np.einsum("ia,ia->i", q[part], d_values)
            both = np.concatenate([d_sums[part], values[part]], axis=1)
            pairs = product(both, np.concatenate([values, d_sums], axis=1).T)
            pairs *= rows
            _add_steps(part.start, pairs, self._columns, d.parameters)

    def collector(self) -> Collector:
        """Return an empty collector; parameters are the features divided by their bandwidths (n, d)."""
        return Collector.empty(self.features, self.n, self.dtype)

    def diagonal(self) -> np.ndarray:
        """Return K_ii = 1."""
        return np.ones(self.n, self.dtype)

    def diagonal_vjp(self, d_diagonal: np.ndarray, d: Collector) -> None:
        """Do nothing: K_ii is constant."""

    def features_vjp(self, d: Collector) -> np.ndarray:
        """Return the adjoint of the features divided by their bandwidths: (n, d) float64."""
        return d.parameters

    def bandwidths_vjp(self, d: Collector) -> np.ndarray:
        """Return the adjoint of the bandwidths (d,)."""
        return -np.einsum("ij,ij->j", self.features_vjp(d), self.features) / self.bandwidths

    def _rows(self) -> Iterator[tuple[slice, np.ndarray]]:
        """Yield some rows of K at a time: which they are, and the rows."""
        if self.n**2 <= _KEPT:
            if self._matrix is None:
                self._matrix = self._compute(0, self.n)
            yield slice(0, self.n), self._matrix
            return
        step = max(1, _AT_ONCE // self.n)
        for first in range(0, self.n, step):
            last = min(first + step, self.n)
            yield slice(first, last), self._compute(first, last)

    def _compute(self, first: int, last: int) -> np.ndarray:
        rows = np.empty((last - first, self.n))
        _weights(first, self._columns, rows)
        return rows.astype(self.dtype, copy=False)


@kernel
def _weights(first, columns, rows):
    """Write the rows of K from ``first`` on."""
    for i in range(len(rows)):
        row = rows[i]
        for j in range(len(row)):
            row[j] = 0.0
        for k in range(len(columns)):
            column = columns[k]
            here = column[first + i]
            for j in range(len(row)):
                row[j] += (here - column[j]) ** 2
        for j in range(len(row)):
            row[j] = vector_exp(-0.5 * row[j])


@kernel
def _add_steps(first, pairs, columns, d_f):
    """Add - sum_j S_ij (f_i - f_j) to the adjoint of the points from ``first`` on."""
    for i in range(len(pairs)):
        row = pairs[i]
        for k in range(len(columns)):
            column = columns[k]
            here, total = column[first + i], 0.0
            for j in range(len(row)):
                total += row[j] * (here - column[j])
            d_f[first + i, k] -= total
