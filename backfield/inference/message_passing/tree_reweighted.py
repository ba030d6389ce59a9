"""Tree-reweighted belief propagation ([D13] §3.3).

    m_c(x_i) ∝ sum_{x_c\\i} exp(theta(x_c)/rho_c) prod_{j in c\\i} exp(theta(x_j)) prod_{d: j in d} m_d(x_j)^rho_d / m_c(x_j)

(18), with beliefs as in the theorem below it. Cost O(table) per message. With rho from a distribution over acyclic
subsets of factors, log Z is bounded from above at convergence.

The counting numbers rho_c are one number, one per factor, or come from acyclic subsets of factors (:func:`from_trees`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from backfield.errors import InputError
from backfield.graph import Graph
from backfield.graph.conditioning import Restriction
from backfield.graph.stacking import by_factor
from backfield.inference.engine import Engine
from backfield.inference.message_passing.families import MessagePassing
from backfield.kernels.setup import SetupKernel

_ROUNDS = 20
#: rho outside of it would leave the range of floats in theta / rho or in powers of messages.
_LIMITS = 1e-6, 1e6
#: A bound counts as one where it fails by less than this times 1 + |log Z|, from rounding.
_SLACK = 5e-10


@dataclass(frozen=True, repr=False)
class TreeReweighted(MessagePassing, name="tree_reweighted"):
    """Tree-reweighted belief propagation on any graph.

    Parameters
    ----------
    n_iter : int, or "auto" in estimators
        Iterations; one updates every directed message once. "auto": a fit tries 5, 10 and 20 on held-out labels.
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
        Your own order of the slots, run forward and backward in turn; overrides ``schedule``.
    family : {"auto", "lattice", "copies", "pairwise", "general", "log"}
        The kernel family; all give the same numbers in the same order.
    """

    n_iter: Any = 50
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

    @property
    def separable(self) -> bool:
        """Where rho is not a list for a certain graph, either."""
        return super().separable and isinstance(self.rho, str | int | float)

    def restricted(self, restriction: Restriction) -> MessagePassing:
        """Return the method with the order and the counting numbers of the whole graph."""
        return super().restricted(restriction).replace(rho=self.counting_numbers(restriction.full)[restriction.kept_factors])

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


def counting_numbers(graph: Graph, rho: Any) -> np.ndarray:
    """Return rho (F,) as float64; constant where a number (or a grid's ``"trees"``) was asked for."""
    if isinstance(rho, str):
        if rho != "trees":
            raise InputError(f"rho must be a positive number, one number per factor, or 'trees'; received {rho!r}.")
        return np.asarray(graph.compiled("trees", lambda: _of_trees(graph)))
    if isinstance(rho, float):
        return np.asarray(graph.compiled(("rho", rho), lambda: _checked(graph, rho)))
    return _checked(graph, rho)


def _of_trees(graph: Graph) -> np.ndarray:
    """Return :func:`from_trees`, of a stack of graphs once for each that it holds."""
    if graph.members is None or graph.lattice is not None:
        return from_trees(graph)
    return by_factor(graph, [counting_numbers(member, "trees") for member in graph.members])


def _checked(graph: Graph, rho: Any) -> np.ndarray:
    try:
        array = np.asarray(rho)
    except ValueError as error:
        raise InputError(f"rho must be one number or one per factor ({graph.n_factors}); received {rho!r}.") from error
    if array.dtype.kind not in "iuf" or not ((array >= _LIMITS[0]) & (array <= _LIMITS[1])).all():
        raise InputError(f"rho must be positive, from {_LIMITS[0]:g} to {_LIMITS[1]:g}; received {rho!r}.")
    if array.ndim == 0:
        return np.broadcast_to(np.float64(array), graph.n_factors)
    if array.shape != (graph.n_factors,):
        raise InputError(f"rho must be one number or one per factor ({graph.n_factors}); received shape {array.shape}.")
    return array.astype(np.float64)


def from_trees(graph: Graph) -> np.ndarray:
    """Return the share of acyclic factor subsets that contain each factor.

    Such rho make the entropy an upper bound ([D13] §3.3). A grid is covered by the lines of each offset (its rows and its
    columns, half and half). Elsewhere subsets are grown greedily, factors taken least often first, until all are covered.
    Each connected part has its own subsets and draws, so it gets the same rho in a batch as alone.
    """
    if graph.lattice is not None and graph.n_factors:
        return np.broadcast_to(np.float64(1 / graph.lattice.n_covers), graph.n_factors)
    layout = graph.layout
    part, place = _parts(graph)
    count = np.zeros(graph.n_factors, dtype=np.int64)
    rounds = np.zeros(part.max(initial=-1) + 1, dtype=np.int64)
    while True:
        least = np.full(len(rounds), graph.n_slots)
        np.minimum.at(least, part, count)
        # A part is done when it is covered after enough rounds, or a forest itself, covered in one.
        active = (least == 0) | ((rounds < _ROUNDS) & (least < rounds))
        if not active.any():
            return count / rounds[part]
        grow = np.flatnonzero(active[part])
        draws = np.random.default_rng([0, int(rounds[active][0])]).random(int(place.max()) + 1)[place[grow]]
        order = grow[np.lexsort((draws, count[grow]))]
        _grow_forest(layout.scope_ptr, layout.scope, order, graph.n_variables, count)
        rounds[active] += 1


def _parts(graph: Graph) -> tuple[np.ndarray, np.ndarray]:
    """Return the connected part of each factor, and its place among the factors of that part."""
    layout = graph.layout
    root = np.arange(graph.n_variables)
    _connect(layout.scope_ptr, layout.scope, root)
    of_factor = root[layout.scope[layout.scope_ptr[:-1]]]
    _, part = np.unique(of_factor, return_inverse=True)
    by_part = np.argsort(part, kind="stable")
    first = np.searchsorted(part[by_part], part[by_part])
    place = np.empty(graph.n_factors, dtype=np.int64)
    place[by_part] = np.arange(graph.n_factors) - first
    return part, place


def is_upper_bound(graph: Graph, rho: np.ndarray) -> bool:
    """Whether rho is known to give an upper bound: at most what the acyclic subsets give."""
    return bool((rho <= counting_numbers(graph, "trees") + 1e-12).all())


@SetupKernel
def _connect(scope_ptr, scope, root):
    """Give all variables of a connected part the same root."""
    for c in range(len(scope_ptr) - 1):
        a = scope[scope_ptr[c]]
        while root[a] != a:
            root[a] = root[root[a]]
            a = root[a]
        for k in range(scope_ptr[c] + 1, scope_ptr[c + 1]):
            b = scope[k]
            while root[b] != b:
                root[b] = root[root[b]]
                b = root[b]
            root[b] = a
    for i in range(len(root)):
        a = i
        while root[a] != a:
            a = root[a]
        root[i] = a


@SetupKernel
def _grow_forest(scope_ptr, scope, order, n, count):
    """Add factors in the given order while their factor graph stays acyclic; count those taken."""
    parent = np.arange(n)
    roots = np.empty(len(scope), np.int64)
    for c in order:
        first, last = scope_ptr[c], scope_ptr[c + 1]
        free = True
        for k in range(first, last):
            root = scope[k]
            while parent[root] != root:
                parent[root] = parent[parent[root]]
                root = parent[root]
            roots[k] = root
            for other in range(first, k):
                if roots[other] == root:
                    free = False
        if free:
            for k in range(first + 1, last):
                parent[roots[k]] = roots[first]
            count[c] += 1
