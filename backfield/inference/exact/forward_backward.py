"""Forward-backward along paths.

With a_t(x_t) ∝ the sum over everything before t (scaled to sum to one), and T the table between t - 1 and t,

    c_t(x_t) = sum_{x_{t-1}} a_{t-1}(x_{t-1}) exp T(x_{t-1}, x_t),    a_t ∝ exp(theta_t) c_t               forward
    mu(x_{t-1}, x_t) = a_{t-1}(x_{t-1}) exp T(x_{t-1}, x_t) mu_t(x_t) / c_t(x_t)                           backward

and log Z is the sum of the logs of the scales. Probabilities lose nothing while one step cannot take a label out of the
range of floats (``LIMIT``); beyond it, and with -inf, a is kept as logs and mu(x_{t-1} | x_t) instead of c.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from backfield.inference.exact.base import check_possible
from backfield.inference.exact.paths import Paths
from backfield.kernels.compile import exact_kernel, exact_part, kernel, part

#: Probabilities are used while all |theta| are smaller: then c > e^-100, and a > e^-400 / L keeps all its digits.
LIMIT = 100.0


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


@part
def _mix(a, table, c):
    """Write c(y) = sum_x a(x) table(x, y)."""
    n = len(c)
    c[:] = 0
    for x in range(len(a)):
        weight = a[x]
        for y in range(n):
            c[y] += weight * table[x * n + y]


@part
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


@exact_part
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


@exact_part
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


@exact_part
def _lower(a):
    """Subtract the largest (finite) number and return it."""
    top = a[0].real
    for x in range(1, len(a)):
        top = max(top, a[x].real)
    if top > -np.inf:
        for x in range(len(a)):
            a[x] -= top
    return top
