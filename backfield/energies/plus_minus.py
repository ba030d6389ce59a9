"""Energies of labels coded -1 and +1 ([K05] §2): one number per variable and per pair.

    theta_i(x) = x s_i / 2,   s_i = w·h_i        (label 0 is x = -1, label 1 is x = +1)
    theta_ij(x, x') = x x' s_ij,   s_ij = v·mu_ij

# Differs from [K05]: its double sum over i and N_i counts every pair twice; here each counts once, so s is 2 v·mu.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from backfield.energies.base import Energy
from backfield.energies.linear import Linear
from backfield.errors import InputError
from backfield.kernels.arrays import product

#: How the score of a row enters its table.
_CODES = {2: np.array([-0.5, 0.5]), 4: np.array([1.0, -1.0, -1.0, 1.0])}


@dataclass(frozen=True, repr=False)
class PlusMinus(Energy, name="plus_minus"):
    """One weight per feature for binary labels: the association and interaction of discriminative random fields."""

    def n_weights(self, n_features: int, n_outputs: int, intercept: bool) -> int:
        """Return F + intercept."""
        _code(n_outputs)
        return n_features + intercept

    def scores(self, w: np.ndarray, features: Any, n_outputs: int, intercept: bool) -> np.ndarray:
        """Return the score of each row, times the code of each label."""
        return Linear().scores(w, features, 1, intercept) * _code(n_outputs).astype(features.dtype)

    def vjp(self, features: Any, d_scores: np.ndarray, intercept: bool, w: np.ndarray | None = None) -> np.ndarray:
        """Return the adjoint of the weights."""
        own = product(d_scores, _code(d_scores.shape[1]).astype(d_scores.dtype))
        return Linear().vjp(features, own[:, None], intercept)

    def in_units(self, units: np.ndarray, constant: float, n_outputs: int, intercept: bool) -> np.ndarray:
        """Return the unit of each feature."""
        return Linear().in_units(units, constant, 1, intercept)

    def gram(self, features: Any, intercept: bool) -> np.ndarray | None:
        """Return X'X of the features."""
        return Linear().gram(features, intercept)


def _code(n_outputs: int) -> np.ndarray:
    if n_outputs not in _CODES:
        raise InputError(f"plus_minus codes binary labels as -1 and +1, alone or in pairs; received a table of {n_outputs}.")
    return _CODES[n_outputs]
