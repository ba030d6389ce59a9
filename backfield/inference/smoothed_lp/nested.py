"""Star updates with messages between all nested regions, factors in factors too: [L13] eq. (7)-(10) in full.

With l = lambda / eps and theta in units of eps, the score of a region alpha, which is the log of mu_alpha up to a constant
([L13] eq. (9)), and the star of a region beta ([L13] eq. (10)), all messages to it at once, are

    s_alpha(y) = theta(y_alpha) + sum_{beta in alpha} l_alpha(y_beta) - sum_{gamma containing alpha} l_gamma(y_alpha)
    b(y_beta) = theta(y_beta) + sum_{delta in beta} l_beta(y_delta)                  s_beta without the messages to beta
    m_alpha(y_beta) = log sum_{y_alpha-beta} exp( s_alpha(y_alpha) - l_alpha(y_beta) )
    l_alpha(y_beta) = ( b(y_beta) + sum_alpha' m_alpha'(y_beta) ) / (1 + N_beta) - m_alpha(y_beta)   up to a constant

for the N_beta factors alpha that strictly contain beta. A message of the star enters the dual through s_alpha and s_beta
alone, so neither b nor any m_alpha depends on the block. Afterwards mu_beta and all mu_alpha(y_beta) agree: the derivative
of the convex dual by the block is zero, and the star its exact minimum. Where no factor contains another one these are the
stars of ``general``. The polytope is a part of that with messages to variables alone, so the least dual is no larger.

A sweep takes variables in their order, then contained factors by size, and the next one backward.

Adjoints: with g_alpha that of l_alpha(y_beta) and G = sum_alpha g_alpha / (1 + N_beta), b gets G and m_alpha gets
G - g_alpha, which the probabilities exp(s_alpha - l_alpha - m_alpha) share out over theta and the messages of alpha.

Cost of a sweep O(links of alpha · table of alpha) for each link; memory: a message, of the size of beta, for each link,
and the maps of ``regions.py``.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from backfield.graph import Graph, Potentials
from backfield.inference.base import Adjoint
from backfield.inference.smoothed_lp.engine import SmoothedEngine, Stars, checked, frozen, scaled
from backfield.inference.smoothed_lp.general import softmax_vjp
from backfield.inference.smoothed_lp.regions import Nesting
from backfield.kernels.compile import exact_kernel, exact_part, inlined, log_sum_exp
from backfield.kernels.vector_math import probability_exp


class NestedEngine(SmoothedEngine):
    """State: lambda / eps, flat, in the order of the links: those of the slots, then those between factors."""

    def __init__(self, theta: Potentials, eps: float, stars: Stars, nesting: Nesting) -> None:
        super().__init__(theta, eps, stars)
        self.links, self.cycle = nesting
        self.tables = scaled(_flat(theta), 1 / eps)

    def init(self) -> np.ndarray:
        """Return zero messages."""
        return np.zeros(int(self.links.msg_ptr[-1]), self.theta.dtype)

    def messages(self, state: np.ndarray) -> np.ndarray:
        """Return lambda, one block for each slot, then one for each factor in a factor."""
        return scaled(state, self.eps)

    def state_of(self, messages: np.ndarray) -> np.ndarray:
        """Return lambda / eps."""
        return scaled(checked(self.theta.graph, messages, self.theta.dtype, int(self.links.msg_ptr[-1])), 1 / self.eps)

    def _order(self, t: int) -> np.ndarray:
        if self.stars.choice == "random":
            return frozen(np.random.default_rng([self.stars.seed, t]).permutation(self.cycle[0]))
        return self.cycle[t % 2]

    def sweep(self, state: np.ndarray, t: int) -> None:
        """Update every star once."""
        self._check(_sweep(self.links, self.tables, state, self._order(t)))

    def sweep_vjp(self, before: np.ndarray, after: np.ndarray, t: int, d_state: np.ndarray, d_theta: Adjoint) -> None:
        """Turn the adjoint of ``after`` into that of ``before``."""
        d_tables = np.zeros_like(self.tables)
        _sweep_vjp(self.links, self.tables, self._order(t), before, after, d_state, d_tables)
        self._add(d_tables, d_theta)

    def beliefs(self, state: np.ndarray) -> np.ndarray:
        """Return mu(y_v) for all variables."""
        return self._beliefs(state, self.theta.graph.n_variables)[0]

    def marginals(self, state: np.ndarray, factors: bool = True) -> Potentials:
        """Return mu(y_v) and mu(y_alpha) of eq. (9)."""
        graph = self.theta.graph
        mu, _ = self._beliefs(state, len(self.links.table_ptr) - 1 if factors else graph.n_variables)
        return _split(graph, mu)

    def dual(self, state: np.ndarray) -> Any:
        """Return the sum of eps log Z_alpha over all regions."""
        return self.eps * self._beliefs(state, len(self.links.table_ptr) - 1)[1]

    def _beliefs(self, state: np.ndarray, count: int) -> tuple[np.ndarray, Any]:
        """Return the marginals of the first regions, and the sum of their log Z."""
        mu = np.empty(int(self.links.table_ptr[count]), self.tables.dtype)
        _scores(self.links, self.tables, state, mu)
        bad, total = _normalise(self.links.table_ptr[: count + 1], mu)
        self._check(bad)
        return mu, total

    def _check(self, bad: int) -> None:
        """Refuse a region that is left without a configuration."""
        n = self.theta.graph.n_variables
        if bad >= 0:
            raise self.contradiction(bad) if bad < n else self.impossible(bad - n)

    def marginals_vjp(self, state: np.ndarray, d_mu: Potentials, d_state: np.ndarray, d_theta: Adjoint) -> None:
        """Add the adjoints that ``d_mu`` causes."""
        mu = _flat(self.marginals(state, factors=bool(d_mu.factors_flat.size)))
        nu = np.zeros_like(self.tables)
        count = len(self.links.table_ptr) if d_mu.factors_flat.size else self.theta.graph.n_variables + 1
        softmax_vjp(self.links.table_ptr[:count], mu, _flat(d_mu), nu)
        self._add(nu, d_theta)
        _spread(self.links, nu, d_state)

    def disagreement(self, mu: Potentials, scale: float, d_state: np.ndarray) -> None:
        """Add ``scale`` times eps (mu_alpha(y_beta) - mu_beta(y_beta))."""
        _spread(self.links, mu.dtype.type(scale * self.eps) * _flat(mu), d_state)

    def _add(self, d_tables: np.ndarray, d_theta: Adjoint) -> None:
        """Add the adjoint of theta / eps to that of theta."""
        cut = len(d_theta.unary)
        d_theta.unary += d_tables[:cut] / self.eps
        d_theta.factors += d_tables[cut:] / self.eps


def nested_biases(graph: Graph, nesting: Nesting, messages: np.ndarray, eps: float, delta: Potentials | None) -> Potentials:
    """Return the biases b_alpha(y_alpha) that messages put on each region: [L13] eq. (14) with all nested regions."""
    links = nesting.links
    messages = checked(graph, messages, None, int(links.msg_ptr[-1]))
    tables = np.zeros(int(links.table_ptr[-1]), messages.dtype)
    if delta is not None:
        tables += _flat(delta)
    out = np.empty_like(tables)
    _scores(links, tables, messages, out)
    return _split(graph, scaled(out, 1 / eps))


def _flat(theta: Potentials) -> np.ndarray:
    return np.concatenate([theta.unary_flat, theta.factors_flat])


def _split(graph: Graph, tables: np.ndarray) -> Potentials:
    cut = int(graph.layout.var_ptr[-1])
    return Potentials.from_flat(graph, tables[:cut], tables[cut:])


@exact_part
def _most(links):
    """Return the largest number of links into a region, the largest message and the largest table."""
    degree, message, table = 1, 1, 1
    for r in range(len(links.table_ptr) - 1):
        degree = max(degree, links.up_ptr[r + 1] - links.up_ptr[r])
        table = max(table, links.table_ptr[r + 1] - links.table_ptr[r])
    for k in range(len(links.upper)):
        message = max(message, links.msg_ptr[k + 1] - links.msg_ptr[k])
    return degree, message, table


@inlined
def _score(links, theta, l, r, skip, whole, score):
    """Write s_r without the message of link ``skip`` (-1: with all of them), and unless ``whole`` without those to r."""
    first, size = links.table_ptr[r], links.table_ptr[r + 1] - links.table_ptr[r]
    for e in range(size):
        score[e] = theta[first + e]
    for at in range(links.down_ptr[r], links.down_ptr[r + 1]):
        k = links.down[at]
        if k != skip:
            start, place = links.msg_ptr[k], links.map_start[k]
            for e in range(size):
                score[e] += l[start + links.maps[place + e]]
    for at in range(links.up_ptr[r], links.up_ptr[r + 1] if whole else links.up_ptr[r]):
        start = links.msg_ptr[links.up[at]]
        for e in range(size):
            if l[start + e].real == -np.inf:  # dead, see engine.py
                score[e] = l[start + e]
            elif score[e].real > -np.inf:
                score[e] -= l[start + e]


@inlined
def _marginal(links, k, score, high, row, out):
    """Write the log sums of exp(score) over what the upper region of link k has and the lower has not, to a row of out."""
    size = links.table_ptr[links.upper[k] + 1] - links.table_ptr[links.upper[k]]
    count, place = links.msg_ptr[k + 1] - links.msg_ptr[k], links.map_start[k]
    for y in range(count):
        high[y] = -np.inf
        out[row, y] = out.dtype.type(0)
    for e in range(size):
        y = links.maps[place + e]
        high[y] = max(high[y], score[e].real)
    for e in range(size):
        y = links.maps[place + e]
        if score[e].real > -np.inf:
            out[row, y] += probability_exp(score[e] - high[y])
    for y in range(count):
        out[row, y] = np.log(out[row, y]) + high[y] if high[y] > -np.inf else out.dtype.type(-np.inf)


@inlined
def _gather(links, theta, l, r, score, high, m, total):
    """Write m_alpha for all regions around r and their mean with b; return the number of entries alive."""
    first, degree = links.up_ptr[r], links.up_ptr[r + 1] - links.up_ptr[r]
    count = links.table_ptr[r + 1] - links.table_ptr[r]
    share = l.dtype.type(1 / (1 + degree))
    _score(links, theta, l, r, -1, False, total)
    for s in range(degree):
        k = links.up[first + s]
        _score(links, theta, l, links.upper[k], k, True, score)
        _marginal(links, k, score, high, s, m)
        for y in range(count):
            total[y] += m[s, y]
    alive = count
    for y in range(count):
        if total[y].real == -np.inf:
            alive -= 1
            total[y] = l.dtype.type(-np.inf)
        else:
            total[y] *= share
    return alive


@exact_kernel
def _sweep(links, theta, l, order):
    """Update the stars in their order; return a region without a configuration (-1: none)."""
    degree, message, table = _most(links)
    m = np.empty((degree, message), l.dtype)
    high = np.empty(message)
    total = np.empty(message, l.dtype)
    score = np.empty(table, l.dtype)
    for position in range(len(order)):
        r = order[position]
        # [L13] (10): all messages of a star at once
        alive = _gather(links, theta, l, r, score, high, m, total)
        if alive == 0:
            return r
        for s in range(links.up_ptr[r + 1] - links.up_ptr[r]):
            start = links.msg_ptr[links.up[links.up_ptr[r] + s]]
            mean = l.dtype.type(0)
            for y in range(links.table_ptr[r + 1] - links.table_ptr[r]):
                l[start + y] = total[y]
                if total[y].real > -np.inf:
                    l[start + y] -= m[s, y]
                    mean += l[start + y]
            mean *= l.dtype.type(1 / alive)
            for y in range(links.table_ptr[r + 1] - links.table_ptr[r]):
                if total[y].real > -np.inf:
                    l[start + y] -= mean
    return -1


@inlined
def _pull_back(links, r, skip, whole, d_score, d_l, d_theta):
    """Do the transpose of ``_score``."""
    first, size = links.table_ptr[r], links.table_ptr[r + 1] - links.table_ptr[r]
    for e in range(size):
        d_theta[first + e] += d_score[e]
    for at in range(links.down_ptr[r], links.down_ptr[r + 1]):
        k = links.down[at]
        if k != skip:
            start, place = links.msg_ptr[k], links.map_start[k]
            for e in range(size):
                d_l[start + links.maps[place + e]] += d_score[e]
    for at in range(links.up_ptr[r], links.up_ptr[r + 1] if whole else links.up_ptr[r]):
        start = links.msg_ptr[links.up[at]]
        for e in range(size):
            d_l[start + e] -= d_score[e]


@exact_kernel
def _sweep_vjp(links, theta, order, before, l, d_l, d_theta):
    """Undo the stars of a sweep, last first; ``l`` starts as the state after it and is rolled back."""
    # adjoint of [L13] (10), star by star backwards
    degree, message, table = _most(links)
    m = np.empty((degree, message), l.dtype)
    g = np.empty((degree, message), l.dtype)
    high = np.empty(message)
    total = np.empty(message, l.dtype)
    score = np.empty(table, l.dtype)
    zero = l.dtype.type(0)
    for position in range(len(order)):
        r = order[len(order) - 1 - position]
        first, size = links.up_ptr[r], links.up_ptr[r + 1] - links.up_ptr[r]
        count = links.table_ptr[r + 1] - links.table_ptr[r]
        alive = _gather(links, theta, l, r, score, high, m, total)
        for s in range(size):
            start = links.msg_ptr[links.up[first + s]]
            mean = zero
            for y in range(count):
                l[start + y] = before[start + y]
                g[s, y] = d_l[start + y] if total[y].real > -np.inf else zero
                d_l[start + y] = zero
                mean += g[s, y]
            mean *= l.dtype.type(1 / alive)
            for y in range(count):
                g[s, y] -= mean if total[y].real > -np.inf else zero
        for y in range(count):
            total[y] = zero
            for s in range(size):
                total[y] += g[s, y]
            total[y] *= l.dtype.type(1 / (1 + size))
        _pull_back(links, r, -1, False, total, d_l, d_theta)
        for s in range(size):
            k = links.up[first + s]
            alpha, place = links.upper[k], links.map_start[k]
            _score(links, theta, l, alpha, k, True, score)
            for e in range(links.table_ptr[alpha + 1] - links.table_ptr[alpha]):
                y = links.maps[place + e]
                possible = score[e].real > -np.inf
                # total - g is the adjoint of m_alpha(y_beta)
                score[e] = (total[y] - g[s, y]) * probability_exp(score[e] - m[s, y]) if possible else zero
            _pull_back(links, alpha, k, True, score, d_l, d_theta)


@exact_kernel
def _scores(links, theta, l, out):
    """Write s_r of as many regions as ``out`` has room for."""
    for r in range(len(links.table_ptr) - 1):
        if links.table_ptr[r + 1] > len(out):
            break
        _score(links, theta, l, r, -1, True, out[links.table_ptr[r] : links.table_ptr[r + 1]])


@exact_kernel
def _normalise(ptr, mu):
    """Turn scores to marginals; return a region without a configuration (-1: none) and the sum of log Z."""
    value = np.zeros(1, mu.dtype)[0]
    for r in range(len(ptr) - 1):
        shift = log_sum_exp(mu[ptr[r] : ptr[r + 1]])
        if shift.real == -np.inf:
            return r, value
        total = mu.dtype.type(0)
        for e in range(ptr[r], ptr[r + 1]):
            mu[e] = probability_exp(mu[e] - shift)
            total += mu[e]
        for e in range(ptr[r], ptr[r + 1]):  # of huge scores the log of the sum is rounded
            mu[e] /= total
        value += shift
    return -1, value


@exact_kernel
def _spread(links, tables, d_l):
    """Add tables(y_beta) of the upper region minus those of the lower one to each message."""
    for k in range(len(links.upper)):
        upper, lower, start, place = links.upper[k], links.table_ptr[links.lower[k]], links.msg_ptr[k], links.map_start[k]
        for e in range(links.table_ptr[upper + 1] - links.table_ptr[upper]):
            d_l[start + links.maps[place + e]] += tables[links.table_ptr[upper] + e]
        for y in range(links.msg_ptr[k + 1] - links.msg_ptr[k]):
            d_l[start + y] -= tables[lower + y]
