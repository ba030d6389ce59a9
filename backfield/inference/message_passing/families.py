"""Which kernels run a message-passing method on which graph: the one place of this choice.

=========  ======================================================================================================
lattice    binary grids, colour by colour, one rho, no damping: one ratio per message (separate kernels, in
           ``lattice``, for images of 4 neighbours; of any dimension and neighbourhood in ``colours``)
copies     many copies of one binary pairwise graph, flooding, rho = 1, no damping: one ratio per message
pairwise   all factors of two variables, one label count; in O(L) per message where all tables are a + b [x_i = x_j]
general    any arity, any label counts
log        the same in the log domain: forbidden configurations (-inf), huge potentials, complex numbers, derivatives
           with respect to rho and damping
=========  ======================================================================================================

The first four multiply probabilities. They are used while no product can leave the range of the number type; float32
is promoted to float64 before the log domain is resorted to. All give the same numbers in the same order.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar

import numpy as np

from backfield.constraints import check_choice
from backfield.errors import InputError
from backfield.graph import Graph, Potentials
from backfield.graph.conditioning import Restriction
from backfield.inference import schedule as schedules
from backfield.inference.base import IterativeInference, Piece, check_iterations
from backfield.inference.message_passing.colours import ColoursEngine
from backfield.inference.message_passing.copies import LEAST, CopiesEngine, one_of
from backfield.inference.message_passing.engine import MessageEngine
from backfield.inference.message_passing.general import GeneralEngine
from backfield.inference.message_passing.lattice import MessageLattice
from backfield.inference.message_passing.log import LogEngine
from backfield.inference.message_passing.pairwise import PairwiseEngine
from backfield.inference.message_passing.potts import PottsEngine, potts_strengths
from backfield.inference.schedule import Schedule
from backfield.kernels.compile import exact_kernel

FAMILIES = ("auto", "lattice", "copies", "pairwise", "general", "log")
_ENGINES: dict[str, type[MessageEngine]] = {
    "lattice": MessageLattice,
    "copies": CopiesEngine,
    "pairwise": PairwiseEngine,
    "general": GeneralEngine,
    "log": LogEngine,
}

#: How far |log| of a product may go: 0.8 of what the number type holds.
_ROOM = {np.dtype(dtype): 0.8 * float(-np.log(np.finfo(dtype).tiny)) for dtype in (np.float32, np.float64, np.complex128)}


class MessagePassing(IterativeInference):
    """Base of methods on the update of [D13] eq. (18); subclasses are dataclasses that give ``counting_numbers``."""

    plain_family: ClassVar[str] = "log"
    stacks_images: ClassVar[bool] = True

    damping: float
    schedule: str
    order: Any
    family: str

    def __post_init__(self) -> None:
        check_iterations(self)
        check_choice("schedule", self.schedule, schedules.SCHEDULES)
        check_choice("family", self.family, FAMILIES)

    def counting_numbers(self, graph: Graph) -> np.ndarray:
        """Return rho (F,)."""
        raise NotImplementedError

    def resolved_schedule(self, graph: Graph) -> str:
        """Return the name of the schedule used on this graph; empty for an order of the user's own."""
        return "" if self.order is not None else schedules.resolve(graph, self.schedule)

    @property
    def separable(self) -> bool:
        """Where parts do not decide together when to stop, and the order is not one of a certain graph."""
        return self.tol is None and self.order is None

    def sees_bad_numbers(self, graph: Graph) -> bool:
        """Whether kernels are chosen for which the potentials turn out not to fit where they are no numbers."""
        return self.family == "auto" and not _refusal("lattice", self, graph, self.counting_numbers(graph))

    def phases(self, graph: Graph) -> int | None:
        """Return over how many edges one sweep carries information."""
        return schedules.phases(graph, self.resolved_schedule(graph))

    def piece(self, theta: Potentials, rung: int) -> Piece:
        """Return the marginals of a piece: rung 0 in the type of theta, 1 in float64, 2 in the log domain."""
        if self.family == "log":
            return Piece(self.beliefs(theta), np.zeros(4))
        wide = theta.astype(np.float64) if rung else theta
        if rung == 2:
            return Piece(replace(self, family="log").beliefs(wide).astype(theta.dtype), np.zeros(4))  # type: ignore[type-var]
        engine = self._chosen(wide)
        demand = _demand_of(engine)
        if not fits(exposure_of(demand), wide.dtype):
            return Piece(np.zeros_like(theta.unary_flat), demand)
        state = engine.init()
        engine.sweeps(state, 0, self.n_iter)
        return Piece(engine.beliefs(state).astype(theta.dtype, copy=False), demand)

    def enough(self, rung: int, demand: np.ndarray, dtype: Any) -> bool:
        """Whether no product of messages of a field with this demand leaves the range of numbers."""
        return rung == 2 or fits(exposure_of(demand), np.float64 if rung else dtype)

    def supports(self, theta: Potentials) -> bool:
        """Whether theta holds tables, or tied ones through which messages cost O(L)."""
        if theta.has_tables_only or theta.kernels:
            return theta.has_tables_only
        return self.family in ("auto", "pairwise") and potts_strengths(theta) is not None

    def reducible(self, graph: Graph) -> bool:
        """Where no family is asked for, except on binary grids, which have faster kernels."""
        return self.family == "auto" and bool(_refusal("lattice", self, graph, self.counting_numbers(graph)))

    def restricted(self, restriction: Restriction) -> MessagePassing:
        """Return the method with the order of the whole graph; the schedule is not a name."""
        return self.replace(order=self._order(restriction.full).restricted(restriction.kept_slots))

    def engine(self, theta: Potentials) -> MessageEngine:
        """Bind to ``theta`` with the fastest kernels that are safe for it."""
        engine = self._chosen(theta)
        if isinstance(engine, LogEngine) or fits(_exposure_of(engine), theta.dtype):
            return engine
        theta.verify()
        if theta.dtype == np.float32:
            return self.engine(theta.astype(np.float64))
        return self._bind("log", theta, engine.rho)

    def _chosen(self, theta: Potentials) -> MessageEngine:
        """Bind to ``theta`` with the fastest kernels for its graph, or those asked for."""
        rho = self.counting_numbers(theta.graph)
        family = self._fastest(theta, rho) if self.family == "auto" else self._asked_for(theta.graph, rho)
        return self._bind(family, theta, rho)

    def _fastest(self, theta: Potentials, rho: np.ndarray) -> str:
        graph = theta.graph
        if theta.dtype.kind == "c":
            return "log"
        if not _refusal("lattice", self, graph, rho):
            return "lattice"  # its exposure is not finite where theta is not
        if not _finite_tables(theta):
            return "log"  # a forbidden label of a variable is a zero in a product; a forbidden entry may be all there is
        return next(family for family in ("copies", "pairwise", "general") if not _refusal(family, self, graph, rho))

    def _asked_for(self, graph: Graph, rho: np.ndarray) -> str:
        reason = _refusal(self.family, self, graph, rho)
        if reason:
            raise InputError(f"family={self.family!r} needs {reason}; use family='auto'.")
        return self.family

    def _bind(self, family: str, theta: Potentials, rho: np.ndarray) -> MessageEngine:
        if family == "lattice":
            engine = MessageLattice if theta.graph.image_stack else ColoursEngine
            return engine(theta, rho, None, self.damping)  # which have their order built in
        rho = np.array(rho, dtype=np.float64)  # a copy: a constant one is read-only, another type to numba
        strengths = potts_strengths(theta) if family == "pairwise" else None
        if strengths is not None:
            return PottsEngine(theta, rho, self._order(theta.graph), self.damping, strengths)
        return _ENGINES[family](theta, rho, self._order(theta.graph), self.damping)

    def _order(self, graph: Graph) -> Schedule:
        if self.order is not None:
            return schedules.explicit(graph, self.order)
        name = schedules.resolve(graph, self.schedule)
        return graph.compiled(("schedule", name), lambda: schedules.build(graph, name))


def _finite_tables(theta: Potentials) -> bool:
    """Whether no entry of a factor is forbidden: almost always answered by one sum."""
    return theta.known_finite or all(group.is_finite for group in theta.groups)


def _refusal(family: str, method: MessagePassing, graph: Graph, rho: np.ndarray) -> str:
    """Return what a family lacks to run a method on a graph; empty where nothing."""
    if family == "lattice":
        one_rho = rho.strides == (0,) or (rho == rho[:1]).all()
        in_colours = method.order is None and method.schedule in ("auto", "lattice")
        if not (in_colours and graph.is_lattice and graph.n_labels == 2 and one_rho and method.damping == 0):
            return "a binary grid in the lattice schedule, one rho and no damping"
    if family == "copies":
        flooding = method.resolved_schedule(graph) == "flooding"
        if not (flooding and method.damping == 0 and (rho == 1).all() and one_of(graph) is not None):
            return f"{LEAST} or more copies of one binary pairwise graph, schedule='flooding', rho = 1 and no damping"
    if family == "pairwise" and not (graph.is_pairwise and graph.n_factors):
        return "factors of two variables and one label count"
    return ""


def fits(exposure: float, dtype: Any) -> bool:
    """Whether products of messages stay clear of the limits of the number type."""
    return 0 <= exposure < _ROOM[np.dtype(dtype)]  # not where it is -inf, of forbidden labels, or NaN


def _exposure_of(engine: MessageEngine) -> float:
    """Return a bound on |log| of every product that an engine forms."""
    return engine.exposure() if isinstance(engine, MessageLattice) else exposure_of(_demand_of(engine))


def exposure_of(demand: np.ndarray) -> float:
    """Return the bound of its parts: the messages into a variable; with theta and powers; one message; one table."""
    product, around, message, table = (float(part) for part in demand)
    return max(product, around + message + table)


def _demand_of(engine: MessageEngine) -> np.ndarray:
    """Return the largest of each part of the bound."""
    if isinstance(engine, MessageLattice | ColoursEngine | PottsEngine):
        return engine.demand()
    layout, theta = engine.theta.graph.layout, engine.theta
    scopes = layout.var_ptr, layout.scope_ptr, layout.scope, layout.table_ptr
    return np.array(_demand(*scopes, engine.rho, theta.unary_flat, theta.factors_flat))


@exact_kernel
def _demand(var_ptr, scope_ptr, scope, table_ptr, rho, theta_u, theta_c):
    """Bound |log| of what kernels form: the messages into a variable multiplied, and what a factor adds to their power.

    A message m(x), which sums to 1, has |log m| <= r + log L with r the largest range that psi has over x alone.
    """
    n = len(var_ptr) - 1
    product, power, range_of = np.empty(n), np.empty(n), np.empty(n)
    for i in range(n):
        low, high = np.inf, -np.inf
        for a in range(var_ptr[i], var_ptr[i + 1]):
            if theta_u[a] > -np.inf:  # a forbidden label stays zero
                low, high = min(low, theta_u[a]), max(high, theta_u[a])
        range_of[i] = high - low
        product[i] = power[i] = 0.0
    message, table = 0.0, 0.0
    for c in range(len(table_ptr) - 1):
        first, last = table_ptr[c], table_ptr[c + 1]
        lowest, highest = np.inf, -np.inf
        inner = last - first
        for k in range(scope_ptr[c], scope_ptr[c + 1]):
            i = scope[k]
            count = var_ptr[i + 1] - var_ptr[i]
            inner //= count
            largest = 0.0
            for start in range(first, last, count * inner):
                for e in range(start, start + inner):
                    low, high = np.inf, -np.inf
                    for at in range(e, e + count * inner, inner):
                        low, high = min(low, theta_c[at]), max(high, theta_c[at])
                    largest = max(largest, high - low)
                    lowest, highest = min(lowest, low), max(highest, high)
            exposure = largest / rho[c] + np.log(count)
            message = max(message, exposure)
            product[i] += exposure * max(1.0, rho[c])
            power[i] += exposure * rho[c]
        table = max(table, (highest - lowest) / rho[c] + np.log(last - first))
    products, around = -np.inf, -np.inf
    for i in range(n):
        if not (product[i] >= 0 and range_of[i] + power[i] <= np.inf):
            return np.nan, np.nan, message, table
        products, around = max(products, product[i]), max(around, range_of[i] + power[i])
    return products, around, message, table
