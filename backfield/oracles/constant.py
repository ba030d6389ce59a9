"""One number for each class, whatever the features: linear with a single constant feature ([L13] §8)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np

from backfield.errors import InputError
from backfield.oracles._softmax import RowSums, threads
from backfield.oracles.base import Oracle, OracleFunction, OracleTask, Sums, check_parameter, check_start
from backfield.oracles.linear import fit_weights


class ConstantFunction(OracleFunction):
    """f(x, y) = v_y."""

    def __init__(self, values: np.ndarray) -> None:
        self.values = values
        self.n_classes = len(values)

    def scores(self, features: np.ndarray) -> np.ndarray:
        """Return v in every row, (N, K)."""
        return np.tile(self.values, (len(features), 1))

    def arrays(self) -> dict[str, np.ndarray]:
        """Return the values."""
        return {"values": self.values}

    @classmethod
    def from_arrays(cls, arrays: dict[str, np.ndarray], meta: dict[str, Any]) -> Self:
        """Make the function again."""
        values = np.asarray(arrays["values"], dtype=np.float64)
        if values.ndim != 1 or len(values) == 0:
            raise InputError(f"constant: the values must be one per class, received shape {values.shape}.")
        return cls(values)


@dataclass(frozen=True, repr=False)
class Constant(Oracle, name="constant"):
    """One score for each class, the same for all rows.

    Parameters
    ----------
    l2 : float
        Ridge on the mean loss per row, ``l2 * |v|^2``; keeps the score of a class that never occurs finite.
    """

    supports_soft_targets: ClassVar[bool] = True
    sums: ClassVar[bool] = True
    function_class: ClassVar[type[OracleFunction]] = ConstantFunction

    l2: float = 1e-6

    def __post_init__(self) -> None:
        check_parameter("constant", "l2", self.l2, 0)

    def fit(self, task: OracleTask) -> ConstantFunction:
        """Return the best constants."""
        with threads(task.n_jobs) as pool:
            rows = RowSums(np.empty((len(task.features), 0)), task.problem(), pool)
            return self.fit_sums(rows, n_classes=task.n_classes, start=task.start)

    def fit_sums(self, rows: Sums, *, n_classes: int, start: Any = None) -> ConstantFunction:
        """Return the best constants."""
        check_start("constant", start, ConstantFunction, n_classes, None)
        first = np.zeros((n_classes, 1)) if start is None else start.values[:, None]
        return ConstantFunction(fit_weights(rows, 0, first, self.l2, max_iter=200, tol=1e-8)[:, 0])
