"""Forward-backward on many chains that share one transition table: what a linear-chain CRF needs, and no more.

The recursions are those of :mod:`backfield.inference.exact.forward_backward`. As all tables are equal, exp(T) is
computed once, and the expected transitions, summed over all edges, are

    sum_t mu(x_{t-1}, x_t) = exp T(x, y) * sum_t a_{t-1}(x) mu_t(y) / c_t(y)

so no table per edge is ever written. Cost 3 L^2 multiply-adds per position; memory O(n L). Of labelled chains,

    value = sum over chains of log Z - theta(y);    d_unary = mu - [y]

in the same pass; where unary = X W, of a few features, so is d_W = X' d_unary, chain by chain. Labels are padded to a
multiple of four, and the kernel is compiled for each such number: a row of labels is a few vector registers. It computes in
double precision; chains whose potentials leave the range that is safe in the probability domain go to kernels that any
potentials are safe for.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from backfield.errors import InputError
from backfield.graph import Graph, Potentials
from backfield.inference.exact.forward_backward import LIMIT, forward_backward
from backfield.inference.exact.paths import Paths, consecutive_paths
from backfield.kernels.compile import label_count
from backfield.kernels.unrolled import small_array, unrolled_kernel
from backfield.kernels.vector_math import vector_exp

#: A step takes a label down to e^-400 of the others at most: below this, the next one could leave the range of floats.
_FLOOR = 1e-100
#: Denominators of labels that cannot be reached, which have numerators of 0.
_TINY = 1e-300
_LANES = 4
_NONE = np.empty(0, dtype=np.int64)
_NO_ROWS, _NO_SLOPES = np.empty((0, 0)), np.empty((0, 0, 0))


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
    n, n_labels = unary.shape
    log_partition = np.full(len(ptr) - 1, np.nan, np.result_type(unary.dtype, np.float64))
    mu, pairs = np.empty(unary.shape, log_partition.dtype), np.zeros(table.shape, log_partition.dtype)
    if unary.dtype.kind == "f" and max(_size(unary), _size(table)) < LIMIT:
        scores = np.zeros((n, padded(n_labels)))
        scores[:, :n_labels] = unary
        bias = np.where(np.arange(scores.shape[1]) < n_labels, 0.0, -np.inf)
        exact, longest = table.astype(np.float64), int(np.diff(ptr).max())
        forbids = bool(exact.min(initial=0) == -np.inf)
        chains = _all(ptr), ptr, longest, _NONE
        (summed,), _ = _run(scores, bias[None], _NO_ROWS, _NO_SLOPES, *chains, exact, forbids, log_partition)
        mu[:], pairs[:] = scores[:, :n_labels], summed
    for b in np.flatnonzero(np.isnan(log_partition)):
        rows = slice(ptr[b], ptr[b + 1])
        log_partition[b], mu[rows], two = _any_chain(unary[rows], table)
        pairs += two
    return log_partition, mu.astype(unary.dtype, copy=False), pairs.astype(table.dtype, copy=False)


class Likelihood(NamedTuple):
    """Minus log-likelihood, the expected number of each transition, and labels that are not the most probable ones."""

    value: float
    pairs: np.ndarray
    wrong: int


def chain_likelihood(
    unary: np.ndarray,
    bias: np.ndarray,
    ptr: np.ndarray,
    longest: int,
    labels: np.ndarray,
    table: np.ndarray,
    forbids: bool,
) -> Likelihood | None:
    """Return the likelihood of labels; ``unary`` becomes its derivative in place. None: potentials are too large for it.

    Parameters
    ----------
    unary : (n, padded(L)) float64
        Log-potentials without the bias, chain after chain; -inf forbids a label.
    bias : (padded(L),) float64
        What is added to each of them; -inf for the padding.
    ptr : (B + 1,) int64
        Chain ``b`` owns positions ``[ptr[b], ptr[b + 1])``; none is empty.
    longest : int
        Positions of the longest chain.
    labels : (n,) int64
        The label of each position.
    table : (L, L) float64
        Log-potentials of two neighbours; -inf forbids a transition.
    forbids : bool
        Whether there are such labels or transitions.
    """
    found = _run(unary, bias[None], _NO_ROWS, _NO_SLOPES, _all(ptr), ptr, longest, labels, table, forbids)
    return _likelihoods(*found)[0]


def linear_chain_likelihoods(
    rows: np.ndarray,
    weights: np.ndarray,
    d_weights: np.ndarray,
    cuts: np.ndarray,
    ptr: np.ndarray,
    longest: int,
    labels: np.ndarray,
    table: np.ndarray,
) -> list[Likelihood | None]:
    """Return the likelihood of each part of chains whose log-potentials are rows (n, F) times weights, in one call.

    Part k is the chains ``cuts[k, 0] .. cuts[k, 1] - 1``. ``weights`` are (F + 1, padded(L)): the last row is the bias, -inf
    for the padding; ``d_weights[k]``, of that shape, becomes the derivative. The others are those of
    :func:`chain_likelihood`.
    """
    unary = np.empty((longest, weights.shape[1]))
    return _likelihoods(*_run(unary, weights, rows, d_weights, cuts, ptr, longest, labels, table, False))


def _likelihoods(pairs: np.ndarray, found: np.ndarray) -> list[Likelihood | None]:
    return [
        Likelihood(value, summed, int(wrong)) if largest < LIMIT**2 and math.isfinite(value) else None
        for summed, (value, wrong, largest) in zip(pairs, found.tolist(), strict=True)
    ]


def _all(ptr: np.ndarray) -> np.ndarray:
    """Return the cuts of one part."""
    return np.array([[0, len(ptr) - 1]])


def padded(n_labels: int) -> int:
    """Return the width of a row of labels in the kernel."""
    return -(-n_labels // _LANES) * _LANES


def _run(
    unary: np.ndarray,
    weights: np.ndarray,
    rows: np.ndarray,
    d_weights: np.ndarray,
    cuts: np.ndarray,
    ptr: np.ndarray,
    longest: int,
    labels: np.ndarray,
    table: np.ndarray,
    forbids: bool,
    log_z: np.ndarray | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Return, of each part, the sum of all pairwise marginals, and what else the kernel finds."""
    n_labels, width, count = len(table), unary.shape[1], len(cuts)
    tables, column, pairs = np.empty((2, n_labels, width)), np.empty((longest, width)), np.empty((count, n_labels, width))
    log_z, found = np.empty(len(ptr) - 1) if log_z is None else log_z, np.empty((count, 3))
    # Where transitions are forbidden, labels can fall behind by more in every step, and matter in the end.
    floor = _FLOOR if forbids else 0.0
    chains = cuts, ptr, labels, table, weights, floor, rows
    _forward_backward(label_count(width), *chains, unary, column, *tables, pairs, d_weights, log_z, found)
    return pairs[:, :, :n_labels], found


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


@unrolled_kernel
def _forward_backward(
    count, cuts, ptr, labels, table, weights, floor, rows, unary, column, forward, backward, pairs, d_weights, log_z, found
):
    """Turn log-potentials into marginals in place, minus one at the labels, if there are any; sum up pairwise marginals.

    The last row of ``weights`` is added to every row of ``unary``. With ``d_weights`` log-potentials are rows times weights
    instead, in a ``unary`` that has room for one chain, and the adjoint of the weights is summed up.
    Sums are over each of the parts ``cuts[k, 0] .. cuts[k, 1] - 1`` of the chains. ``found`` are log Z - theta(y), wrong
    labels, and the largest square of a finite potential. Chains in which a possible label falls below ``floor``, or which
    have none, are left alone: their log Z is NaN.
    """
    n, n_labels, labelled = len(count), len(table), len(labels) > 0
    n_features, own = len(weights) - 1, len(d_weights) > 0
    acc, held, largest = small_array(count, unary), small_array(count, unary), small_array(count, unary)
    steepest = 0.0
    for x in range(n_labels):
        for y in range(n):
            forward[x, y], backward[x, y] = 1.0, 0.0
    for x in range(n_labels):
        for y in range(n_labels):
            entry = table[x, y]
            steepest = max(steepest, entry * entry if entry > -np.inf else 0.0)
            forward[x, y] = np.exp(entry)
            backward[y, x] = forward[x, y]
    for k in range(len(cuts)):
        value, wrong, seen, d_own = 0.0, 0, pairs[k], d_weights[k]
        for y in range(n):
            largest[y] = steepest
        for x in range(n_labels):
            for y in range(n):
                seen[x, y] = 0.0
        for f in range(n_features + 1 if own else 0):
            for y in range(n):
                d_own[f, y] = 0.0
        for b in range(cuts[k, 0], cuts[k, 1]):
            first, last = ptr[b], ptr[b + 1]
            log_partition, safe = 0.0, True
            shift = first if own else 0
            for t in range(first, last):
                a = unary[t - shift]
                for y in range(n):
                    acc[y] = weights[n_features, y]
                if own:
                    for f in range(n_features):
                        feature = rows[t, f]
                        for y in range(n):
                            acc[y] += feature * weights[f, y]
                    for y in range(n):
                        a[y] = acc[y]
                else:
                    for y in range(n):
                        a[y] += acc[y]
                if labelled:
                    value -= a[labels[t]]
                for y in range(n):
                    square = a[y] * a[y] if a[y] > -np.inf else 0.0
                    largest[y] = square if square > largest[y] else largest[y]
                for y in range(n):
                    acc[y] = vector_exp(a[y]) if a[y] > -np.inf else 0.0
                if t > first:
                    if labelled:
                        value -= table[labels[t - 1], labels[t]]
                    c, before = column[t - first], unary[t - shift - 1]
                    for y in range(n):
                        held[y] = 0.0
                    for x in range(n_labels):
                        weight = before[x]
                        for y in range(n):
                            held[y] += weight * forward[x, y]
                    for y in range(n):
                        c[y] = held[y]
                    for y in range(n):
                        acc[y] *= held[y]
                total = 0.0
                for y in range(n):
                    total += acc[y]
                inverse = 1.0 / total
                for y in range(n):
                    a[y] = acc[y] * inverse
                log_partition += np.log(total)
                if floor > 0:
                    for y in range(n_labels):
                        safe = safe and not 0.0 < a[y] <= floor
                safe = safe and total > 0.0
                if not safe:
                    break
            log_z[b] = log_partition if safe else np.nan
            value += log_z[b]
            if not safe:
                continue
            for t in range(last - 1, first, -1):
                c, a, before = column[t - first], unary[t - shift], unary[t - shift - 1]
                for y in range(n):
                    acc[y] = a[y] / (c[y] if c[y] > _TINY else _TINY)
                for y in range(n):
                    c[y] = acc[y]
                for x in range(n_labels):
                    weight = before[x]
                    for y in range(n):
                        seen[x, y] += weight * acc[y]
                for x in range(n):
                    held[x] = 0.0
                for y in range(n_labels):
                    weight = c[y]
                    for x in range(n):
                        held[x] += weight * backward[y, x]
                for x in range(n):
                    before[x] *= held[x]
            for t in range(first, last if labelled else first):
                a, best = unary[t - shift], 0
                top = a[0]
                for y in range(1, n_labels):
                    top = a[y] if a[y] > top else top
                while a[best] < top:
                    best += 1
                wrong += best != labels[t]
                a[labels[t]] -= 1.0
            for t in range(first, last if own else first):
                a = unary[t - shift]
                for y in range(n):
                    acc[y] = a[y]
                for f in range(n_features):
                    feature, d_row = rows[t, f], d_own[f]
                    for y in range(n):
                        d_row[y] += feature * acc[y]
                for y in range(n):
                    d_own[n_features, y] += acc[y]
        for x in range(n_labels):
            for y in range(n):
                seen[x, y] *= forward[x, y]
        worst = 0.0
        for y in range(n):
            worst = max(worst, largest[y])
        found[k, 0], found[k, 1], found[k, 2] = value, wrong, worst
