"""Tree-reweighted belief propagation ([D13] §3.3).

    m_c(x_i) ∝ sum_{x_c\\i} exp(theta(x_c)/rho_c) prod_{j in c\\i} exp(theta(x_j)) prod_{d: j in d} m_d(x_j)^rho_d / m_c(x_j)

(18), with beliefs as in the theorem below it. Cost O(table) per message. With rho from a distribution over acyclic
subsets of factors, log Z is bounded from above at convergence.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from backfield.graph import Graph
from backfield.inference.engine import Engine
from backfield.inference.message_passing.families import MessagePassing
from backfield.inference.message_passing.rho import counting_numbers, is_upper_bound

#: A bound counts as one where it fails by less than this times 1 + |log Z|, from rounding.
_SLACK = 5e-10


@dataclass(frozen=True, repr=False)
class TreeReweighted(MessagePassing, name="tree_reweighted"):
    """Tree-reweighted belief propagation on any graph.

    Parameters
    ----------
    n_iter : int
        Iterations; one updates every directed message once.
    rho : float, list or "trees"
        Counting numbers: one number, one per factor, or appearance probabilities in acyclic subsets of factors.
    tol : float, optional
        Stop when no univariate marginal changes by more, nor a log message relative to 1 + its size; without it exactly
        ``n_iter`` iterations are done.
    damping : float
        Share of the old log message that is kept.
    schedule : {"auto", "sequential", "lattice", "monotonic", "flooding"}
        ``auto`` is ``lattice`` (red/black) on grids and else ``sequential`` (leaves to roots of a spanning forest,
        then back).
    order : list of int, optional
        An order of the slots of your own, run forward and backward in turn; overrides ``schedule``.
    family : {"auto", "lattice", "copies", "pairwise", "general", "log"}
        The kernel family; all give the same numbers in the same order.
    """

    n_iter: int = 50
    rho: Any = "trees"
    tol: float | None = None
    damping: float = 0.0
    schedule: str = "auto"
    order: Any = None
    family: str = "auto"

    symmetric: ClassVar[bool] = True
    bound: ClassVar[str] = "upper"

    def counting_numbers(self, graph: Graph) -> np.ndarray:
        """Return rho (F,)."""
        return counting_numbers(graph, self.rho)

    def bound_for(self, graph: Graph) -> str:
        """``upper`` where rho is known to come from acyclic subsets, ``bethe`` for rho = 1, else ``none``."""
        rho = self.counting_numbers(graph)
        if is_upper_bound(graph, rho):
            return "upper"
        return "bethe" if (rho == 1).all() else "none"

    def bounded(self, engine: Engine, state: np.ndarray, value: float, converged: bool) -> tuple[float, str]:
        """Claim ``upper`` only where it holds.

        theta·mu + H(mu) is a bound at the fixed point, and may lie below log Z before. Near the fixed point it is compared
        with the bound that holds at any messages; under a ``tol``, the latter is reported where the former is lower.
        """
        bound = self.bound_for(engine.theta.graph)
        if bound != "upper":
            return value, bound
        if self.tol is None and not converged:
            return value, "none"
        upper = engine.upper_bound(state)
        if value >= upper - _SLACK * (1 + abs(value)):
            return value, bound
        return (upper, bound) if self.tol is not None and np.isfinite(upper) else (value, "none")
