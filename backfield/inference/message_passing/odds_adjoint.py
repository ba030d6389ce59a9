"""The adjoint of theta in the layout of kernels for binary variables, which send odds."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property

import numpy as np

from backfield.graph import Graph, Potentials
from backfield.inference.base import Adjoint


class OddsAdjoint(Adjoint):
    """Adjoints of log F per variable, and of theta_c / rho at (0,1), (1,1), (1,0) per edge; (0,0) is minus the sum.

    Parameters
    ----------
    theta
        What the gradient is of.
    u, tables
        theta in the layout of the kernels.
    scatter
        Writes the adjoints of ``u`` and ``tables`` to row-major arrays (n, 2) and (F, 2, 2).
    """

    def __init__(self, theta: Potentials, u: np.ndarray, tables: np.ndarray, scatter: Callable[..., None]) -> None:
        self.theta, self.parameters = theta, {}
        self.u, self.tables = np.zeros_like(u), np.zeros_like(tables)
        self._scatter = scatter

    # What is added to theta itself comes from factor marginals and log Z alone: made when it is asked for.

    @cached_property
    def unary(self) -> np.ndarray:  # type: ignore[override]
        """Adjoint of the unary tables beside that in the layout of the kernels."""
        return np.zeros_like(self.theta.unary_flat)

    @cached_property
    def factors(self) -> np.ndarray:  # type: ignore[override]
        """Adjoint of the factor tables beside that in the layout of the kernels."""
        return np.zeros_like(self.theta.factors_flat)

    def potentials(self, graph: Graph) -> Potentials:
        """Return d_theta, row-major."""
        unary, factors = np.empty_like(self.theta.unary_flat), np.empty_like(self.theta.factors_flat)
        self._scatter(self.u, self.tables, unary.reshape(-1, 2), factors.reshape(-1, 2, 2))
        for name, into in (("unary", unary), ("factors", factors)):
            if name in self.__dict__:
                into += self.__dict__[name]
        return Potentials.from_flat(graph, unary, factors)
