"""Messages on pairwise graphs with one label count, in the probability domain: [D13] eq. (18) for arity 2.

A visit of variable i multiplies its incoming messages once and sends to some or all of its neighbours:

    p(a) = exp(theta_i(a)) prod_d m_d(a)^rho_d        (kept for all neighbours)
    m_new(b) ∝ sum_a p(a) / m_c(a) · exp(theta_c(a, b) / rho_c)

Messages into one variable lie side by side (the order of ``inc``), and each directed message has its own table,
with the sender's label first. Cost L^2 multiply-adds per message; memory 2 E L^2 for the tables.
The label count is known at compile time (see ``label_count``). Adjoints as in ``_messages_log``.
"""

from __future__ import annotations

import numpy as np

from backfield.graph import Graph, Potentials
from backfield.inference.base import Adjoint
from backfield.inference.message_passing.edges import EdgeEngine, shift
from backfield.inference.schedule import Schedule
from backfield.kernels.compile import kernel
from backfield.kernels.messages import combine
from backfield.kernels.unrolled import small_array, unrolled_kernel


class PairwiseEngine(EdgeEngine):
    """State: messages (S, L), each summing to one, in the order of places."""

    def __init__(self, theta: Potentials, rho: np.ndarray, schedule: Schedule, damping: float) -> None:
        super().__init__(theta, rho, schedule, damping)
        graph, count = theta.graph, len(self.count)
        self.psi = np.empty((graph.n_slots, count, count), theta.dtype)
        tables = np.empty((graph.n_factors, count, count), theta.dtype)
        shift(theta.factors.reshape(graph.n_factors, -1), self.rho, tables.reshape(graph.n_factors, -1))
        np.exp(tables, out=tables)
        _direct(self.links.place, tables, self.psi)

    def sweeps(self, state: np.ndarray, first: int, last: int) -> None:
        """Do iterations ``first .. last - 1`` in one call of the kernel."""
        if self.schedule.flooding and last - first > 1:
            return super().sweeps(state, first, last)
        source = state.copy() if self.schedule.flooding else state
        args = self.uniform, self.powers, self.psi_unary, self.psi, self.keep, source, state
        _sweep(self.count, self.links, self.visits, first, last, self.schedule.alternate, *args)

    def log_messages(self, state: np.ndarray) -> np.ndarray:
        """Return log messages in the order of the slots."""
        return self.logs(state)[self.links.place].reshape(-1)

    def adjoint(self) -> PairwiseAdjoint:
        """Return a collector that keeps the two directions of an edge apart."""
        return PairwiseAdjoint(self)

    def sweep_vjp(self, before: np.ndarray, after: np.ndarray, t: int, d_state: np.ndarray, d_theta: Adjoint) -> None:
        """Turn the adjoint of ``after`` into that of ``before``."""
        assert isinstance(d_theta, PairwiseAdjoint)
        current, incoming = after, None
        if self.schedule.flooding:
            current, incoming = before, d_state.copy()
            d_state[:] = 0
        args = self.uniform, self.powers, self.psi_unary, self.psi, self.keep, before, after, current, incoming, d_state
        into = d_theta.unary.reshape(self.psi_unary.shape), d_theta.tables
        _sweep_vjp(self.count, self.links, self.visits, not self.schedule.backward(t), *args, *into)

    def factor_beliefs(self, unary: np.ndarray, state: np.ndarray, mu: np.ndarray) -> None:
        """Write mu(x_c)."""
        _factor_beliefs(self.count, self.links, self.theta.graph.factors, self.psi, unary, state, mu)


class PairwiseAdjoint(Adjoint):
    """``tables`` (F, L, L), in the order of ``Links.edge``: adjoint of theta_c / rho_c divided by psi."""

    def __init__(self, engine: PairwiseEngine) -> None:
        super().__init__(engine.theta)
        self.engine = engine
        self.tables = self._zeros()

    def potentials(self, graph: Graph) -> Potentials:
        """Return d_theta."""
        engine = self.engine
        into = self.factors.reshape(graph.n_factors, *self.tables.shape[1:])
        _fold(engine.count, engine.links, engine.rho, engine.psi, self.tables, into)
        self.tables = self._zeros()
        return Potentials.from_flat(graph, self.unary, self.factors)

    def _zeros(self) -> np.ndarray:
        return np.zeros((self.engine.theta.graph.n_factors, *self.engine.psi.shape[1:]), self.engine.psi.dtype)


@kernel
def _direct(place, tables, psi):
    """Give each directed message a table whose first label is the sender's."""
    for c in range(len(tables)):
        here, there = place[2 * c], place[2 * c + 1]
        for a in range(tables.shape[1]):
            for b in range(tables.shape[1]):
                psi[here, a, b] = tables[c, a, b]
                psi[there, b, a] = tables[c, a, b]


@unrolled_kernel
def _fold(count, links, rho, psi, tables, d_factors):
    """Add the adjoints of theta_c / rho_c to those of theta; tables are turned to the first of an edge's two places."""
    L = len(count)
    for c in range(len(d_factors)):
        here, there = np.uint64(links.place[2 * c]), np.uint64(links.place[2 * c + 1])
        table, weight, out = tables[links.edge[here]], psi[here], d_factors[c]
        scale = psi.dtype.type(1 / rho[c])
        if here < there:
            for a in range(L):
                for b in range(L):
                    out[a, b] += scale * weight[a, b] * table[a, b]
        else:
            for a in range(L):
                for b in range(L):
                    out[a, b] += scale * weight[a, b] * table[b, a]


@unrolled_kernel
def _sweep(count, links, visits, first, last, alternate, uniform, powers, psi_u, psi, damping, source, state):
    """Do sweeps first .. last - 1."""
    # [D13] (18) for pairs, message by message
    L = len(count)
    dtype = state.dtype
    p = small_array(count, state)
    q = small_array(count, state)
    out = small_array(count, state)
    n = len(visits.variable)
    for step in range((last - first) * n):
        t, v = first + step // n, step % n
        g = n - 1 - v if alternate and t % 2 == 1 else v
        i = visits.variable[g]
        combine(count, links, i, uniform, powers, psi_u, source, p)
        for at in range(visits.ptr[g], visits.ptr[g + 1]):
            s = np.uint64(visits.sends[at])  # unsigned: an index that might count from the end costs instructions
            w = np.uint64(links.reverse[s])
            incoming, table, target = source[s], psi[s], state[w]
            for a in range(L):
                q[a] = p[a] / incoming[a]
                out[a] = dtype.type(0)
            for a in range(0, L - L % 4, 4):  # four rows at a time: fewer passes over out
                q0, q1, q2, q3 = q[a], q[a + 1], q[a + 2], q[a + 3]
                for b in range(L):
                    out[b] += (q0 * table[a, b] + q1 * table[a + 1, b]) + (q2 * table[a + 2, b] + q3 * table[a + 3, b])
            for a in range(L - L % 4, L):
                q0 = q[a]
                for b in range(L):
                    out[b] += q0 * table[a, b]
            if damping is not None:
                for b in range(L):
                    out[b] = source[w, b] ** dtype.type(damping) * out[b] ** dtype.type(1 - damping)
            total = dtype.type(0)
            for b in range(L):
                total += out[b]
            scale = dtype.type(1) / total
            for b in range(L):
                target[b] = out[b] * scale


@unrolled_kernel
def _sweep_vjp(
    count, links, visits, backward, uniform, powers, psi_u, psi, damping, before, after, current, incoming, d_state,
    d_unary, d_tables,
):  # fmt: skip
    """Undo one sweep.

    ``current`` is the state after the sweep, which is rolled back. After flooding it is the state before, and
    ``incoming`` the adjoint of the state after, while ``d_state`` starts at zero. All messages that a visit reads get
    their adjoint at once, as every message that it sends has had its own by then.
    """
    L = len(count)
    dtype = before.dtype
    p, q, out = small_array(count, psi), small_array(count, psi), small_array(count, psi)
    h, row, column = small_array(count, psi), small_array(count, psi), small_array(count, psi)
    running = small_array(count, psi)
    keep = dtype.type(0)
    if damping is not None:
        # [D13] Alg. 3 (back TRW): adjoints of the messages
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
            turned, d_table, listened = psi[w], d_tables[links.edge[s]], current[s]
            for a in range(L):
                q[a] = p[a] / listened[a]
            # The message before its normalisation: known up to a factor, which one of its entries gives.
            scale = dtype.type(1) - keep
            if damping is None:
                for b in range(L):
                    out[b] = after[w, b]
                total = dtype.type(0)
                for a in range(L):
                    total += q[a] * turned[0, a]
                scale = out[0] / total
            else:
                for b in range(L):
                    total = dtype.type(0)
                    for a in range(L):
                        total += q[a] * turned[b, a]
                    out[b] = total
            # One array of the heap in each loop: the compiler then knows that nothing overlaps.
            if incoming is None:
                for b in range(L):
                    h[b] = d_state[w, b]
                for b in range(L):
                    d_state[w, b] = keep * h[b]
                for b in range(L):
                    row[b] = before[w, b]
                for b in range(L):
                    current[w, b] = row[b]
            else:
                for b in range(L):
                    h[b] = incoming[w, b]
                for b in range(L):
                    d_state[w, b] += keep * h[b]
            excess = dtype.type(0)
            for b in range(L):
                excess += h[b]
            excess *= dtype.type(1 / L)
            for b in range(L):
                h[b] = scale * (h[b] - excess) / out[b]
            for a in range(L):
                row[a] = q[a] if s < w else h[a]
                column[a] = h[a] if s < w else q[a]
            for a in range(L):
                weight = row[a]
                for b in range(L):
                    d_table[a, b] += weight * column[b]
            for a in range(L):
                out[a] = dtype.type(0)
            for b in range(L):
                weight = h[b]
                for a in range(L):
                    out[a] += weight * turned[b, a]
            for a in range(L):
                out[a] *= q[a]
                running[a] += out[a]
            for a in range(L):
                d_state[s, a] -= out[a]
        for k in range(links.start[i], links.stop[i]):
            power = powers[k]
            for a in range(L):
                d_state[k, a] += power * running[a]
        for a in range(L):
            d_unary[i, a] += running[a]


@unrolled_kernel
def _factor_beliefs(count, links, scopes, psi, mu_u, m, mu):
    # [D13] theorem below (18): mu(x_i, x_j)
    L = len(count)
    dtype = m.dtype
    q, weight = small_array(count, m), small_array(count, m)
    for c in range(len(scopes)):
        here, there = np.uint64(links.place[2 * c]), np.uint64(links.place[2 * c + 1])
        i, j = np.uint64(scopes[c, 0]), np.uint64(scopes[c, 1])
        table, out = psi[here], mu[c]
        for a in range(L):
            weight[a] = mu_u[i, a] / m[here, a]
        for b in range(L):
            q[b] = mu_u[j, b] / m[there, b]
        total = dtype.type(0)
        for a in range(L):
            row = dtype.type(0)
            for b in range(L):
                row += table[a, b] * q[b]
            total += weight[a] * row
        scale = dtype.type(1) / total
        for a in range(L):
            share = weight[a] * scale
            for b in range(L):
                out[a, b] = table[a, b] * (share * q[b])
