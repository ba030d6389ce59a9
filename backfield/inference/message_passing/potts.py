"""Messages through Potts tables, theta_c(x_i, x_j) = a_c + b_c [x_i = x_j], in O(L).

With q = p / m_c as in ``pairwise``, and exp(theta_c / rho_c) = const (off + (dia - off) [x_i = x_j]), scaled so that its
rows sum to one,

    m_new(y) = off + (dia - off) q(y) / sum_x q(x)          dia / off = exp(b_c / rho_c),   (L - 1) off + dia = 1

Where b < 0 the difference cancels for the largest q: there the others are added up directly.
Cost O(L) per message; no table is written. Adjoints in ``potts_adjoint``.
"""

from __future__ import annotations

import numpy as np

from backfield.graph import Potentials
from backfield.graph.groups import Tied
from backfield.inference.base import Adjoint
from backfield.inference.message_passing.edges import EdgeEngine
from backfield.inference.message_passing.potts_adjoint import PottsAdjoint, Psi, all_scales, sweep_vjp, table_strengths
from backfield.inference.schedule import Schedule
from backfield.kernels.arrays import row_products
from backfield.kernels.messages import combine
from backfield.kernels.unrolled import small_array, unrolled_kernel

#: Of fewer labels a table costs no more.
LEAST_LABELS = 3


def potts_strengths(theta: Potentials) -> np.ndarray | None:
    """Return b (F,) where all tables are a + b [x_i = x_j] and either all groups are tied or none; else None."""
    graph = theta.graph
    if graph.n_labels is None or graph.n_labels < LEAST_LABELS or graph.arity != 2:
        return None
    if theta.dtype.kind != "f" or theta.formless:
        return None
    if theta.has_tables_only:
        return table_strengths(theta.factors_flat, graph.n_labels)
    parts = []
    for group in theta.groups:
        each = table_strengths(group.tables, graph.n_labels) if isinstance(group, Tied) else None
        if each is None:
            return None
        assert isinstance(group, Tied)
        parts.append(row_products(all_scales(group), each[:, None])[:, 0])
    return np.concatenate(parts)


class PottsEngine(EdgeEngine):
    """State: messages (S, L), each summing to one, in the order of places."""

    def __init__(self, theta: Potentials, rho: np.ndarray, schedule: Schedule, damping: float, b: np.ndarray) -> None:
        super().__init__(theta, rho, schedule, damping)
        self.b = b
        self.psi = self._psi(b / self.rho)
        self.cancels = True if b.min(initial=0) < 0 else None  # None: compiled without a branch

    def _psi(self, strength: np.ndarray) -> Psi:
        """Return exp(theta_c / rho_c) of every place, divided by its row sums."""
        off, dia = np.exp(-np.maximum(strength, 0)), np.exp(np.minimum(strength, 0))
        more = np.sign(strength) * -np.expm1(-np.abs(strength))
        total = (len(self.count) - 1) * off + dia
        out = np.empty((3, self.theta.graph.n_slots), self.theta.dtype)
        out[:, self.links.place] = np.repeat(np.stack([off, dia, more]) / total, 2, axis=1)
        return Psi(*out)

    def demand(self) -> np.ndarray:
        """Return the parts of a bound on |log| of every product that the kernels form (see ``families``)."""
        graph, count = self.theta.graph, len(self.count)
        each = np.abs(self.b) / self.rho + np.log(count)
        ends = graph.factors.reshape(-1)
        product = np.bincount(ends, np.repeat(each * np.maximum(1, self.rho), 2), graph.n_variables)
        power = np.bincount(ends, np.repeat(each * self.rho, 2), graph.n_variables)
        unary = self.theta.unary
        low = np.where(unary > -np.inf, unary, np.inf).min(axis=1)  # a forbidden label stays zero
        around = (unary.max(axis=1) - low + power).max()
        return np.array([product.max(), around, each.max(), each.max() + np.log(count)])

    def sweeps(self, state: np.ndarray, first: int, last: int) -> None:
        """Do iterations ``first .. last - 1`` in one call of the kernel."""
        if self.schedule.flooding and last - first > 1:
            return super().sweeps(state, first, last)
        source = state.copy() if self.schedule.flooding else state
        args = self.uniform, self.powers, self.psi_unary, self.psi, self.cancels, self.keep, source, state
        _sweep(self.count, self.links, self.visits, first, last, self.schedule.alternate, *args)

    def factor_beliefs(self, unary: np.ndarray, state: np.ndarray, mu: np.ndarray) -> None:
        """Write mu(x_c)."""
        _factor_beliefs(self.count, self.links, self.theta.graph.factors, self.psi, unary, state, mu)

    def adjoint(self) -> PottsAdjoint:
        """Return a collector of sums over tied factors, or of a table for each factor."""
        return PottsAdjoint(self.theta, self.rho, self.links.place, self.psi)

    def sweep_vjp(self, before: np.ndarray, after: np.ndarray, t: int, d_state: np.ndarray, d_theta: Adjoint) -> None:
        """Turn the adjoint of ``after`` into that of ``before``."""
        assert isinstance(d_theta, PottsAdjoint)
        current, incoming = after, None
        if self.schedule.flooding:
            current, incoming = before, d_state.copy()
            d_state[:] = 0
        tables = self.uniform, self.powers, self.psi_unary, self.psi, self.cancels, self.keep
        args = *tables, before, after, current, incoming, d_state
        into = d_theta.unary.reshape(self.psi_unary.shape), d_theta.ends, d_theta.tables, d_theta.sums
        sweep_vjp(self.count, self.links, self.visits, not self.schedule.backward(t), *args, *into)


@unrolled_kernel
def _sweep(count, links, visits, first, last, alternate, uniform, powers, psi_u, psi, cancels, damping, source, state):
    """Do sweeps first .. last - 1."""
    # No index into p or q that is not known to the compiler: it would keep them from the registers.
    L = len(count)
    dtype = state.dtype
    p, q = small_array(count, state), small_array(count, state)
    n = len(visits.variable)
    for step in range((last - first) * n):
        t, v = first + step // n, step % n
        g = n - 1 - v if alternate and t % 2 == 1 else v
        i = visits.variable[g]
        combine(count, links, i, uniform, powers, psi_u, source, p)
        for at in range(visits.ptr[g], visits.ptr[g + 1]):
            s = np.uint64(visits.sends[at])  # unsigned: an index that might count from the end costs instructions
            w = np.uint64(links.reverse[s])
            incoming, target = source[s], state[w]
            for a in range(L):
                q[a] = p[a] / incoming[a]
            total = dtype.type(0)
            for a in range(L):
                total += q[a]
            off, more, top, exact = psi.off[s], psi.more[s] / total, L, dtype.type(0)
            if cancels is not None and more < 0:
                highest = dtype.type(-1)
                for a in range(L):
                    top = a if q[a] > highest else top
                    highest = max(q[a], highest)
                others = dtype.type(0)
                for a in range(L):
                    others += q[a] if a != top else dtype.type(0)
                exact = (off * others + psi.dia[s] * highest) / total
            if damping is None:
                for b in range(L):
                    target[b] = off + more * q[b]
                if cancels is not None and top < L:
                    target[top] = exact
            else:
                for b in range(L):
                    message = exact if cancels is not None and b == top else off + more * q[b]
                    q[b] = source[w, b] ** dtype.type(damping) * message ** dtype.type(1 - damping)
                total = dtype.type(0)
                for b in range(L):
                    total += q[b]
                scale = dtype.type(1) / total
                for b in range(L):
                    target[b] = scale * q[b]


@unrolled_kernel
def _factor_beliefs(count, links, scopes, psi, mu_u, m, mu):
    L = len(count)
    dtype = m.dtype
    q, weight = small_array(count, m), small_array(count, m)
    for c in range(len(scopes)):
        here, there = np.uint64(links.place[2 * c]), np.uint64(links.place[2 * c + 1])
        i, j = np.uint64(scopes[c, 0]), np.uint64(scopes[c, 1])
        off, dia, out = psi.off[here], psi.dia[here], mu[c]
        for a in range(L):
            weight[a] = mu_u[i, a] / m[here, a]
        for b in range(L):
            q[b] = mu_u[j, b] / m[there, b]
        total = dtype.type(0)
        for a in range(L):
            row = dtype.type(0)
            for b in range(L):
                row += q[b] * (dia if a == b else off)
            total += weight[a] * row
        scale = dtype.type(1) / total
        for a in range(L):
            share = weight[a] * scale
            for b in range(L):
                out[a, b] = (dia if a == b else off) * (share * q[b])
