"""One table for all factors of a type, with weights only for the entries that occur in training.

    theta_c(x_c) = w[x_c]   for the entries x_c of the pattern, 0 for the others

CRFsuite's transitions: two labels that never follow each other in training have no weight. They are not forbidden; that is
what constraints are for.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from backfield.energies.base import Energy, TiedScores
from backfield.errors import InputError
from backfield.indices import are_indices
from backfield.kernels.arrays import column_sums


@dataclass(frozen=True, repr=False)
class ObservedConstant(Energy, name="observed_constant"):
    """The same scores for every factor, with a weight per entry of their table that occurs in training.

    Parameters
    ----------
    min_count
        Entries that occur less often have no weight.
    """

    min_count: float = 1.0

    def bind(self, places: np.ndarray, n_outputs: int) -> BoundConstant:
        """Return the energy with its pattern: the entries of the table that have weights, in order."""
        if places.ndim != 1 or not are_indices(places, n_outputs) or (np.diff(places) <= 0).any():
            raise InputError(f"the pattern of observed_constant does not hold entries of a table of {n_outputs}, in order.")
        return BoundConstant(places)

    def n_weights(self, n_features: int, n_outputs: int, intercept: bool) -> int:
        """Refuse: the pattern is not known yet, or not looked for."""
        raise InputError("observed_constant is for the factors of chains and other graphs (pairwise=).")


class BoundConstant(ObservedConstant):
    """An :class:`ObservedConstant` that knows its pattern."""

    def __init__(self, places: np.ndarray) -> None:
        object.__setattr__(self, "places", np.ascontiguousarray(places, dtype=np.int64))

    places: np.ndarray

    def __repr__(self) -> str:
        return "observed_constant"

    def n_weights(self, n_features: int, n_outputs: int, intercept: bool) -> int:
        """Return the number of entries; features of factors are refused."""
        if n_features:
            raise InputError(f"observed_constant takes factors without features, received {n_features}; use 'linear'.")
        return len(self.places)

    def _table(self, w: np.ndarray, n_outputs: int, dtype: Any) -> np.ndarray:
        table = np.zeros((1, n_outputs), dtype)
        table[0, self.places] = w
        return table

    def scores(self, w: np.ndarray, features: Any, n_outputs: int, intercept: bool) -> np.ndarray:
        """Return the table, once per row."""
        return np.repeat(self._table(w, n_outputs, features.dtype), features.shape[0], axis=0)

    def tables(self, w: np.ndarray, features: Any, n_outputs: int, intercept: bool) -> TiedScores:
        """Return the one table."""
        return TiedScores(self._table(w, n_outputs, features.dtype), None)

    def tables_vjp(self, d_tables: np.ndarray) -> np.ndarray:
        """Return the entries of the pattern."""
        return d_tables.reshape(-1)[self.places]

    def vjp(self, features: Any, d_scores: np.ndarray, intercept: bool, w: np.ndarray | None = None) -> np.ndarray:
        """Return the sum of the adjoints of each entry of the pattern."""
        return column_sums(d_scores).astype(np.float64, copy=False)[self.places]

    def gram(self, features: Any, intercept: bool) -> np.ndarray:
        """Return the number of rows."""
        return np.array([[float(features.shape[0])]])
