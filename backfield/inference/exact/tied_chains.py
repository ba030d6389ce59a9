"""Forward-backward on many chains that share one transition table: what a linear-chain CRF needs, and no more.

The recursions are those of :mod:`backfield.inference.exact.forward_backward`. As all tables are equal, exp(T) is
computed once, and the expected transitions, summed over all edges, are

    sum_t mu(x_{t-1}, x_t) = exp T(x, y) * sum_t a_{t-1}(x) mu_t(y) / c_t(y)

so no table per edge is ever written. Cost 3 L^2 multiply-adds per position; memory O(n L).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from backfield.errors import InputError
from backfield.graph import Graph, Potentials
from backfield.inference.exact.forward_backward import LIMIT, forward_backward
from backfield.inference.exact.paths import Paths, consecutive_paths
from backfield.kernels.compile import kernel

#: A step takes a label down to e^-400 of the others at most: below this, the next one could leave the range of floats.
_FLOOR = 1e-100


def shared_chain_gradient(theta: Potentials) -> tuple[Any, Potentials] | None:
    """Return log Z and its gradient of chains that share one table; None of other models."""
    tied, graph, ptr = theta.shared, theta.graph, chain_starts(theta)
    if tied is None or ptr is None:
        return None
    log_partition, mu, pairs = tied_chains(theta.unary, ptr, tied.tables.reshape(graph.n_labels, -1))
    return log_partition.sum(), Potentials.from_groups(graph, mu.reshape(-1), [tied.adjoint(pairs)])


def chain_starts(theta: Potentials) -> np.ndarray | None:
    """Return where chains 0 - 1 - ... start, and the number of variables, where all edges share one table; else None."""
    return None if theta.shared is None or theta.graph.n_labels is None else starts_in(theta.graph)


def starts_in(graph: Graph) -> np.ndarray | None:
    """Return where the chains of a graph of chains 0 - 1 - ... start, and the number of variables; None of others."""
    starts: np.ndarray | None = graph.compiled("chain starts", lambda: _starts(graph))
    return starts


def _starts(graph: Graph) -> np.ndarray | None:
    """Return where the chains of consecutive variables start, and the number of variables; None of other graphs."""
    paths = consecutive_paths(graph)
    return None if paths is None else np.append(np.flatnonzero(paths.table_ptr < 0), graph.n_variables)


def tied_chains(unary: np.ndarray, ptr: np.ndarray, table: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return log Z of each chain, the marginals of each position, and the sum of all pairwise marginals.

    Parameters
    ----------
    unary : (n, L) float64, float32 or complex128
        Log-potentials of all positions, chain after chain; -inf forbids a label.
    ptr : (B + 1,) int64
        Chain ``b`` owns positions ``[ptr[b], ptr[b + 1])``; none is empty.
    table : (L, L)
        Log-potentials of every two neighbours, axes (earlier, later); -inf forbids a transition.

    Returns
    -------
    log_partition : (B,) float64, complex where theta is
    mu : (n, L)
    pairs : (L, L)
    """
    ptr = _checked(unary, ptr, table)
    forbidding = bool(np.real(table).min(initial=0) == -np.inf)
    if unary.dtype == np.float32 and forbidding:
        log_partition, mu, pairs = tied_chains(unary.astype(np.float64), ptr, table.astype(np.float64))
        return log_partition, mu.astype(np.float32), pairs.astype(np.float32)
    # a > e^(-4 limit) / L must be an ordinary number of the type.
    limit = LIMIT / 5 if unary.dtype == np.float32 else LIMIT
    log_partition = np.full(len(ptr) - 1, np.nan, np.result_type(unary.dtype, np.float64))
    mu, pairs = np.empty_like(unary), np.zeros(table.shape, log_partition.dtype)
    if unary.dtype.kind == "f" and max(_size(unary), _size(table)) < limit:
        weights = np.exp(table)
        np.exp(unary, out=mu)
        column = np.empty((int(np.diff(ptr).max()), unary.shape[1]), unary.dtype)
        # Where transitions are forbidden, labels can fall behind by more in every step, and matter in the end.
        floor = unary.dtype.type(_FLOOR if forbidding else 0)
        _forward_backward(ptr, weights, column, floor, mu, pairs, log_partition)
        pairs *= weights
    for b in np.flatnonzero(np.isnan(log_partition)):
        rows = slice(ptr[b], ptr[b + 1])
        log_partition[b], mu[rows], two = _any_chain(unary[rows], table)
        pairs += two
    return log_partition, mu, pairs.astype(table.dtype)


def _size(values: np.ndarray) -> float:
    """Return the largest |x| of finite numbers; NaN where one is NaN."""
    low, high = values.min(initial=0), values.max(initial=0)
    if low == -np.inf:
        low = values[values != -np.inf].min(initial=0)
    return float(max(-low, high))


def _checked(unary: np.ndarray, ptr: np.ndarray, table: np.ndarray) -> np.ndarray:
    if unary.ndim != 2 or table.shape != (unary.shape[1],) * 2 or table.dtype != unary.dtype:
        raise InputError(
            f"tied chains need unary (n, L) and table (L, L) of one type, received {unary.dtype} {unary.shape} "
            f"and {table.dtype} {table.shape}."
        )
    ptr = np.ascontiguousarray(ptr, dtype=np.int64).view()
    if ptr[0] != 0 or ptr[-1] != len(unary) or (np.diff(ptr) < 1).any():
        raise InputError(f"ptr must rise from 0 to {len(unary)}, by at least 1 for each chain.")
    ptr.flags.writeable = False
    return ptr


def _any_chain(unary: np.ndarray, table: np.ndarray) -> tuple[Any, np.ndarray, np.ndarray]:
    """Return log Z, marginals and summed pairwise marginals of one chain by kernels that any potentials are safe for."""
    n, n_labels = unary.shape
    exact = np.result_type(unary.dtype, np.float64)
    tables = np.tile(table.astype(exact).ravel(), n - 1)
    log_partition, one, two = forward_backward(_consecutive(n, n_labels), unary.astype(exact).ravel(), tables)
    return log_partition, one.reshape(n, n_labels), two.reshape(n - 1, n_labels, n_labels).sum(axis=0)


def _consecutive(n: int, n_labels: int) -> Paths:
    table_ptr = (np.arange(n) - 1) * n_labels**2
    table_ptr[0] = -1
    arrays = np.full(n, n_labels), np.arange(n + 1) * n_labels, table_ptr
    for array in arrays:
        array.flags.writeable = False
    return Paths(*arrays, (n - 1) * n_labels**2, None, None)


@kernel
def _forward_backward(ptr, weights, column, floor, mu, pairs, log_z):
    """Turn exp(unary) into marginals in place; add a(x) mu(y) / c(y) of all edges to ``pairs``.

    Chains in which a possible label falls below ``floor``, or which have none, are left alone: their log Z stays NaN.
    """
    n = mu.shape[1]
    zero, one = mu.dtype.type(0), mu.dtype.type(1)
    part, flushed = np.zeros_like(weights), 0  # float32 sums stay short
    for b in range(len(ptr) - 1):
        log_partition, safe = 0.0, True
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
            log_partition += np.log(total)
            if floor > zero:
                for y in range(n):
                    safe = safe and (a[y] == zero or a[y] > floor)
            safe = safe and total > zero
            if not safe:
                break
        if not safe:
            continue
        log_z[b] = log_partition
        for t in range(ptr[b + 1] - 1, ptr[b], -1):
            c, a, before = column[t - ptr[b]], mu[t], mu[t - 1]
            for y in range(n):
                c[y] = a[y] / c[y] if a[y] > zero else zero
            for x in range(n):
                weight, total = before[x], zero
                for y in range(n):
                    part[x, y] += weight * c[y]
                    total += weights[x, y] * c[y]
                before[x] = weight * total
        if ptr[b + 1] - flushed > 64:
            pairs += part
            part[:] = 0
            flushed = ptr[b + 1]
    pairs += part
