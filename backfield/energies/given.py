"""Class probabilities that somebody else computed, such as a network's softmax, as the energy of variables.

    theta_i(a) = s log p_i(a)

The temperature 1 / s is learned: probabilities of networks are often too sure, and a field would follow. Nothing else is, so
that the unary terms alone predict what the probabilities do.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from backfield.energies.base import Energy
from backfield.errors import InputError


@dataclass(frozen=True, repr=False)
class Given(Energy, name="given"):
    """The logarithm of the last features of a row, one for each label, times a weight; they are kept above ``floor``."""

    floor: float = 1e-4

    def n_weights(self, n_features: int, n_outputs: int, intercept: bool) -> int:
        """Return 1."""
        if n_features < n_outputs:
            raise InputError(f"'given' needs a probability for each of {n_outputs} labels; there are {n_features} features.")
        return 1

    def scores(self, w: np.ndarray, features: Any, n_outputs: int, intercept: bool) -> np.ndarray:
        """Return s log p."""
        return np.asarray(features.dtype.type(w[0]) * self._logs(features, n_outputs))

    def vjp(self, features: Any, d_scores: np.ndarray, intercept: bool, w: np.ndarray | None = None) -> np.ndarray:
        """Return the adjoint of s."""
        logs = self._logs(features, d_scores.shape[1])
        return np.reshape(np.einsum("ia,ia->", logs, d_scores, dtype=np.float64), 1)

    def _logs(self, features: Any, n_outputs: int) -> np.ndarray:
        p = features[:, features.shape[1] - n_outputs :]
        # A little room: the rows of a softmax in float16 may add up to more than one.
        if p.size and not (p.min() >= 0 and p.max() <= 1.01):
            raise InputError(
                f"'given' needs probabilities within 0 and 1, received numbers from {p.min():g} to {p.max():g}: give the "
                "softmax of scores, not the scores."
            )
        return np.log(np.clip(p, features.dtype.type(self.floor), features.dtype.type(1)))
