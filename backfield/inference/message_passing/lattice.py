"""Messages on binary 4-connected grids, red/black, one *ratio* m(1)/m(0) per message: [D13] eq. (18).

With F = exp(theta_i(1) - theta_i(0)) prod_d r_d^rho of the sender, r the message it got over the same edge, and
a, b, c = psi(0,1), psi(1,1), psi(1,0) over psi(0,0) with psi = exp(theta_c / rho) and the sender's label first:

    r_new = (a + b F/r) / (1 + c F/r) = (a r + b F) / (r + c F)

A ratio needs no normalisation, and a whole row is updated in vector registers. Red nodes (row + column even) send
first, then black ones; one half never sees its own messages, so undoing it needs no rolled-back state.

Storage: arrays are [row parity, place] with place = (row // 2 + 2) K + column // 2 + 1, so for one colour and
parity every neighbour lies at one constant offset and thousands of nodes are one vector loop. K leaves one place
between rows for the neighbours that border nodes lack; edges that do not exist have a = b = c = 1, which keeps their
ratios at 1. The rows just outside send, too, so every message into a node is written in every sweep. An edge's
table belongs to its red end.

Several images of one size stand below each other, each from an even row on, with edges that do not exist between them: they
are one image to the sweeps, and each has the numbers that it has alone. Kernels that read or write row-major arrays count
the rows of all images; ``height`` is that of one.

Adjoints are of log ratios. With P(x_j) the sender's label given the receiver's, pa = a r / (a r + b F) = P(0 | 1) and
pc = c F / (r + c F) = P(1 | 0), the adjoint g of log r_new adds

    g pa, g (1 - pa), -g pc, -g (1 - pc)   to   theta_c(0,1), theta_c(1,1), theta_c(1,0), theta_c(0,0)   (times 1/rho)
    t = g (1 - pa - pc)   to   log F,   and -t to log r.

Cost per message about 1 ns forward, 3 ns with its adjoint (float64, one core).
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np

from backfield.graph import Potentials
from backfield.inference.base import Adjoint
from backfield.inference.checkerboard import neighbour
from backfield.inference.message_passing.engine import MessageEngine
from backfield.inference.message_passing.odds_adjoint import OddsAdjoint
from backfield.inference.schedule import Schedule
from backfield.kernels.compile import inlined, kernel, part
from backfield.kernels.unrolled import small_array
from backfield.kernels.vector_math import reinterpret, vector_exp, vector_log

_ROWS_AT_ONCE = 64
_CACHE = 2**21  # bytes of a second-level cache
_BLOCK = 1024  # nodes in one vector loop: large against its set-up, small enough to stay in the first cache


class MessageLattice(MessageEngine):
    """State: ratios [colour, direction, parity, place]: into red (0) or black nodes, from left, right, above, below."""

    def __init__(self, theta: Potentials, rho: np.ndarray, schedule: Schedule | None, damping: float) -> None:
        graph = theta.graph
        assert graph.image_stack is not None and graph.n_labels == 2 and damping == 0
        super().__init__(theta, rho, schedule, damping)  # type: ignore[arg-type]
        self.power = float(rho[0])
        self.powers = power_kind(self.power)
        count, height, columns = graph.image_stack
        self.stride = (columns + 1) // 2 + 1
        numbers = _CACHE // theta.dtype.itemsize // (2 * (4 * 3 + 2 * 4 + 2))  # a place has tables, messages, unary terms
        self.together = max(1, (numbers - _BLOCK) // (2 * self.stride))
        shape = (2, (count * ((height + 1) // 2) + 4) * self.stride + 1)
        values = np.zeros(14 * 2 * shape[1], theta.dtype)
        self.u = values[: 2 * 2 * shape[1]].reshape(2, *shape)
        self.tables = values[2 * 2 * shape[1] :].reshape(4, 3, *shape)  # direction from the red end; a, b, c
        # The largest |log| of unary terms and of tables: not finite where theta is not.
        self._largest = _gather(*self._size, self.power, theta.unary, theta.factors, self.u, self.tables, values)

    def exposure(self) -> float:
        """Return a bound on |log| of every product that the kernels form."""
        # A ratio lies between a and b / c: four of them have |log| <= 8 |log table|, and meet u and another one.
        unary, table = (float(each) for each in self._largest)
        coarse = max(8 * table, unary + (8 * self.power + 2) * table)
        if coarse < 60 or not np.isfinite(coarse):
            return coarse
        product, around, largest, _ = self.demand()
        return float(max(product, around + largest))

    def demand(self) -> np.ndarray:
        """Return the parts of that bound (see ``families``)."""
        return np.array(_demand(*self._size, self.power, self.theta.unary, self.theta.factors))

    def init(self) -> np.ndarray:
        """Return uniform messages."""
        return np.ones((2, 4, *self.u.shape[1:]), self.u.dtype)

    def sweep(self, state: np.ndarray, t: int) -> None:
        """Update every message once: red nodes send, then black ones."""
        self.sweeps(state, t, t + 1)

    def sweeps(self, state: np.ndarray, first: int, last: int) -> None:
        """Do several sweeps in one call."""
        self._run(last - first, state[None])

    def log_messages(self, state: np.ndarray) -> np.ndarray:
        """Return (0, log ratio) for each slot."""
        out = np.zeros((self.theta.graph.n_factors, 2, 2), state.dtype)
        _edge_ratios(*self._size, self.logs(state), out)
        return out.reshape(-1)

    def adjoint(self) -> OddsAdjoint:
        """Return a collector in the layout of the kernels."""
        return OddsAdjoint(self.theta, self.u, self.tables, self._scatter)

    def sweep_vjp(self, before: np.ndarray, after: np.ndarray, t: int, d_state: np.ndarray, d_theta: Adjoint) -> None:
        """Turn the adjoint of ``after`` into that of ``before``."""
        self._unwind(before[None], after[None], d_state, d_theta)

    def record(self, states: np.ndarray, first: int) -> None:
        """Do several sweeps and keep every state, in one call."""
        if len(states) > 1:
            self._run(1, states)

    def _run(self, count: int, states: np.ndarray) -> None:
        odds = np.empty(_BLOCK, self.u.dtype)
        _sweeps(count, self.together, self.stride, self.power, self.powers, self.u, self.tables, odds, states)

    def unwind(self, states: np.ndarray, first: int, d_state: np.ndarray, d_theta: Adjoint) -> None:
        """Undo several sweeps in one call."""
        self._unwind(states[:-1], states[1:], d_state, d_theta)

    def _unwind(self, before: np.ndarray, after: np.ndarray, d_state: np.ndarray, d_theta: Adjoint) -> None:
        assert isinstance(d_theta, OddsAdjoint)
        parts = np.empty((4, _BLOCK), self.u.dtype)
        args = self.stride, self.power, self.powers, self.u, self.tables, parts
        _unwind(*args, before, after, d_state, d_theta.u, d_theta.tables)

    def beliefs(self, state: np.ndarray) -> np.ndarray:
        """Return mu(x_i) for all variables."""
        mu = np.empty_like(self.theta.unary_flat)
        odds = np.empty(self.stride, self.u.dtype)
        _beliefs(*self._size, self.power, self.powers, self.u, state, odds, mu.reshape(-1, 2))
        return mu

    def marginals(self, state: np.ndarray, factors: bool = True) -> Potentials:
        """Return mu(x_i) and mu(x_c)."""
        mu = np.empty(4 * self.theta.graph.n_factors if factors else 0, self.u.dtype)
        if factors:
            _factor_beliefs(*self._size, self.power, self.u, self.tables, state, mu.reshape(-1, 2, 2))
        return Potentials.from_flat(self.theta.graph, self.beliefs(state), mu)

    def marginals_vjp(self, state: np.ndarray, d_mu: Potentials, d_state: np.ndarray, d_theta: Adjoint) -> None:
        """Add the adjoints that ``d_mu`` causes."""
        assert isinstance(d_theta, OddsAdjoint)
        factors = bool(d_mu.factors_flat.size)
        mu = self.marginals(state, factors)
        d_odds = np.empty(self.stride, self.u.dtype)
        _beliefs_vjp(*self._size, self.power, mu.unary, d_mu.unary, d_odds, d_state, d_theta.u)
        if factors:
            args = *self._size, self.power, self.u, mu.factors, d_mu.factors
            _factor_beliefs_vjp(*args, d_state, d_theta.u, d_theta.factors.reshape(mu.factors.shape))

    def log_partition(self, mu: Potentials) -> Any:
        """Return theta·mu + H(mu), a few rows at a time: the logarithms stay small and vectorised."""
        rows, height, columns, _ = self._size
        unary, factors = mu.unary, mu.factors
        across = factors[: rows * (columns - 1)]
        down = factors[rows * (columns - 1) :]
        total = 0.0
        with np.errstate(divide="ignore"):
            for first in range(0, rows, _ROWS_AT_ONCE):
                last = min(first + _ROWS_AT_ONCE, rows)
                logs = (
                    np.log(unary[first * columns : (last + 1) * columns]),
                    np.log(across[first * (columns - 1) : last * (columns - 1)]),
                    np.log(down[(first - first // height) * columns : (last - (last - 1) // height) * columns]),
                )
                args = self.power, self.theta.unary, self.theta.factors, unary, factors
                total += _log_partition(first, last, rows, height, columns, *args, *logs)
        return total

    def _scatter(self, d_u: np.ndarray, d_tables: np.ndarray, d_unary: np.ndarray, d_factors: np.ndarray) -> None:
        """Write adjoints in the layout of the kernels to row-major ones."""
        _scatter(*self._size, self.power, d_u, d_tables, d_unary, d_factors)

    @cached_property
    def _size(self) -> tuple[int, int, int, int]:
        """Rows of all images, rows of one, columns, and places of a row."""
        assert self.theta.graph.image_stack is not None
        count, height, columns = self.theta.graph.image_stack
        return count * height, height, columns, self.stride


@kernel
def _demand(rows, height, columns, stride, power, theta_u, theta_c):
    """Bound the product of the ratios into a node, and its power times u and the largest table entry."""
    total = np.zeros(rows * columns)
    largest = 0.0
    for vertical in range(2):
        for r in range(rows):
            if vertical and (r + 1) % height == 0:
                continue  # the last row of an image
            first = _first_edge(rows, height, columns, vertical, r)
            for c in range(columns - 1 + vertical):
                t = theta_c[first + c]
                a, b, z = t[0, 1] - t[0, 0], t[1, 1] - t[0, 0], t[1, 0] - t[0, 0]
                ratio = max(max(abs(a), abs(z)), max(abs(b - z), abs(b - a))) / power
                largest = max(largest, max(ratio, max(abs(a), max(abs(b), abs(z))) / power))
                total[r * columns + c] += ratio
                total[(r + vertical) * columns + c + 1 - vertical] += ratio
    ratios, bias = 0.0, 0.0
    for i in range(rows * columns):
        ratios = max(ratios, total[i])
        bias = max(bias, abs(theta_u[i, 1] - theta_u[i, 0]) + power * total[i])
    return ratios, bias, largest, 0.0


@part
def _first_edge(rows, height, columns, vertical, r):
    """Number of the first edge that starts in row r and goes right or down."""
    return rows * (columns - 1) + (r - r // height) * columns if vertical else r * (columns - 1)


@part
def _red_end(stride, vertical, row, c):
    """Where the red end of the edge from (row, c) to the right or below keeps the table, and whether it comes first."""
    if (row + c) & 1 == 0:
        return True, 1 + 2 * vertical, row & 1, _place(stride, row, c)
    # The red end is the right or lower one: its label comes second.
    row, c = row + vertical, c + 1 - vertical
    return False, 2 * vertical, row & 1, _place(stride, row, c)


@part
def _row(height, r):
    """Row r of the images, where every image starts at an even row."""
    return r + r // height * (height & 1)


@part
def _place(stride, r, c):
    return (r // 2 + 2) * stride + c // 2 + 1


@kernel
def _gather(rows, height, columns, stride, power, theta_u, theta_c, u, tables, values):
    """Write ratios of unary terms and of tables to the layout of the kernels; return the largest |log| of each.

    ``u`` and ``tables`` are parts of ``values``.
    Exponentials are clipped, and then the largest |log| says that these kernels are not for such potentials.
    """
    scale = u.dtype.type(1 / power)
    for r in range(rows):
        row = _row(height, r)
        for c in range(columns):
            i = r * columns + c
            u[(row + c) & 1, row & 1, _place(stride, row, c)] = theta_u[i, 1] - theta_u[i, 0]
    for vertical in range(2):
        for r in range(rows):
            if vertical and (r + 1) % height == 0:
                continue  # the last row of an image
            row, start = _row(height, r), _first_edge(rows, height, columns, vertical, r)
            for c in range(columns - 1 + vertical):
                edge = start + c
                red_first, d, parity, k = _red_end(stride, vertical, row, c)
                base = theta_c[edge, 0, 0]
                first = (theta_c[edge, 0, 1] - base) * scale
                second = (theta_c[edge, 1, 0] - base) * scale
                tables[d, 0, parity, k] = first if red_first else second
                tables[d, 1, parity, k] = (theta_c[edge, 1, 1] - base) * scale
                tables[d, 2, parity, k] = second if red_first else first
    # Maxima are vectorised for integers: the bits of positive numbers have their order, with NaN above infinity.
    unary = table = reinterpret(u.dtype.type(0))
    for k in range(u.size):
        bits = reinterpret(abs(values[k]))
        unary = bits if bits > unary else unary
        values[k] = vector_exp(values[k])
    for k in range(u.size, len(values)):
        bits = reinterpret(abs(values[k]))
        table = bits if bits > table else table
        values[k] = vector_exp(values[k])
    both = reinterpret(unary), reinterpret(table)
    return both if both[0] + both[1] < np.inf else (both[0] + both[1], both[0] + both[1])


@kernel
def _scatter(rows, height, columns, stride, power, d_u, d_tables, d_unary, d_factors):
    """Write adjoints in the layout of the kernels to row-major ones: the adjoint of ``_gather``."""
    scale = d_u.dtype.type(1 / power)
    for r in range(rows):
        row = _row(height, r)
        for c in range(columns):
            value = d_u[(row + c) & 1, row & 1, _place(stride, row, c)]
            d_unary[r * columns + c, 1] = value
            d_unary[r * columns + c, 0] = -value
    for vertical in range(2):
        for r in range(rows):
            if vertical and (r + 1) % height == 0:
                continue  # the last row of an image
            row, start = _row(height, r), _first_edge(rows, height, columns, vertical, r)
            for c in range(columns - 1 + vertical):
                edge = start + c
                red_first, d, parity, k = _red_end(stride, vertical, row, c)
                first = d_tables[d, 0, parity, k] * scale
                both = d_tables[d, 1, parity, k] * scale
                second = d_tables[d, 2, parity, k] * scale
                d_factors[edge, 0, 1] = first if red_first else second
                d_factors[edge, 1, 0] = second if red_first else first
                d_factors[edge, 1, 1] = both
                d_factors[edge, 0, 0] = -(first + both + second)


def power_kind(power: float) -> tuple[int, ...]:
    """A tuple whose *length* says which power it is: 1, 1/2 (a root), or 0 for any other. Kernels hold the code of one."""
    return (0,) * {1.0: 1, 0.5: 2}.get(power, 0)


@inlined
def _row_odds(power, kind, u, m, colour, parity, start, size, F):
    """Write F of the nodes at ``size`` places of a row."""
    # [D13] (18): exp theta(x_j) prod_d m_d(x_j)^rho, label 1 over label 0
    stop = start + size
    m0, m1 = m[colour, 0, parity, start:stop], m[colour, 1, parity, start:stop]
    m2, m3 = m[colour, 2, parity, start:stop], m[colour, 3, parity, start:stop]
    bias = u[colour, parity, start:stop]
    if kind == 1:
        for k in range(size):
            F[k] = bias[k] * ((m0[k] * m1[k]) * (m2[k] * m3[k]))
    elif kind == 2:
        for k in range(size):
            F[k] = bias[k] * np.sqrt((m0[k] * m1[k]) * (m2[k] * m3[k]))
    else:
        for k in range(size):
            F[k] = bias[k] * vector_exp(u.dtype.type(power) * vector_log((m0[k] * m1[k]) * (m2[k] * m3[k])))


@inlined
def _row_tables(tables, colour, d, parity, other, start, shift, size):
    """Tables of the edges in direction d of ``size`` places of a row; entries 01 and 10 by the label of the sender."""
    near, e, swap, row = start, d, 0, parity
    if colour == 1:  # the table lies at the red neighbour, its label first
        near, e, swap, row = start + shift, d ^ 1, 2, other
    far = near + size
    return tables[e, swap, row, near:far], tables[e, 1, row, near:far], tables[e, 2 - swap, row, near:far]


# Each of the two kernels below is the whole of its work: numba optimises a kernel again in every kernel that calls it.
# They are given arrays to work in: code that makes arrays is compiled with them.


@kernel
def _sweeps(count, together, stride, power, powers, u, tables, F, states):
    """Sweep ``count`` times: one state in place, or every state but the first from the one before it.

    One loop per direction: beyond about six arrays a loop is not vectorised. Black nodes follow the red ones at a
    distance of one row, and the next sweep follows at one row more, ``together`` sweeps at a time: a large grid then goes
    through memory once for several sweeps, not twice for each.
    """
    # [D13] (18) in ratios, red then black
    kind = len(powers)
    first, last = stride, u.shape[2] - stride - 1
    for at in range(1 if len(states) > 1 else 0, len(states)):
        m = states[at]
        if at > 0:  # row by row: an assignment of arrays compiles for seconds
            for c in range(m.shape[0]):
                for d in range(m.shape[1]):
                    for p in range(m.shape[2]):
                        for k in range(m.shape[3]):
                            m[c, d, p, k] = states[at - 1, c, d, p, k]
        done, step = 0, 0
        while done < count:
            halves = 2 * min(together, count - done)
            block, half, parity = step // (2 * halves), step // 2 % halves, step % 2
            lead = first + block * _BLOCK - half * stride
            step += 1
            if lead >= last and half == halves - 1 and parity == 1:
                done, step = done + halves // 2, 0
            start, stop = max(lead, first), min(lead + _BLOCK, last)
            size = stop - start
            if size <= 0:
                continue
            colour = half % 2
            _row_odds(power, kind, u, m, colour, parity, start, size, F)
            for d in range(4):
                other, shift = neighbour(colour, parity, stride, d)
                incoming = m[colour, d, parity, start:stop]
                out = m[1 - colour, d ^ 1, other, start + shift : stop + shift]
                a, b, c = _row_tables(tables, colour, d, parity, other, start, shift, size)
                for k in range(size):
                    out[k] = (a[k] * incoming[k] + b[k] * F[k]) / (incoming[k] + c[k] * F[k])


@kernel
def _unwind(stride, power, powers, u, tables, t, before, after, d_m, d_u, d_tables):
    """Undo the half sweeps, the last one first: take the adjoints of what a colour wrote, add those of what it read."""
    # [D13] Alg. 3 (back TRW): adjoints of the messages of one colour
    kind = len(powers)
    first, last = stride, u.shape[2] - stride - 1
    dtype = u.dtype
    # On the stack: of these the compiler knows that they overlap nothing, and takes more into one loop.
    F, g, rest = small_array(_BLOCK, u), small_array(_BLOCK, u), small_array(_BLOCK, u)
    rho = dtype.type(power)
    for step in range(4 * len(before) - 1, -1, -1):
        colour, parity = step // 2 % 2, 1 - step % 2
        m = before[step // 4]
        if colour == 1:
            m = after[step // 4]
        for start in range(first, last, _BLOCK):
            stop = min(start + _BLOCK, last)
            size = stop - start
            _row_odds(power, kind, u, m, colour, parity, start, size, F)
            for d in range(4):
                other, shift = neighbour(colour, parity, stride, d)
                incoming = m[colour, d, parity, start:stop]
                d_out = d_m[1 - colour, d ^ 1, other, start + shift : stop + shift]
                a, b, c = _row_tables(tables, colour, d, parity, other, start, shift, size)
                d_a, d_b, d_c = _row_tables(d_tables, colour, d, parity, other, start, shift, size)
                for k in range(size):
                    g[k] = d_out[k]
                    d_out[k] = dtype.type(0)
                td = t[d]
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
                    td[k] = rest[k] - gc
            d_bias = d_u[colour, parity, start:stop]
            t0, t1, t2, t3 = t[0], t[1], t[2], t[3]
            for k in range(size):
                total = (t0[k] + t1[k]) + (t2[k] + t3[k])
                d_bias[k] += total
                F[k] = rho * total
            for d in range(4):
                d_in = d_m[colour, d, parity, start:stop]
                td = t[d]
                for k in range(size):
                    d_in[k] += F[k] - td[k]


@part
def _odds(power, u, m, colour, parity, k):
    """F of one node."""
    product = (m[colour, 0, parity, k] * m[colour, 1, parity, k]) * (m[colour, 2, parity, k] * m[colour, 3, parity, k])
    if power == 0.5:
        product = np.sqrt(product)
    elif power != 1:
        product = product ** u.dtype.type(power)
    return u[colour, parity, k] * product


@kernel
def _beliefs(rows, height, columns, stride, power, powers, u, m, F, mu):
    # [D13] theorem below (18): mu(x_i)
    kind = len(powers)
    one = u.dtype.type(1)
    for half in range(2 * rows):  # the red and the black nodes of every row
        r, colour = half // 2, half % 2
        row = _row(height, r)
        left = (row + colour) % 2
        size = (columns + 1 - left) // 2
        _row_odds(power, kind, u, m, colour, row % 2, _place(stride, row, left), size, F)
        for k in range(size):
            i = r * columns + left + 2 * k
            mu[i, 1] = F[k] / (one + F[k])
            mu[i, 0] = one / (one + F[k])


@kernel
def _beliefs_vjp(rows, height, columns, stride, power, mu, d_mu, d_F, d_m, d_u):
    # [D13] Alg. 3 (back TRW): adjoints of the beliefs; those of log F are mu(0) mu(1) (d_mu(1) - d_mu(0))
    rho = d_u.dtype.type(power)
    for half in range(2 * rows):
        r, colour = half // 2, half % 2
        row = _row(height, r)
        left = (row + colour) % 2
        size = (columns + 1 - left) // 2
        parity, start = row % 2, _place(stride, row, left)
        for k in range(size):
            i = r * columns + left + 2 * k
            d_F[k] = (d_mu[i, 1] - d_mu[i, 0]) * mu[i, 1] * mu[i, 0]
        d_bias = d_u[colour, parity, start : start + size]
        for k in range(size):
            d_bias[k] += d_F[k]
        for d in range(4):
            d_in = d_m[colour, d, parity, start : start + size]
            for k in range(size):
                d_in[k] += rho * d_F[k]


@kernel
def _edge_ratios(rows, height, columns, stride, m, out):
    """Write what the two ends of each edge have received over it."""
    for vertical in range(2):
        for r in range(rows):
            if vertical and (r + 1) % height == 0:
                continue  # the last row of an image
            row, start = _row(height, r), _first_edge(rows, height, columns, vertical, r)
            for c in range(columns - 1 + vertical):
                edge, colour = start + c, (row + c) & 1
                there = _place(stride, row + vertical, c + 1 - vertical)
                out[edge, 0, 1] = m[colour, 1 + 2 * vertical, row & 1, _place(stride, row, c)]
                out[edge, 1, 1] = m[1 - colour, 2 * vertical, (row + vertical) & 1, there]


@kernel
def _factor_beliefs(rows, height, columns, stride, power, u, tables, m, mu):
    # [D13] theorem below (18): mu(x_i, x_j)
    one = u.dtype.type(1)
    for vertical in range(2):
        for r in range(rows):
            if vertical and (r + 1) % height == 0:
                continue  # the last row of an image
            row, start = _row(height, r), _first_edge(rows, height, columns, vertical, r)
            for c in range(columns - 1 + vertical):
                edge = start + c
                red_first, d, parity, k = _red_end(stride, vertical, row, c)
                p1, k1 = row & 1, _place(stride, row, c)
                p2, k2 = (row + vertical) & 1, _place(stride, row + vertical, c + 1 - vertical)
                colour = 0 if red_first else 1
                q1 = _odds(power, u, m, colour, p1, k1) / m[colour, 1 + 2 * vertical, p1, k1]
                q2 = _odds(power, u, m, 1 - colour, p2, k2) / m[1 - colour, 2 * vertical, p2, k2]
                w01 = tables[d, 2 * colour, parity, k] * q2
                w10 = tables[d, 2 - 2 * colour, parity, k] * q1
                w11 = tables[d, 1, parity, k] * q1 * q2
                scale = one / (one + w01 + w10 + w11)
                mu[edge, 0, 0] = scale
                mu[edge, 0, 1] = w01 * scale
                mu[edge, 1, 0] = w10 * scale
                mu[edge, 1, 1] = w11 * scale


@kernel
def _factor_beliefs_vjp(rows, height, columns, stride, power, u, mu, d_mu, d_m, d_u, d_factors):
    # [D13] Alg. 3 (back TRW): adjoints of the beliefs of edges
    rho = u.dtype.type(power)
    scale = u.dtype.type(1 / power)
    for vertical in range(2):
        for r in range(rows):
            if vertical and (r + 1) % height == 0:
                continue  # the last row of an image
            row, start = _row(height, r), _first_edge(rows, height, columns, vertical, r)
            for c in range(columns - 1 + vertical):
                edge = start + c
                red_first, d, parity, k = _red_end(stride, vertical, row, c)
                p1, k1 = row & 1, _place(stride, row, c)
                p2, k2 = (row + vertical) & 1, _place(stride, row + vertical, c + 1 - vertical)
                colour = 0 if red_first else 1
                p, d_p = mu[edge], d_mu[edge]
                mean = p[0, 0] * d_p[0, 0] + p[0, 1] * d_p[0, 1] + p[1, 0] * d_p[1, 0] + p[1, 1] * d_p[1, 1]
                n01 = p[0, 1] * (d_p[0, 1] - mean)
                n10 = p[1, 0] * (d_p[1, 0] - mean)
                n11 = p[1, 1] * (d_p[1, 1] - mean)
                d_factors[edge, 0, 0] -= scale * (n01 + n10 + n11)
                d_factors[edge, 0, 1] += scale * n01
                d_factors[edge, 1, 0] += scale * n10
                d_factors[edge, 1, 1] += scale * n11
                h1, h2 = n10 + n11, n01 + n11
                d_u[colour, p1, k1] += h1
                d_u[1 - colour, p2, k2] += h2
                for d in range(4):
                    d_m[colour, d, p1, k1] += rho * h1
                    d_m[1 - colour, d, p2, k2] += rho * h2
                d_m[colour, 1 + 2 * vertical, p1, k1] -= h1
                d_m[1 - colour, 2 * vertical, p2, k2] -= h2


@kernel
def _log_partition(first, last, rows, height, columns, power, theta_u, theta_c, mu_u, mu_c, log_u, log_across, log_down):
    """Terms of rows first .. last - 1, edges counted at their upper or left end; logs start at row ``first``."""
    # [D13] (13) with the entropy of (16) and (17)
    total = 0.0
    for r in range(first, last):
        for c in range(columns):
            i = r * columns + c
            at = i - first * columns
            for x in range(2):
                if mu_u[i, x] > 0:
                    total += mu_u[i, x] * (theta_u[i, x] - log_u[at, x])
            if c < columns - 1:
                edge, near = r * (columns - 1) + c, (r - first) * (columns - 1) + c
                for x in range(2):
                    for y in range(2):
                        if mu_c[edge, x, y] > 0:
                            information = log_across[near, x, y] - log_u[at, x] - log_u[at + 1, y]
                            total += mu_c[edge, x, y] * (theta_c[edge, x, y] - power * information)
            if (r + 1) % height:
                above = r - r // height
                edge, near = rows * (columns - 1) + above * columns + c, (above - first + first // height) * columns + c
                for x in range(2):
                    for y in range(2):
                        if mu_c[edge, x, y] > 0:
                            information = log_down[near, x, y] - log_u[at, x] - log_u[at + columns, y]
                            total += mu_c[edge, x, y] * (theta_c[edge, x, y] - power * information)
    return total
