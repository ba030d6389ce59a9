"""Adjoints of messages through Potts tables (see ``potts``).

The adjoint of a table, d_theta_c(x, y) = exp(theta_c(x, y) / rho_c) q(x) h(y) / rho_c for every message, has L^2 entries
also where theta_c is Potts. For tied groups they are needed summed over factors only: outer products of four messages at
a time are added to the few tables, which stay in the cache; the adjoint of a scale, <T_k, d_theta_c>, is b_k times the
trace, as d_theta_c sums to zero. Cost O(L) per message, and L^2 multiply-adds per message and tied table. Where each
factor has its own table, L^2 numbers per factor are kept.
"""

from __future__ import annotations

from functools import cached_property
from typing import NamedTuple

import numpy as np

from backfield.graph import Graph, Potentials
from backfield.graph.groups import Tied
from backfield.inference.base import Adjoint
from backfield.kernels.compile import exact_kernel, kernel
from backfield.kernels.messages import combine
from backfield.kernels.unrolled import small_array, unrolled_kernel

#: Messages whose outer products are added up together.
_TOGETHER = 4


class Psi(NamedTuple):
    """exp(theta_c / rho_c) of each place, with rows that sum to one: ``dia`` where labels are equal, else ``off``."""

    off: np.ndarray
    dia: np.ndarray
    more: np.ndarray  # dia - off, without cancellation


class Ends(NamedTuple):
    """The factor of each place, and whether the variable there comes first in its scope."""

    factor: np.ndarray
    first: np.ndarray


class Sums(NamedTuple):
    """Adjoints of tied groups: sums over factors of outer products, weighted by scales."""

    group: np.ndarray  # (F,) group of a factor
    n_tables: np.ndarray  # (G,)
    sigma: np.ndarray  # (F, K) scales, divided by rho
    tables: np.ndarray  # (G, K, L, L) d_T, but for its diagonal
    diagonal: np.ndarray  # (G, K, L) the diagonal of d_T
    trace: np.ndarray  # (F,) rho times the trace of d_theta_c
    rows: np.ndarray  # (G, 4, L) outer products that wait to be added
    columns: np.ndarray  # (G, 4, L)
    weights: np.ndarray  # (G, 4, K)
    waiting: np.ndarray  # (G,) their number


class PottsAdjoint(Adjoint):
    """Tied groups: :class:`Sums`. Tables: ``tables`` (F, L, L), the adjoint of theta_c / rho_c divided by psi."""

    tables: np.ndarray | None = None
    sums: Sums | None = None

    def __init__(self, theta: Potentials, rho: np.ndarray, place: np.ndarray, psi: Psi) -> None:
        assert theta.graph.n_labels is not None
        self.theta, self.rho, self.count, self.place, self.psi = theta, rho, theta.graph.n_labels, place, psi
        self.unary = np.zeros_like(theta.unary_flat)
        self.parameters = {}
        self.ends = _ends(place)
        if theta.has_tables_only:
            self.tables = np.zeros((theta.graph.n_factors, self.count, self.count), theta.dtype)
        else:
            self.sums = _empty_sums(theta, rho, self.count)

    @cached_property
    def factors(self) -> np.ndarray:  # type: ignore[override]
        """The adjoint of all tables, which clique losses and log Z add to; made when it is asked for."""
        return np.zeros_like(self.theta.factors_flat)

    def potentials(self, graph: Graph) -> Potentials:
        """Return d_theta."""
        if self.tables is not None:
            _fold(self.place, self.rho, self.psi, self.tables, self.factors.reshape(self.tables.shape))
            self.tables[:] = 0
            return Potentials.from_flat(graph, self.unary, self.factors)
        groups = [self._group(g) for g in range(len(self.theta.groups))]
        return Potentials.from_groups(graph, self.unary, groups)

    def _group(self, g: int) -> Tied:
        sums, group, span = self.sums, self.theta.groups[g], self.theta.graph.groups[g]
        assert sums is not None and isinstance(group, Tied)
        waiting = slice(0, sums.waiting[g])
        rows, columns, weights = sums.rows[g, waiting], sums.columns[g, waiting], sums.weights[g, waiting]
        d_tables = sums.tables[g] + np.einsum("mk,ma,mb->kab", weights, rows, columns)
        index = np.arange(d_tables.shape[1])
        d_tables[:, index, index] = sums.diagonal[g]
        d_matrix = d_tables[: group.n_tables].reshape(group.n_tables, -1).astype(self.unary.dtype)
        d_scales = None
        if group.moves_scales:
            b = table_strengths(group.tables, self.count)
            assert b is not None
            trace = (sums.trace / self.rho)[span.start : span.stop, None]
            d_scales = (trace * b[: group.scales.shape[1]]).astype(self.unary.dtype)
        if "factors" in self.__dict__:
            size = d_matrix.shape[1]
            more = group.vjp(self.factors[span.start * size : span.stop * size])
            d_matrix = d_matrix + more.matrix
            d_scales = None if d_scales is None else d_scales + more.scales
        return group.adjoint(d_matrix, d_scales)


def _ends(place: np.ndarray) -> Ends:
    slot = np.empty_like(place)
    slot[place] = np.arange(len(place))
    ends = Ends(slot // 2, slot % 2 == 0)
    for array in ends:
        array.flags.writeable = False
    return ends


def _empty_sums(theta: Potentials, all_rho: np.ndarray, count: int) -> Sums:
    groups = [group for group in theta.groups if isinstance(group, Tied)]
    most = max(group.n_tables for group in groups)
    sigma = np.zeros((theta.graph.n_factors, most), theta.dtype)
    number = np.empty(theta.graph.n_factors, dtype=np.int64)
    for g, (group, span) in enumerate(zip(groups, theta.graph.groups, strict=True)):
        number[span.start : span.stop] = g
        rho = all_rho[span.start : span.stop, None]
        sigma[span.start : span.stop, : group.n_tables] = all_scales(group) / rho
    shape = len(groups), _TOGETHER
    return Sums(
        group=number,
        n_tables=np.array([group.n_tables for group in groups]),
        sigma=sigma,
        tables=np.zeros((len(groups), most, count, count)),
        diagonal=np.zeros((len(groups), most, count)),
        trace=np.zeros(theta.graph.n_factors),
        rows=np.zeros((*shape, count), theta.dtype),
        columns=np.zeros((*shape, count), theta.dtype),
        weights=np.zeros((*shape, most), theta.dtype),
        waiting=np.zeros(len(groups), dtype=np.int64),
    )


def table_strengths(tables: np.ndarray, count: int) -> np.ndarray | None:
    """Return b of each table; None where one is not Potts."""
    tables = tables.reshape(-1, count, count)
    b = np.empty(len(tables))
    return b if _strengths(tables, b) else None


def all_scales(group: Tied) -> np.ndarray:
    """Return the scales (n_factors, n_tables) with ones for a table that enters every factor once."""
    ones = np.ones((group.n_factors, 1))
    if group.scales is None:
        return ones
    return np.concatenate([group.scales, ones], axis=1) if group.has_constant else group.scales


@exact_kernel
def _strengths(tables, b):
    """Write b of each table; return whether all are finite and Potts."""
    for c in range(len(tables)):
        same, other = tables[c, 0, 0], tables[c, 0, 1]
        b[c] = same - other
        if not np.isfinite(b[c]):
            return False
        for x in range(tables.shape[1]):
            for y in range(tables.shape[2]):
                if tables[c, x, y] != (same if x == y else other):
                    return False
    return True


@unrolled_kernel
def sweep_vjp(
    count, links, visits, backward, uniform, powers, psi_u, psi, cancels, damping, before, after, current, incoming,
    d_state, d_unary, ends, d_tables, sums,
):  # fmt: skip
    """Undo one sweep, as :func:`~backfield.inference.message_passing.pairwise._sweep_vjp` does."""
    L = len(count)
    dtype = before.dtype
    p, q, h = small_array(count, before), small_array(count, before), small_array(count, before)
    out, running = small_array(count, before), small_array(count, before)
    c0, c1 = small_array(count, before), small_array(count, before)
    c2, c3 = small_array(count, before), small_array(count, before)
    keep = dtype.type(0)
    if damping is not None:
        keep = dtype.type(damping)
    n = len(visits.variable)
    for v in range(n):
        g = n - 1 - v if backward else v
        i = visits.variable[g]
        combine(count, links, i, uniform, powers, psi_u, current, p)
        for a in range(L):
            running[a] = dtype.type(0)
        for at in range(visits.ptr[g], visits.ptr[g + 1]):
            s = np.uint64(visits.sends[at])
            w = np.uint64(links.reverse[s])
            listened = current[s]
            off, dia, more = psi.off[s], psi.dia[s], psi.more[s]
            for a in range(L):
                q[a] = p[a] / listened[a]
            total = dtype.type(0)
            for a in range(L):
                total += q[a]
            inverse, top = dtype.type(1) / total, L
            if cancels is not None and more < 0:
                highest = dtype.type(-1)
                for a in range(L):
                    top = a if q[a] > highest else top
                    highest = max(q[a], highest)
            if damping is None:
                for b in range(L):
                    out[b] = after[w, b]
            else:
                others = dtype.type(0)
                for a in range(L):
                    others += q[a] if a != top else dtype.type(0)
                for b in range(L):
                    exact = b == top
                    out[b] = inverse * (off * others + dia * q[b]) if exact else off + inverse * more * q[b]
            # One array of the heap in each loop: the compiler then knows that nothing overlaps.
            if incoming is None:
                for b in range(L):
                    h[b] = d_state[w, b]
                for b in range(L):
                    d_state[w, b] = keep * h[b]
                for b in range(L):
                    c0[b] = before[w, b]
                for b in range(L):
                    current[w, b] = c0[b]
            else:
                for b in range(L):
                    h[b] = incoming[w, b]
                for b in range(L):
                    d_state[w, b] += keep * h[b]
            excess = dtype.type(0)
            for b in range(L):
                excess += h[b]
            excess *= dtype.type(1 / L)
            scale = inverse * (dtype.type(1) - keep)
            for b in range(L):
                h[b] = scale * (h[b] - excess) / out[b]
            c, is_first = np.uint64(ends.factor[s]), ends.first[s]
            if d_tables is not None:
                for a in range(L):
                    out[a] = h[a] if is_first else q[a]
                for a in range(L):
                    weight = q[a] if is_first else h[a]
                    for b in range(L):
                        d_tables[c, a, b] += weight * out[b]
            if sums is not None:
                group = np.uint64(sums.group[c])
                place = np.uint64(sums.waiting[group])
                trace = dtype.type(0)
                for a in range(L):
                    out[a] = dia * q[a] * h[a]
                    trace += out[a]
                sums.trace[c] += trace
                for k in range(sums.n_tables[group]):
                    weight = sums.sigma[c, k]
                    sums.weights[group, place, k] = weight * off
                    for a in range(L):
                        sums.diagonal[group, k, a] += weight * out[a]
                for a in range(L):
                    sums.rows[group, place, a] = q[a] if is_first else h[a]
                for a in range(L):
                    sums.columns[group, place, a] = h[a] if is_first else q[a]
                sums.waiting[group] = (place + np.uint64(1)) % np.uint64(4)
                if place == 3:
                    for b in range(L):
                        c0[b] = sums.columns[group, 0, b]
                    for b in range(L):
                        c1[b] = sums.columns[group, 1, b]
                    for b in range(L):
                        c2[b] = sums.columns[group, 2, b]
                    for b in range(L):
                        c3[b] = sums.columns[group, 3, b]
                    for k in range(sums.n_tables[group]):
                        w0, w1 = sums.weights[group, 0, k], sums.weights[group, 1, k]
                        w2, w3 = sums.weights[group, 2, k], sums.weights[group, 3, k]
                        for a in range(L):
                            r0, r1 = w0 * sums.rows[group, 0, a], w1 * sums.rows[group, 1, a]
                            r2, r3 = w2 * sums.rows[group, 2, a], w3 * sums.rows[group, 3, a]
                            for b in range(L):
                                sums.tables[group, k, a, b] += (r0 * c0[b] + r1 * c1[b]) + (r2 * c2[b] + r3 * c3[b])
            total = dtype.type(0)
            for a in range(L):
                total += h[a]
            for a in range(L):
                out[a] = q[a] * (off * total + more * h[a])
            if cancels is not None and more < 0:
                total = dtype.type(0)
                for b in range(L):
                    total += h[b] if b != top else dtype.type(0)
                for a in range(L):
                    out[a] = q[a] * (off * total + dia * h[a]) if a == top else out[a]
            for a in range(L):
                running[a] += out[a]
            for a in range(L):
                d_state[s, a] -= out[a]
        for k in range(links.start[i], links.stop[i]):
            power = powers[k]
            for a in range(L):
                d_state[k, a] += power * running[a]
        for a in range(L):
            d_unary[i, a] += running[a]


@kernel
def _fold(place, rho, psi, tables, d_factors):
    """Add the adjoints of theta_c / rho_c to those of theta."""
    for c in range(len(tables)):
        scale = psi.off.dtype.type(1 / rho[c])
        off, dia = scale * psi.off[place[2 * c]], scale * psi.dia[place[2 * c]]
        for a in range(tables.shape[1]):
            for b in range(tables.shape[1]):
                d_factors[c, a, b] += (dia if a == b else off) * tables[c, a, b]
