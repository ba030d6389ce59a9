"""Bounds of log Z that tighten with time: the best so far, and the two methods that work on them.

Time is cut into slices that double. In each slice the tables may be as large as lets one step end in a small part of it,
so a longer run does what a shorter one did, and then more.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from backfield.errors import InputError
from backfield.graph import Potentials
from backfield.inference.auto.cluster_mean_field import ClusterMeanField, cost, cut
from backfield.inference.auto.mini_buckets import MiniBucketBound, Split
from backfield.inference.exact.elimination import TooLargeError, band_order
from backfield.inference.exact.junction_tree import free_scopes
from backfield.kernels.compiling import clock

#: Seconds that one entry of a table takes in a step up and down, before it is measured.
SECONDS_PER_ENTRY = 5e-8
#: Steps that should fit into a slice.
STEPS = 25
#: Entries from which on the time of a step is that of its tables.
MEASURED = 2**17
#: Entries of a mini-bucket's table to begin with, and the least factor by which tables grow.
FIRST, GROWTH = 8, 8
#: Variables in a cluster to begin with.
CLUSTER = 24


@dataclass
class Bounds:
    """The best bounds so far, and where they are from."""

    lower: float = -np.inf
    upper: float = np.inf
    below: str = "nothing"
    above: str = "nothing"

    def raise_lower(self, value: float, source: str) -> None:
        """Take a lower bound if it is better."""
        if value > self.lower:
            self.lower, self.below = min(value, self.upper), source

    def drop_upper(self, value: float, source: str) -> None:
        """Take an upper bound if it is better."""
        if value < self.upper:
            self.upper, self.above = max(value, self.lower), source

    @property
    def meet(self) -> bool:
        """Whether log Z is known."""
        return self.lower > -np.inf and self.upper - self.lower <= 1e-10 * max(1.0, abs(self.lower))


def plain_upper(theta: Potentials) -> float:
    """Return what log Z is without factors, plus the largest entry of each factor: a bound that costs nothing."""
    layout = theta.graph.layout
    alone = np.logaddexp.reduceat(theta.unary_flat, layout.var_ptr[:-1]).sum()
    return float(alone + np.maximum.reduceat(theta.factors_flat, layout.table_ptr[:-1]).sum())


class Improver(Protocol):
    """A method that tightens one of the bounds."""

    def improve(self, seconds: float, deadline: float) -> None:
        """Work for ``seconds``, not beyond ``deadline``."""


def tighten(bounds: Bounds, improvers: list[Improver], deadline: float, first: float = 0.1) -> None:
    """Let each improver work in slices that double, until the time is up or the bounds meet."""
    seconds = first
    while clock() < deadline and not bounds.meet:
        for improver in improvers:
            improver.improve(seconds, deadline)
        seconds *= 2


class UpperByMiniBuckets:
    """Weighted mini-buckets of growing tables; the shifts of one split start the next.

    Parameters
    ----------
    theta : Potentials
    order : list of int
        The order of elimination.
    bounds : Bounds
    memory : int
        Bytes that the tables may take.
    """

    def __init__(self, theta: Potentials, order: list[int], bounds: Bounds, memory: int) -> None:
        self.theta, self.order, self.bounds, self.memory = theta, order, bounds, memory
        self.per_entry = SECONDS_PER_ENTRY
        self.limit = FIRST
        self.current: MiniBucketBound | None = None
        self.split = Split(theta.graph, order, self.limit)

    def improve(self, seconds: float, deadline: float) -> None:
        """Grow the tables if the slice allows for it, and move shifts and weights."""
        until = min(clock() + seconds, deadline)
        if self._grow(seconds / STEPS / self.per_entry) or self.current is None:
            self._bind()
        if self.current is None:
            return
        if not self.split.is_exact:
            self.current.tighten(until)
        self.bounds.drop_upper(self.current.value, f"weighted mini-buckets of up to {self.split.order.largest:,} entries")
        if self.split.is_exact:
            self.bounds.raise_lower(self.current.value, "elimination")

    def _grow(self, entries: float) -> bool:
        """Take larger tables, about as large as ``entries`` in all."""
        room = min(entries, self.memory / 16) / self.split.order.entries
        if self.split.is_exact or room < GROWTH:
            return False
        limit = self.limit * 2 ** int(np.log2(room))
        split = Split(self.theta.graph, self.order, limit, self.split)
        self.limit = limit
        if split.order.entries * 16 > self.memory:
            return False
        self.split = split
        return True

    def _bind(self) -> None:
        try:
            self.current = MiniBucketBound(self.theta, self.split, self.memory, self.current)
        except InputError:  # too large after all
            return
        first = clock()
        self.current.evaluate(self.current.delta, self.current.log_weight)
        if self.split.order.entries > MEASURED:
            self.per_entry = (clock() - first) / self.split.order.entries


class LowerByClusters:
    """Mean field over fewer and fewer clusters, cut from two orders by turns."""

    def __init__(self, theta: Potentials, beliefs: np.ndarray, bounds: Bounds, memory: int) -> None:
        self.theta, self.beliefs, self.bounds, self.memory = theta, beliefs, bounds, memory
        n = theta.graph.n_variables
        self.orders = [np.array(band_order(*_counted(theta))), np.arange(n)]
        self.turn = 0
        self.count = [max(n // CLUSTER, 2)] * 2
        self.done = [False, False]
        self.needed: dict[tuple[int, int], int] = {}  # entries by order and number of clusters

    def improve(self, seconds: float, deadline: float) -> None:
        """Take the fewest clusters that the slice allows for, and raise the bound from the best beliefs so far."""
        until = min(clock() + seconds, deadline)
        for _ in self.orders:
            self._try(seconds / STEPS / SECONDS_PER_ENTRY, until)
            self.turn = 1 - self.turn
            if clock() > until:
                return

    def _try(self, entries: float, until: float) -> None:
        k, order = self.turn, self.orders[self.turn]
        count = self._fewest(k, order, entries, until)
        if count == self.count[k] and self.done[k]:
            return
        self.count[k], self.done[k] = count, True
        limit = self.memory // 16
        try:
            field = ClusterMeanField(self.theta, cut(order, count), self.beliefs, limit)
        except TooLargeError:
            return
        value = field.raise_until(until)
        if value > self.bounds.lower:
            self.bounds.raise_lower(value, f"mean field over {len(field.clusters)} clusters")
            self.beliefs = field.beliefs()

    def _fewest(self, k: int, order: np.ndarray, entries: float, until: float) -> int:
        count = self.count[k]
        while count > 1 and clock() < until:
            fewer = count // 2 if count > 4 else count - 1
            if (k, fewer) not in self.needed:
                self.needed[k, fewer] = cost(self.theta, cut(order, fewer))
            if self.needed[k, fewer] > entries or self.needed[k, fewer] * 16 > self.memory:
                break
            count = fewer
        return count


def _counted(theta: Potentials) -> tuple[int, list[list[int]]]:
    _, scopes = free_scopes(theta.graph)
    return theta.graph.n_variables, scopes
