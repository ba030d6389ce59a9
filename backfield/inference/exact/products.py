"""The junction tree in the probability domain: a few nanoseconds per entry where logarithms cost thirty.

    psi(x_C) = product of the tables of C,   m(x_S) = sum_{x_R} psi(x_C),   q(x_R | x_S) = psi(x_C) / m(x_S)

Each table is divided by its maximum, and each message by its own, whose logs add up to log Z. What underflows is then
below 1e-300 of something that is summed, unless a whole message is tiny: then :meth:`Products.run` gives up, and
``exact``, in the log domain, has to answer. Memory: the tables of all cliques.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from backfield.graph import Graph
from backfield.inference.exact.elimination import Elimination, TooLargeError, eliminate
from backfield.inference.exact.junction_tree import COPY, SUM_OUT, JunctionTree, free_scopes
from backfield.inference.exact.table_memory import Plan
from backfield.kernels.compile import kernel

#: A message whose largest entry is below it may have lost others to underflow.
TINY = 1e-200
#: Below this many entries a second order of elimination takes longer to find than it saves.
CHEAP = 2**19


class Tables(NamedTuple):
    """Potentials divided by the maximum of their table, and the sum of the logs of the maxima."""

    values: np.ndarray
    constant: float


def normalised(theta: np.ndarray, starts: np.ndarray) -> Tables:
    """Return exp(theta), table by table divided by its maximum; tables begin at ``starts``."""
    top = np.maximum.reduceat(theta, starts)
    shift = np.where(np.isfinite(top), top, 0.0)
    sizes = np.diff(np.append(starts, len(theta)))
    return Tables(np.exp(theta - np.repeat(shift, sizes)), float(shift.sum()))


def table_starts(graph: Graph) -> np.ndarray:
    """Return where the tables of a graph begin: unary ones, then factors."""
    layout = graph.layout
    return np.concatenate([layout.var_ptr[:-1], layout.var_ptr[-1] + layout.table_ptr[:-1]])


class Products:
    """The compiled junction tree of a graph.

    Parameters
    ----------
    graph : Graph
    limit : int
        Most entries of all tables.
    order : Elimination, optional
        An order of the variables with more than one label, by their places among them.

    Raises
    ------
    TooLargeError
        Where more are needed.
    """

    def __init__(self, graph: Graph, limit: int, order: Elimination | None = None) -> None:
        labels, scopes = free_scopes(graph)
        if order is None and labels:
            order = eliminate(labels, scopes, cheap=CHEAP)
        if order is not None and order.entries > limit:
            raise TooLargeError(order.entries)
        self.tree = JunctionTree(graph, order)
        self.starts = table_starts(graph)
        if self.tree.cliques:
            self.program = Plan(self.tree, [0, len(self.tree.cliques)]).program()

    def tables(self, theta: np.ndarray) -> Tables:
        """Return theta, laid out as by ``Potentials.vector``, as :meth:`run` needs it."""
        return normalised(theta, self.starts)

    def run(self, tables: Tables) -> tuple[float, np.ndarray] | None:
        """Return log Z and marginals laid out as theta; None where underflow is possible, or nothing is."""
        constants = tables.values[self.tree.constants]
        if not self.tree.cliques or (constants < TINY).any():
            return None
        values = np.empty(self.program.size)
        values[: len(tables.values)] = tables.values
        log_scale = _up(self.program.code, self.program.places, values)
        if not np.isfinite(log_scale):
            return None
        values[self.program.roots] = 1
        _down(self.program.code, self.program.places, values)
        out = values[: len(tables.values)]
        out[self.tree.constants] = 1
        return log_scale + tables.constant + float(np.log(constants).sum()), out


@kernel
def _up(code, places, values):
    """Go from leaves to roots: q in the place of psi; return log Z, NaN where a message is tiny."""
    log_scale = 0.0
    for k in range(len(code)):
        row = code[k]
        if row[0] == SUM_OUT:
            scale = _sum_out(row, values)
            if not scale > TINY:
                return np.nan
            log_scale += np.log(scale)
        else:
            _spread(row, places, values)
    return log_scale


@kernel
def _down(code, places, values):
    """Go from roots to leaves: p in the place of q and of theta."""
    for k in range(len(code) - 1, -1, -1):
        row = code[k]
        if row[0] == SUM_OUT:
            n_own = row[4] // row[3]
            for s in range(row[3]):
                p = values[row[1] + s]
                for e in range(row[2] + s * n_own, row[2] + (s + 1) * n_own):
                    values[e] *= p
        else:
            _gather(row, places, values)


@kernel
def _sum_out(row, values):
    """Write the message m / max m and turn psi into q; return max m."""
    n_own = row[4] // row[3]
    scale = 0.0
    for s in range(row[3]):
        a = row[2] + s * n_own
        total = 0.0
        for e in range(a, a + n_own):
            total += values[e]
        values[row[1] + s] = total
        scale = max(scale, total)
        inverse = 1 / total if total > 0 else 0.0
        for e in range(a, a + n_own):
            values[e] *= inverse
    if scale > TINY:
        inverse = 1 / scale
        for s in range(row[3]):
            values[row[1] + s] *= inverse
    return scale


@kernel
def _spread(row, places, values):
    """Do dst = src or dst *= src, repeated along the axes that src lacks."""
    op, k, src, size, at, n_slow, n_middle = row[0], row[1], row[2], row[3], row[5], row[6], row[7]
    n_fast = size // (n_slow * n_middle)
    fast = places[at + n_slow + n_middle : at + n_slow + n_middle + n_fast]
    for a in range(n_slow):
        for b in range(n_middle):
            start = src + places[at + a] + places[at + n_slow + b]
            if op == COPY:
                for c in range(n_fast):
                    values[k + c] = values[start + fast[c]]
            else:
                for c in range(n_fast):
                    values[k + c] *= values[start + fast[c]]
            k += n_fast


@kernel
def _gather(row, places, values):
    """Make src the sum of dst over the axes that src lacks."""
    k, src, size, at, n_slow, n_middle = row[1], row[2], row[3], row[5], row[6], row[7]
    n_fast = size // (n_slow * n_middle)
    fast = places[at + n_slow + n_middle : at + n_slow + n_middle + n_fast]
    values[src : src + row[4]] = 0
    for a in range(n_slow):
        for b in range(n_middle):
            start = src + places[at + a] + places[at + n_slow + b]
            for c in range(n_fast):
                values[start + fast[c]] += values[k + c]
            k += n_fast
