"""Star updates on pairwise graphs with one label count: [L13] eq. (10) for arity 2.

In units of eps, and with the largest numbers taken out: a star costs L exponentials and L logarithms per edge
instead of L^2 of each,

    m(a) = top(a) + peak + log sum_b exp(theta(a, b) - top(a)) exp(l(b) - peak)
    top(a) = max_b theta(a, b),   peak = max_b l(b),   l the message over the same edge to the neighbour

The first exponential is computed once. Where the sum is nearly zero it may have lost digits to underflow (ranges
of theta / eps in the hundreds): then, for that label, m(a) is added up with its own largest term taken out.

Messages to one variable lie side by side, and each has its own table with the neighbour's label first. Cost
per star and edge: L exponentials, L logarithms and L^2 multiply-adds; memory 2 E L^2 for the tables. The label count is
known at compile time (see ``label_count``). Adjoints as in ``_smoothed_lp_general``.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from backfield.graph import Graph, Potentials
from backfield.inference.base import Adjoint
from backfield.inference.smoothed_lp.engine import SmoothedEngine, Stars, checked
from backfield.kernels.compile import inlined, kernel, label_count, part
from backfield.kernels.vector_math import vector_exp


class Links(NamedTuple):
    """Index arrays; *places* number the messages, those to variable i being ``ptr[i] .. ptr[i + 1] - 1``."""

    ptr: np.ndarray  # (n + 1,)
    slot: np.ndarray  # (S,) slot of a place ...
    place: np.ndarray  # (S,) ... and the other way
    reverse: np.ndarray  # (S,) place of the message over the same edge to the other variable


def links(graph: Graph) -> Links:
    """Number the places in the order of the variables."""
    layout = graph.layout
    place = np.empty(graph.n_slots, dtype=np.int64)
    place[layout.inc] = np.arange(graph.n_slots)
    reverse = place[layout.inc ^ 1]
    place.flags.writeable = reverse.flags.writeable = False
    return Links(layout.inc_ptr, layout.inc, place, reverse)


class PairwiseEngine(SmoothedEngine):
    """State: lambda / eps (S, L), in the order of places."""

    def __init__(self, theta: Potentials, eps: float, stars: Stars) -> None:
        super().__init__(theta, eps, stars)
        graph = theta.graph
        assert graph.n_labels is not None
        self.count = label_count(graph.n_labels)
        self.links: Links = graph.compiled("smoothed_lp links", lambda: links(graph))
        scale = theta.dtype.type(1 / eps)
        self.unary, self.factors = theta.unary * scale, theta.factors * scale
        self.psi = np.empty((graph.n_slots, graph.n_labels, graph.n_labels), theta.dtype)
        self.top = np.empty(self.psi.shape[:2], theta.dtype)
        _direct(self.links.slot, self.factors, self.psi, self.top)
        np.exp(self.psi, out=self.psi)  # numpy's exp is vectorised, numba's is not
        self.tiny = theta.dtype.type(float(np.finfo(theta.dtype).tiny) ** 0.6)

    def init(self) -> np.ndarray:
        """Return zero messages."""
        return np.zeros_like(self.top)

    def messages(self, state: np.ndarray) -> np.ndarray:
        """Return lambda in the order of the slots."""
        return (state[self.links.place] * self.top.dtype.type(self.eps)).reshape(-1)

    def state_of(self, messages: np.ndarray) -> np.ndarray:
        """Return lambda / eps in the order of places."""
        values = checked(self.theta.graph, messages, self.top.dtype).reshape(self.top.shape)
        return values[self.links.slot] * self.top.dtype.type(1 / self.eps)

    def sweep(self, state: np.ndarray, t: int) -> None:
        """Update every star once."""
        tables = self.unary, self.factors, self.psi, self.top, self.tiny
        _sweep(self.count, self.links, self.stars.order(t), *tables, state)

    def sweep_vjp(self, before: np.ndarray, after: np.ndarray, t: int, d_state: np.ndarray, d_theta: Adjoint) -> None:
        """Turn the adjoint of ``after`` into that of ``before``."""
        tables = self.factors, self.psi, self.tiny, self.top.dtype.type(1 / self.eps)
        into = d_state, d_theta.unary.reshape(self.unary.shape), d_theta.factors.reshape(self.factors.shape)
        _sweep_vjp(self.count, self.links, self.stars.order(t), *tables, before, after, *into)

    def beliefs(self, state: np.ndarray) -> np.ndarray:
        """Return mu(y_v) for all variables."""
        mu = np.empty_like(self.unary)
        _beliefs(self.count, self.links, self.unary, state, mu)
        return mu.reshape(-1)

    def marginals(self, state: np.ndarray, factors: bool = True) -> Potentials:
        """Return mu(y_v) and mu(y_alpha) of eq. (9)."""
        mu = np.empty_like(self.factors) if factors else self.factors[:0]
        if factors:
            self._factor_beliefs(state, mu)
        return Potentials.from_flat(self.theta.graph, self.beliefs(state), mu.reshape(-1))

    def dual(self, state: np.ndarray) -> Any:
        """Return the sum of eps log Z_alpha over all regions."""
        unary = _beliefs(self.count, self.links, self.unary, state, np.empty_like(self.unary))
        return self.eps * (unary + self._factor_beliefs(state, np.empty_like(self.factors)))

    def _factor_beliefs(self, state: np.ndarray, mu: np.ndarray) -> Any:
        return _factor_beliefs(self.count, self.links.place, self.factors, state, mu)

    def marginals_vjp(self, state: np.ndarray, d_mu: Potentials, d_state: np.ndarray, d_theta: Adjoint) -> None:
        """Add the adjoints that ``d_mu`` causes."""
        mu = self.marginals(state, factors=bool(d_mu.factors_flat.size))
        L = len(self.count)
        unary, factors = mu.unary, mu.factors_flat.reshape(-1, L, L)
        _softmax_vjp(unary, d_mu.unary, unary)
        _softmax_vjp(*(x.reshape(-1, L * L) for x in (factors, d_mu.factors_flat, factors)))
        _spread(self.count, self.links, unary, factors, d_state)
        d_theta.unary += unary.reshape(-1) / self.theta.dtype.type(self.eps)
        if factors.size:
            d_theta.factors += factors.reshape(-1) / self.theta.dtype.type(self.eps)

    def disagreement(self, mu: Potentials, scale: float, d_state: np.ndarray) -> None:
        """Add ``scale`` times eps (mu_alpha(y_v) - mu_v(y_v))."""
        factor = mu.dtype.type(scale * self.eps)
        _spread(self.count, self.links, factor * mu.unary, factor * mu.factors, d_state)


@kernel
def _direct(slot, theta, psi, top):
    """Turn a table for each place, the neighbour's label first, and take out its largest entry for each own label."""
    L = theta.shape[1]
    for s in range(len(slot)):
        c, first = slot[s] // 2, slot[s] % 2 == 0
        for a in range(L):
            top[s, a] = theta.dtype.type(-np.inf)
            for b in range(L):
                psi[s, b, a] = theta[c, a, b] if first else theta[c, b, a]
                top[s, a] = max(top[s, a], psi[s, b, a])
            for b in range(L):
                psi[s, b, a] -= top[s, a]


# No rows are sliced below: a slice counts references, which costs as much as a binary message.


@inlined
def _sums(L, psi, l, s, w, q, out):
    """Write exp(l(b) - peak) to q and sum_b psi(b, a) q(b) to out; return peak and the smallest sum."""
    peak = l[w, 0]
    for b in range(1, L):
        peak = max(peak, l[w, b])
    for b in range(L):
        q[b] = vector_exp(l[w, b] - peak)
    for a in range(L):
        out[a] = l.dtype.type(0)
    for b in range(L):
        for a in range(L):
            out[a] += q[b] * psi[s, b, a]
    lowest = out[0]
    for a in range(1, L):
        lowest = min(lowest, out[a])
    return peak, lowest


@part
def _anew(L, theta, slot, l, w, joint, out):
    """Write m(a) with its own largest term taken out, and the terms theta(a, b) + l(b) to joint."""
    for a in range(L):
        high = l.dtype.type(-np.inf)
        for b in range(L):
            joint[b, a] = l[w, b] + (theta[slot // 2, a, b] if slot % 2 == 0 else theta[slot // 2, b, a])
            high = max(high, joint[b, a])
        out[a] = l.dtype.type(0)
        for b in range(L):
            out[a] += vector_exp(joint[b, a] - high)
        out[a] = high + np.log(out[a])


@kernel
def _sweep(count, links, order, theta_u, theta, psi, top, tiny, l):
    # [L13] (10) for pairs, star by star
    L = len(count)
    dtype = l.dtype
    q = np.empty(L, dtype)
    m = np.empty(L, dtype)
    total = np.empty(L, dtype)
    joint = np.empty((L, L), dtype)
    for position in range(len(order)):
        i = order[position]
        first, last = links.ptr[i], links.ptr[i + 1]
        for a in range(L):
            total[a] = theta_u[i, a]
        for s in range(first, last):
            w = links.reverse[s]
            peak, lowest = _sums(L, psi, l, s, w, q, m)
            if lowest > tiny:
                for a in range(L):
                    m[a] = (top[s, a] + peak) + np.log(m[a])
            else:
                _anew(L, theta, links.slot[s], l, w, joint, m)
            for a in range(L):
                l[s, a] = m[a]  # until all are known
                total[a] += m[a]
        share = dtype.type(1) / dtype.type(1 + last - first)
        for a in range(L):
            total[a] *= share
        for s in range(first, last):
            mean = dtype.type(0)
            for a in range(L):
                m[a] = total[a] - l[s, a]
                mean += m[a]
            mean *= dtype.type(1 / L)
            for a in range(L):
                l[s, a] = m[a] - mean


@kernel
def _sweep_vjp(count, links, order, theta, psi, tiny, scale, before, l, d_state, d_unary, d_factors):
    """Undo the stars of a sweep, last first; ``l`` starts as the state after it and is rolled back."""
    # adjoint of [L13] (10), star by star backwards
    L = len(count)
    dtype = l.dtype
    q = np.empty(L, dtype)
    m = np.empty(L, dtype)
    g = np.empty(L, dtype)
    total = np.empty(L, dtype)
    joint = np.empty((L, L), dtype)
    for position in range(len(order)):
        i = order[len(order) - 1 - position]
        first, last = links.ptr[i], links.ptr[i + 1]
        for a in range(L):
            total[a] = dtype.type(0)
        for s in range(first, last):
            mean = dtype.type(0)
            for a in range(L):
                mean += d_state[s, a]
            mean *= dtype.type(1 / L)
            for a in range(L):
                d_state[s, a] -= mean
                total[a] += d_state[s, a]
        share = dtype.type(1) / dtype.type(1 + last - first)
        for a in range(L):
            total[a] *= share
            d_unary[i, a] += scale * total[a]
        for s in range(first, last):
            w, slot = links.reverse[s], links.slot[s]
            for a in range(L):
                g[a] = total[a] - d_state[s, a]  # the adjoint of m(a)
                d_state[s, a] = dtype.type(0)
                l[s, a] = before[s, a]
            _, lowest = _sums(L, psi, l, s, w, q, m)
            if lowest > tiny:
                for a in range(L):
                    g[a] /= m[a]
                for b in range(L):
                    for a in range(L):
                        joint[b, a] = g[a] * q[b] * psi[s, b, a]
            else:
                _anew(L, theta, slot, l, w, joint, m)
                for b in range(L):
                    for a in range(L):
                        joint[b, a] = g[a] * vector_exp(joint[b, a] - m[a])
            for b in range(L):
                taken = dtype.type(0)
                for a in range(L):
                    taken += joint[b, a]
                d_state[w, b] += taken
            if slot % 2 == 0:
                for a in range(L):
                    for b in range(L):
                        d_factors[slot // 2, a, b] += scale * joint[b, a]
            else:
                for b in range(L):
                    for a in range(L):
                        d_factors[slot // 2, b, a] += scale * joint[b, a]


@kernel
def _beliefs(count, links, theta_u, l, mu):
    """Write mu(y_v); return the sum of log Z_v."""
    L = len(count)
    value = 0.0
    for i in range(len(theta_u)):
        row = mu[i]
        for a in range(L):
            row[a] = theta_u[i, a]
        for s in range(links.ptr[i], links.ptr[i + 1]):
            for a in range(L):
                row[a] -= l[s, a]
        value += _softmax(row)
    return value


@kernel
def _factor_beliefs(count, place, theta, l, mu):
    """Write mu(y_alpha); return the sum of log Z_alpha."""
    L = len(count)
    value = 0.0
    for c in range(len(theta)):
        here, there = l[place[2 * c]], l[place[2 * c + 1]]
        for a in range(L):
            for b in range(L):
                mu[c, a, b] = theta[c, a, b] + here[a] + there[b]
        value += _softmax(mu[c].reshape(L * L))
    return value


@inlined
def _softmax(x):
    """Replace x by exp(x) / sum exp(x); return the log of the sum."""
    peak = x[0]
    for a in range(1, len(x)):
        peak = max(peak, x[a])
    total = x.dtype.type(0)
    for a in range(len(x)):
        x[a] = vector_exp(x[a] - peak)
        total += x[a]
    for a in range(len(x)):
        x[a] /= total
    return peak + np.log(total)


@kernel
def _softmax_vjp(mu, d_mu, nu):
    """Write mu (d_mu - mu·d_mu) for each row; nu may be mu."""
    for i in range(len(mu)):
        mean = mu.dtype.type(0)
        for a in range(mu.shape[1]):
            mean += mu[i, a] * d_mu[i, a]
        for a in range(mu.shape[1]):
            nu[i, a] = mu[i, a] * (d_mu[i, a] - mean)


@kernel
def _spread(count, links, unary, factors, d_state):
    """Add factors(y_v) - unary(y_v) to each message; factors may be empty."""
    L = len(count)
    for i in range(len(unary)):
        for s in range(links.ptr[i], links.ptr[i + 1]):
            slot = links.slot[s]
            for a in range(L):
                d_state[s, a] -= unary[i, a]
                for b in range(L if len(factors) > 0 else 0):
                    d_state[s, a] += factors[slot // 2, a, b] if slot % 2 == 0 else factors[slot // 2, b, a]
