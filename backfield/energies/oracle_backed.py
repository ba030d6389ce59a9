"""Energies that an oracle fits ([L13]): theta = eps f(features), with f a tree ensemble, a network, or anything else."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from backfield.energies.base import Energy
from backfield.oracles import Oracle, OracleFunction


class OracleEnergy(Energy):
    """The function that an oracle fitted, times ``eps``; it has no weights. Not registered: named by the oracle."""

    linear: ClassVar[bool] = False

    def __init__(self, oracle: Oracle, eps: float, function: OracleFunction | None = None) -> None:
        self.oracle, self.eps, self.function = oracle, eps, function

    def __repr__(self) -> str:
        return repr(self.oracle)

    def n_weights(self, n_features: int, n_outputs: int, intercept: bool) -> int:
        """Return 0."""
        return 0

    def scores(self, w: np.ndarray, features: Any, n_outputs: int, intercept: bool) -> np.ndarray:
        """Return eps f(features); zeros before the first fit."""
        if self.function is None:
            return np.zeros((features.shape[0], n_outputs), features.dtype)
        return (self.eps * self.function.scores(dense(features))).astype(features.dtype, copy=False)

    def vjp(self, features: Any, d_scores: np.ndarray, intercept: bool, w: np.ndarray | None = None) -> np.ndarray:
        """Return nothing."""
        return np.empty(0)


def dense(features: Any) -> np.ndarray:
    """Return features as an array; oracles take no CSR matrices."""
    return features.toarray() if hasattr(features, "toarray") else features
