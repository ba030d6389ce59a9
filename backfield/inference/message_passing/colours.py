"""Messages on binary grids of any dimension and neighbourhood, colour by colour, one *ratio* m(1)/m(0) per message.

The update is that of ``lattice``, [D13] eq. (18) in ratios:

    r_new = (a r + b F) / (r + c F),     F = exp(theta_i(1) - theta_i(0)) prod_d r_d^rho

and so are its adjoints. Storage: see ``inference.planes``; arrays are [direction, plane, place], and a table lies at the
first end of its edge. A variable of colour c has received from lower colours in this sweep and from higher ones in the sweep
before, so undoing a sweep needs the states before and after it, and nothing else.

The product of all ratios into a variable may leave the range of floats where its power F does not (1 / rho is up to 13): it
is formed from products of at most ``group`` pairs of them, whose logarithms are added up.

Cost per message about that of ``lattice``.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from backfield.graph import Potentials
from backfield.inference.base import Adjoint
from backfield.inference.message_passing.engine import MessageEngine
from backfield.inference.message_passing.odds_adjoint import OddsAdjoint
from backfield.inference.planes import planes
from backfield.inference.schedule import Schedule
from backfield.kernels.compile import inlined, kernel
from backfield.kernels.memory import piece
from backfield.kernels.unrolled import small_array
from backfield.kernels.vector_math import vector_cbrt, vector_exp, vector_exponent, vector_log, vector_significand

_CACHE = 12 * 2**20  # bytes of a third-level cache
_TOGETHER = 5  # sweeps that go through a grid together, at the most
_LOG_2 = 0.6931471805599453
_BLOCK = 1024  # nodes in one vector loop: large against its set-up, small enough to stay in the first cache


class ColoursEngine(MessageEngine):
    """State: ratios [direction, plane, place] into each variable from its neighbour in that direction."""

    def __init__(self, theta: Potentials, rho: np.ndarray, schedule: Schedule | None, damping: float) -> None:
        assert theta.graph.lattice is not None and theta.graph.n_labels == 2 and damping == 0
        super().__init__(theta, rho, schedule, damping)  # type: ignore[arg-type]
        self.power = float(rho[0])
        self.planes = at = planes(theta.graph)
        shape = (at.n_planes, at.length)
        n_offsets = len(at.lattice.edges.step)
        self.u = np.zeros(shape, theta.dtype)
        self.tables = np.zeros((n_offsets, 3, *shape), theta.dtype)  # a, b, c
        worst = np.empty(3)
        _gather(at.lattice.edges, at.place, self.power, theta.unary, theta.factors, self.u, self.tables, worst)
        self._bounds = worst
        # Pairs of ratios that are multiplied: not chosen by theta, or a tile would have other bits than the whole.
        self.group = 2 if n_offsets > 4 and self.power != 1 else n_offsets
        self.lags, self.lags_back = theta.graph.compiled(("lags", theta.dtype), self._lags)

    def _lags(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the lags of as many sweeps as the cache holds at a time, at least of one, and those of undoing one."""
        at = self.planes
        every = at.lags(np.tile(at.order, _TOGETHER))
        numbers = self.u.itemsize * at.n_planes * (5 * len(self.tables) + 1)
        reach = every.reshape(_TOGETHER, -1).max(axis=1) * numbers
        return every[: max(1, int((reach <= _CACHE).sum())) * at.n_planes], at.lags(at.order[::-1])

    def demand(self) -> np.ndarray:
        """Return bounds on |log| of what the kernels form (see ``families``); not finite where theta is not."""
        ratio, odds, table = self._bounds
        return np.array([2 * self.group * ratio, odds, ratio, table])

    def init(self) -> np.ndarray:
        """Return uniform messages."""
        return np.ones((2 * len(self.tables), *self.u.shape), self.u.dtype)

    def sweep(self, state: np.ndarray, t: int) -> None:
        """Update every message once: colour by colour."""
        self.sweeps(state, t, t + 1)

    def sweeps(self, state: np.ndarray, first: int, last: int) -> None:
        """Do several sweeps in one call."""
        self._run(last - first, state[None])

    def record(self, states: np.ndarray, first: int) -> None:
        """Do several sweeps and keep every state, in one call."""
        self._run(1, states)

    def _run(self, count: int, states: np.ndarray) -> None:
        at = self.planes
        args = at.first, at.last, at.order, at.to, at.shift, self.u, self.tables
        _sweeps(count, self.group, self.power, self.lags, *args, states)

    def log_messages(self, state: np.ndarray) -> np.ndarray:
        """Return (0, log ratio) for each slot."""
        out = np.zeros((self.theta.graph.n_factors, 2, 2), state.dtype)
        _edge_ratios(self.planes.lattice.edges, self.planes.place, self.logs(state).reshape(len(state), -1), out)
        return out.reshape(-1)

    def adjoint(self) -> OddsAdjoint:
        """Return a collector in the layout of the kernels."""
        return OddsAdjoint(self.theta, self.u, self.tables, self._scatter)

    def sweep_vjp(self, before: np.ndarray, after: np.ndarray, t: int, d_state: np.ndarray, d_theta: Adjoint) -> None:
        """Turn the adjoint of ``after`` into that of ``before``."""
        self._undo(before[None], after[None], d_state, d_theta)

    def unwind(self, states: np.ndarray, first: int, d_state: np.ndarray, d_theta: Adjoint) -> None:
        """Undo several sweeps in one call."""
        self._undo(states[:-1], states[1:], d_state, d_theta)

    def _undo(self, before: np.ndarray, after: np.ndarray, d_state: np.ndarray, d_theta: Adjoint) -> None:
        assert isinstance(d_theta, OddsAdjoint)
        at = self.planes
        args = self.lags_back, at.first, at.last, at.order, at.to, at.shift, at.updated, self.u, self.tables
        _unwind(self.group, self.power, *args, before, after, d_state, d_theta.u, d_theta.tables)

    def odds(self, state: np.ndarray) -> np.ndarray:
        """Return F of every variable, (planes, places)."""
        out = np.ones_like(self.u)
        _odds(self.group, self.power, self.u, state, out)
        return out

    def beliefs(self, state: np.ndarray) -> np.ndarray:
        """Return mu(x_i) for all variables."""
        mu = np.empty_like(self.theta.unary_flat)
        _beliefs(self.planes.place, self.odds(state).reshape(-1), mu.reshape(-1, 2))
        return mu

    def marginals(self, state: np.ndarray, factors: bool = True) -> Potentials:
        """Return mu(x_i) and mu(x_c)."""
        mu = np.empty(4 * self.theta.graph.n_factors if factors else 0, self.u.dtype)
        unary = np.empty_like(self.theta.unary_flat)
        odds = self.odds(state).reshape(-1)
        _beliefs(self.planes.place, odds, unary.reshape(-1, 2))
        if factors:
            flat = self.tables.reshape(len(self.tables), 3, -1), state.reshape(len(state), -1)
            _factor_beliefs(self.planes.lattice.edges, self.planes.place, odds, *flat, mu.reshape(-1, 2, 2))
        return Potentials.from_flat(self.theta.graph, unary, mu)

    def marginals_vjp(self, state: np.ndarray, d_mu: Potentials, d_state: np.ndarray, d_theta: Adjoint) -> None:
        """Add the adjoints that ``d_mu`` causes."""
        assert isinstance(d_theta, OddsAdjoint)
        at, factors = self.planes, bool(d_mu.factors_flat.size)
        mu = self.marginals(state, factors)
        d_odds = np.zeros(self.u.size, self.u.dtype)
        _beliefs_vjp(at.place, mu.unary, d_mu.unary, d_odds)
        if factors:
            flat = d_state.reshape(len(d_state), -1)
            d_factors = d_theta.factors.reshape(-1, 2, 2)
            _factor_beliefs_vjp(at.lattice.edges, at.place, self.power, mu.factors, d_mu.factors, flat, d_odds, d_factors)
        _spread(self.power, d_odds.reshape(self.u.shape), d_state, d_theta.u)

    def log_partition(self, mu: Potentials) -> Any:
        """Return theta·mu + H(mu), added up in double precision."""
        tables = self.theta.unary, self.theta.factors, mu.unary, mu.factors
        return _log_partition(self.planes.lattice.edges, self.power, *tables)

    def _scatter(self, d_u: np.ndarray, d_tables: np.ndarray, d_unary: np.ndarray, d_factors: np.ndarray) -> None:
        """Write adjoints in the layout of the kernels to row-major ones."""
        flat = d_u.reshape(-1), d_tables.reshape(len(d_tables), 3, -1)
        _scatter(self.planes.lattice.edges, self.planes.place, self.power, *flat, d_unary, d_factors)


@inlined
def _row(edges, k, row):
    """First variable of a row of first ends of offset k."""
    i = edges.corner[k]
    for axis in range(edges.extent.shape[1] - 2, -1, -1):
        i += (row % edges.extent[k, axis]) * edges.strides[axis]
        row //= edges.extent[k, axis]
    return i


@inlined
def _rows(edges, k):
    """Number of rows of first ends of offset k."""
    rows = 1
    for axis in range(edges.extent.shape[1] - 1):
        rows *= edges.extent[k, axis]
    return rows


@kernel
def _gather(edges, place, power, theta_u, theta_c, u, tables, worst):
    """Write ratios of unary terms and of tables to the layout of the kernels, and bounds on their logarithms.

    The bounds are |log| of a message, of F, and of a table entry; not finite where theta is not.
    """
    scale = u.dtype.type(1 / power)
    flat_u, flat = u.reshape(-1), tables.reshape((len(tables), 3, -1))
    n_columns = edges.extent.shape[1] - 1
    total = np.zeros(len(place), u.dtype)
    largest, entry, trouble = u.dtype.type(0), u.dtype.type(0), u.dtype.type(0)
    e = 0
    for k in range(len(edges.step)):
        columns = edges.extent[k, n_columns]
        for row in range(_rows(edges, k)):
            i = _row(edges, k, row)
            for _ in range(columns):
                base = theta_c[e, 0, 0]
                a, b, c = theta_c[e, 0, 1] - base, theta_c[e, 1, 1] - base, theta_c[e, 1, 0] - base
                p = place[i]
                flat[k, 0, p], flat[k, 1, p], flat[k, 2, p] = a * scale, b * scale, c * scale
                ratio = max(max(abs(a), abs(c)), max(abs(b - c), abs(b - a)))
                largest, entry = max(largest, ratio), max(entry, max(ratio, abs(b)))
                trouble += a + b + c
                total[i] += ratio
                total[i + edges.step[k]] += ratio
                i += 1
                e += 1
    odds = u.dtype.type(0)
    for i in range(len(place)):
        bias = theta_u[i, 1] - theta_u[i, 0]
        flat_u[place[i]] = bias
        trouble += bias
        odds = max(odds, abs(bias) + total[i])  # r^rho has the logarithm of theta itself
    for k in range(len(flat_u)):
        flat_u[k] = vector_exp(flat_u[k])
    whole = tables.reshape(-1)
    for k in range(len(whole)):
        whole[k] = vector_exp(whole[k])
    worst[0], worst[1], worst[2] = largest * scale, odds, entry * scale
    if not np.isfinite(trouble):
        worst[0] = np.inf


@kernel
def _scatter(edges, place, power, d_u, d_tables, d_unary, d_factors):
    """Write adjoints in the layout of the kernels to row-major ones: the adjoint of ``_gather``."""
    scale = d_u.dtype.type(1 / power)
    n_columns = edges.extent.shape[1] - 1
    for i in range(len(place)):
        value = d_u[place[i]]
        d_unary[i, 1] = value
        d_unary[i, 0] = -value
    e = 0
    for k in range(len(edges.step)):
        columns = edges.extent[k, n_columns]
        for row in range(_rows(edges, k)):
            i = _row(edges, k, row)
            for _ in range(columns):
                p = place[i]
                first, both, second = d_tables[k, 0, p] * scale, d_tables[k, 1, p] * scale, d_tables[k, 2, p] * scale
                d_factors[e, 0, 1] = first
                d_factors[e, 1, 1] = both
                d_factors[e, 1, 0] = second
                d_factors[e, 0, 0] = -(first + both + second)
                i += 1
                e += 1


@inlined
def _block_odds(group, power, u, low, high, updated, p, start, size, S, F):
    """Write F of ``size`` places of a plane; messages are those of ``high`` where their sender was ``updated``."""
    # [D13] (18): exp theta(x_j) prod_d m_d(x_j)^rho, label 1 over label 0
    n, n_planes, length = len(low), u.shape[0], u.shape[1]
    bias = piece(u, p * length + start, size)
    rho, two = u.dtype.type(power), u.dtype.type(_LOG_2)
    apart = 2 * group < n
    more = n // 2 * n_planes * length
    for d in range(0, n // 2, 2):  # two offsets at a time, each along it and against it
        at = (d * n_planes + p) * length + start
        ahead = piece(high, at, size) if updated[d, p] else piece(low, at, size)
        back = piece(high, at + more, size) if updated[d + n // 2, p] else piece(low, at + more, size)
        if d + 1 < n // 2:
            at += n_planes * length
            ahead2 = piece(high, at, size) if updated[d + 1, p] else piece(low, at, size)
            back2 = piece(high, at + more, size) if updated[d + 1 + n // 2, p] else piece(low, at + more, size)
            if d == 0:
                for k in range(size):
                    F[k] = (ahead[k] * back[k]) * (ahead2[k] * back2[k])
            else:
                for k in range(size):
                    F[k] *= (ahead[k] * back[k]) * (ahead2[k] * back2[k])
        elif d == 0:
            for k in range(size):
                F[k] = ahead[k] * back[k]
        else:
            for k in range(size):
                F[k] *= ahead[k] * back[k]
        if apart:
            if d == 0:
                for k in range(size):
                    S[k] = vector_exponent(F[k])
                    F[k] = vector_significand(F[k])
            else:
                for k in range(size):
                    S[k] += vector_exponent(F[k])
                    F[k] = vector_significand(F[k])
    # Powers in two loops: one would wait for the logarithm of each vector before its exponential begins.
    if apart:
        for k in range(size):
            F[k] = rho * (vector_log(F[k]) + two * S[k])
        for k in range(size):
            F[k] = bias[k] * vector_exp(F[k])
    elif power == 1:
        for k in range(size):
            F[k] *= bias[k]
    elif power == 0.5:
        for k in range(size):
            F[k] = bias[k] * np.sqrt(F[k])
    elif power == 1 / 3:
        for k in range(size):
            F[k] = bias[k] * vector_cbrt(F[k])
    elif power == 0.25:
        for k in range(size):
            F[k] = bias[k] * np.sqrt(np.sqrt(F[k]))
    else:
        for k in range(size):
            F[k] = rho * vector_log(F[k])
        for k in range(size):
            F[k] = bias[k] * vector_exp(F[k])


@inlined
def _block_tables(tables, n_planes, length, d, p, q, start, shift, size):
    """Tables of the edges in direction d of ``size`` places of a plane; entries 01 and 10 by the label of the sender."""
    n = len(tables)
    whole = n_planes * length
    # Against an offset, the table lies at the neighbour, whose label comes first.
    ahead = d < n
    at = 3 * d * whole + p * length + start if ahead else 3 * (d - n) * whole + q * length + start + shift
    swap = 0 if ahead else 2 * whole
    return piece(tables, at + swap, size), piece(tables, at + whole, size), piece(tables, at + 2 * whole - swap, size)


# Each of the two kernels below is the whole of its work: numba optimises a kernel again in every kernel that calls it.


@kernel
def _sweeps(count, group, power, lags, first, last, order, to, shift, u, tables, states):
    """Sweep ``count`` times: one state in place, or every state but the first from the one before it.

    Planes go through places together, each behind those that came before it: a large grid goes through memory once for all
    planes of a sweep, and for several sweeps.
    """
    # [D13] (18) in ratios, colour by colour
    n, n_planes, length = len(to), u.shape[0], u.shape[1]
    F, S = small_array(_BLOCK, u), small_array(_BLOCK, u)
    reach = 0
    for s in range(len(lags)):
        reach = max(reach, lags[s])
    for at in range(1 if len(states) > 1 else 0, len(states)):
        m = states[at]
        if at > 0:
            now, then = m.reshape(-1), states[at - 1].reshape(-1)
            for k in range(len(now)):
                now[k] = then[k]
        done, step = 0, 0
        while done < count:
            steps = min(len(lags), (count - done) * n_planes)
            s = step % steps
            lead = first + step // steps * _BLOCK - lags[s]
            start, stop = max(lead, first), min(lead + _BLOCK, last)
            step += 1
            if s == steps - 1 and lead + lags[s] + _BLOCK >= last + reach:
                done, step = done + steps // n_planes, 0
            size = stop - start
            if size <= 0:
                continue
            p = order[s % n_planes]
            _block_odds(group, power, u, m, m, to, p, start, size, S, F)
            for d in range(n):
                q, move = to[d, p], shift[d, p]
                back = d - n // 2 if d >= n // 2 else d + n // 2
                incoming = piece(m, (d * n_planes + p) * length + start, size)
                out = piece(m, (back * n_planes + q) * length + start + move, size)
                a, b, c = _block_tables(tables, n_planes, length, d, p, q, start, move, size)
                for k in range(size):
                    out[k] = (a[k] * incoming[k] + b[k] * F[k]) / (incoming[k] + c[k] * F[k])


@kernel
def _unwind(group, power, lags, first, last, order, to, shift, updated, u, tables, before, after, d_m, d_u, d_tables):
    """Undo sweeps, the last one first: take the adjoints of what a plane wrote, add those of what it read."""
    # [D13] Alg. 3 (back TRW): adjoints of the messages of one colour
    n, n_planes, length = len(to), u.shape[0], u.shape[1]
    dtype = u.dtype
    # On the stack: of these the compiler knows that they overlap nothing, and takes more into one loop.
    F, S, g, rest = small_array(_BLOCK, u), small_array(_BLOCK, u), small_array(_BLOCK, u), small_array(_BLOCK, u)
    t = np.empty((n, _BLOCK), dtype)
    rho = dtype.type(power)
    reach = 0
    for s in range(len(lags)):
        reach = max(reach, lags[s])
    for sweep in range(len(before) - 1, -1, -1):
        low, high = before[sweep], after[sweep]
        for step in range((last - first + reach + _BLOCK - 1) // _BLOCK * n_planes):
            s = step % n_planes
            lead = first + step // n_planes * _BLOCK - lags[s]
            start, stop = max(lead, first), min(lead + _BLOCK, last)
            size = stop - start
            if size <= 0:
                continue
            p = order[n_planes - 1 - s]
            _block_odds(group, power, u, low, high, updated, p, start, size, S, F)
            for k in range(size):
                S[k] = dtype.type(0)
            for d in range(n):
                q, move = to[d, p], shift[d, p]
                back = d - n // 2 if d >= n // 2 else d + n // 2
                at = (d * n_planes + p) * length + start
                incoming = piece(high, at, size) if updated[d, p] else piece(low, at, size)
                d_out = piece(d_m, (back * n_planes + q) * length + start + move, size)
                a, b, c = _block_tables(tables, n_planes, length, d, p, q, start, move, size)
                d_a, d_b, d_c = _block_tables(d_tables, n_planes, length, d, p, q, start, move, size)
                td = piece(t, d * _BLOCK, size)
                for k in range(size):
                    g[k] = d_out[k]
                    d_out[k] = dtype.type(0)
                for k in range(size):
                    part = a[k] * incoming[k]
                    ga = g[k] * part / (part + b[k] * F[k])
                    d_a[k] += ga
                    d_b[k] += g[k] - ga
                    rest[k] = g[k] - ga
                for k in range(size):
                    part = c[k] * F[k]
                    gc = g[k] * part / (incoming[k] + part)
                    d_c[k] -= gc
                    rest[k] -= gc
                for k in range(size):
                    td[k] = rest[k]
                    S[k] += rest[k]
            d_bias = piece(d_u, p * length + start, size)
            for k in range(size):
                d_bias[k] += S[k]
                F[k] = rho * S[k]
            for d in range(n):
                d_in = piece(d_m, (d * n_planes + p) * length + start, size)
                td = piece(t, d * _BLOCK, size)
                for k in range(size):
                    d_in[k] += F[k] - td[k]


@kernel
def _odds(group, power, u, m, out):
    """Write F of all variables."""
    F, S = small_array(_BLOCK, u), small_array(_BLOCK, u)
    none = np.zeros((len(m), len(u)), np.int64)
    for p in range(len(u)):
        for start in range(0, u.shape[1], _BLOCK):
            size = min(_BLOCK, u.shape[1] - start)
            _block_odds(group, power, u, m, m, none, p, start, size, S, F)
            for k in range(size):
                out[p, start + k] = F[k]


@kernel
def _beliefs(place, odds, mu):
    # [D13] theorem below (18): mu(x_i)
    one = odds.dtype.type(1)
    for i in range(len(place)):
        F = odds[place[i]]
        mu[i, 1] = F / (one + F)
        mu[i, 0] = one / (one + F)


@kernel
def _beliefs_vjp(place, mu, d_mu, d_odds):
    # [D13] Alg. 3 (back TRW): adjoints of the beliefs
    for i in range(len(place)):
        d_odds[place[i]] = (d_mu[i, 1] - d_mu[i, 0]) * mu[i, 0] * mu[i, 1]


@kernel
def _spread(power, d_odds, d_m, d_u):
    """Add adjoints of log F to those of the messages and of the unary terms."""
    rho = d_u.dtype.type(power)
    for p in range(len(d_u)):
        h, d_bias = d_odds[p], d_u[p]
        for k in range(len(h)):
            d_bias[k] += h[k]
        for d in range(len(d_m)):
            d_in = d_m[d, p]
            for k in range(len(h)):
                d_in[k] += rho * h[k]


@kernel
def _edge_ratios(edges, place, m, out):
    """Write what the two ends of each edge have received over it."""
    n, n_columns = len(edges.step), edges.extent.shape[1] - 1
    e = 0
    for k in range(n):
        columns = edges.extent[k, n_columns]
        for row in range(_rows(edges, k)):
            i = _row(edges, k, row)
            for _ in range(columns):
                out[e, 0, 1] = m[k, place[i]]
                out[e, 1, 1] = m[n + k, place[i + edges.step[k]]]
                i += 1
                e += 1


@kernel
def _factor_beliefs(edges, place, odds, tables, m, mu):
    # [D13] theorem below (18): mu(x_i, x_j)
    one = odds.dtype.type(1)
    n, n_columns = len(edges.step), edges.extent.shape[1] - 1
    e = 0
    for k in range(n):
        columns = edges.extent[k, n_columns]
        for row in range(_rows(edges, k)):
            i = _row(edges, k, row)
            for _ in range(columns):
                p, q = place[i], place[i + edges.step[k]]
                q1, q2 = odds[p] / m[k, p], odds[q] / m[n + k, q]
                w01, w11, w10 = tables[k, 0, p] * q2, tables[k, 1, p] * q1 * q2, tables[k, 2, p] * q1
                scale = one / (one + w01 + w10 + w11)
                mu[e, 0, 0] = scale
                mu[e, 0, 1] = w01 * scale
                mu[e, 1, 0] = w10 * scale
                mu[e, 1, 1] = w11 * scale
                i += 1
                e += 1


@kernel
def _factor_beliefs_vjp(edges, place, power, mu, d_mu, d_m, d_odds, d_factors):
    # [D13] Alg. 3 (back TRW): adjoints of the beliefs of edges
    scale = d_odds.dtype.type(1 / power)
    n, n_columns = len(edges.step), edges.extent.shape[1] - 1
    e = 0
    for k in range(n):
        columns = edges.extent[k, n_columns]
        for row in range(_rows(edges, k)):
            i = _row(edges, k, row)
            for _ in range(columns):
                p, d_p = mu[e], d_mu[e]
                mean = p[0, 0] * d_p[0, 0] + p[0, 1] * d_p[0, 1] + p[1, 0] * d_p[1, 0] + p[1, 1] * d_p[1, 1]
                n01 = p[0, 1] * (d_p[0, 1] - mean)
                n10 = p[1, 0] * (d_p[1, 0] - mean)
                n11 = p[1, 1] * (d_p[1, 1] - mean)
                d_factors[e, 0, 0] -= scale * (n01 + n10 + n11)
                d_factors[e, 0, 1] += scale * n01
                d_factors[e, 1, 0] += scale * n10
                d_factors[e, 1, 1] += scale * n11
                h1, h2 = n10 + n11, n01 + n11
                here, there = place[i], place[i + edges.step[k]]
                d_odds[here] += h1
                d_odds[there] += h2
                d_m[k, here] -= h1
                d_m[n + k, there] -= h2
                i += 1
                e += 1


@kernel
def _log_partition(edges, power, theta_u, theta_c, mu_u, mu_c):
    # [D13] (13) with the entropy of (16) and (17)
    tiny = mu_u.dtype.type(1e-37)
    n_columns = edges.extent.shape[1] - 1
    logs = np.empty_like(mu_u)
    total = 0.0
    for i in range(len(mu_u)):
        for x in range(2):
            logs[i, x] = vector_log(max(mu_u[i, x], tiny))
            if mu_u[i, x] > 0:
                total += mu_u[i, x] * (theta_u[i, x] - logs[i, x])
    widest = 0
    for k in range(len(edges.step)):
        widest = max(widest, edges.extent[k, n_columns])
    joint = np.empty(4 * widest, mu_u.dtype)
    e = 0
    for k in range(len(edges.step)):
        columns = edges.extent[k, n_columns]
        for row in range(_rows(edges, k)):
            i = _row(edges, k, row)
            block = mu_c[e : e + columns].reshape(-1)
            for x in range(len(block)):
                joint[x] = vector_log(max(block[x], tiny))
            for c in range(columns):
                j = i + edges.step[k]
                for x in range(2):
                    for y in range(2):
                        p = mu_c[e, x, y]
                        if p > 0:
                            information = joint[4 * c + 2 * x + y] - logs[i, x] - logs[j, y]
                            total += p * (theta_c[e, x, y] - power * information)
                i += 1
                e += 1
    return total
