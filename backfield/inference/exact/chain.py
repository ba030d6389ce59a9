"""Forward-backward on paths: chains of any numbering, label counts and orientation of edges, and unions of them.

With a_t(x_t) ∝ the sum over everything before t (scaled to sum to one), and T the table between t - 1 and t,

    c_t(x_t) = sum_{x_{t-1}} a_{t-1}(x_{t-1}) exp T(x_{t-1}, x_t),    a_t ∝ exp(theta_t) c_t               forward
    mu(x_{t-1}, x_t) = a_{t-1}(x_{t-1}) exp T(x_{t-1}, x_t) mu_t(x_t) / c_t(x_t)                           backward

and log Z is the sum of the logs of the scales. The vjp needs the marginals only: with F_t and B_t the conditional
expectations of d·f over what comes before (with t) and after t, given x_t,

    d_theta(x_t) = mu(x_t) (F_t + B_t - mean)
    d_theta(x_{t-1}, x_t) = mu(x_{t-1}, x_t) (F_{t-1} + d_T + d_t + B_t - mean)

Cost O(n L^2), of which the exponentials are most. Probabilities lose nothing while one step cannot take a label out of
the range of floats (``LIMIT``); beyond it, and with -inf, a is kept as logs and mu(x_{t-1} | x_t) instead of c.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from backfield.graph import Potentials
from backfield.inference.exact.base import DirectInference, check_possible, direction
from backfield.inference.exact.paths import Paths, arrange, paths_of, restore
from backfield.kernels.compile import exact_kernel, kernel

#: Probabilities are used while all |theta| are smaller: then c > e^-100, and a > e^-400 / L keeps all its digits.
LIMIT = 100.0
#: Conditional expectations given a label of smaller probability are not formed: they cannot matter.
TINY = 1e-290


@dataclass(frozen=True, repr=False)
class Chain(DirectInference, name="chain"):
    """Forward-backward on disjoint paths; parallel edges are allowed."""

    def marginals(self, theta: Potentials) -> tuple[Any, Potentials]:
        """Return log Z and the marginals, complex where theta is."""
        paths = paths_of(theta.graph)
        dtype = np.result_type(theta.dtype, np.float64)
        log_partition, *mu = forward_backward(paths, *arrange(paths, theta.astype(dtype)))
        return log_partition, restore(paths, theta.graph, *mu).astype(theta.dtype)

    def vjp(self, theta: Potentials, d_mu: Potentials) -> Potentials:
        """Return the covariance of f applied to ``d_mu``."""
        paths = paths_of(theta.graph)
        values, tangents = map(theta.like, direction(theta, d_mu))
        _, *mu = forward_backward(paths, *arrange(paths, values))
        d = arrange(paths, tangents)
        out = np.empty_like(d[0]), np.empty_like(d[1])
        _covariance(paths.labels, paths.unary_ptr, paths.table_ptr, *mu, *d, np.empty_like(d[0]), *out)
        return restore(paths, theta.graph, *out).astype(np.result_type(theta.dtype, d_mu.dtype))


def forward_backward(paths: Paths, unary: np.ndarray, tables: np.ndarray) -> tuple[Any, np.ndarray, np.ndarray]:
    """Return log Z and the marginals with the kernel that is safe for theta: the one place of this choice."""
    places, column = (paths.labels, paths.unary_ptr, paths.table_ptr), np.empty_like(unary)
    if _is_moderate(unary) and _is_moderate(tables):
        mu_u, mu_t = np.exp(unary), np.exp(tables)
        return _scaled(*places, column, mu_u, mu_t), mu_u, mu_t
    mu_u, mu_t = unary.copy(), np.empty_like(tables)
    log_partition = _logs(*places, tables, column, mu_u, mu_t)
    check_possible(log_partition)
    return log_partition, mu_u, mu_t


def _is_moderate(values: np.ndarray) -> bool:
    real = values.real
    return bool(real.min(initial=0) > -LIMIT and real.max(initial=0) < LIMIT)


@kernel
def _scaled(labels, unary_ptr, table_ptr, column, mu_u, mu_t):
    """Turn exp(theta) into marginals in place; ``column`` holds c."""
    log_z = mu_u.dtype.type(0)
    for t in range(len(labels)):
        start, end, at = unary_ptr[t], unary_ptr[t + 1], table_ptr[t]
        if at >= 0:
            table = mu_t[at : at + labels[t - 1] * labels[t]]
            _mix(mu_u[unary_ptr[t - 1] : start], table, column[start:end])
            for y in range(start, end):
                mu_u[y] *= column[y]
        total = mu_u.dtype.type(0)
        for y in range(start, end):
            total += mu_u[y]
        for y in range(start, end):
            mu_u[y] /= total
        log_z += np.log(total)
    for t in range(len(labels) - 1, -1, -1):
        start, end, at = unary_ptr[t], unary_ptr[t + 1], table_ptr[t]
        if at >= 0:
            table = mu_t[at : at + labels[t - 1] * labels[t]]
            _unmix(mu_u[unary_ptr[t - 1] : start], column[start:end], mu_u[start:end], table)
    return log_z


@kernel
def _mix(a, table, c):
    """Write c(y) = sum_x a(x) table(x, y)."""
    n = len(c)
    c[:] = 0
    for x in range(len(a)):
        weight = a[x]
        for y in range(n):
            c[y] += weight * table[x * n + y]


@kernel
def _unmix(a, c, mu, table):
    """Multiply table(x, y) by a(x) mu(y) / c(y) and make a(x) its sum over y; c is overwritten."""
    n = len(c)
    for y in range(n):
        c[y] = mu[y] / c[y]
    for x in range(len(a)):
        weight, total = a[x], a.dtype.type(0)
        for y in range(n):
            p = table[x * n + y] * (weight * c[y])
            table[x * n + y] = p
            total += p
        a[x] = total


@exact_kernel
def _condition(a, table, top, total, q):
    """q(x | y) = softmax over x of a(x) + table(x, y); top + log(total) is the normaliser, top = -inf if impossible."""
    n = len(total)
    top[:] = -np.inf
    total[:] = 0
    for x in range(len(a)):
        for y in range(n):
            top[y] = max(top[y], (a[x] + table[x * n + y]).real)
    for x in range(len(a)):
        for y in range(n):
            value = a[x] + table[x * n + y]
            q[x * n + y] = 0
            if value.real > -np.inf:
                q[x * n + y] = np.exp(value - top[y])
                total[y] += q[x * n + y]
    for x in range(len(a)):
        for y in range(n):
            if top[y] > -np.inf:
                q[x * n + y] /= total[y]


@exact_kernel
def _softmax(a):
    """Replace a by its softmax and return the log of the normaliser."""
    top, total = -np.inf, a.dtype.type(0)
    for x in range(len(a)):
        top = max(top, a[x].real)
    if top == -np.inf:
        return total + top
    for x in range(len(a)):
        a[x] = np.exp(a[x] - top) if a[x].real > -np.inf else a.dtype.type(0)
        total += a[x]
    for x in range(len(a)):
        a[x] /= total
    return top + np.log(total)


@exact_kernel
def _logs(labels, unary_ptr, table_ptr, tables, column, mu_u, mu_t):
    """Turn theta_u into marginals in place; mu_t holds mu(x_{t-1} | x_t) on the way."""
    log_z = mu_u.dtype.type(0)
    n = len(labels)
    tops = np.empty(labels.max())
    for t in range(n):
        start, end, at = unary_ptr[t], unary_ptr[t + 1], table_ptr[t]
        if at >= 0:
            size = labels[t - 1] * labels[t]
            before, total, top = mu_u[unary_ptr[t - 1] : start], column[start:end], tops[: labels[t]]
            _condition(before, tables[at : at + size], top, total, mu_t[at : at + size])
            for y in range(labels[t]):
                mu_u[start + y] += top[y] + np.log(total[y]) if top[y] > -np.inf else -np.inf
        if t == n - 1 or table_ptr[t + 1] < 0:
            log_z += _softmax(mu_u[start:end])
        else:
            log_z += _lower(mu_u[start:end])
        if log_z.real == -np.inf:
            return log_z
    for t in range(n - 1, -1, -1):
        start, end, at = unary_ptr[t], unary_ptr[t + 1], table_ptr[t]
        if at >= 0:
            before = mu_u[unary_ptr[t - 1] : start]
            for x in range(len(before)):
                before[x] = 0
                for y in range(labels[t]):
                    mu_t[at] *= mu_u[start + y]
                    before[x] += mu_t[at]
                    at += 1
    return log_z


@exact_kernel
def _lower(a):
    """Subtract the largest (finite) number and return it."""
    top = a[0].real
    for x in range(1, len(a)):
        top = max(top, a[x].real)
    if top > -np.inf:
        for x in range(len(a)):
            a[x] -= top
    return top


@exact_kernel
def _matters(p):
    return p.real > TINY or p.real < -TINY or p.imag > TINY or p.imag < -TINY


@exact_kernel
def _centre(mu, values):
    mean = mu.dtype.type(0)
    for x in range(len(mu)):
        mean += mu[x] * values[x]
    for x in range(len(mu)):
        values[x] -= mean


@exact_kernel
def _covariance(labels, unary_ptr, table_ptr, mu_u, mu_t, d_u, d_t, before, out_u, out_t):
    """Write the covariance of f times d; ``before`` becomes F, and out_u holds B until it is used."""
    out_u[:] = 0
    for t in range(len(labels)):
        at = table_ptr[t]
        _expect_before(t, at, labels, unary_ptr, mu_u, mu_t, d_u, d_t, before)
    after = np.empty_like(d_u[: labels.max()])
    for t in range(len(labels) - 1, -1, -1):
        start, end, at = unary_ptr[t], unary_ptr[t + 1], table_ptr[t]
        if at >= 0:
            first, table = unary_ptr[t - 1], slice(at, at + labels[t - 1] * labels[t])
            for y in range(labels[t]):
                after[y] = d_u[start + y] + out_u[start + y]
            _expect_after(mu_t[table], d_t[table], after[: labels[t]], before[first:start], out_u[first:start], out_t[table])
            for x in range(first, start):
                out_u[x] = out_u[x] / mu_u[x] if _matters(mu_u[x]) else d_u.dtype.type(0)
            _centre(mu_u[first:start], out_u[first:start])
        for y in range(start, end):
            out_u[y] = mu_u[y] * (before[y] + out_u[y])


@exact_kernel
def _expect_before(t, at, labels, unary_ptr, mu_u, mu_t, d_u, d_t, before):
    """F_t(y) = d_t(y) + sum_x mu(x | y) (F_{t-1}(x) + d_T(x, y)), less its mean."""
    start, end = unary_ptr[t], unary_ptr[t + 1]
    before[start:end] = 0
    if at >= 0:
        for x in range(unary_ptr[t - 1], start):
            for y in range(start, end):
                before[y] += mu_t[at] * (before[x] + d_t[at])
                at += 1
    for y in range(start, end):
        before[y] = d_u[y] + (before[y] / mu_u[y] if _matters(mu_u[y]) else d_u.dtype.type(0))
    _centre(mu_u[start:end], before[start:end])


@exact_kernel
def _expect_after(mu, d_t, after, before, total, out):
    """total(x) = sum_y mu(x, y) (d_T(x, y) + after(y)); out = mu (before + d_T + after - mean)."""
    n = len(after)
    mean = mu.dtype.type(0)
    for x in range(len(before)):
        total[x] = 0
        for y in range(n):
            total[x] += mu[x * n + y] * (d_t[x * n + y] + after[y])
            mean += mu[x * n + y] * (before[x] + d_t[x * n + y] + after[y])
    for x in range(len(before)):
        for y in range(n):
            out[x * n + y] = mu[x * n + y] * (before[x] + d_t[x * n + y] + after[y] - mean)
