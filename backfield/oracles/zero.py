"""f = 0: the term is not learned ("zero" in [L13] Table 1)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np

from backfield.oracles.base import Oracle, OracleFunction, OracleTask, Sums


class ZeroFunction(OracleFunction):
    """f(x, y) = 0."""

    def __init__(self, n_classes: int) -> None:
        self.n_classes = n_classes

    def scores(self, features: np.ndarray) -> np.ndarray:
        """Return zeros, (N, K)."""
        return np.zeros((len(features), self.n_classes))

    def arrays(self) -> dict[str, np.ndarray]:
        """Return no arrays."""
        return {}

    @classmethod
    def from_arrays(cls, arrays: dict[str, np.ndarray], meta: dict[str, Any]) -> Self:
        """Make the function again."""
        return cls(int(meta["n_classes"]))


@dataclass(frozen=True, repr=False)
class Zero(Oracle, name="zero"):
    """No function: all scores are 0."""

    supports_soft_targets: ClassVar[bool] = True
    sums: ClassVar[bool] = True
    function_class: ClassVar[type[OracleFunction]] = ZeroFunction

    def fit(self, task: OracleTask) -> ZeroFunction:
        """Return f = 0."""
        return ZeroFunction(task.n_classes)

    def fit_sums(self, rows: Sums, *, n_classes: int, start: Any = None) -> ZeroFunction:
        """Return f = 0."""
        return ZeroFunction(n_classes)
