"""Dense rows of features that stay where they are: scores and adjoints are two products of matrices, without the GIL.

    scores = X W,    d_W = X' d_scores,    d_b = 1' d_scores

Rows of scores are padded to the width that a kernel wants. The padding is in the bias alone, which is added by whoever reads
the scores: there it is -inf, a label that cannot be.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np


def padding(n_outputs: int, width: int) -> np.ndarray:
    """Return the bias of rows without one: 0, and -inf after the outputs."""
    return np.where(np.arange(width) < n_outputs, 0.0, -np.inf)


@dataclass(frozen=True, eq=False)
class LinearRows:
    """Rows (N, F) of a linear energy in double precision."""

    features: np.ndarray
    n_outputs: int
    width: int  # of scores: n_outputs and padding
    intercept: bool

    def __len__(self) -> int:
        return len(self.features)

    @property
    def n_entries(self) -> int:
        """Slopes and biases with their padding."""
        return (self.features.shape[1] + 1) * self.width

    def in_one_piece(self) -> LinearRows:
        """Return the rows as kernels take them: contiguous, and writeable."""
        return replace(self, features=np.require(self.features, np.float64, ["C", "W"]))

    def scores(self, w: np.ndarray, out: np.ndarray) -> np.ndarray:
        """Write scores (N, width) without the bias, and return it."""
        matrix = self.matrix(w)
        np.dot(self.features, matrix[:-1], out=out)
        bias: np.ndarray = matrix[-1]
        return bias

    def matrix(self, w: np.ndarray) -> np.ndarray:
        """Return slopes and, as the last row, the bias (F + 1, width)."""
        matrix = self._empty.copy()
        self.own(matrix)[:] = w.reshape(-1, self.n_outputs)
        return matrix

    def add_vjp(self, d_scores: np.ndarray, d_w: np.ndarray) -> None:
        """Add the adjoint of the weights, from that of the scores (N, width)."""
        d_matrix = np.empty_like(self._empty)
        np.dot(self.features.T, d_scores, out=d_matrix[:-1])
        np.dot(self._ones, d_scores, out=d_matrix[-1])
        d_w += self.own(d_matrix).reshape(-1)

    def own(self, matrix: np.ndarray) -> np.ndarray:
        """Return the part of a matrix of slopes and bias that is weights."""
        return matrix[: self.features.shape[1] + self.intercept, : self.n_outputs]

    @cached_property
    def _empty(self) -> np.ndarray:
        """The matrix of slopes and bias of weights that are 0."""
        slopes = np.zeros((self.features.shape[1], self.width))
        return np.concatenate([slopes, padding(self.n_outputs, self.width)[None]])

    @cached_property
    def _ones(self) -> np.ndarray:
        return np.ones(len(self.features))
