"""The order in which directed messages are updated, as a permutation of the slots of a graph.

An order is part of the model: truncated inference gives other marginals in another order. All orders visit the
variables one after another; the message from factor c to variable j is updated as soon as the last of the *other*
variables of c has been visited, so on pairwise graphs a visit sends all messages of a variable.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from backfield.errors import InputError
from backfield.graph import Graph
from backfield.kernels.setup import SetupKernel

SCHEDULES = ("auto", "sequential", "lattice", "monotonic", "flooding")


class Schedule(NamedTuple):
    """An order of slots; odd sweeps run it backward if ``alternate``, all messages at once if ``flooding``."""

    order: np.ndarray
    alternate: bool
    flooding: bool
    name: str = ""  # empty for an order of the user's own

    def backward(self, t: int) -> bool:
        """Whether sweep ``t`` runs backward."""
        return self.alternate and t % 2 == 1

    def restricted(self, kept: np.ndarray) -> Schedule:
        """Return the order of some of the slots (or variables), renumbered from 0."""
        number = np.full(len(self.order), -1)
        number[kept] = np.arange(len(kept))
        order = number[self.order]
        order = order[order >= 0]
        order.flags.writeable = self.order.flags.writeable  # numba compiles once for each
        return Schedule(order, self.alternate, self.flooding)

    def compiled(self, graph: Graph, what: str, build: Callable[[Graph, Schedule], Any]) -> Any:
        """Return what ``build`` makes of this schedule, kept with the graph unless the order is the user's own."""
        if not self.name:
            return build(graph, self)
        return graph.compiled((what, self.name), lambda: build(graph, self))


def resolve(graph: Graph, schedule: str) -> str:
    """Return the schedule that ``auto`` means on this graph: *lattice* on grids, else *sequential*."""
    if schedule == "lattice" and not graph.is_lattice:
        # A grid of one row or column is a chain: its own order is the exact one.
        if graph.lattice is not None:
            return "sequential"
        raise InputError("schedule='lattice' needs a graph made by Graph.grid; use 'sequential'.")
    if schedule == "auto":
        return "lattice" if graph.is_lattice else "sequential"
    return schedule


def phases(graph: Graph, schedule: str) -> int | None:
    """Return in how many steps a sweep of a (resolved) schedule updates all variables; None: one after the other.

    Variables of a step do not see each other's updates, so a sweep carries information over as many edges as it has steps.
    """
    if schedule == "flooding":
        return 1
    if schedule == "lattice":
        assert graph.lattice is not None
        return graph.lattice.n_colours
    return None


def build(graph: Graph, schedule: str) -> Schedule:
    """Compute the order of a (resolved) schedule."""
    n = graph.n_variables
    if schedule == "flooding":
        return Schedule(np.arange(graph.n_slots), alternate=False, flooding=True, name=schedule)
    if schedule == "monotonic":
        return Schedule(_monotonic(graph), alternate=False, flooding=False, name=schedule)
    if schedule == "lattice":
        assert graph.lattice is not None
        position = np.arange(n) + n * graph.lattice.colours()  # all red variables, then all black ones
        return Schedule(_by_last_visit(graph, position), alternate=False, flooding=False, name=schedule)
    layout = graph.layout
    found = np.empty(n, dtype=np.int64)
    _breadth_first(layout.scope_ptr, layout.scope, layout.slot_factor, layout.inc_ptr, layout.inc, found)
    position = np.empty(n, dtype=np.int64)
    position[found[::-1]] = np.arange(n)  # leaves of a spanning forest first, roots last
    return Schedule(_by_last_visit(graph, position), alternate=True, flooding=False, name=schedule)


def explicit(graph: Graph, order: object) -> Schedule:
    """Check and wrap an order given by the user, which runs forward, then backward; or return a schedule."""
    if isinstance(order, Schedule):
        return order
    if not is_permutation(order, graph.n_slots):
        raise InputError(f"order must be a permutation of the {graph.n_slots} slots (message k goes to variable scope[k]).")
    return Schedule(np.array(order, dtype=np.int64), alternate=True, flooding=False)


def is_permutation(order: object, n: int) -> bool:
    """Whether ``order`` holds every number 0 .. n-1 once."""
    try:
        array = np.asarray(order)
    except ValueError:  # ragged
        return False
    if array.shape != (n,) or (n and array.dtype.kind not in "iu"):
        return False
    return np.array_equal(np.sort(array), np.arange(n))


def _by_last_visit(graph: Graph, position: np.ndarray) -> np.ndarray:
    last, second = _top_two(graph, position)
    factor = graph.layout.slot_factor
    own = position[graph.layout.scope]
    visit = np.where(own == last[factor], second[factor], last[factor])
    return np.argsort(visit, kind="stable")


def _top_two(graph: Graph, position: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the latest and second latest position among the variables of each factor."""
    layout = graph.layout
    if graph.n_factors == 0:
        return np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64)
    own = position[layout.scope]
    last = np.maximum.reduceat(own, layout.scope_ptr[:-1])
    others = np.where(own == last[layout.slot_factor], -1, own)
    return last, np.maximum.reduceat(others, layout.scope_ptr[:-1])


def _monotonic(graph: Graph) -> np.ndarray:
    """Order of D13 §3.3 (Meltzer et al.): rising messages along rising variables, then falling ones.

    With rho from monotonic chains every message update is coordinate descent on the dual, so it converges.
    """
    layout = graph.layout
    position = np.arange(graph.n_variables)
    last, second = _top_two(graph, position)
    own = layout.scope
    rising = np.flatnonzero(own == last[layout.slot_factor])
    falling = np.flatnonzero(own != last[layout.slot_factor])
    rising = rising[np.argsort(second[layout.slot_factor[rising]], kind="stable")]
    # A falling message is sent just after the next larger variable of its factor was visited.
    falling = falling[np.argsort(-own[falling], kind="stable")]
    by_sender = np.argsort(-_next_larger(graph)[falling], kind="stable")
    return np.concatenate([rising, falling[by_sender]])


def _next_larger(graph: Graph) -> np.ndarray:
    """Return, for each slot, the next larger variable of its factor (itself for the largest)."""
    layout = graph.layout
    order = np.lexsort((layout.scope, layout.slot_factor))
    following = np.append(order[1:], order[-1:])
    same = layout.slot_factor[order] == layout.slot_factor[following]
    out = np.empty(len(order), dtype=np.int64)
    out[order] = np.where(same, layout.scope[following], layout.scope[order])
    return out


@SetupKernel
def _breadth_first(scope_ptr, scope, slot_factor, inc_ptr, inc, found):
    """List variables by breadth-first search over the factor graph, component by component."""
    n = len(inc_ptr) - 1
    seen = np.zeros(n, dtype=np.bool_)
    done = np.zeros(len(scope_ptr) - 1, dtype=np.bool_)
    count = 0
    for root in range(n):
        if seen[root]:
            continue
        seen[root] = True
        found[count] = root
        head = count
        count += 1
        while head < count:
            i = found[head]
            head += 1
            for s in range(inc_ptr[i], inc_ptr[i + 1]):
                c = slot_factor[inc[s]]
                if done[c]:
                    continue
                done[c] = True
                for k in range(scope_ptr[c], scope_ptr[c + 1]):
                    j = scope[k]
                    if not seen[j]:
                        seen[j] = True
                        found[count] = j
                        count += 1
