"""Exact answers about whole sequences of a chain: the k best, probabilities of segments, samples, entropy.

A chain is read by an automaton. Its state s holds the last label (order one) or the last two (order two); with L labels and
S states, label y takes state c to (c L + y) mod S, which ends in y. With

    a_t(s) = log of the sum over everything up to t that ends in state s
    b_t(s) = log of the sum over everything after t given state s

    k best     lists of the k best scores of each state, with pointers back to (state, rank) before it
    segment    log P(y_s..y_e = z) = forward steps along z alone + b_e - log Z, neighbours of z among those allowed
    samples    s_n ~ a_n, then s_t ~ exp(a_t(c) + T(c, y_{t+1})) among the states that lead to s_{t+1}
    entropy    H(s_n) + sum_t sum_s P(s_{t+1} = s) H(s_t | s_{t+1} = s), a sum of terms >= 0

All in logs, so -inf and scores of any size are safe. Cost O(n S L), of the k best O(n S L k log(L k)).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from backfield.errors import InputError
from backfield.graph import Potentials
from backfield.graph.chains import second_order, tied_order_two
from backfield.inference.exact.base import check_possible
from backfield.inference.exact.tied_chains import chain_starts
from backfield.kernels.compile import exact_kernel, exact_part


@dataclass(frozen=True, eq=False)
class Sequence:
    """One chain as an automaton.

    Parameters
    ----------
    start : (S,)
        Log-potentials of the states of the first position.
    unary : (n, L)
        Log-potentials of the labels; those of the first position are in ``start``.
    tables : (K, S, L)
        Log-potentials of a label after a state.
    which : (n,) int64
        The table of the step to position t; that of t = 0 is not used.
    """

    start: np.ndarray
    unary: np.ndarray
    tables: np.ndarray
    which: np.ndarray

    @classmethod
    def of(cls, theta: Potentials) -> Sequence:
        """Return the chain 0 - 1 - ... - n-1 of potentials."""
        graph = theta.graph
        count, n = graph.n_labels, graph.n_variables
        if count is not None and second_order(graph) is not None:
            return cls._of_order_two(theta)
        scope = graph.layout.scope
        path = graph.n_factors == n - 1 and np.array_equal(scope, np.repeat(np.arange(n), 2)[1:-1])
        if count is None or not path:
            raise InputError("answers about sequences need one chain, whose positions have the same labels.")
        unary = theta.unary_flat.reshape(n, count).astype(np.float64)
        if n == 1:
            return cls(unary[0], unary, np.zeros((1, count, count)), np.zeros(n, dtype=np.int64))
        shared = theta.shared if chain_starts(theta) is not None else None
        tables = theta.factors_flat if shared is None else shared.tables
        which = np.arange(-1, n - 1) if shared is None else np.zeros(n, dtype=np.int64)
        return cls(unary[0], unary, tables.reshape(-1, count, count).astype(np.float64), which)

    @classmethod
    def _of_order_two(cls, theta: Potentials) -> Sequence:
        chains = second_order(theta.graph)
        assert chains is not None
        if len(chains.starts) != 2 or (chains.triple[2:] < 0).any():
            raise InputError("answers about sequences need one chain, whose positions have the same labels.")
        return cls.of_order_two(theta.unary.astype(np.float64), *_tables_of_order_two(theta))

    @classmethod
    def of_order_two(cls, unary: np.ndarray, pairs: np.ndarray, triples: np.ndarray) -> Sequence:
        """Return a chain of (n, L) labels, tables of pairs (1 or n - 1, L, L) and of triples (1 or n - 2, L, L, L)."""
        n, count = unary.shape
        start = np.full(count * count, -np.inf)
        start[:count] = unary[0]  # as if the label 0 had come before
        first = np.full((1, count, count, count), -np.inf)
        first[0, 0] = pairs[0]
        rest = pairs[-len(triples) :, None] + triples
        which = np.minimum(np.arange(-1, n - 1), 1 if len(rest) == 1 else n)
        return cls(start, unary, np.concatenate([first, rest]).reshape(-1, count * count, count), which)

    @property
    def labels(self) -> np.ndarray:
        """(S,) last label of each state."""
        return np.arange(len(self.start)) % self.unary.shape[1]

    @cached_property
    def forward(self) -> np.ndarray:
        """Return a (n, S)."""
        return _forward(self.start, self.unary, self.tables, self.which)

    @cached_property
    def backward(self) -> np.ndarray:
        """Return b (n, S)."""
        return _backward(self.unary, self.tables, self.which)

    @cached_property
    def log_partition(self) -> float:
        """Return log Z."""
        from scipy.special import logsumexp

        value = float(logsumexp(self.forward[-1]))
        check_possible(value)
        return value

    def best(self, k: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the k best labelings (k, n), or all that are possible, and their log-probabilities, best first."""
        _ = self.log_partition  # refuses what has no labeling
        scores, labels = _best(self.start, self.unary, self.tables, self.which, k)
        possible = scores > -np.inf
        return labels[possible], scores[possible] - self.log_partition

    def segment(self, start: int, labels: np.ndarray, before: np.ndarray | None, after: np.ndarray | None) -> float:
        """Return log P of ``labels`` from ``start`` on, after a label in ``before`` and before one in ``after``.

        These are (L,) booleans, or None for any; the ends of the chain count as allowed.
        """
        n, count = self.unary.shape
        masks = np.arange(count) == labels[:, None]
        stop = start + len(labels)
        if after is not None and stop < n:
            masks, stop = np.concatenate([masks, after[None]]), stop + 1
        if start == 0:
            states = np.where(masks[0][self.labels], self.start, -np.inf)
        else:
            states = self.forward[start - 1]
            if before is not None:
                states = np.where(before[self.labels], states, -np.inf)
            states = _step(states, self.unary[start], self.tables[self.which[start]], masks[0])
        for t in range(start + 1, stop):
            states = _step(states, self.unary[t], self.tables[self.which[t]], masks[t - start])
        from scipy.special import logsumexp

        return float(logsumexp(states + self.backward[stop - 1]) - self.log_partition)

    def sample(self, uniform: np.ndarray) -> np.ndarray:
        """Return a labeling for each row of (k, n) numbers in [0, 1)."""
        _ = self.log_partition
        return _sample(self.forward, self.tables, self.which, uniform)

    def entropy(self) -> float:
        """Return the entropy of all labels together, in nats."""
        return float(_entropy(self.forward, self.backward, self.tables, self.which, self.log_partition))


def _tables_of_order_two(theta: Potentials) -> tuple[np.ndarray, np.ndarray]:
    """Return tables of the pairs (1 or n - 1, L, L) and of the triples (1 or n - 2, L, L, L) of a chain, in order."""
    chains, count = second_order(theta.graph), theta.graph.n_labels
    assert chains is not None and count is not None
    shared = tied_order_two(theta)
    if shared is not None:
        return shared[0][None].astype(np.float64), shared[1][None].astype(np.float64)
    ptr, flat = theta.graph.layout.table_ptr, theta.factors_flat.astype(np.float64)
    out = []
    for factors, size in ((chains.pair, count**2), (chains.triple, count**3)):
        places = ptr[factors[factors >= 0]]
        out.append(flat[places[:, None] + np.arange(size)])
    return out[0].reshape(-1, count, count), out[1].reshape(-1, count, count, count)


@exact_part
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
def _step(states, unary, table, allowed):
    """Return the states after one more label, among those allowed."""
    count = len(unary)
    before = len(states) // count  # states that share their last but one label
    out, terms = np.full(len(states), -np.inf), np.empty(count)
    for s in range(len(states)):
        y = s % count
        if allowed[y]:
            for w in range(count):
                c = s // count + w * before
                terms[w] = states[c] + table[c, y]
            out[s] = unary[y] + _log_sum(terms)
    return out


@exact_kernel
def _forward(start, unary, tables, which):
    n, count = unary.shape
    a = np.empty((n, len(start)))
    a[0] = start
    every = np.ones(count, np.bool_)
    for t in range(1, n):
        a[t] = _step(a[t - 1], unary[t], tables[which[t]], every)
    return a


@exact_kernel
def _backward(unary, tables, which):
    n, count = unary.shape
    size = tables.shape[1]
    b, terms = np.zeros((n, size)), np.empty(count)
    for t in range(n - 2, -1, -1):
        table = tables[which[t + 1]]
        for c in range(size):
            for y in range(count):
                terms[y] = table[c, y] + unary[t + 1, y] + b[t + 1, (c * count + y) % size]
            b[t, c] = _log_sum(terms)
    return b


@exact_kernel
def _best(start, unary, tables, which, k):
    """Return scores (k,), -inf beyond the last labeling, and labels (k, n)."""
    n, count = unary.shape
    size = len(start)
    before = size // count
    lists = np.full((size, k), -np.inf)
    lists[:, 0] = start
    back = np.zeros((n, size, k), np.int64)  # state * k + rank at the position before
    candidates = np.empty(count * k)
    for t in range(1, n):
        table, new = tables[which[t]], np.full((size, k), -np.inf)
        for s in range(size):
            y = s % count
            for w in range(count):
                c = s // count + w * before
                for rank in range(k):
                    candidates[w * k + rank] = -(lists[c, rank] + table[c, y])
            order = np.argsort(candidates, kind="mergesort")[:k]
            for rank in range(len(order)):
                at = order[rank]
                new[s, rank] = unary[t, y] - candidates[at]
                back[t, s, rank] = (s // count + (at // k) * before) * k + at % k
        lists = new
    order = np.argsort(-lists.reshape(-1), kind="mergesort")[:k]
    scores, labels = np.empty(len(order)), np.empty((len(order), n), np.int64)
    for number in range(len(order)):
        at = order[number]
        scores[number] = lists[at // k, at % k]
        for t in range(n - 1, -1, -1):
            labels[number, t] = (at // k) % count
            at = back[t, at // k, at % k]
    return scores, labels


@exact_part
def _draw(logs, uniform):
    """Return a number with probability proportional to exp(logs)."""
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
def _sample(a, tables, which, uniform):
    n, size = a.shape
    count = tables.shape[2]
    before = size // count
    out, logs = np.empty(uniform.shape, np.int64), np.empty(count)
    for number in range(len(uniform)):
        s = _draw(a[n - 1], uniform[number, n - 1])
        out[number, n - 1] = s % count
        for t in range(n - 2, -1, -1):
            table = tables[which[t + 1]]
            for w in range(count):
                c = s // count + w * before
                logs[w] = a[t, c] + table[c, s % count]
            s = s // count + _draw(logs, uniform[number, t]) * before
            out[number, t] = s % count
    return out


@exact_part
def _entropy_of(logs):
    """Return the entropy of exp(logs), normalised."""
    total, out = _log_sum(logs), 0.0
    for value in logs:
        if value > -np.inf:
            out -= np.exp(value - total) * (value - total)
    return out


@exact_kernel
def _entropy(a, b, tables, which, log_z):
    n, size = a.shape
    count = tables.shape[2]
    before = size // count
    out, logs = _entropy_of(a[n - 1]), np.empty(count)
    for t in range(n - 2, -1, -1):
        table = tables[which[t + 1]]
        for s in range(size):
            p = np.exp(a[t + 1, s] + b[t + 1, s] - log_z)
            if p > 0:
                for w in range(count):
                    c = s // count + w * before
                    logs[w] = a[t, c] + table[c, s % count]
                out += p * _entropy_of(logs)
    return out
