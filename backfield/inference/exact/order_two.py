"""Forward-backward on many chains of order two that share one table of pairs and one of triples.

With W(w, x, y) = exp(T2(x, y) + T3(w, x, y)), u_t = exp(theta_t) and a_t(x, y) of the last two labels, scaled to sum to one,

    a_t(x, y) ∝ u_t(y) sum_w a_{t-1}(w, x) W(w, x, y)                                    forward
    b_{t-1}(w, x) = sum_y W(w, x, y) u_t(y) b_t(x, y) / scale_t                          backward
    sum_t mu(w, x, y) = W(w, x, y) sum_t a_{t-1}(w, x) u_t(y) b_t(x, y) / scale_t

so no table per position is ever written. Cost 3 L^3 multiply-adds per position; memory O(n L + longest chain L^2).
Chains in which a step may leave the range of floats are computed in logs (:mod:`backfield.inference.exact.sequences`).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from backfield.graph import Potentials, Tied
from backfield.graph.chains import second_order, tied_order_two
from backfield.inference.exact.forward_backward import LIMIT
from backfield.inference.exact.sequences import Sequence
from backfield.kernels.compile import exact_kernel, kernel

#: A label that is possible and less probable than this could matter later and leave the range of floats before.
_FLOOR = 1e-100


class Sums(NamedTuple):
    """log Z of all chains together, marginals of the positions, and sums of those of pairs and triples."""

    log_partition: float
    mu: np.ndarray
    pairs: np.ndarray
    triples: np.ndarray


def order_two_gradient(theta: Potentials) -> tuple[float, Potentials] | None:
    """Return log Z and its gradient of chains of order two that share their tables; None of other models."""
    found = order_two_sums(theta)
    if found is None:
        return None
    sums = zip(theta.groups, (found.pairs, found.triples), strict=True)
    groups = [group.adjoint(each.astype(theta.dtype)) for group, each in sums if isinstance(group, Tied)]
    return found.log_partition, Potentials.from_groups(theta.graph, found.mu.reshape(-1).astype(theta.dtype), groups)


def order_two_sums(theta: Potentials) -> Sums | None:
    """Return log Z and sums of marginals of chains of order two that share their tables; None of other models."""
    tables = tied_order_two(theta) if theta.dtype.kind == "f" else None
    if tables is None:
        return None
    chains = second_order(theta.graph)
    assert chains is not None
    return _sums(theta.unary.astype(np.float64), chains.starts, *(each.astype(np.float64) for each in tables))


def _sums(unary: np.ndarray, starts: np.ndarray, two: np.ndarray, three: np.ndarray) -> Sums:
    count = unary.shape[1]
    log_z = np.full(len(starts) - 1, np.nan)
    mu, pairs, triples = np.empty_like(unary), np.zeros((count,) * 2), np.zeros((count,) * 3)
    whole = two + three
    if max(_size(unary), _size(two), _size(whole)) < LIMIT:
        first, rest = np.exp(two), np.exp(whole)
        longest = int(np.diff(starts).max())
        _forward_backward(starts, first, rest, np.exp(unary), np.empty((longest, count, count)), mu, pairs, triples, log_z)
        triples *= rest
        pairs *= first
    for b in np.flatnonzero(np.isnan(log_z)):
        rows = slice(starts[b], starts[b + 1])
        log_z[b] = _in_logs(unary[rows], two, three, mu[rows], pairs, triples)
    pairs += triples.sum(axis=0)
    return Sums(float(log_z.sum()), mu, pairs, triples)


def _size(values: np.ndarray) -> float:
    """Return the largest |x| of numbers that are not -inf; NaN where one is NaN."""
    finite = values[values != -np.inf]
    return float(np.abs(finite).max(initial=0))


def _in_logs(
    unary: np.ndarray, two: np.ndarray, three: np.ndarray, mu: np.ndarray, pairs: np.ndarray, triples: np.ndarray
) -> float:
    """Do the same for one chain whatever its scores are; ``pairs`` gets the first pair alone."""
    chain = Sequence.of_order_two(unary, two[None], three[None])
    log_z = chain.log_partition
    _add_marginals(chain.forward, chain.backward, unary, chain.tables, chain.which, log_z, mu, pairs, triples)
    return log_z


@exact_kernel
def _add_marginals(a, b, unary, tables, which, log_z, mu, pairs, triples):
    n, count = unary.shape
    mu[:] = 0
    for t in range(n):
        for s in range(a.shape[1]):
            mu[t, s % count] += np.exp(a[t, s] + b[t, s] - log_z)
    for t in range(1, n):
        table = tables[which[t]]
        for c in range(a.shape[1]):
            for y in range(count):
                x = c % count
                p = np.exp(a[t - 1, c] + table[c, y] + unary[t, y] + b[t, x * count + y] - log_z)
                if t == 1:
                    pairs[x, y] += p
                else:
                    triples[c // count, x, y] += p


@kernel
def _forward_backward(starts, first, rest, u, a, mu, pairs, triples, log_z):
    """Write marginals; add a(w, x) u(y) b(x, y) / scale to ``triples``, that of the first pairs to ``pairs``.

    Chains in which a possible state falls below the floor, or which have none, are left alone: their log Z stays NaN.
    """
    count = u.shape[1]
    b, new = np.empty((count, count)), np.empty((count, count))
    scales = np.empty(len(a))
    for number in range(len(starts) - 1):
        begin, n = starts[number], starts[number + 1] - starts[number]
        total = 0.0
        for y in range(count):
            total += u[begin, y]
        scales[0], log_partition, safe = total, np.log(total), total > 0
        for y in range(count):  # of the first position, the last label alone counts
            mu[begin, y] = u[begin, y] / total
        for t in range(1, n):
            row, total = u[begin + t], 0.0
            now = a[t]
            if t == 1:
                for x in range(count):
                    for y in range(count):
                        now[x, y] = mu[begin, x] * first[x, y]
            else:
                now[:] = 0
                for w in range(count):
                    for x in range(count):
                        weight = a[t - 1, w, x]
                        for y in range(count):
                            now[x, y] += weight * rest[w, x, y]
            for x in range(count):
                for y in range(count):
                    now[x, y] *= row[y]
                    total += now[x, y]
            for x in range(count):
                for y in range(count):
                    now[x, y] /= total
                    safe = safe and (now[x, y] == 0 or now[x, y] > _FLOOR)
            scales[t] = total
            log_partition += np.log(total)
            safe = safe and total > 0
            if not safe:
                break
        if not safe:
            continue
        log_z[number] = log_partition
        b[:] = 1
        for t in range(n - 1, 0, -1):
            row = u[begin + t]
            for y in range(count):
                mu[begin + t, y] = 0
            for x in range(count):
                for y in range(count):
                    mu[begin + t, y] += a[t, x, y] * b[x, y]
                    b[x, y] *= row[y] / scales[t]
            if t > 1:
                for w in range(count):
                    for x in range(count):
                        weight, total = a[t - 1, w, x], 0.0
                        for y in range(count):
                            total += rest[w, x, y] * b[x, y]
                            triples[w, x, y] += weight * b[x, y]
                        new[w, x] = total
                b, new = new, b
            else:
                for x in range(count):
                    weight, total = mu[begin, x], 0.0
                    for y in range(count):
                        total += first[x, y] * b[x, y]
                        pairs[x, y] += weight * b[x, y]
                    mu[begin, x] = weight * total
