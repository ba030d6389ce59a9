"""Mean field: the best fully factorised distribution, by block-coordinate ascent ([D13] §3.2).

    mu(x_j) ∝ exp( theta(x_j) + sum_{c: j in c} sum_{x_c-j} theta(x_c) prod_{i in c-j} mu(x_i) )

from uniform marginals, one variable after another. Its adjoint is back mean field ([D13] Alg. 2).
Cost O(table) for each variable of a factor; the state, and so one step of the tape, is one number per label.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from backfield.constraints import check_choice
from backfield.errors import InputError
from backfield.graph import Graph, Potentials
from backfield.graph.conditioning import Restriction
from backfield.inference import schedule as schedules
from backfield.inference.base import Engine, IterativeInference, Piece, check_iterations
from backfield.inference.mean_field import lattice
from backfield.inference.mean_field.dense import DenseEngine
from backfield.inference.mean_field.engine import MeanFieldEngine
from backfield.inference.mean_field.general import GeneralEngine
from backfield.inference.schedule import Schedule

SCHEDULES = ("auto", "sequential", "lattice", "flooding", "convergent")
FAMILIES = ("auto", "lattice", "general")


@dataclass(frozen=True, repr=False)
class MeanField(IterativeInference, name="mean_field"):
    """Mean field on any graph, also with kernel groups: a lower bound of log Z at every iteration.

    Parameters
    ----------
    n_iter : int
        Iterations; one updates every variable once.
    tol : float, optional
        Stop when no univariate marginal changes by more; without it exactly ``n_iter`` iterations are done.
    damping : float
        Share of the old log marginal that is kept.
    schedule : {"auto", "sequential", "lattice", "flooding", "convergent"}
        ``auto`` is ``lattice`` (red/black) on grids and else ``sequential`` (variables in their order, forward and
        backward in turn). ``flooding`` updates all variables from the old marginals; it may oscillate.
        With kernel groups ``auto`` is ``flooding``, and ``convergent`` is damped as much as makes the bound never fall.
    order : list of int, optional
        Your own order of the variables, run forward and backward in turn; overrides ``schedule``.
    family : {"auto", "lattice", "general"}
        The kernel family; both give the same numbers in the same order.
    """

    n_iter: int = 50
    tol: float | None = None
    damping: float = 0.0
    schedule: str = "auto"
    order: Any = None
    family: str = "auto"

    symmetric: ClassVar[bool] = True
    bound: ClassVar[str] = "lower"
    factorised: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_iterations(self)
        check_choice("schedule", self.schedule, SCHEDULES)
        check_choice("family", self.family, FAMILIES)

    def supports(self, theta: Potentials) -> bool:
        """Whether theta holds tables, or kernel groups, beside which factors are written out."""
        return theta.has_tables_only or bool(theta.kernels)

    @property
    def separable(self) -> bool:
        """Where parts do not decide together when to stop, and the order is not one of a certain graph."""
        return self.tol is None and self.order is None

    def bind(self, theta: Potentials) -> Engine:
        """Bind to any ``theta``; with kernel groups, variables with one possible label stay where they are."""
        return self.engine(theta) if theta.kernels else super().bind(theta)

    def bounded(self, engine: Engine, state: np.ndarray, value: float, converged: bool) -> tuple[float, str]:
        """Return the value; it bounds log Z of the model with the filters' own pairs, if there is one."""
        models = [kernel.operator().has_model for kernel in engine.theta.kernels]
        return value, self.bound if all(models) else "none"

    def phases(self, graph: Graph) -> int | None:
        """Return over how many edges one sweep carries information."""
        return None if self.order is not None else schedules.phases(graph, schedules.resolve(graph, self.schedule))

    def piece(self, theta: Potentials, rung: int) -> Piece:
        """Return the marginals of a piece: rung 0 with the kernels of its graph, 1 with those for all numbers."""
        method = replace(self, family="general") if rung else self
        return Piece(method.beliefs(theta), theta.magnitude())

    def enough(self, rung: int, demand: np.ndarray, dtype: Any) -> bool:
        """Whether sums of a field with this demand stay finite."""
        return rung == 1 or demand.max() < lattice.limit(dtype)

    def reducible(self, graph: Graph) -> bool:
        """Where no family is asked for, except on binary grids, which have faster kernels."""
        return self.family == "auto" and not (graph.image_shape is not None and graph.n_labels == 2)

    def restricted(self, restriction: Restriction) -> MeanField:
        """Return the method with the order of the whole graph."""
        return self.replace(order=self._order(restriction.full).restricted(restriction.kept_variables))

    def engine(self, theta: Potentials) -> MeanFieldEngine:
        """Bind to ``theta`` with the fastest kernels that are safe for it: the one place of this choice."""
        if theta.kernels:
            return self._dense(theta)
        if self.schedule == "convergent":
            raise InputError(
                "schedule='convergent' of mean_field is for kernel groups; 'sequential' never lowers its bound."
            )
        graph = theta.graph
        name = "" if self.order is not None else schedules.resolve(graph, self.schedule)
        fits = name == "lattice" and self.damping == 0 and lattice.supports(theta)
        if self.family == "lattice" and not fits:
            raise InputError(
                "family='lattice' of mean_field needs a binary 4-connected grid (Graph.grid) of at least 2x2, finite "
                "potentials, schedule='lattice' and no damping; use family='auto'."
            )
        if fits and self.family != "general":
            return lattice.MeanFieldLattice(theta)
        return GeneralEngine(theta, self._order(graph), self.damping)

    def _order(self, graph: Graph) -> Schedule:
        if self.order is not None:
            return _explicit(graph, self.order)
        name = schedules.resolve(graph, self.schedule)
        found: Schedule = graph.compiled(("mean_field", name), lambda: _build(graph, name))
        return found

    def _dense(self, theta: Potentials) -> DenseEngine:
        if self.order is not None or self.schedule not in ("auto", "flooding", "convergent"):
            raise InputError(
                "with kernel groups mean_field updates all variables at once: schedule must be 'flooding' or 'convergent', "
                "and order must be left out."
            )
        return DenseEngine(theta, self.damping, convergent=self.schedule == "convergent")


def _build(graph: Graph, name: str) -> Schedule:
    """Compute the order of variables of a (resolved) schedule."""
    order = np.arange(graph.n_variables)
    if name == "lattice":
        assert graph.lattice is not None
        order = np.argsort(graph.lattice.colours(), kind="stable")
    return _read_only(order, alternate=name == "sequential", flooding=name == "flooding")


def _explicit(graph: Graph, order: Any) -> Schedule:
    if isinstance(order, Schedule):
        return order
    if not schedules.is_permutation(order, graph.n_variables):
        raise InputError(f"order must be a permutation of the {graph.n_variables} variables.")
    return _read_only(np.array(order, dtype=np.int64), alternate=True, flooding=False)


def _read_only(order: np.ndarray, alternate: bool, flooding: bool) -> Schedule:
    order.flags.writeable = False
    return Schedule(order, alternate=alternate, flooding=flooding)
