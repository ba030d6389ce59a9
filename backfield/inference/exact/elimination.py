"""Orders in which variables are summed out, and the tables that an order needs.

Summing out v joins all tables that mention it: a table over v and its neighbours, who then are neighbours of each
other. The greedy order takes the variable that adds the fewest edges (min-fill, plain or weighted by label counts), or
whose table is the smallest. Greedy orders are poor on lattices, where the reverse Cuthill-McKee order (a front that moves
through the graph) has the width of the shorter side; so where tables are large several orders are tried, and the one with
the smallest tables wins. No random numbers but seeded ones, hence always the same order, unless a time is given to look for
better ones.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import count, islice
from typing import NamedTuple

import numpy as np

from backfield.inference.exact.order_kernels import FILL, GIVEN, SIZE, WEIGHTED_FILL, greedy, neighbours
from backfield.kernels.compiling import clock

#: Below this many entries in all no second order is tried.
CHEAP = 2**16
#: Orders that need a larger table are given up at once.
HOPELESS = 2**36
#: Random restarts at the most, and the entries of tables per variable that are worth one.
RESTARTS, WORTH = 32, 2**13
#: Fewer variables are no lattice that is worth a band order.
LATTICE = 100


class Elimination(NamedTuple):
    """An order of the variables, and those that the k-th one's table leaves behind: ``flat[ends[k - 1]:ends[k]]``."""

    order: np.ndarray
    ends: np.ndarray
    flat: np.ndarray
    entries: int  # of all tables
    largest: int  # entries of the largest table

    @property
    def separators(self) -> list[list[int]]:
        """The separators, one list for each place of the order."""
        flat, ends = self.flat.tolist(), self.ends.tolist()
        return [flat[a:z] for a, z in zip([0, *ends[:-1]], ends, strict=True)]


class TooLargeError(Exception):
    """Every order that was tried needs a table of at least ``entries``."""

    def __init__(self, entries: int) -> None:
        super().__init__(entries)
        self.entries = entries


class Adjacency:
    """Label counts and neighbourhoods, as the kernels need them.

    Parameters
    ----------
    labels : (n,) ints
    scope_ptr, scope : the variables of each table, one after the other
    """

    def __init__(self, labels: np.ndarray, scope_ptr: np.ndarray, scope: np.ndarray) -> None:
        self.labels = np.asarray(labels, dtype=np.float64)
        self.n = len(self.labels)
        self.ptr, self.near = neighbours(self.n, _ints(scope_ptr), _ints(scope))

    @classmethod
    def of(cls, labels: Sequence[int], scopes: Sequence[Sequence[int]]) -> Adjacency:
        """Return that of lists."""
        flat = [v for scope in scopes for v in scope]
        return cls(np.array(labels), np.cumsum([0, *map(len, scopes)]), np.array(flat, dtype=np.int64))

    def greedy(self, group: np.ndarray, rule: int, hopeless: int, seed: int | None = None) -> Elimination | int:
        """Return a greedy order, or the size of the table at which it was given up."""
        ties, noise = np.arange(self.n), np.ones(self.n)
        if seed is not None:
            rng = np.random.default_rng(seed)
            ties = rng.permutation(self.n)
            if seed % 2:
                noise = 1 + 0.4 * rng.random(self.n)
        found = greedy(self.labels, self.ptr, self.near, group, ties, noise, rule, float(hopeless))
        order, ends, flat, entries, largest = found
        return (
            Elimination(order, ends, flat, int(entries), int(largest)) if len(order) == self.n else int(min(largest, 2e18))
        )

    def in_order(self, order: Sequence[int] | np.ndarray, hopeless: int) -> Elimination | int:
        """Return the tables that a given order needs, or the size of the one at which it was given up."""
        rank = np.empty(self.n, dtype=np.int64)
        rank[np.asarray(order, dtype=np.int64)] = np.arange(self.n)
        return self.greedy(rank, GIVEN, hopeless)

    def band(self) -> np.ndarray:
        """Return the reverse Cuthill-McKee order."""
        from scipy.sparse import csr_array
        from scipy.sparse.csgraph import reverse_cuthill_mckee

        arrays = np.ones(len(self.near)), self.near.astype(np.int32), self.ptr.astype(np.int32)
        found = reverse_cuthill_mckee(csr_array(arrays, shape=(self.n, self.n)), symmetric_mode=True)
        return np.asarray(found, dtype=np.int64)


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
    return cheapest(Adjacency.of(labels, scopes), last, seconds, cheap, hopeless)


def cheapest(
    adjacency: Adjacency,
    last: Sequence[int] = (),
    seconds: float | None = None,
    cheap: int = CHEAP,
    hopeless: int = HOPELESS,
    weigh_largest: int = 8,
    tries: int | None = None,
) -> Elimination:
    """Do what :func:`eliminate` does, on arrays.

    Orders are compared by the entries of all tables; where tables are stored, the largest one sets the least memory
    needed, so its entries count ``weigh_largest`` times more. ``tries``: orders that are tried at the most.
    """
    group = np.zeros(adjacency.n, dtype=np.int64)
    group[list(last)] = 1
    best: Elimination | None = None
    smallest = least = 2**62
    deadline = None if seconds is None else clock() + seconds
    for found in islice(_orders(adjacency, group, hopeless, deadline), tries):
        if isinstance(found, int):
            smallest = min(smallest, found)
        elif best is None or found.entries + weigh_largest * found.largest < least:
            best, least = found, found.entries + weigh_largest * found.largest
        if best is not None and best.entries <= cheap:
            break
    if best is None:
        raise TooLargeError(smallest)
    return best


def band_order(n: int, scopes: Sequence[Sequence[int]]) -> list[int]:
    """Return the reverse Cuthill-McKee order: found at once on any graph, and good on lattices."""
    return Adjacency.of([2] * n, scopes).band().tolist()


def in_order(labels: Sequence[int], scopes: Sequence[Sequence[int]], order: list[int]) -> Elimination:
    """Return the tables that a given order needs; refuses hopeless ones by :class:`TooLargeError`."""
    found = Adjacency.of(labels, scopes).in_order(order, HOPELESS)
    if isinstance(found, int):
        raise TooLargeError(found)
    return found


def _orders(adjacency: Adjacency, group: np.ndarray, hopeless: int, deadline: float | None) -> Iterator[Elimination | int]:
    """Yield orders, or the size of the table at which one was given up."""
    least = hopeless
    for rule in (FILL, WEIGHTED_FILL):
        found = adjacency.greedy(group, rule, hopeless)
        least = min(least, found.entries if isinstance(found, Elimination) else hopeless)
        yield found
    if not group.any() and (adjacency.n > LATTICE or least == hopeless):
        yield adjacency.in_order(adjacency.band(), hopeless)
    if deadline is not None and clock() > deadline:
        return
    yield adjacency.greedy(group, SIZE, hopeless)
    fixed = min(RESTARTS, least // (WORTH * adjacency.n))
    for seed in count():
        if seed >= fixed if deadline is None else clock() > deadline:
            return
        yield adjacency.greedy(group, (FILL, WEIGHTED_FILL, WEIGHTED_FILL, SIZE)[seed % 4], hopeless, seed)


def _ints(values: np.ndarray) -> np.ndarray:
    """Return a writeable copy, the one type for which the kernels are compiled."""
    return np.array(values, dtype=np.int64)
