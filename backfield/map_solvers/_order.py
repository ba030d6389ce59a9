"""The order in which max-product visits a graph: breadth-first over the factor graph, component by component."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from backfield.graph import Graph
from backfield.kernels.compile import exact_kernel


class Order(NamedTuple):
    """A breadth-first search from the highest variable of each component.

    ``variables`` (n,) are in the order found. ``up`` (F,) holds for each factor the slot of the variable that found it,
    last found first: on an acyclic graph these are the messages from the leaves to the roots. ``cycle`` is a factor
    that closes a cycle, -1 where there is none.
    """

    variables: np.ndarray
    up: np.ndarray
    cycle: int

    @property
    def acyclic(self) -> bool:
        """Whether the factor graph is a forest (two factors over the same two variables are a cycle)."""
        return self.cycle < 0


def order_of(graph: Graph) -> Order:
    """Return the order of a graph, computed on first use."""
    return graph.compiled(("map_solvers", "order"), lambda: _search(graph))


def message_order(graph: Graph) -> np.ndarray:
    """Return all slots, leaves of the search first; run backward it goes from the roots to the leaves.

    A message leaves a factor as soon as the last of the other variables was visited.
    """
    return graph.compiled(("map_solvers", "messages"), lambda: _by_last_visit(graph))


def _search(graph: Graph) -> Order:
    layout = graph.layout
    variables = np.empty(graph.n_variables, dtype=np.int64)
    up = np.empty(graph.n_factors, dtype=np.int64)
    cycle = _breadth_first(layout, variables, up)
    return Order(variables, up[::-1].copy(), int(cycle))


def _by_last_visit(graph: Graph) -> np.ndarray:
    if graph.n_factors == 0:
        return np.empty(0, dtype=np.int64)
    layout, n = graph.layout, graph.n_variables
    position = np.empty(n, dtype=np.int64)
    position[order_of(graph).variables[::-1]] = np.arange(n)
    own, starts = position[layout.scope], layout.scope_ptr[:-1]
    last = np.maximum.reduceat(own, starts)[layout.slot_factor]
    second = np.maximum.reduceat(np.where(own == last, -1, own), starts)[layout.slot_factor]
    return np.argsort(np.where(own == last, second, last), kind="stable")


@exact_kernel
def _breadth_first(layout, variables, up):
    n = len(layout.labels)
    seen = np.zeros(n, dtype=np.bool_)
    done = np.zeros(len(layout.scope_ptr) - 1, dtype=np.bool_)
    cycle, count, n_up = -1, 0, 0
    for root in range(n - 1, -1, -1):  # a chain is then passed from its first to its last variable
        if seen[root]:
            continue
        seen[root] = True
        variables[count] = root
        head = count
        count += 1
        while head < count:
            i = variables[head]
            head += 1
            for s in range(layout.inc_ptr[i], layout.inc_ptr[i + 1]):
                c = layout.slot_factor[layout.inc[s]]
                if done[c]:
                    continue
                done[c] = True
                up[n_up] = layout.inc[s]
                n_up += 1
                for k in range(layout.scope_ptr[c], layout.scope_ptr[c + 1]):
                    j = layout.scope[k]
                    if not seen[j]:
                        seen[j] = True
                        variables[count] = j
                        count += 1
                    elif j != i and cycle < 0:
                        cycle = c
    return cycle
