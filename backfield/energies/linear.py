"""Linear energies ([D13] §8.1): theta_i = F u(y, i), theta_c = G v(y, c); constant and zero ones as their small cases."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from backfield.energies.base import Energy, TiedScores
from backfield.energies.linear_rows import LinearRows
from backfield.kernels.arrays import add_row, column_sums, product, row_products

#: Of more features there is no Gram matrix: it costs their square per row, and its Cholesky factor their cube.
_WIDE = 512


@dataclass(frozen=True, repr=False)
class Linear(Energy, name="linear"):
    """A weight per feature and output, and an intercept per output."""

    def n_weights(self, n_features: int, n_outputs: int, intercept: bool) -> int:
        """Return (F + intercept) K."""
        return (n_features + intercept) * n_outputs

    def scores(self, w: np.ndarray, features: Any, n_outputs: int, intercept: bool) -> np.ndarray:
        """Return features @ W + b; a row has the same bits whatever rows are around it."""
        matrix = w.reshape(-1, n_outputs).astype(features.dtype, copy=False)
        slopes, bias = matrix[: features.shape[1]], matrix[-1] if intercept else None
        if isinstance(features, np.ndarray):
            return row_products(features, slopes, bias)
        scores = product(features, slopes)
        if bias is not None:
            add_row(scores, bias)
        return scores

    def tables(self, w: np.ndarray, features: Any, n_outputs: int, intercept: bool) -> TiedScores | None:
        """Return W, with the features as scales."""
        if not isinstance(features, np.ndarray) or features.ndim != 2 or features.shape[1] + intercept == 0:
            return None
        matrix = w.reshape(-1, n_outputs).astype(features.dtype, copy=False)
        return TiedScores(matrix, features if features.shape[1] else None)

    def tables_vjp(self, d_tables: np.ndarray) -> np.ndarray:
        """Return the tables: they are the weights."""
        return d_tables.reshape(-1)

    def vjp(self, features: Any, d_scores: np.ndarray, intercept: bool, w: np.ndarray | None = None) -> np.ndarray:
        """Return features' d_scores, and their sum for the intercept."""
        d_matrix = np.asarray(product(features.T, d_scores), dtype=np.float64)
        if intercept:
            d_matrix = np.concatenate([d_matrix, column_sums(d_scores)[None]], dtype=np.float64)
        return d_matrix.reshape(-1)

    def prepared(self, features: Any, n_outputs: int, intercept: bool, width: int) -> LinearRows | None:
        """Return dense rows."""
        return LinearRows(features, n_outputs, width, intercept) if isinstance(features, np.ndarray) else None

    def in_units(self, units: np.ndarray, constant: float, n_outputs: int, intercept: bool) -> np.ndarray:
        """Return the unit of each feature, once per output."""
        return np.repeat(np.append(units, [constant] * intercept), n_outputs)

    def gram(self, features: Any, intercept: bool) -> np.ndarray | None:
        """Return X'X, with a column of ones for the intercept."""
        n_rows, n_features = features.shape
        if n_features > _WIDE:
            return None
        if n_features == 0:
            return np.full((int(intercept),) * 2, float(n_rows))
        # Squares of single precision overflow, and its rounding leaves matrices that are not definite.
        features = features.astype(np.float64, copy=False)
        with np.errstate(over="ignore", invalid="ignore"):  # who uses the matrix looks whether it is finite
            squares = np.dot(features.T, features) if isinstance(features, np.ndarray) else (features.T @ features).todense()
        gram = np.asarray(squares)
        if not intercept:
            return gram
        sums = np.asarray(features.sum(axis=0)).reshape(-1)
        return np.block([[gram, sums[:, None]], [sums, np.array(n_rows, dtype=np.float64)]])


@dataclass(frozen=True, repr=False)
class Constant(Energy, name="constant"):
    """The same scores for every row, whatever its features."""

    def n_weights(self, n_features: int, n_outputs: int, intercept: bool) -> int:
        """Return K."""
        return n_outputs

    def scores(self, w: np.ndarray, features: Any, n_outputs: int, intercept: bool) -> np.ndarray:
        """Return the constants, once per row."""
        return np.repeat(w[None].astype(features.dtype), features.shape[0], axis=0)

    def tables(self, w: np.ndarray, features: Any, n_outputs: int, intercept: bool) -> TiedScores:
        """Return the one table."""
        return TiedScores(w[None].astype(features.dtype), None)

    def tables_vjp(self, d_tables: np.ndarray) -> np.ndarray:
        """Return the tables: they are the weights."""
        return d_tables.reshape(-1)

    def vjp(self, features: Any, d_scores: np.ndarray, intercept: bool, w: np.ndarray | None = None) -> np.ndarray:
        """Return the sum of the adjoints."""
        return column_sums(d_scores).astype(np.float64, copy=False)

    def gram(self, features: Any, intercept: bool) -> np.ndarray:
        """Return the number of rows."""
        return np.array([[float(features.shape[0])]])


@dataclass(frozen=True, repr=False)
class Zero(Energy, name="zero"):
    """No scores at all."""

    def n_weights(self, n_features: int, n_outputs: int, intercept: bool) -> int:
        """Return 0."""
        return 0

    def scores(self, w: np.ndarray, features: Any, n_outputs: int, intercept: bool) -> np.ndarray:
        """Return zeros."""
        return np.zeros((features.shape[0], n_outputs), features.dtype)

    def tables(self, w: np.ndarray, features: Any, n_outputs: int, intercept: bool) -> TiedScores:
        """Return a table of zeros."""
        return TiedScores(np.zeros((1, n_outputs), features.dtype), None)

    def tables_vjp(self, d_tables: np.ndarray) -> np.ndarray:
        """Return nothing."""
        return np.empty(0)

    def vjp(self, features: Any, d_scores: np.ndarray, intercept: bool, w: np.ndarray | None = None) -> np.ndarray:
        """Return nothing."""
        return np.empty(0)
