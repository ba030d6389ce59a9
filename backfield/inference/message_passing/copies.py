"""Messages on many copies of one binary pairwise graph, all at once (flooding), one *ratio* m(1)/m(0) per message.

A data set whose examples have one graph is a union of copies of it. Numbers of one place in all copies lie side by side,
arrays are [place, copy], so every operation is a vector instruction over copies whatever the graph looks like. With
F = exp(theta_i(1) - theta_i(0)) prod_s r_s of the sender, r the message it got over the same edge, and a, b, z = psi(0,1),
psi(1,1), psi(1,0) over psi(0,0) with the sender's label first ([D13] eq. (18) with rho = 1):

    r_new = (a r + b F) / (r + z F)

Adjoints are of log ratios. With pa = a r / (a r + b F) and pz = z F / (r + z F), the adjoint g of log r_new adds

    g pa, g (1 - pa), -g pz   to   theta_c(0,1), theta_c(1,1), theta_c(1,0)   ((0,0) gets minus their sum)
    t = g (1 - pa - pz)   to   log F,   and -t to log r.

Copies differ in theta, and may differ in everything but their edges.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from backfield.graph import Graph, Potentials
from backfield.inference.base import Adjoint
from backfield.inference.message_passing.edges import log_partition
from backfield.inference.message_passing.engine import MessageEngine
from backfield.inference.schedule import Schedule
from backfield.kernels.compile import inlined, kernel
from backfield.kernels.unrolled import small_array
from backfield.kernels.vector_math import vector_exp

#: Fewer copies do not fill vectors.
LEAST = 8
_BLOCK = 256  # copies in one vector loop


class One(NamedTuple):
    """The graph of one copy."""

    copies: int
    n: int
    ptr: np.ndarray  # (n + 1,) slots of a variable ...
    slots: np.ndarray  # (S,) ... one after the other; slots 2 c and 2 c + 1 are the ends of edge c


def one_of(graph: Graph) -> One | None:
    """Return the graph of which ``graph`` is a union of copies; ``None`` where it is none, or not binary and pairwise."""
    return graph.compiled("copies", lambda: _one_of(graph))


def _one_of(graph: Graph) -> One | None:
    if graph.parts is None or not graph.is_pairwise or graph.n_labels != 2:
        return None
    copies, n = len(graph.parts) - 1, int(graph.parts[1])
    if copies < LEAST or n == 0 or (np.diff(graph.parts) != n).any() or graph.n_factors % copies or not graph.n_factors:
        return None
    scopes = graph.layout.scope.reshape(copies, -1) - n * np.arange(copies)[:, None]
    if (scopes != scopes[0]).any():
        return None
    ptr, slots = graph.layout.inc_ptr[: n + 1], graph.layout.inc[: scopes.shape[1]]
    return One(copies, n, np.ascontiguousarray(ptr), np.ascontiguousarray(slots))


class CopiesEngine(MessageEngine):
    """State: ratios [slot, copy]; slot 2 c + k is the message over edge c to its end k."""

    def __init__(self, theta: Potentials, rho: np.ndarray, schedule: Schedule, damping: float) -> None:
        super().__init__(theta, np.ascontiguousarray(rho, dtype=np.float64), schedule, damping)
        one = one_of(theta.graph)
        assert one is not None
        self.one = one
        self.u = np.empty((one.n, one.copies), theta.dtype)
        self.tables = np.empty((len(one.slots) // 2, 3, one.copies), theta.dtype)
        self.old = np.empty((len(one.slots), one.copies), theta.dtype)  # what a sweep reads
        _gather(*self._by_copy(theta), self.u, self.tables)

    def _by_copy(self, theta: Potentials) -> tuple[np.ndarray, np.ndarray]:
        copies = self.one.copies
        return theta.unary_flat.reshape(copies, -1, 2), theta.factors_flat.reshape(copies, -1, 2, 2)

    def init(self) -> np.ndarray:
        """Return uniform messages."""
        return np.ones_like(self.old)

    def sweep(self, state: np.ndarray, t: int) -> None:
        """Update every message once."""
        np.copyto(self.old, state)
        _sweep(self.one, self.u, self.tables, self.old, state)

    def record(self, states: np.ndarray, first: int) -> None:
        """Do several sweeps and keep every state; messages go from one to the next."""
        for k in range(len(states) - 1):
            _sweep(self.one, self.u, self.tables, states[k], states[k + 1])

    def log_messages(self, state: np.ndarray) -> np.ndarray:
        """Return (0, log ratio) for each slot, copy by copy."""
        ratios = self.logs(state).T
        return np.stack([np.zeros_like(ratios), ratios], axis=-1).reshape(-1)

    def adjoint(self) -> CopiesAdjoint:
        """Return a collector in the layout of the kernels."""
        return CopiesAdjoint(self)

    def sweep_vjp(self, before: np.ndarray, after: np.ndarray, t: int, d_state: np.ndarray, d_theta: Adjoint) -> None:
        """Turn the adjoint of ``after`` into that of ``before``."""
        assert isinstance(d_theta, CopiesAdjoint)
        np.copyto(self.old, d_state)
        _sweep_vjp(self.one, self.u, self.tables, before, self.old, d_state, d_theta.u, d_theta.tables)

    def beliefs(self, state: np.ndarray) -> np.ndarray:
        """Return mu(x_i) for all variables."""
        mu = np.empty_like(self.theta.unary_flat)
        _beliefs(self.one, self.u, state, mu.reshape(self.one.copies, -1, 2))
        return mu

    def marginals(self, state: np.ndarray, factors: bool = True) -> Potentials:
        """Return mu(x_i) and mu(x_c)."""
        unary = self.beliefs(state)
        mu = np.empty(self.theta.factors_flat.size if factors else 0, self.u.dtype)
        if factors:
            args = self._ends, unary.reshape(self.one.copies, -1, 2), self.tables, state
            _factor_beliefs(*args, mu.reshape(self.one.copies, -1, 2, 2))
        return Potentials.from_flat(self.theta.graph, unary, mu)

    @property
    def _ends(self) -> np.ndarray:
        """The ends (E, 2) of an edge in one copy."""
        return self.theta.graph.factors[: len(self.tables)]

    def marginals_vjp(self, state: np.ndarray, d_mu: Potentials, d_state: np.ndarray, d_theta: Adjoint) -> None:
        """Add the adjoints that ``d_mu`` causes."""
        assert isinstance(d_theta, CopiesAdjoint)
        tables = bool(d_mu.factors_flat.size)
        values = (*self._by_copy(self.marginals(state, factors=tables)), *self._by_copy(d_mu))
        into = d_theta.factors.reshape(self.one.copies, -1, 2, 2)
        _marginals_vjp(self.one, self._ends, *values, d_state, d_theta.u, into)

    def log_partition(self, mu: Potentials) -> Any:
        """Return theta·mu + H(mu)."""
        theta = self.theta
        with np.errstate(divide="ignore"):
            logs = np.log(mu.unary), np.log(mu.factors)
        return log_partition(theta.graph.factors, self.rho, theta.unary, theta.factors, mu.unary, mu.factors, *logs)


class CopiesAdjoint(Adjoint):
    """Adjoints of log F [variable, copy], and of theta_c at (0,1), (1,1), (1,0) [edge, entry, copy]."""

    def __init__(self, engine: CopiesEngine) -> None:
        super().__init__(engine.theta)
        self.u = np.zeros_like(engine.u)
        self.tables = np.zeros_like(engine.tables)

    def potentials(self, graph: Graph) -> Potentials:
        """Return d_theta, copy by copy."""
        copies = self.u.shape[1]
        _scatter(self.u, self.tables, self.unary.reshape(copies, -1, 2), self.factors.reshape(copies, -1, 2, 2))
        return Potentials.from_flat(graph, self.unary, self.factors)


@kernel
def _gather(theta_u, theta_c, u, tables):
    """Write ratios of unary terms and of tables, copies side by side."""
    for i in range(u.shape[0]):
        for k in range(u.shape[1]):
            u[i, k] = theta_u[k, i, 1] - theta_u[k, i, 0]
    for c in range(tables.shape[0]):
        for k in range(tables.shape[2]):
            base = theta_c[k, c, 0, 0]
            tables[c, 0, k] = theta_c[k, c, 0, 1] - base
            tables[c, 1, k] = theta_c[k, c, 1, 1] - base
            tables[c, 2, k] = theta_c[k, c, 1, 0] - base
    for array in (u.reshape(-1), tables.reshape(-1)):
        for k in range(len(array)):
            array[k] = vector_exp(array[k])


@kernel
def _scatter(d_u, d_tables, d_unary, d_factors):
    """Add what was collected to the adjoint of theta, and forget it."""
    for k in range(d_u.shape[1]):
        for i in range(d_u.shape[0]):
            d_unary[k, i, 1] += d_u[i, k]
            d_unary[k, i, 0] -= d_u[i, k]
        for c in range(d_tables.shape[0]):
            first, both, second = d_tables[c, 0, k], d_tables[c, 1, k], d_tables[c, 2, k]
            d_factors[k, c, 0, 1] += first
            d_factors[k, c, 1, 1] += both
            d_factors[k, c, 1, 0] += second
            d_factors[k, c, 0, 0] -= first + both + second
    d_u[:] = 0
    d_tables[:] = 0


# Buffers on the stack: of these the compiler knows that they overlap nothing. A loop with
# more than a few arrays of the heap, of which one is written, is not vectorised.


@inlined
def _odds(one, u, state, i, start, size, F):
    """Write F of variable i in ``size`` copies."""
    bias = u[i, start : start + size]
    for k in range(size):
        F[k] = bias[k]
    for at in range(one.ptr[i], one.ptr[i + 1]):
        r = state[one.slots[at], start : start + size]
        for k in range(size):
            F[k] *= r[k]


@kernel
def _sweep(one, u, tables, source, target):
    """Send all messages of ``source`` on."""
    F = small_array(_BLOCK, u)
    for start in range(0, one.copies, _BLOCK):
        stop = min(start + _BLOCK, one.copies)
        size = stop - start
        for i in range(one.n):
            _odds(one, u, source, i, start, size, F)
            for at in range(one.ptr[i], one.ptr[i + 1]):
                s = one.slots[at]
                c, turn = s >> 1, 2 * (s & 1)
                r, out = source[s, start:stop], target[s ^ 1, start:stop]
                a, b, z = tables[c, turn, start:stop], tables[c, 1, start:stop], tables[c, 2 - turn, start:stop]
                for k in range(size):
                    out[k] = (a[k] * r[k] + b[k] * F[k]) / (r[k] + z[k] * F[k])


@kernel
def _sweep_vjp(one, u, tables, source, incoming, d_source, d_u, d_tables):
    """Undo a sweep: write ``d_source`` from the adjoints ``incoming`` of what was sent."""
    F, ga, gb = small_array(_BLOCK, u), small_array(_BLOCK, u), small_array(_BLOCK, u)
    gz, t, total = small_array(_BLOCK, u), small_array(_BLOCK, u), small_array(_BLOCK, u)
    for start in range(0, one.copies, _BLOCK):
        stop = min(start + _BLOCK, one.copies)
        size = stop - start
        for i in range(one.n):
            _odds(one, u, source, i, start, size, F)
            for k in range(size):
                total[k] = u.dtype.type(0)
            for at in range(one.ptr[i], one.ptr[i + 1]):
                s = one.slots[at]
                c, turn = s >> 1, 2 * (s & 1)
                r, d_sent, d_r = source[s, start:stop], incoming[s ^ 1, start:stop], d_source[s, start:stop]
                a, b, z = tables[c, turn, start:stop], tables[c, 1, start:stop], tables[c, 2 - turn, start:stop]
                d_a, d_b = d_tables[c, turn, start:stop], d_tables[c, 1, start:stop]
                d_z = d_tables[c, 2 - turn, start:stop]
                for k in range(size):
                    g, below, above = d_sent[k], a[k] * r[k], z[k] * F[k]
                    ga[k] = g * below / (below + b[k] * F[k])
                    gz[k] = g * above / (r[k] + above)
                    gb[k] = g - ga[k]
                    t[k] = gb[k] - gz[k]
                    total[k] += t[k]
                for k in range(size):
                    d_a[k] += ga[k]
                for k in range(size):
                    d_b[k] += gb[k]
                for k in range(size):
                    d_z[k] -= gz[k]
                for k in range(size):
                    d_r[k] = -t[k]
            d_bias = d_u[i, start:stop]
            for k in range(size):
                d_bias[k] += total[k]
            for at in range(one.ptr[i], one.ptr[i + 1]):
                d_r = d_source[one.slots[at], start:stop]
                for k in range(size):
                    d_r[k] += total[k]


@kernel
def _beliefs(one, u, state, mu):
    F = small_array(_BLOCK, u)
    high = u.dtype.type(1)
    for start in range(0, one.copies, _BLOCK):
        size = min(start + _BLOCK, one.copies) - start
        for i in range(one.n):
            _odds(one, u, state, i, start, size, F)
            for k in range(size):
                share = high / (high + F[k])
                mu[start + k, i, 0] = share
                mu[start + k, i, 1] = F[k] * share


@kernel
def _factor_beliefs(ends, mu_u, tables, state, mu):
    one = mu.dtype.type(1)
    for k in range(mu.shape[0]):
        for c in range(mu.shape[1]):
            p, q = mu_u[k, ends[c, 0]], mu_u[k, ends[c, 1]]
            x, y = p[1] / state[2 * c, k], q[1] / state[2 * c + 1, k]
            e00, e01, e10, e11 = p[0] * q[0], tables[c, 0, k] * p[0] * y, tables[c, 2, k] * x * q[0], tables[c, 1, k] * x * y
            scale = one / ((e00 + e01) + (e10 + e11))
            mu[k, c, 0, 0], mu[k, c, 0, 1], mu[k, c, 1, 0], mu[k, c, 1, 1] = (
                e00 * scale, e01 * scale, e10 * scale, e11 * scale,
            )  # fmt: skip


@kernel
def _marginals_vjp(one, ends, mu_u, mu_c, d_mu_u, d_mu_c, d_state, d_u, d_factors):
    running = np.empty((one.n, one.copies), mu_u.dtype)
    for k in range(one.copies):
        for i in range(one.n):
            running[i, k] = mu_u[k, i, 0] * mu_u[k, i, 1] * (d_mu_u[k, i, 1] - d_mu_u[k, i, 0])
        for c in range(mu_c.shape[1]):
            mean = mu_u.dtype.type(0)
            for a in range(2):
                for b in range(2):
                    mean += mu_c[k, c, a, b] * d_mu_c[k, c, a, b]
            row, column = mu_u.dtype.type(0), mu_u.dtype.type(0)
            for a in range(2):
                for b in range(2):
                    nu = mu_c[k, c, a, b] * (d_mu_c[k, c, a, b] - mean)
                    d_factors[k, c, a, b] += nu
                    row += a * nu
                    column += b * nu
            running[ends[c, 0], k] += row
            running[ends[c, 1], k] += column
            d_state[2 * c, k] -= row
            d_state[2 * c + 1, k] -= column
    for i in range(one.n):
        for k in range(one.copies):
            d_u[i, k] += running[i, k]
        for at in range(one.ptr[i], one.ptr[i + 1]):
            s = one.slots[at]
            for k in range(one.copies):
                d_state[s, k] += running[i, k]
