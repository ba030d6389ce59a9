"""Forward-backward on many chains that share one transition table: what a linear-chain CRF needs, and no more.

The recursions are those of :mod:`backfield.inference.exact.chain`. As all tables are equal, exp(T) is computed once, and the
expected transitions, summed over all edges, are

    sum_t mu(x_{t-1}, x_t) = exp T(x, y) * sum_t a_{t-1}(x) mu_t(y) / c_t(y)

so that no table per edge is ever written. Cost 3 L^2 multiply-adds per position; memory O(n L).
"""

from __future__ import annotations

import numpy as np

from backfield.errors import InputError
from backfield.inference.exact.chain import LIMIT, forward_backward
from backfield.inference.exact.paths import Paths
from backfield.kernels.compile import kernel


def tied_chains(unary: np.ndarray, ptr: np.ndarray, table: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return log Z of each chain, the marginals of each position, and the sum of all pairwise marginals.

    Parameters
    ----------
    unary : (n, L) float64 or float32
        Log-potentials of all positions, chain after chain.
    ptr : (B + 1,) int64
        Chain ``b`` owns positions ``[ptr[b], ptr[b + 1])``; none is empty.
    table : (L, L)
        Log-potentials of every two neighbours, axes (earlier, later).

    Returns
    -------
    log_partition : (B,) float64
    mu : (n, L)
    pairs : (L, L)
    """
    ptr = _checked(unary, ptr, table)
    # a > e^(-4 limit) / L must be an ordinary number of the type.
    limit = LIMIT if unary.dtype == np.float64 else LIMIT / 5
    if max(np.abs(unary).max(), np.abs(table).max()) >= limit:
        return _one_by_one(unary, ptr, table)
    mu, weights, pairs = np.exp(unary), np.exp(table), np.zeros(table.shape)
    log_partition = np.empty(len(ptr) - 1)
    column = np.empty((int(np.diff(ptr).max()), unary.shape[1]), unary.dtype)
    _forward_backward(ptr, weights, column, mu, pairs, log_partition)
    return log_partition, mu, (pairs * weights).astype(table.dtype)


def _checked(unary: np.ndarray, ptr: np.ndarray, table: np.ndarray) -> np.ndarray:
    if unary.ndim != 2 or table.shape != (unary.shape[1],) * 2 or table.dtype != unary.dtype:
        raise InputError(
            f"tied chains need unary (n, L) and table (L, L) of one type, got {unary.dtype} {unary.shape} "
            f"and {table.dtype} {table.shape}."
        )
    ptr = np.ascontiguousarray(ptr, dtype=np.int64).view()
    if ptr[0] != 0 or ptr[-1] != len(unary) or (np.diff(ptr) < 1).any():
        raise InputError(f"ptr must rise from 0 to {len(unary)}, by at least 1 for each chain.")
    ptr.flags.writeable = False
    return ptr


def _one_by_one(unary: np.ndarray, ptr: np.ndarray, table: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Go through the chains with kernels that any potentials are safe for."""
    n_labels = unary.shape[1]
    log_partition, mu, pairs = np.empty(len(ptr) - 1), np.empty_like(unary), np.zeros(table.shape)
    for b in range(len(ptr) - 1):
        rows = slice(ptr[b], ptr[b + 1])
        values = unary[rows].astype(np.float64).ravel()
        n = len(values) // n_labels
        tables = np.tile(table.astype(np.float64).ravel(), n - 1)
        log_partition[b], one, two = forward_backward(_consecutive(n, n_labels), values, tables)
        mu[rows] = one.reshape(n, n_labels)
        pairs += two.reshape(n - 1, n_labels, n_labels).sum(axis=0)
    return log_partition, mu, pairs.astype(table.dtype)


def _consecutive(n: int, n_labels: int) -> Paths:
    table_ptr = (np.arange(n) - 1) * n_labels**2
    table_ptr[0] = -1
    arrays = np.full(n, n_labels), np.arange(n + 1) * n_labels, table_ptr
    for array in arrays:
        array.flags.writeable = False
    return Paths(*arrays, (n - 1) * n_labels**2, None, None)


@kernel
def _forward_backward(ptr, weights, column, mu, pairs, log_z):
    """Turn exp(unary) into marginals in place; add a(x) mu(y) / c(y) of all edges to ``pairs``."""
    n = mu.shape[1]
    zero, one = mu.dtype.type(0), mu.dtype.type(1)
    part, flushed = np.zeros_like(weights), 0  # float32 sums stay short
    for b in range(len(ptr) - 1):
        log_z[b] = 0
        for t in range(ptr[b], ptr[b + 1]):
            a = mu[t]
            if t > ptr[b]:
                c, before = column[t - ptr[b]], mu[t - 1]
                c[:] = 0
                for x in range(n):
                    weight = before[x]
                    for y in range(n):
                        c[y] += weight * weights[x, y]
                for y in range(n):
                    a[y] *= c[y]
            total = zero
            for y in range(n):
                total += a[y]
            inverse = one / total
            for y in range(n):
                a[y] *= inverse
            log_z[b] += np.log(total)
        for t in range(ptr[b + 1] - 1, ptr[b], -1):
            c, a, before = column[t - ptr[b]], mu[t], mu[t - 1]
            for y in range(n):
                c[y] = a[y] / c[y]
            for x in range(n):
                weight, total = before[x], zero
                for y in range(n):
                    part[x, y] += weight * c[y]
                    total += weights[x, y] * c[y]
                before[x] = weight * total
        if ptr[b + 1] - flushed > 64 or b == len(ptr) - 2:
            pairs += part
            part[:] = 0
            flushed = ptr[b + 1]
