"""Mean field on binary 4-connected grids, red and black variables in turn, whole planes in vector registers.

With b = P(x = 1), a variable is one number, its logit, and the update of [D13] §3.2 is

    z_i = u_i + sum_{j ~ i} w_ij b_j,   b_j = 1 / (1 + exp(-z_j))
    u_i = theta_i(1) - theta_i(0) + sum_{j ~ i} (theta_ij(1, 0) - theta_ij(0, 0)),   w = t00 + t11 - t01 - t10

The state holds z, not b: both b and 1 - b then keep all digits, and the number of exponentials is the same.

Storage: ``[colour, parity, place]``. Colour is (row + column) % 2, parity is row % 2, and the place counts the rows of
that parity, with one empty place after each row and a margin at both ends. Then every neighbour lies at a constant
shift in a plane of the other colour, and a sweep is a few long loops. Empty places have u = w = 0 and stay 0.
Weights are kept once, at the red end: ``w[direction, parity, place]``, directions left, right, up, down.

Cost O(1) per variable; memory 4 numbers per variable besides theta and the marginals.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from backfield.graph import Graph, Potentials
from backfield.inference.base import Adjoint
from backfield.inference.mean_field.engine import MeanFieldEngine
from backfield.kernels.compile import kernel, part
from backfield.kernels.vector_math import vector_exp

#: Places in one piece of a sweep: long for vectors, short for the cache.
_BLOCK = 4096


def supports(theta: Potentials) -> bool:
    """Whether ``theta`` is a binary 4-connected grid of finite numbers whose sums stay finite."""
    graph = theta.graph
    if graph.image_shape is None or min(graph.image_shape) < 2 or graph.n_labels != 2 or theta.dtype.kind != "f":
        return False
    return bool(theta.magnitude().max() < limit(theta.dtype))


def limit(dtype: Any) -> float:
    """Return how large potentials may be."""
    return float(np.sqrt(np.finfo(dtype).max))


class MeanFieldLattice(MeanFieldEngine):
    """State: the logits z, flat over ``[colour, parity, place]``."""

    def __init__(self, theta: Potentials) -> None:
        super().__init__(theta)
        self.places = Places(theta.graph)
        self.u = self.places.zeros(2, theta.dtype)
        self.w = self.places.zeros(4, theta.dtype)
        _bind(*self.places.sizes, theta.unary_flat, theta.factors_flat, self.u, self.w)
        self._work = self.places.zeros(1, theta.dtype)[0]

    def init(self) -> np.ndarray:
        """Return uniform marginals."""
        return self.places.zeros(2, self.theta.dtype).reshape(-1)

    def sweep(self, state: np.ndarray, t: int) -> None:
        """Update the red variables, then the black ones."""
        self.sweeps(state, t, t + 1)

    def sweeps(self, state: np.ndarray, first: int, last: int) -> None:
        """Do iterations ``first .. last - 1`` in one call."""
        _sweeps(self.places.stride, last - first, self.u, self.w, self._work, state.reshape(self.u.shape))

    def sweep_vjp(self, before: np.ndarray, after: np.ndarray, t: int, d_state: np.ndarray, d_theta: Adjoint) -> None:
        """Turn the adjoint of ``after`` into that of ``before``."""
        assert isinstance(d_theta, LatticeAdjoint)
        shape = self.u.shape
        z = before.reshape(shape), after.reshape(shape), d_state.reshape(shape)
        d_theta.pending = True
        _sweep_vjp(self.places.stride, self.w, *z, d_theta.work, d_theta.u, d_theta.w)

    def adjoint(self) -> Adjoint:
        """Return an empty collector for ``d_theta``."""
        return LatticeAdjoint(self.theta)

    def beliefs(self, state: np.ndarray) -> np.ndarray:
        """Return mu(x_i) for all variables."""
        mu = np.empty_like(self.theta.unary_flat)
        _beliefs(*self.places.sizes, state.reshape(self.u.shape), mu)
        return mu

    def marginals(self, state: np.ndarray, factors: bool = True) -> Potentials:
        """Return mu(x_i), and mu(x_c) as their products."""
        mu_u, mu_c = self.beliefs(state), np.empty(len(self.theta.factors_flat) if factors else 0, self.theta.dtype)
        if factors:
            _products(*self.places.sizes, mu_u, mu_c)
        return Potentials.from_flat(self.theta.graph, mu_u, mu_c)

    def marginals_vjp(self, state: np.ndarray, d_mu: Potentials, d_state: np.ndarray, d_theta: Adjoint) -> None:
        """Add the adjoint of the logits that ``d_mu`` causes."""
        tables = self.beliefs(state), d_mu.unary_flat, d_mu.factors_flat
        _marginals_vjp(*self.places.sizes, *tables, d_state.reshape(self.u.shape))


class Places:
    """The storage of a grid (see the module's docstring)."""

    def __init__(self, graph: Graph) -> None:
        assert graph.image_shape is not None
        rows, columns = graph.image_shape
        self.stride = (columns + 1) // 2 + 1
        self.length = (rows + 1) // 2 * self.stride + 2 * (self.stride + 1)
        self.sizes = rows, columns, self.stride

    def zeros(self, count: int, dtype: np.dtype) -> np.ndarray:
        """Return ``count`` pairs of empty planes."""
        return np.zeros((count, 2, self.length), dtype)


class LatticeAdjoint(Adjoint):
    """Collects the adjoint of u and w over the sweeps; written out to that of theta when it is read."""

    def __init__(self, theta: Potentials) -> None:
        super().__init__(theta)
        self.places = Places(theta.graph)
        self.u = self.places.zeros(2, theta.dtype)
        self.w = self.places.zeros(4, theta.dtype)
        self.work = self.places.zeros(5, theta.dtype)
        self.pending = False

    @property
    def unary(self) -> np.ndarray:  # type: ignore[override]
        """Adjoint of theta(x_i), flat."""
        self._collect()
        return self._unary

    @unary.setter
    def unary(self, value: np.ndarray) -> None:
        self._unary = value

    @property
    def factors(self) -> np.ndarray:  # type: ignore[override]
        """Adjoint of theta(x_c), flat."""
        self._collect()
        return self._factors

    @factors.setter
    def factors(self, value: np.ndarray) -> None:
        self._factors = value

    def _collect(self) -> None:
        if self.pending:
            _bind_vjp(*self.places.sizes, self.u, self.w, self._unary, self._factors)
            self.u[:] = 0
            self.w[:] = 0
            self.pending = False


@kernel
def _bind(rows, columns, stride, theta_u, theta_c, u, w):
    """Write u and w of theta."""
    t = theta_c.reshape((-1, 4))
    vertical = rows * (columns - 1)
    for r in range(rows):
        for c in range(columns):
            i = r * columns + c
            colour, place = (r + c) % 2, (r // 2 + 1) * stride + 1 + c // 2
            total = theta_u[2 * i + 1] - theta_u[2 * i]
            for d in range(4):
                e = -1
                if d == 0 and c > 0:
                    e = r * (columns - 1) + c - 1
                elif d == 1 and c < columns - 1:
                    e = r * (columns - 1) + c
                elif d == 2 and r > 0:
                    e = vertical + i - columns
                elif d == 3 and r < rows - 1:
                    e = vertical + i
                if e >= 0:
                    total += t[e, 2 if d % 2 else 1] - t[e, 0]
                    if colour == 0:
                        w[d, r % 2, place] = (t[e, 0] - t[e, 1]) + (t[e, 3] - t[e, 2])
            u[colour, r % 2, place] = total


@kernel
def _bind_vjp(rows, columns, stride, d_u, d_w, d_theta_u, d_theta_c):
    d_t = d_theta_c.reshape((-1, 4))
    for r in range(rows):
        for c in range(columns):
            i = r * columns + c
            place = (r // 2 + 1) * stride + 1 + c // 2
            d_i = d_u[(r + c) % 2, r % 2, place]
            d_theta_u[2 * i] -= d_i
            d_theta_u[2 * i + 1] += d_i
            for d in (1, 3):  # the edges to the right and down
                if (c if d == 1 else r) + 1 == (columns if d == 1 else rows):
                    continue
                e = r * (columns - 1) + c if d == 1 else rows * (columns - 1) + i
                r2, c2 = (r, c + 1) if d == 1 else (r + 1, c)
                place2 = (r2 // 2 + 1) * stride + 1 + c2 // 2
                d_j = d_u[(r2 + c2) % 2, r2 % 2, place2]
                edge = d_w[d, r % 2, place] if (r + c) % 2 == 0 else d_w[d - 1, r2 % 2, place2]
                d_t[e, 0] += edge - d_i - d_j
                d_t[e, 1] += d_j - edge
                d_t[e, 2] += d_i - edge
                d_t[e, 3] += edge


@part
def _shifts(colour, parity, stride):
    """Where the neighbours left, right, up and down lie in the planes of the other colour."""
    left = parity - 1 if colour == 0 else -parity
    up = -stride if parity == 0 else 0
    return left, left + 1, up, up + stride


@part
def _gather(colour, parity, first, last, stride, base, w, source, out):
    """Write out = base + sum_j w_ij source_j at the places of one plane from ``first`` to ``last``."""
    left, right, up, down = _shifts(colour, parity, stride)
    flip = 1 - parity
    # The weight of a black variable's edge stands at its red end, which sees it in the opposite direction.
    if colour == 0:
        w_left, w_right = w[0, parity, first:last], w[1, parity, first:last]
        w_up, w_down = w[2, parity, first:last], w[3, parity, first:last]
    else:
        w_left, w_right = w[1, parity, first + left : last + left], w[0, parity, first + right : last + right]
        w_up, w_down = w[3, flip, first + up : last + up], w[2, flip, first + down : last + down]
    a, b = source[parity, first + left : last + left], source[parity, first + right : last + right]
    # Two loops: with more arrays the compiler gives up proving that they do not overlap.
    start, total = base[first:last], out[first:last]
    for k in range(len(total)):
        total[k] = start[k] + w_left[k] * a[k] + w_right[k] * b[k]
    a, b = source[flip, first + up : last + up], source[flip, first + down : last + down]
    for k in range(len(total)):
        total[k] += w_up[k] * a[k] + w_down[k] * b[k]


@kernel
def _sweeps(stride, count, u, w, b, z):
    # [D13] §3.2, theorem "MNF updates", red then black
    one = z.dtype.type(1)
    begin, end = stride + 1, z.shape[2] - stride - 1
    for half in range(2 * count):
        colour = half % 2
        ready = begin
        for first in range(begin, end, _BLOCK):
            last = min(first + _BLOCK, end)
            ahead = min(last + stride + 1, end)
            for parity in range(2):
                logit, p = z[1 - colour, parity, ready:ahead], b[parity, ready:ahead]
                for k in range(len(p)):
                    p[k] = one / (one + vector_exp(-logit[k]))
            ready = ahead
            for parity in range(2):
                _gather(colour, parity, first, last, stride, u[colour, parity], w, b, z[colour, parity])


@kernel
def _sweep_vjp(stride, w, before, after, d_z, work, d_u, d_w):
    """Undo one sweep: the red logits after it and the black ones before it are all that it used."""
    # [D13] Alg. 2 (back MNF)
    first, last = stride + 1, d_z.shape[2] - stride - 1
    red, red_slope, black, black_slope, scratch = work[0], work[1], work[2], work[3], work[4]
    for parity in range(2):
        _sigmoid(after[0, parity], red[parity], red_slope[parity])
        _sigmoid(before[1, parity], black[parity], black_slope[parity])
    nothing, total = scratch[0], scratch[1]
    for parity in range(2):
        _add(d_z[1, parity], d_u[1, parity])
        _gather(0, parity, first, last, stride, nothing, w, d_z[1], total)
        g, slope = d_z[0, parity], red_slope[parity]
        for k in range(first, last):
            g[k] += slope[k] * total[k]
        _add(g, d_u[0, parity])
        _weights_vjp(parity, first, last, stride, red[parity], black, g, d_z[1], d_w)
    for parity in range(2):
        _gather(1, parity, first, last, stride, nothing, w, d_z[0], total)
        g, slope = d_z[1, parity], black_slope[parity]
        for k in range(first, last):
            g[k] = slope[k] * total[k]
    d_z[0] = d_z.dtype.type(0)


@part
def _sigmoid(z, b, slope):
    """Write b = sigmoid(z) and its derivative."""
    one = z.dtype.type(1)
    for k in range(len(z)):
        e = vector_exp(-z[k])
        p = one / (one + e)
        b[k] = p
        slope[k] = p * (p * e)  # and not p (1 - p), which loses its digits at p = 1


@part
def _add(a, out):
    for k in range(len(a)):
        out[k] += a[k]


@part
def _weights_vjp(parity, first, last, stride, b, b_other, g, g_other, d_w):
    """Add to the adjoint of the four weights of red variables; an edge was used once from each end."""
    shifts = _shifts(0, parity, stride)
    here, g_here = b[first:last], g[first:last]
    for d in range(4):
        plane = parity if d < 2 else 1 - parity
        there = b_other[plane, first + shifts[d] : last + shifts[d]]
        g_there = g_other[plane, first + shifts[d] : last + shifts[d]]
        out = d_w[d, parity, first:last]
        for k in range(len(out)):
            out[k] += g_here[k] * there[k] + here[k] * g_there[k]


@kernel
def _beliefs(rows, columns, stride, z, mu):
    one = z.dtype.type(1)
    for r in range(rows):
        for c in range(columns):
            i = 2 * (r * columns + c)
            e = vector_exp(-z[(r + c) % 2, r % 2, (r // 2 + 1) * stride + 1 + c // 2])
            mu[i + 1] = one / (one + e)
            mu[i] = e / (one + e)


@kernel
def _products(rows, columns, stride, mu_u, mu_c):
    e = 0
    for vertical in range(2):
        step = 2 * columns if vertical else 2
        for r in range(rows - vertical):
            for c in range(columns - 1 + vertical):
                i = 2 * (r * columns + c)
                j = i + step
                mu_c[e] = mu_u[i] * mu_u[j]
                mu_c[e + 1] = mu_u[i] * mu_u[j + 1]
                mu_c[e + 2] = mu_u[i + 1] * mu_u[j]
                mu_c[e + 3] = mu_u[i + 1] * mu_u[j + 1]
                e += 4


@kernel
def _marginals_vjp(rows, columns, stride, mu, d_mu_u, d_mu_c, d_z):
    """Add mu(0) mu(1) (d_mu(1) - d_mu(0)), where d_mu also counts the products with the four neighbours."""
    t = d_mu_c.reshape((-1, 4))
    vertical, tables = rows * (columns - 1), len(d_mu_c) > 0
    for r in range(rows):
        for c in range(columns):
            i = r * columns + c
            total = d_mu_u[2 * i + 1] - d_mu_u[2 * i]
            if tables and c > 0:
                e, j = r * (columns - 1) + c - 1, 2 * (i - 1)
                total += mu[j] * (t[e, 1] - t[e, 0]) + mu[j + 1] * (t[e, 3] - t[e, 2])
            if tables and c < columns - 1:
                e, j = r * (columns - 1) + c, 2 * (i + 1)
                total += mu[j] * (t[e, 2] - t[e, 0]) + mu[j + 1] * (t[e, 3] - t[e, 1])
            if tables and r > 0:
                e, j = vertical + i - columns, 2 * (i - columns)
                total += mu[j] * (t[e, 1] - t[e, 0]) + mu[j + 1] * (t[e, 3] - t[e, 2])
            if tables and r < rows - 1:
                e, j = vertical + i, 2 * (i + columns)
                total += mu[j] * (t[e, 2] - t[e, 0]) + mu[j + 1] * (t[e, 3] - t[e, 1])
            place = (r // 2 + 1) * stride + 1 + c // 2
            d_z[(r + c) % 2, r % 2, place] += mu[2 * i] * mu[2 * i + 1] * total
