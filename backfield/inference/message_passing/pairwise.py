"""Messages on pairwise graphs with one label count, in the probability domain: [D13] eq. (18) for arity 2.

A visit of variable i multiplies its incoming messages once and sends to some or all of its neighbours:

    p(a) = exp(theta_i(a)) prod_d m_d(a)^rho_d        (kept for all neighbours)
    m_new(b) ∝ sum_a p(a) / m_c(a) · exp(theta_c(a, b) / rho_c)

Messages into one variable lie side by side (the order of ``inc``), and each directed message has a table of its own,
turned so that the sender's label comes first. Cost L^2 multiply-adds per message; memory 2 E L^2 for the tables.
The label count is known at compile time (see ``label_count``). Adjoints as in ``_messages_log``.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from backfield.graph import Graph, Potentials
from backfield.inference.base import Adjoint
from backfield.inference.message_passing.engine import MessageEngine
from backfield.inference.schedule import Schedule
from backfield.kernels.compile import inlined, kernel, label_count
from backfield.kernels.unrolled import small_array, unrolled_kernel
from backfield.kernels.vector_math import vector_exp, vector_log


class Links(NamedTuple):
    """Index arrays of a pairwise graph; *places* number the messages in a streaming order."""

    start: np.ndarray  # (n,) first place of the messages into a variable, ...
    stop: np.ndarray  # (n,) ... and the place after its last
    place: np.ndarray  # (S,) place of a slot
    reverse: np.ndarray  # (S,) place of the message over the same edge, the other way
    edge: np.ndarray  # (S,) number of the edge of a place, counted at the first of its two places


class Visits(NamedTuple):
    """A schedule as visits: variable ``variable[g]`` sends over its places ``sends[ptr[g]:ptr[g+1]]``."""

    variable: np.ndarray
    ptr: np.ndarray
    sends: np.ndarray


def links(graph: Graph, schedule: Schedule) -> Links:
    """Number the places variable by variable in the order of visits, so that a sweep streams through memory."""
    scope = graph.layout.scope
    sender = scope[schedule.order ^ 1]
    seen, first = np.unique(sender, return_index=True)
    position = np.full(graph.n_variables, graph.n_slots)
    position[seen] = first
    by_place = np.lexsort((np.arange(graph.n_slots), position[scope]))
    place = np.empty(graph.n_slots, dtype=np.int64)
    place[by_place] = np.arange(graph.n_slots)
    receiver = scope[by_place]
    reverse = place[by_place ^ 1]
    here = np.arange(graph.n_slots)
    edge = (np.cumsum(here < reverse) - 1)[np.minimum(here, reverse)]
    start = np.zeros(graph.n_variables, dtype=np.int64)
    change = np.flatnonzero(np.diff(receiver, prepend=-1))
    start[receiver[change]] = change
    return Links(*map(_frozen, (start, start + graph.degree, place, reverse, edge)))


def visits(graph: Graph, schedule: Schedule) -> Visits:
    """Group an order of slots into visits; messages of one sender do not see each other."""
    place = schedule.compiled(graph, "links", links).place
    back = schedule.order ^ 1  # the slot over which the sender of a message listens
    sender = graph.layout.scope[back]
    first = np.flatnonzero(np.diff(sender, prepend=-1))
    return Visits(_frozen(sender[first]), _frozen(np.append(first, len(sender))), _frozen(place[back]))


def _frozen(array: np.ndarray) -> np.ndarray:
    array = np.ascontiguousarray(array)
    array.flags.writeable = False
    return array


class PairwiseEngine(MessageEngine):
    """State: messages (S, L), each summing to one, in the order of places."""

    def __init__(self, theta: Potentials, rho: np.ndarray, schedule: Schedule, damping: float) -> None:
        super().__init__(theta, np.ascontiguousarray(rho, dtype=np.float64), schedule, damping)
        graph = theta.graph
        assert graph.n_labels is not None
        self.count = label_count(graph.n_labels)
        self.links: Links = schedule.compiled(graph, "links", links)
        self.visits: Visits = schedule.compiled(graph, "visits", visits)
        # None, not a number, where kernels shall be compiled without a branch.
        self.uniform = float(rho[0]) if len(rho) and (rho == rho[0]).all() else None
        self.keep = damping if damping > 0 else None
        shape = (graph.n_slots, graph.n_labels, graph.n_labels)
        self.psi = np.empty(shape, theta.dtype)
        self.powers = np.empty(graph.n_slots, theta.dtype)
        self.psi_unary = np.empty((graph.n_variables, graph.n_labels), theta.dtype)
        tables = np.empty((graph.n_factors, *shape[1:]), theta.dtype)
        _shift(theta.unary, np.ones(graph.n_variables), self.psi_unary)
        _shift(theta.factors.reshape(graph.n_factors, -1), self.rho, tables.reshape(graph.n_factors, -1))
        np.exp(self.psi_unary, out=self.psi_unary)  # numpy's exp is vectorised, numba's is not
        np.exp(tables, out=tables)
        _direct(self.links.place, self.rho, tables, self.psi, self.powers)

    def init(self) -> np.ndarray:
        """Return uniform messages."""
        return np.full(self.psi.shape[:2], 1 / len(self.count), self.psi.dtype)

    def sweep(self, state: np.ndarray, t: int) -> None:
        """Update every message once."""
        self.sweeps(state, t, t + 1)

    def sweeps(self, state: np.ndarray, first: int, last: int) -> None:
        """Do iterations ``first .. last - 1`` in one call of the kernel."""
        if self.schedule.flooding and last - first > 1:
            return super().sweeps(state, first, last)
        source = state.copy() if self.schedule.flooding else state
        args = self.uniform, self.powers, self.psi_unary, self.psi, self.keep, source, state
        _sweep(self.count, self.links, self.visits, first, last, self.schedule.alternate, *args)

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

    def beliefs(self, state: np.ndarray) -> np.ndarray:
        """Return mu(x_i) for all variables."""
        mu = np.empty_like(self.psi_unary)
        _beliefs(self.count, self.links, self.uniform, self.powers, self.psi_unary, state, mu)
        return mu.reshape(-1)

    def marginals(self, state: np.ndarray, factors: bool = True) -> Potentials:
        """Return mu(x_i) and mu(x_c)."""
        graph = self.theta.graph
        unary = self.beliefs(state)
        mu = np.empty((graph.n_factors if factors else 0, *self.psi.shape[1:]), self.psi.dtype)
        if factors:
            args = self.psi, unary.reshape(self.psi_unary.shape), state, mu
            _factor_beliefs(self.count, self.links, graph.factors, *args)
        return Potentials.from_flat(graph, unary, mu.reshape(-1))

    def log_partition(self, mu: Potentials) -> Any:
        """Return theta·mu + H(mu)."""
        theta = self.theta
        with np.errstate(divide="ignore"):
            logs = np.log(mu.unary), np.log(mu.factors)
        return _log_partition(theta.graph.factors, self.rho, theta.unary, theta.factors, mu.unary, mu.factors, *logs)

    def marginals_vjp(self, state: np.ndarray, d_mu: Potentials, d_state: np.ndarray, d_theta: Adjoint) -> None:
        """Add the adjoints that ``d_mu`` causes."""
        shape = (-1, *self.psi.shape[1:])
        mu = self.marginals(state, factors=bool(d_mu.factors_flat.size))
        values = mu.unary, mu.factors_flat.reshape(shape), d_mu.unary, d_mu.factors_flat.reshape(shape)
        into = d_state, d_theta.unary.reshape(self.psi_unary.shape), d_theta.factors.reshape(shape)
        _marginals_vjp(self.count, self.links, self.theta.graph.factors, self.rho, self.powers, *values, *into)


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
def _shift(theta, rho, out):
    """Write (theta - max) / rho for each table."""
    for c in range(len(theta)):
        top = theta[c].max()
        scale = out.dtype.type(1 / rho[c])
        for e in range(theta.shape[1]):
            out[c, e] = (theta[c, e] - top) * scale


@kernel
def _direct(place, rho, tables, psi, powers):
    """Give each directed message a table whose first label is the sender's."""
    for c in range(len(tables)):
        here, there = place[2 * c], place[2 * c + 1]
        powers[here] = rho[c]
        powers[there] = rho[c]
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


@inlined
def _combine(count, links, i, uniform, powers, psi_u, m, p):
    """Write psi_i times the messages that variable i has got, each to its power, to p."""
    L = len(count)
    one = m.dtype.type(1)
    for a in range(L):
        p[a] = one
    for k in range(links.start[i], links.stop[i]):
        for a in range(L):
            p[a] *= m[k, a] if uniform is not None else m[k, a] ** powers[k]
    if uniform is not None and uniform != 1:
        for a in range(L):
            p[a] = np.sqrt(p[a]) if uniform == 0.5 else vector_exp(m.dtype.type(uniform) * vector_log(p[a]))
    for a in range(L):
        p[a] *= psi_u[i, a]


@unrolled_kernel
def _sweep(count, links, visits, first, last, alternate, uniform, powers, psi_u, psi, damping, source, state):
    """Do sweeps first .. last - 1."""
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
        _combine(count, links, i, uniform, powers, psi_u, source, p)
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
        keep = dtype.type(damping)
    n = len(visits.variable)
    for v in range(n):
        g = n - 1 - v if backward else v
        i = visits.variable[g]
        _combine(count, links, i, uniform, powers, psi_u, current, p)
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
def _beliefs(count, links, uniform, powers, psi_u, m, mu):
    L = len(count)
    dtype = m.dtype
    p = small_array(count, m)
    for i in range(len(psi_u)):
        _combine(count, links, i, uniform, powers, psi_u, m, p)
        total = dtype.type(0)
        for a in range(L):
            total += p[a]
        scale = dtype.type(1) / total
        for a in range(L):
            mu[i, a] = p[a] * scale


@unrolled_kernel
def _factor_beliefs(count, links, scopes, psi, mu_u, m, mu):
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


@kernel
def _log_partition(scopes, rho, theta_u, theta_c, mu_u, mu_c, log_u, log_c):
    L = mu_u.shape[1]
    total = 0.0
    for i in range(len(mu_u)):
        for a in range(L):
            if mu_u[i, a] > 0:
                total += mu_u[i, a] * (theta_u[i, a] - log_u[i, a])
    for c in range(len(scopes)):
        i, j = scopes[c, 0], scopes[c, 1]
        for a in range(L):
            for b in range(L):
                if mu_c[c, a, b] > 0:
                    information = log_c[c, a, b] - log_u[i, a] - log_u[j, b]
                    total += mu_c[c, a, b] * (theta_c[c, a, b] - rho[c] * information)
    return total


@kernel
def _marginals_vjp(count, links, scopes, rho, powers, mu_u, mu_c, d_mu_u, d_mu_c, d_state, d_unary, d_factors):
    L = len(count)
    zero = mu_u.dtype.type(0)
    running = np.zeros_like(d_unary)
    column = np.empty(L, mu_u.dtype)
    for i in range(len(mu_u)):
        mean = zero
        for a in range(L):
            mean += mu_u[i, a] * d_mu_u[i, a]
        for a in range(L):
            running[i, a] = mu_u[i, a] * (d_mu_u[i, a] - mean)
    for c in range(len(mu_c)):
        here, there = links.place[2 * c], links.place[2 * c + 1]
        i, j = scopes[c, 0], scopes[c, 1]
        scale = mu_u.dtype.type(1 / rho[c])
        mean = zero
        for a in range(L):
            for b in range(L):
                mean += mu_c[c, a, b] * d_mu_c[c, a, b]
        for b in range(L):
            column[b] = zero
        for a in range(L):
            row = zero
            for b in range(L):
                nu = mu_c[c, a, b] * (d_mu_c[c, a, b] - mean)
                d_factors[c, a, b] += scale * nu
                column[b] += nu
                row += nu
            running[i, a] += row
            d_state[here, a] -= row
        for b in range(L):
            running[j, b] += column[b]
            d_state[there, b] -= column[b]
    for i in range(len(mu_u)):
        for s in range(links.start[i], links.stop[i]):
            for a in range(L):
                d_state[s, a] += powers[s] * running[i, a]
        for a in range(L):
            d_unary[i, a] += running[i, a]
