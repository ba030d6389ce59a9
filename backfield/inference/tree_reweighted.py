"""Tree-reweighted belief propagation ([D13] §3.3), and the choice of the kernel family that runs it.

    m_c(x_i) ∝ sum_{x_c\\i} exp(theta(x_c)/rho_c) prod_{j in c\\i} exp(theta(x_j)) prod_{d: j in d} m_d(x_j)^rho_d / m_c(x_j)

(18), with beliefs as in the theorem below it. Cost O(table) per message. With rho from a distribution over acyclic
subsets of factors, log Z is bounded from above at convergence.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from backfield.errors import InputError
from backfield.graph import Graph, Potentials
from backfield.inference import _schedule
from backfield.inference._base import IterativeInference, check_iterations
from backfield.inference._messages import MessageEngine
from backfield.inference._messages_log import LogEngine
from backfield.inference._rho import counting_numbers, is_upper_bound

FAMILIES = ("auto", "lattice", "pairwise", "general", "log")


@dataclass(frozen=True, repr=False)
class TreeReweighted(IterativeInference, name="tree_reweighted"):
    """Tree-reweighted belief propagation on any graph.

    Parameters
    ----------
    n_iter : int
        Iterations; one updates every directed message once.
    rho : float, list or "trees"
        Counting numbers: one number, one per factor, or appearance probabilities in acyclic subsets of factors.
    tol : float, optional
        Stop when no univariate marginal changes by more; without it exactly ``n_iter`` iterations are done.
    damping : float
        Share of the old log message that is kept.
    schedule : {"auto", "sequential", "lattice", "monotonic", "flooding"}
        ``auto`` is ``lattice`` (red/black) on grids and else ``sequential`` (leaves to roots of a spanning forest,
        then back).
    order : list of int, optional
        An order of the slots of your own, run forward and backward in turn; overrides ``schedule``.
    family : {"auto", "lattice", "pairwise", "general", "log"}
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

    def __post_init__(self) -> None:
        check_iterations(self)
        if self.schedule not in _schedule.SCHEDULES:
            raise InputError(f"schedule must be one of {', '.join(_schedule.SCHEDULES)}; got {self.schedule!r}.")
        if self.family not in FAMILIES:
            raise InputError(f"family must be one of {', '.join(FAMILIES)}; got {self.family!r}.")

    def counting_numbers(self, graph: Graph) -> np.ndarray:
        """Return rho (F,)."""
        return counting_numbers(graph, self.rho)

    def bound_for(self, graph: Graph) -> str:
        """``upper`` where rho is known to come from acyclic subsets, ``bethe`` for rho = 1, else ``none``."""
        rho = self.counting_numbers(graph)
        if is_upper_bound(graph, rho):
            return "upper"
        return "bethe" if (rho == 1).all() else "none"

    def restricted(self, graph: Graph, factors: np.ndarray) -> TreeReweighted:
        """Keep the rho of the factors that are left; an order of one's own cannot be kept."""
        if self.order is not None:
            raise InputError("an explicit order cannot be combined with observed variables; use a schedule.")
        if isinstance(self.rho, str) or np.ndim(self.rho) == 0:
            return self
        return replace(self, rho=np.asarray(self.rho)[factors])

    def engine(self, theta: Potentials) -> MessageEngine:
        """Bind to ``theta`` with the fastest kernels that are safe for it: the one place of this choice."""
        graph = theta.graph
        rho = self.counting_numbers(graph)
        if self.order is not None:
            schedule = _schedule.explicit(graph, self.order)
        else:
            name = _schedule.resolve(graph, self.schedule)
            schedule = graph.compiled(("schedule", name), lambda: _schedule.build(graph, name))
        return LogEngine(theta, np.ascontiguousarray(rho, dtype=np.float64), schedule, self.damping)
