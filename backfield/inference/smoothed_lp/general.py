"""Star updates on any graph in the log domain: any arity, any label counts, -inf, also complex numbers; any choice.

With l = lambda / eps and theta in units of eps, the star of variable v ([L13] eq. (10)) is

    m_alpha(y_v) = log sum_{y_alpha-v} exp( theta(y_alpha) + sum_{u in alpha-v} l_alpha(y_u) )
    l_alpha(y_v) = ( theta(y_v) + sum_alpha' m_alpha'(y_v) ) / (1 + N_v) - m_alpha(y_v)      up to a constant

which does not see the old messages to v. Afterwards mu_v and all mu_alpha(y_v) agree, and the dual has fallen by

    eps ( sum_alpha log sum_y exp(m_alpha + l_alpha) + log sum_y exp(theta_v - sum_alpha l_alpha)
          - (1 + N_v) log sum_y exp( (theta_v + sum_alpha m_alpha) / (1 + N_v) ) )

by which ``greedy`` ranks the stars, in a tournament tree; after each update its neighbours are ranked again.

Adjoints: with g_alpha that of l_alpha(y_v) and G = sum_alpha g_alpha / (1 + N_v), theta(y_v) gets G and m_alpha gets
G - g_alpha, which the probabilities exp(... - m_alpha) share out over the table and the other messages.

Cost O(arity · table) for each slot of a sweep; ``greedy`` times the number of neighbours.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from backfield.graph import Potentials
from backfield.inference.base import Adjoint
from backfield.inference.smoothed_lp.engine import SmoothedEngine, Stars, checked, scaled
from backfield.kernels.compile import exact_kernel, exact_part, inlined, log_sum_exp
from backfield.kernels.vector_math import probability_exp


class GeneralEngine(SmoothedEngine):
    """State: lambda / eps, flat, in the order of the slots."""

    def __init__(self, theta: Potentials, eps: float, stars: Stars) -> None:
        super().__init__(theta, eps, stars)
        self.unary, self.factors = scaled(theta.unary_flat, 1 / eps), scaled(theta.factors_flat, 1 / eps)

    def init(self) -> np.ndarray:
        """Return zero messages."""
        return np.zeros(int(self.theta.graph.layout.msg_ptr[-1]), self.theta.dtype)

    def messages(self, state: np.ndarray) -> np.ndarray:
        """Return lambda."""
        return scaled(state, self.eps)

    def state_of(self, messages: np.ndarray) -> np.ndarray:
        """Return lambda / eps."""
        return scaled(checked(self.theta.graph, messages, self.theta.dtype), 1 / self.eps)

    def sweep(self, state: np.ndarray, t: int) -> None:
        """Update every star once, or as many times the best one."""
        tables = self.theta.graph.layout, self.unary, self.factors, state
        if self.stars.choice == "greedy":
            bad = _greedy(*tables, np.empty(self.theta.graph.n_variables, np.int64))
        else:
            bad = _sweep(*tables, self.stars.order(t), state[:0])
        if bad >= 0:
            raise self.contradiction(bad)

    def sweep_vjp(self, before: np.ndarray, after: np.ndarray, t: int, d_state: np.ndarray, d_theta: Adjoint) -> None:
        """Turn the adjoint of ``after`` into that of ``before``."""
        layout = self.theta.graph.layout
        order, saved = self.stars.order(t), before[:0]
        if self.stars.choice == "greedy":  # a star may come twice: do the sweep again and keep what it overwrites
            found, replay = np.full(self.theta.graph.n_variables, -1), before.copy()
            _greedy(layout, self.unary, self.factors, replay, found)
            order = found[found >= 0]
            order.flags.writeable = False
            sizes = layout.labels * np.diff(layout.inc_ptr)
            saved, after[:] = np.empty(int(sizes[order].sum()), before.dtype), before
            _sweep(layout, self.unary, self.factors, after, order, saved)
        args = order, before, saved, after, d_state, d_theta.unary, d_theta.factors
        _sweep_vjp(layout, self.unary, self.factors, before.dtype.type(1 / self.eps), *args)

    def beliefs(self, state: np.ndarray) -> np.ndarray:
        """Return mu(y_v) for all variables."""
        mu = np.empty_like(self.unary)
        bad, _ = _beliefs(self.theta.graph.layout, self.unary, state, mu)
        if bad >= 0:
            raise self.contradiction(bad)
        return mu

    def marginals(self, state: np.ndarray, factors: bool = True) -> Potentials:
        """Return mu(y_v) and mu(y_alpha) of eq. (9)."""
        mu = np.empty_like(self.factors) if factors else self.factors[:0]
        if factors:
            self._factor_beliefs(state, mu)
        return Potentials.from_flat(self.theta.graph, self.beliefs(state), mu)

    def dual(self, state: np.ndarray) -> Any:
        """Return the sum of eps log Z_alpha over all regions."""
        _, unary = _beliefs(self.theta.graph.layout, self.unary, state, np.empty_like(self.unary))
        return self.eps * (unary + self._factor_beliefs(state, np.empty_like(self.factors)))

    def _factor_beliefs(self, state: np.ndarray, mu: np.ndarray) -> Any:
        bad, total = _factor_beliefs(self.theta.graph.layout, self.factors, state, mu)
        if bad >= 0:
            raise self.impossible(bad)
        return total

    def marginals_vjp(self, state: np.ndarray, d_mu: Potentials, d_state: np.ndarray, d_theta: Adjoint) -> None:
        """Add the adjoints that ``d_mu`` causes."""
        mu = self.marginals(state, factors=bool(d_mu.factors_flat.size))
        layout = self.theta.graph.layout
        unary, factors = np.empty_like(mu.unary_flat), np.empty_like(mu.factors_flat)
        softmax_vjp(layout.var_ptr, mu.unary_flat, d_mu.unary_flat, unary)
        d_theta.unary += unary / self.eps
        if factors.size:
            softmax_vjp(layout.table_ptr, mu.factors_flat, d_mu.factors_flat, factors)
            d_theta.factors += factors / self.eps
        _spread(layout, unary, factors, d_state)

    def disagreement(self, mu: Potentials, scale: float, d_state: np.ndarray) -> None:
        """Add ``scale`` times eps (mu_alpha(y_v) - mu_v(y_v))."""
        factor = mu.dtype.type(scale * self.eps)
        _spread(self.theta.graph.layout, factor * mu.unary_flat, factor * mu.factors_flat, d_state)


@exact_part
def _largest(layout):
    """Return the largest degree, label count and table."""
    table, degree, labels = 1, 1, 1
    for c in range(len(layout.table_ptr) - 1):
        table = max(table, layout.table_ptr[c + 1] - layout.table_ptr[c])
    for i in range(len(layout.labels)):  # numpy's max compiles for half a second
        labels = max(labels, layout.labels[i])
        degree = max(degree, layout.inc_ptr[i + 1] - layout.inc_ptr[i])
    return degree, labels, table


# Tables are walked as (blocks, labels of a slot, step) and by "while": neither the label of an entry nor the length of a
# range needs a division, which costs as much as an exponential.


@inlined
def _joint(layout, theta_c, l, c, skip, joint):
    """Write theta(y_alpha) + sum_u l_alpha(y_u), without slot ``skip`` (-1: all of them)."""
    first, last = layout.table_ptr[c], layout.table_ptr[c + 1]
    for e in range(last - first):
        joint[e] = theta_c[first + e]
    for k in range(layout.scope_ptr[c], layout.scope_ptr[c + 1]):
        if k != skip:
            count, step, start = layout.labels[layout.scope[k]], layout.stride[k], layout.msg_ptr[k]
            e = 0
            while e < last - first:
                for x in range(count):
                    value = l[start + x]
                    for _ in range(step):
                        joint[e] += value
                        e += 1


@inlined
def _marginal(layout, k, joint, row, out):
    """Write the log sum over all but y_v of exp(joint) for slot k = (alpha, v) to a row of out."""
    c = layout.slot_factor[k]
    count, step = layout.labels[layout.scope[k]], layout.stride[k]
    size = layout.table_ptr[c + 1] - layout.table_ptr[c]
    for x in range(count):
        high, block = -np.inf, x * step
        while block < size:
            for e in range(block, block + step):
                high = max(high, joint[e].real)
            block += step * count
        if high == -np.inf:
            out[row, x] = out.dtype.type(-np.inf)
            continue
        shift = out.dtype.type(high)
        total, block = out.dtype.type(0), x * step
        while block < size:
            for e in range(block, block + step):
                total += probability_exp(joint[e] - shift)
            block += step * count
        out[row, x] = np.log(total) + shift


@inlined
def _gather(layout, theta_u, theta_c, l, i, joint, m, total):
    """Write m_alpha for all factors around i and their mean with theta; return the number of labels alive."""
    first, degree, count = layout.inc_ptr[i], layout.inc_ptr[i + 1] - layout.inc_ptr[i], layout.labels[i]
    share = l.dtype.type(1 / (1 + degree))
    alive = count
    for x in range(count):
        total[x] = theta_u[layout.var_ptr[i] + x]
    for s in range(degree):
        k = layout.inc[first + s]
        _joint(layout, theta_c, l, layout.slot_factor[k], k, joint)
        _marginal(layout, k, joint, s, m)
        for x in range(count):
            total[x] += m[s, x]
    for x in range(count):
        if total[x].real == -np.inf:
            alive -= 1
            total[x] = l.dtype.type(-np.inf)
        else:
            total[x] *= share
    return alive


@inlined
def _star(layout, theta_u, theta_c, l, i, joint, m, total):
    """Update all messages to i; return whether any label is left."""
    # [L13] (10): all messages of a star at once
    alive = _gather(layout, theta_u, theta_c, l, i, joint, m, total)
    for s in range(layout.inc_ptr[i + 1] - layout.inc_ptr[i]):
        start = layout.msg_ptr[layout.inc[layout.inc_ptr[i] + s]]
        mean = l.dtype.type(0)
        for x in range(layout.labels[i]):
            l[start + x] = total[x]
            if total[x].real > -np.inf:
                l[start + x] -= m[s, x]
                mean += l[start + x]
        mean *= l.dtype.type(1 / max(alive, 1))
        for x in range(layout.labels[i]):
            if total[x].real > -np.inf:
                l[start + x] -= mean
    return alive > 0


@exact_kernel
def _sweep(layout, theta_u, theta_c, l, order, saved):
    """Update the stars in their order; ``saved`` (where not empty) takes what they overwrite."""
    degree, labels, table = _largest(layout)
    m = np.empty((degree, labels), l.dtype)
    total = np.empty(labels, l.dtype)
    joint = np.empty(table, l.dtype)
    at = 0
    for position in range(len(order)):
        i = order[position]
        if len(saved) > 0:
            for s in range(layout.inc_ptr[i], layout.inc_ptr[i + 1]):
                for x in range(layout.labels[i]):
                    saved[at] = l[layout.msg_ptr[layout.inc[s]] + x]
                    at += 1
        if not _star(layout, theta_u, theta_c, l, i, joint, m, total):
            return i
    return -1


@inlined
def _add_marginal(layout, k, table, first, size, out):
    """Add the sums over all but y_v of a table that starts at ``first`` to the block of slot k = (alpha, v)."""
    count, step, start = layout.labels[layout.scope[k]], layout.stride[k], layout.msg_ptr[k]
    for x in range(count):
        total, block = out.dtype.type(0), first + x * step
        while block < first + size:
            for e in range(block, block + step):
                total += table[e]
            block += step * count
        out[start + x] += total


@exact_kernel
def _sweep_vjp(layout, theta_u, theta_c, scale, order, before, saved, l, d_state, d_unary, d_factors):
    """Undo the stars of a sweep, last first; ``l`` starts as the state after it and is rolled back."""
    # adjoint of [L13] (10), star by star backwards
    degree, labels, table = _largest(layout)
    m = np.empty((degree, labels), l.dtype)
    g = np.empty((degree, labels), l.dtype)
    total = np.empty(labels, l.dtype)
    joint = np.empty(table, l.dtype)
    at = len(saved)
    for position in range(len(order)):
        i = order[len(order) - 1 - position]
        first, size, count = layout.inc_ptr[i], layout.inc_ptr[i + 1] - layout.inc_ptr[i], layout.labels[i]
        if size == 0:
            continue
        alive = _gather(layout, theta_u, theta_c, l, i, joint, m, total)
        at -= size * count if len(saved) > 0 else 0
        for s in range(size):
            start = layout.msg_ptr[layout.inc[first + s]]
            mean = l.dtype.type(0)
            for x in range(count):
                l[start + x] = before[start + x] if len(saved) == 0 else saved[at + s * count + x]
                g[s, x] = d_state[start + x] if total[x].real > -np.inf else l.dtype.type(0)
                d_state[start + x] = l.dtype.type(0)
                mean += g[s, x]
            mean *= l.dtype.type(1 / alive)
            for x in range(count):
                g[s, x] -= mean if total[x].real > -np.inf else l.dtype.type(0)
        for x in range(count):
            total[x] = l.dtype.type(0)
            for s in range(size):
                total[x] += g[s, x]
            total[x] *= l.dtype.type(1 / (1 + size))
            d_unary[layout.var_ptr[i] + x] += scale * total[x]
        for s in range(size):
            k = layout.inc[first + s]
            c = layout.slot_factor[k]
            _joint(layout, theta_c, l, c, k, joint)
            step, table, entries = layout.stride[k], layout.table_ptr[c], layout.table_ptr[c + 1] - layout.table_ptr[c]
            e = 0
            while e < entries:
                for x in range(count):
                    h = total[x] - g[s, x]  # the adjoint of m_alpha(y_v)
                    for _ in range(step):
                        possible = joint[e].real > -np.inf
                        joint[e] = h * probability_exp(joint[e] - m[s, x]) if possible else l.dtype.type(0)
                        d_factors[table + e] += scale * joint[e]
                        e += 1
            for other in range(layout.scope_ptr[c], layout.scope_ptr[c + 1]):
                if other != k:
                    _add_marginal(layout, other, joint, 0, entries, d_state)


@inlined
def _fall(layout, theta_u, theta_c, l, i, joint, m, total):
    """Return by how much the star of i would lower the dual, divided by eps."""
    first, size, count = layout.inc_ptr[i], layout.inc_ptr[i + 1] - layout.inc_ptr[i], layout.labels[i]
    if _gather(layout, theta_u, theta_c, l, i, joint, m, total) == 0:
        return np.inf
    value = -(1 + size) * log_sum_exp(total[:count]).real
    for x in range(count):
        total[x] = theta_u[layout.var_ptr[i] + x]
    for s in range(size):
        start = layout.msg_ptr[layout.inc[first + s]]
        for x in range(count):
            if l[start + x].real == -np.inf:
                total[x] = l[start + x]
            elif total[x].real > -np.inf:
                total[x] -= l[start + x]
            m[s, x] += l[start + x]
        value += log_sum_exp(m[s, :count]).real
    return value + log_sum_exp(total[:count]).real


@inlined
def _rank(tree, leaves, i, value):
    """Put a value at leaf i of the tournament and play its matches up to the root."""
    node = leaves + i
    tree[node] = value
    while node > 1:
        node //= 2
        tree[node] = max(tree[2 * node], tree[2 * node + 1])


@exact_kernel
def _greedy(layout, theta_u, theta_c, l, found):
    """Update the star with the largest fall of the dual, n times or until none is left; ``found`` takes the stars."""
    degree, labels, table = _largest(layout)
    m = np.empty((degree, labels), l.dtype)
    total = np.empty(labels, l.dtype)
    joint = np.empty(table, l.dtype)
    n = len(layout.labels)
    leaves = 1
    while leaves < n:
        leaves *= 2
    tree = np.zeros(2 * leaves)
    stale = np.arange(n)  # stars to be ranked again: at first all of them
    is_stale = np.ones(n, np.bool_)
    count = n
    for step in range(n):
        for a in range(count):
            value = _fall(layout, theta_u, theta_c, l, stale[a], joint, m, total)
            _rank(tree, leaves, stale[a], value)
            is_stale[stale[a]] = False
        if not tree[1] > 0:
            break
        node = 1
        while node < leaves:
            node = 2 * node if tree[2 * node] == tree[node] else 2 * node + 1
        i = node - leaves
        found[step] = i
        if not _star(layout, theta_u, theta_c, l, i, joint, m, total):
            return i
        _rank(tree, leaves, i, 0.0)
        count = 0
        for s in range(layout.inc_ptr[i], layout.inc_ptr[i + 1]):
            c = layout.slot_factor[layout.inc[s]]
            for k in range(layout.scope_ptr[c], layout.scope_ptr[c + 1]):
                j = layout.scope[k]
                if j != i and not is_stale[j]:
                    is_stale[j] = True
                    stale[count] = j
                    count += 1
    return -1


@inlined
def _softmax(x):
    """Replace x by exp(x) / sum exp(x); return the log of the sum."""
    shift = log_sum_exp(x)
    if shift.real > -np.inf:
        total = x.dtype.type(0)
        for a in range(len(x)):
            x[a] = np.exp(x[a] - shift) if x[a].real > -np.inf else x.dtype.type(0)
            total += x[a]
        for a in range(len(x)):  # of huge x the log of the sum is rounded
            x[a] /= total
    return shift


@exact_kernel
def _beliefs(layout, theta_u, l, mu):
    """Write mu(y_v); return a variable without a label (-1: none) and the sum of log Z_v."""
    value = np.zeros(1, l.dtype)[0] * 0.0  # summed in double precision
    for i in range(len(layout.labels)):
        start = layout.var_ptr[i]
        for x in range(layout.labels[i]):
            mu[start + x] = theta_u[start + x]
            for s in range(layout.inc_ptr[i], layout.inc_ptr[i + 1]):
                incoming = l[layout.msg_ptr[layout.inc[s]] + x]
                if incoming.real == -np.inf:
                    mu[start + x] = incoming
                elif mu[start + x].real > -np.inf:
                    mu[start + x] -= incoming
        shift = _softmax(mu[start : start + layout.labels[i]])
        if shift.real == -np.inf:
            return i, value
        value += shift
    return -1, value


@exact_kernel
def _factor_beliefs(layout, theta_c, l, mu):
    """Write mu(y_alpha); return a factor without a configuration (-1: none) and the sum of log Z_alpha."""
    value = np.zeros(1, l.dtype)[0] * 0.0
    for c in range(len(layout.table_ptr) - 1):
        joint = mu[layout.table_ptr[c] : layout.table_ptr[c + 1]]
        _joint(layout, theta_c, l, c, -1, joint)
        shift = _softmax(joint)
        if shift.real == -np.inf:
            return c, value
        value += shift
    return -1, value


@exact_kernel
def softmax_vjp(ptr, mu, d_mu, nu):
    """Write mu (d_mu - mu·d_mu) for each table."""
    zero = mu.dtype.type(0)
    for i in range(len(ptr) - 1):
        mean = zero
        for a in range(ptr[i], ptr[i + 1]):
            if mu[a] != zero:
                mean += d_mu[a] * mu[a]
        for a in range(ptr[i], ptr[i + 1]):
            nu[a] = mu[a] * (d_mu[a] - mean) if mu[a] != zero else zero


@exact_kernel
def _spread(layout, unary, factors, d_state):
    """Add factors(y_v) - unary(y_v) to each message; factors may be empty."""
    for k in range(len(layout.scope)):
        i, c, start = layout.scope[k], layout.slot_factor[k], layout.msg_ptr[k]
        for x in range(layout.labels[i]):
            d_state[start + x] -= unary[layout.var_ptr[i] + x]
        if len(factors) > 0:
            first = layout.table_ptr[c]
            _add_marginal(layout, k, factors, first, layout.table_ptr[c + 1] - first, d_state)
