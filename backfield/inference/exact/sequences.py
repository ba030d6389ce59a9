"""Exact answers about whole sequences of a chain: the k best, probabilities of segments, samples, entropy.

With a_t(y) = log of the sum over everything up to t that ends in y, b_t(y) = log of the sum over everything after t given y,

    k best     lists of the k best scores of each label, with pointers back to (label, rank) before it
    segment    log P(y_s..y_e = z) = in_s(z_s) + theta along z + out_e(z_e) - log Z,  in and out over the neighbours allowed
    samples    y_n ~ a_n, then y_t ~ exp(a_t(x) + T(x, y_{t+1}))
    entropy    H(y_n) + sum_t sum_y P(y_{t+1} = y) H(y_t | y_{t+1} = y), a sum of terms >= 0

All in logs, so that -inf and scores of any size are safe. Cost O(n L^2), of the k best O(n L^2 k log(L k)).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.special import logsumexp

from backfield.errors import InputError
from backfield.graph import Potentials
from backfield.inference.exact.base import check_possible
from backfield.inference.exact.tied_chains import chain_starts
from backfield.kernels.compile import exact_kernel


@dataclass(frozen=True, eq=False)
class Sequence:
    """One chain: log-potentials (n, L), and tables (n - 1, L, L) or one (1, L, L) for all edges."""

    unary: np.ndarray
    tables: np.ndarray

    @classmethod
    def of(cls, theta: Potentials) -> Sequence:
        """Return the chain 0 - 1 - ... - n-1 of potentials."""
        graph = theta.graph
        count, n = graph.n_labels, graph.n_variables
        scope = graph.layout.scope
        path = graph.n_factors == n - 1 and np.array_equal(scope, np.repeat(np.arange(n), 2)[1:-1])
        if count is None or not path:
            raise InputError("answers about sequences need one chain, whose positions have the same labels.")
        unary = theta.unary_flat.reshape(n, count).astype(np.float64)
        if n == 1:
            return cls(unary, np.zeros((1, count, count)))
        shared = theta.shared if chain_starts(theta) is not None else None
        tables = theta.factors_flat if shared is None else shared.tables
        return cls(unary, tables.reshape(-1, count, count).astype(np.float64))

    @cached_property
    def forward(self) -> np.ndarray:
        """Return a (n, L)."""
        return _forward(self.unary, self.tables)

    @cached_property
    def backward(self) -> np.ndarray:
        """Return b (n, L)."""
        return _backward(self.unary, self.tables)

    @cached_property
    def log_partition(self) -> float:
        """Return log Z."""
        value = float(logsumexp(self.forward[-1]))
        check_possible(value)
        return value

    def table(self, t: int) -> np.ndarray:
        """Return the table between the positions t and t + 1."""
        table: np.ndarray = self.tables[t if len(self.tables) > 1 else 0]
        return table

    def best(self, k: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the k best labelings (k, n), or all that are possible, and their log-probabilities, best first."""
        _ = self.log_partition  # refuses what has no labeling
        scores, labels = _best(self.unary, self.tables, k)
        possible = scores > -np.inf
        return labels[possible], scores[possible] - self.log_partition

    def segment(self, start: int, labels: np.ndarray, before: np.ndarray | None, after: np.ndarray | None) -> float:
        """Return log P of ``labels`` from ``start`` on, after a label in ``before`` and before one in ``after``.

        These are (L,) booleans, or None for any; the ends of the chain count as allowed.
        """
        stop = start + len(labels) - 1
        first, last = labels[0], labels[-1]
        total = self.forward[start, first]
        if start > 0 and before is not None:
            total = self.unary[start, first] + _total(self.forward[start - 1] + self.table(start - 1)[:, first], before)
        for t in range(start, stop):
            here, there = labels[t - start], labels[t + 1 - start]
            total += self.table(t)[here, there] + self.unary[t + 1, there]
        if stop == len(self.unary) - 1 or after is None:
            return float(total + self.backward[stop, last] - self.log_partition)
        rest = self.table(stop)[last] + self.unary[stop + 1] + self.backward[stop + 1]
        return float(total + _total(rest, after) - self.log_partition)

    def sample(self, uniform: np.ndarray) -> np.ndarray:
        """Return a labeling for each row of (k, n) numbers in [0, 1)."""
        _ = self.log_partition
        return _sample(self.forward, self.tables, uniform)

    def entropy(self) -> float:
        """Return the entropy of all labels together, in nats."""
        _ = self.log_partition
        return float(_entropy(self.forward, self.backward, self.tables, self.log_partition))


def _total(values: np.ndarray, allowed: np.ndarray) -> float:
    chosen = values[allowed]
    return float(logsumexp(chosen)) if len(chosen) else -np.inf


@exact_kernel
def _log_sum(x):
    top = -np.inf
    for value in x:
        top = max(top, value)
    if top == -np.inf:
        return top
    total = 0.0
    for value in x:
        total += np.exp(value - top)
    return top + np.log(total)


@exact_kernel
def _forward(unary, tables):
    n, count = unary.shape
    a, terms = unary.copy(), np.empty(count)
    for t in range(1, n):
        table = tables[min(t - 1, len(tables) - 1)]
        for y in range(count):
            for x in range(count):
                terms[x] = a[t - 1, x] + table[x, y]
            a[t, y] += _log_sum(terms)
    return a


@exact_kernel
def _backward(unary, tables):
    n, count = unary.shape
    b, terms = np.zeros_like(unary), np.empty(count)
    for t in range(n - 2, -1, -1):
        table = tables[min(t, len(tables) - 1)]
        for x in range(count):
            for y in range(count):
                terms[y] = table[x, y] + unary[t + 1, y] + b[t + 1, y]
            b[t, x] = _log_sum(terms)
    return b


@exact_kernel
def _best(unary, tables, k):
    """Return scores (k,), -inf beyond the last labeling, and labels (k, n)."""
    n, count = unary.shape
    lists = np.full((count, k), -np.inf)
    lists[:, 0] = unary[0]
    back = np.zeros((n, count, k), np.int64)  # label * k + rank at the position before
    candidates = np.empty(count * k)
    for t in range(1, n):
        table, new = tables[min(t - 1, len(tables) - 1)], np.full((count, k), -np.inf)
        for y in range(count):
            for x in range(count):
                for rank in range(k):
                    candidates[x * k + rank] = -(lists[x, rank] + table[x, y])
            order = np.argsort(candidates, kind="mergesort")[:k]
            for rank in range(len(order)):
                new[y, rank] = unary[t, y] - candidates[order[rank]]
                back[t, y, rank] = order[rank]
        lists = new
    order = np.argsort(-lists.reshape(-1), kind="mergesort")[:k]
    scores, labels = np.empty(len(order)), np.empty((len(order), n), np.int64)
    for number in range(len(order)):
        at = order[number]
        scores[number] = lists[at // k, at % k]
        for t in range(n - 1, -1, -1):
            labels[number, t] = at // k
            at = back[t, at // k, at % k]
    return scores, labels


@exact_kernel
def _draw(logs, uniform):
    """Return a label with probability proportional to exp(logs)."""
    total, left = _log_sum(logs), uniform
    last = 0
    for x in range(len(logs)):
        if logs[x] > -np.inf:
            last = x
            left -= np.exp(logs[x] - total)
            if left < 0:
                return x
    return last


@exact_kernel
def _sample(a, tables, uniform):
    n, count = a.shape
    out, logs = np.empty(uniform.shape, np.int64), np.empty(count)
    for number in range(len(uniform)):
        out[number, n - 1] = _draw(a[n - 1], uniform[number, n - 1])
        for t in range(n - 2, -1, -1):
            table, y = tables[min(t, len(tables) - 1)], out[number, t + 1]
            for x in range(count):
                logs[x] = a[t, x] + table[x, y]
            out[number, t] = _draw(logs, uniform[number, t])
    return out


@exact_kernel
def _entropy_of(logs):
    """Return the entropy of exp(logs), normalised."""
    total, out = _log_sum(logs), 0.0
    for value in logs:
        if value > -np.inf:
            out -= np.exp(value - total) * (value - total)
    return out


@exact_kernel
def _entropy(a, b, tables, log_z):
    n, count = a.shape
    out, logs = _entropy_of(a[n - 1]), np.empty(count)
    for t in range(n - 2, -1, -1):
        table = tables[min(t, len(tables) - 1)]
        for y in range(count):
            p = np.exp(a[t + 1, y] + b[t + 1, y] - log_z)
            if p > 0:
                for x in range(count):
                    logs[x] = a[t, x] + table[x, y]
                out += p * _entropy_of(logs)
    return out
