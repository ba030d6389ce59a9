"""Orders in which variables are summed out, and the tables that an order needs.

Summing out v joins all tables that mention it: a table over v and its neighbours, who then are neighbours of each
other. The greedy order takes the variable that adds the fewest edges (min-fill), or whose table is the smallest. Greedy
orders are poor on lattices, where the reverse Cuthill-McKee order (a front that moves through the graph) has the width
of the shorter side; so where tables are large several orders are tried, and the one with the smallest tables wins.
No random numbers but seeded ones, hence always the same order, unless a time is given to look for better ones.

Cost: each added edge costs one intersection of two neighbourhoods.
"""

from __future__ import annotations

import heapq
import itertools
import math
import time
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

#: Below this many entries in all no second order is tried.
CHEAP = 2**16
#: Orders that need a larger table are given up at once.
HOPELESS = 2**36
#: Tie-breaking permutations that are tried on graphs of up to 1000 variables; fewer on larger ones.
RESTARTS = 8


class Elimination(NamedTuple):
    """An order of the variables; ``separators[k]``: those that the k-th one's table leaves behind."""

    order: list[int]
    separators: list[list[int]]
    entries: int  # of all tables
    largest: int  # entries of the largest table

    @property
    def cost(self) -> int:
        """What orders are compared by; the largest table sets the least memory needed, so it weighs more."""
        return self.entries + 8 * self.largest


class TooLargeError(Exception):
    """Every order that was tried needs a table of at least ``entries``."""

    def __init__(self, entries: int) -> None:
        super().__init__(entries)
        self.entries = entries


def eliminate(
    labels: Sequence[int],
    scopes: Sequence[Sequence[int]],
    last: Sequence[int] = (),
    seconds: float | None = None,
    cheap: int = CHEAP,
    hopeless: int = HOPELESS,
) -> Elimination:
    """Return the cheapest of several orders of all variables.

    Parameters
    ----------
    labels : sequence of int
        Label count of each variable.
    scopes : sequence of sequences of int
        The variables of each table.
    last : sequence of int
        Variables that come after all others (those to maximise over, after the sums).
    seconds : float, optional
        Go on with random restarts for so long, while tables are large; without it their number is fixed.
    cheap : int
        An order with no more entries in all is good enough: no other one is tried.
    hopeless : int
        An order that needs a larger table is given up at once.

    Raises
    ------
    TooLargeError
        Where each of them needs a table of more than ``hopeless`` entries.
    """
    neighbours = _neighbours(len(labels), scopes)
    group = np.zeros(len(labels), dtype=np.int64)
    group[list(last)] = 1
    best: Elimination | None = None
    smallest = math.inf
    deadline = None if seconds is None else time.perf_counter() + seconds
    for found in _orders(labels, neighbours, group.tolist(), hopeless, deadline):
        if isinstance(found, int):
            smallest = min(smallest, found)
        elif best is None or found.cost < best.cost:
            best = found
        if best is not None and best.entries <= cheap:
            break
    if best is None:
        raise TooLargeError(int(smallest))
    return best


def band_order(n: int, scopes: Sequence[Sequence[int]]) -> list[int]:
    """Return the reverse Cuthill-McKee order: found at once on any graph, and good on lattices."""
    return _band_order(_neighbours(n, scopes))


def in_order(labels: Sequence[int], scopes: Sequence[Sequence[int]], order: list[int]) -> Elimination:
    """Return the tables that a given order needs; refuses hopeless ones by :class:`TooLargeError`."""
    found = _in_order(labels, _neighbours(len(labels), scopes), order, HOPELESS)
    if isinstance(found, int):
        raise TooLargeError(found)
    return found


def _orders(
    labels: Sequence[int], neighbours: list[set[int]], group: list[int], hopeless: int, deadline: float | None
) -> Iterator[Elimination | int]:
    """Yield orders, or the size of the table at which one was given up."""
    n = len(labels)
    yield _greedy(labels, neighbours, group, range(n), False, hopeless)
    if not any(group):
        yield _in_order(labels, neighbours, _band_order(neighbours), hopeless)
    if deadline is None or time.perf_counter() < deadline:
        yield _greedy(labels, neighbours, group, range(n), True, hopeless)
    fixed = min(RESTARTS, RESTARTS * 1000 // n)
    for seed in itertools.count():
        if seed >= fixed if deadline is None else time.perf_counter() > deadline:
            return
        ties = np.random.default_rng(seed).permutation(n).tolist()
        yield _greedy(labels, neighbours, group, ties, seed >= fixed and seed % 4 == 3, hopeless)


def _neighbours(n: int, scopes: Sequence[Sequence[int]]) -> list[set[int]]:
    out: list[set[int]] = [set() for _ in range(n)]
    for scope in scopes:
        for v in scope:
            out[v].update(scope)
    for v in range(n):
        out[v].discard(v)
    return out


def _band_order(neighbours: list[set[int]]) -> list[int]:
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import reverse_cuthill_mckee

    ptr = np.cumsum([0] + [len(near) for near in neighbours])
    index = np.array([u for near in neighbours for u in sorted(near)], dtype=np.int32)
    n = len(neighbours)
    matrix = csr_array((np.ones(len(index)), index, ptr.astype(np.int32)), shape=(n, n))
    return reverse_cuthill_mckee(matrix, symmetric_mode=True).tolist()


def _in_order(labels: Sequence[int], neighbours: list[set[int]], order: list[int], hopeless: int) -> Elimination | int:
    near = [set(of) for of in neighbours]
    separators, sizes = [], []
    for v in order:
        around = near[v]
        size = math.prod([labels[u] for u in around]) * labels[v]
        if size > hopeless:
            return size
        for u in around:
            near[u] |= around
            near[u] -= {u, v}
        separators.append(sorted(around))
        sizes.append(size)
    return Elimination(order, separators, sum(sizes), max(sizes))


def _greedy(
    labels: Sequence[int],
    neighbours: list[set[int]],
    group: list[int],
    ties: Sequence[int],
    by_size: bool,
    hopeless: int = HOPELESS,
) -> Elimination | int:
    """Take the variable of the first group with the least (fill, size) or (size, fill), then the first one by ``ties``."""
    front = _Front(labels, neighbours)
    current = [(group[v], *front.key(v, by_size), ties[v]) for v in range(len(labels))]
    heap = [(key, v) for v, key in enumerate(current)]
    heapq.heapify(heap)
    order, separators, sizes = [], [], []
    while heap:
        key, v = heapq.heappop(heap)
        if key is not current[v]:  # an entry that later changes made obsolete
            continue
        if front.size[v] > hopeless:
            return front.size[v]
        order.append(v)
        sizes.append(front.size[v])
        separators.append(sorted(front.near[v]))
        for u in front.remove(v):
            key = (group[u], *front.key(u, by_size), ties[u])
            if key != current[u]:
                current[u] = key
                heapq.heappush(heap, (key, u))
    return Elimination(order, separators, sum(sizes), max(sizes))


class _Front:
    """What is left of the graph: neighbourhoods, and for each variable its fill and the size of its table."""

    def __init__(self, labels: Sequence[int], neighbours: list[set[int]]) -> None:
        self.labels = labels
        self.near = [set(of) for of in neighbours]
        self.size = [math.prod([labels[u] for u in of]) * labels[v] for v, of in enumerate(self.near)]
        self.fill = [self._missing(of) for of in self.near]

    def _missing(self, around: set[int]) -> int:
        """Count the pairs of ``around`` that are not neighbours."""
        return (len(around) * (len(around) - 1) - sum(len(self.near[u] & around) for u in around)) // 2

    def key(self, v: int, by_size: bool) -> tuple[int, int]:
        return (self.size[v], self.fill[v]) if by_size else (self.fill[v], self.size[v])

    def remove(self, v: int) -> set[int]:
        """Join the neighbours of v, take v out, and return the variables whose numbers changed."""
        around = self.near[v]
        touched = set(around)
        for u in around:
            self.fill[u] -= len(self.near[u]) - 1 - len(self.near[u] & around)
            self.near[u].discard(v)
            self.size[u] //= self.labels[v]
        if self.fill[v]:
            row = sorted(around)
            for k, a in enumerate(row):
                for b in row[k + 1 :]:
                    if b not in self.near[a]:
                        touched |= self._join(a, b)
        return touched

    def _join(self, a: int, b: int) -> set[int]:
        """Add the edge a - b; return the variables next to both, for whom one edge less is missing."""
        both = self.near[a] & self.near[b]
        for u in both:
            self.fill[u] -= 1
        self.fill[a] += len(self.near[a]) - len(both)
        self.fill[b] += len(self.near[b]) - len(both)
        self.near[a].add(b)
        self.near[b].add(a)
        self.size[a] *= self.labels[b]
        self.size[b] *= self.labels[a]
        return both
