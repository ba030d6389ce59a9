"""Messages in the log domain: any arity, any label counts, any finite or -inf potentials, also complex numbers.

The plain version of [D13] eq. (18), slower than the others and right where they cannot be. With l = log m,

    l_c(x_i) = log sum_{x_c\\i} exp( theta(x_c)/rho_c + sum_{j in c\\i} q_cj(x_j) ) - const
    q_cj(x_j) = theta(x_j) + sum_{d: j in d} rho_d l_d(x_j) - l_c(x_j)

A label into which any message is -inf is *dead*: its q is -inf for every factor, which avoids (-inf) - (-inf) and
changes nothing (a configuration with a dead label has probability zero).

Adjoints: theta(x_j) and sum_d rho_d l_d(x_j) enter only through their sum. So the adjoint of message d -> j is
``own_d + rho_d * D_j``, where D_j is the running adjoint of theta(x_j), and no loop over neighbours is needed.
Everything downstream ignores the normalising constant, so adjoints of l sum to zero. Rounding breaks that, and
what it adds grows with every sweep (as the number of paths, where rho = 1): the mean is taken off each time.

Cost O(degree · L + table) per message.
"""

from __future__ import annotations

import numpy as np

from backfield.graph import Potentials
from backfield.inference.base import Adjoint
from backfield.inference.message_passing.engine import MessageEngine, contradiction
from backfield.kernels.compile import exact_kernel, exact_part, inlined, log_sum_exp


class LogEngine(MessageEngine):
    """State: log messages, flat, in the order of the slots."""

    def init(self) -> np.ndarray:
        """Return uniform messages."""
        layout = self.theta.graph.layout
        count = layout.labels[layout.scope]
        return np.repeat(-np.log(count), count).astype(self.theta.dtype)

    def logs(self, state: np.ndarray) -> np.ndarray:
        """Return the state, which is in logs."""
        return state.real

    def adjoint(self) -> Adjoint:
        """Return a collector that also holds d_rho (F,) and d_damping (1,)."""
        dtype = self.theta.dtype
        return Adjoint(self.theta, rho=np.zeros(self.theta.graph.n_factors, dtype), damping=np.zeros(1, dtype))

    def sweep(self, state: np.ndarray, t: int) -> None:
        """Update every message once."""
        source = state.copy() if self.schedule.flooding else state
        bad = _sweep(
            self.theta.graph.layout,
            self.schedule.order,
            self.schedule.backward(t),
            self.theta.unary_flat,
            self.theta.factors_flat,
            self.rho,
            self.damping,
            source,
            state,
        )
        if bad >= 0:
            raise contradiction(self.theta.graph, bad)

    def sweep_vjp(self, before: np.ndarray, after: np.ndarray, t: int, d_state: np.ndarray, d_theta: Adjoint) -> None:
        """Turn the adjoint of ``after`` into that of ``before``."""
        _sweep_vjp(
            self.theta.graph.layout,
            self.schedule.order,
            not self.schedule.backward(t),
            self.schedule.flooding,
            self.theta.unary_flat,
            self.theta.factors_flat,
            self.rho,
            self.damping,
            before,
            before if self.schedule.flooding else after.copy(),
            after,
            d_state,
            d_theta.unary,
            d_theta.factors,
            d_theta.parameters["rho"],
            d_theta.parameters["damping"],
        )

    def beliefs(self, state: np.ndarray) -> np.ndarray:
        """Return mu(x_i) for all variables."""
        mu = np.empty_like(self.theta.unary_flat)
        _beliefs(self.theta.graph.layout, self.theta.unary_flat, self.rho, state, mu)
        return mu

    def marginals(self, state: np.ndarray, factors: bool = True) -> Potentials:
        """Return mu(x_i) and mu(x_c)."""
        mu = np.empty_like(self.theta.factors_flat) if factors else self.theta.factors_flat[:0]
        if factors:
            args = self.theta.unary_flat, self.theta.factors_flat, self.rho, state, mu
            bad = _factor_beliefs(self.theta.graph.layout, *args)
            if bad >= 0:
                raise contradiction(self.theta.graph, bad)
        return Potentials.from_flat(self.theta.graph, self.beliefs(state), mu)

    def marginals_vjp(self, state: np.ndarray, d_mu: Potentials, d_state: np.ndarray, d_theta: Adjoint) -> None:
        """Add the adjoints that ``d_mu`` causes."""
        mu = self.marginals(state, factors=bool(d_mu.factors_flat.size))
        _marginals_vjp(
            self.theta.graph.layout,
            self.theta.factors_flat,
            self.rho,
            state,
            mu.unary_flat,
            mu.factors_flat,
            d_mu.unary_flat,
            d_mu.factors_flat,
            d_state,
            d_theta.unary,
            d_theta.factors,
            d_theta.parameters["rho"],
        )


@inlined
def _cavity(layout, theta_u, rho, l, k, q):
    """Write q_cj of slot k = (c, j) to the front of q."""
    # [D13] (18): log of exp theta(x_j) prod_d m_d(x_j)^rho_d / m_c(x_j)
    j = layout.scope[k]
    start = layout.var_ptr[j]
    for x in range(layout.labels[j]):
        total = theta_u[start + x]
        dead = total.real == -np.inf
        for s in range(layout.inc_ptr[j], layout.inc_ptr[j + 1]):
            d = layout.inc[s]
            value = l[layout.msg_ptr[d] + x]
            if value.real == -np.inf:
                dead = True
            else:
                total += rho[layout.slot_factor[d]] * value
        if dead:
            total = l.dtype.type(-np.inf)
        else:
            total -= l[layout.msg_ptr[k] + x]
        q[x] = total


@inlined
def _joint(layout, theta_u, theta_c, rho, l, c, skip, q, joint):
    """Write theta(x_c)/rho_c + sum_j q_cj(x_j), without slot ``skip`` (-1: all of them)."""
    # [D13] (18): log of the product under the sum
    first, last = layout.table_ptr[c], layout.table_ptr[c + 1]
    for e in range(last - first):
        joint[e] = theta_c[first + e] / rho[c]
    for k in range(layout.scope_ptr[c], layout.scope_ptr[c + 1]):
        if k == skip:
            continue
        _cavity(layout, theta_u, rho, l, k, q)
        count, step = layout.labels[layout.scope[k]], layout.stride[k]
        for e in range(last - first):
            joint[e] += q[e // step % count]


@inlined
def _message(layout, k, joint, out):
    """Write log sum over all but x_i of exp(joint) for slot k = (c, i)."""
    # [D13] (18): the sum over all variables of c but i
    c = layout.slot_factor[k]
    count, step = layout.labels[layout.scope[k]], layout.stride[k]
    size = layout.table_ptr[c + 1] - layout.table_ptr[c]
    zero = out.dtype.type(0)
    low = out.dtype.type(-np.inf)
    top = np.empty(count)
    for x in range(count):
        top[x] = -np.inf
    for e in range(size):
        x = e // step % count
        if joint[e].real > top[x]:
            top[x] = joint[e].real
    for x in range(count):
        out[x] = zero
    for e in range(size):
        x = e // step % count
        if joint[e].real > -np.inf:
            out[x] += np.exp(joint[e] - out.dtype.type(top[x]))
    for x in range(count):
        out[x] = low if top[x] == -np.inf else np.log(out[x]) + out.dtype.type(top[x])


@exact_part
def _largest(layout):
    """Return the largest label count and the largest table."""
    labels, table = 1, 1
    for i in range(len(layout.labels)):  # numpy's max compiles for half a second
        labels = max(labels, layout.labels[i])
    for c in range(len(layout.table_ptr) - 1):
        table = max(table, layout.table_ptr[c + 1] - layout.table_ptr[c])
    return labels, table


@exact_kernel
def _sweep(layout, order, backward, theta_u, theta_c, rho, damping, source, state):
    # [D13] (18), message by message, damped and normalised
    labels, table = _largest(layout)
    q = np.empty(labels, state.dtype)
    out = np.empty(labels, state.dtype)
    joint = np.empty(table, state.dtype)
    keep = state.dtype.type(damping)
    take = state.dtype.type(1 - damping)
    for position in range(len(order)):
        k = order[len(order) - 1 - position] if backward else order[position]
        _joint(layout, theta_u, theta_c, rho, source, layout.slot_factor[k], k, q, joint)
        _message(layout, k, joint, out)
        start, count = layout.msg_ptr[k], layout.labels[layout.scope[k]]
        if damping > 0:
            for x in range(count):
                if out[x].real > -np.inf and source[start + x].real > -np.inf:
                    out[x] = keep * source[start + x] + take * out[x]
        shift = log_sum_exp(out[:count])
        if shift.real == -np.inf:
            return k
        for x in range(count):
            state[start + x] = out[x] - shift
    return -1


@exact_kernel
def _sweep_vjp(
    layout, order, backward, flooding, theta_u, theta_c, rho, damping, before, current, after, d_state,
    d_unary, d_factors, d_rho, d_damping,
):  # fmt: skip
    """Undo one sweep; ``current`` starts as the state after it (flooding: before it) and is rolled back."""
    labels, table = _largest(layout)
    dtype = before.dtype
    q = np.empty(labels, dtype)
    out = np.empty(labels, dtype)
    g = np.empty(labels, dtype)
    joint = np.empty(table, dtype)
    running = np.zeros_like(d_unary)  # D_j of the module's docstring
    incoming = d_state.copy()
    if flooding:
        # [D13] Alg. 3 (back TRW): adjoints of the messages
        d_state[:] = dtype.type(0)
    keep = dtype.type(damping)
    take = dtype.type(1 - damping)
    for position in range(len(order)):
        k = order[len(order) - 1 - position] if backward else order[position]
        i, c = layout.scope[k], layout.slot_factor[k]
        start, count, unary = layout.msg_ptr[k], layout.labels[i], layout.var_ptr[i]
        excess = dtype.type(0)
        for x in range(count):
            if flooding:
                g[x] = incoming[start + x]
                d_state[start + x] += keep * g[x]
            else:
                g[x] = d_state[start + x] + rho[c] * running[unary + x]
                d_state[start + x] = keep * g[x] - rho[c] * running[unary + x]
                current[start + x] = before[start + x]
            if after[start + x].real > -np.inf and before[start + x].real > -np.inf:
                d_damping[0] -= g[x] * (after[start + x] - before[start + x]) / take
            excess += g[x]
        for x in range(count):
            g[x] = take * (g[x] - excess / count)
        _joint(layout, theta_u, theta_c, rho, current, c, k, q, joint)
        _message(layout, k, joint, out)
        step, first = layout.stride[k], layout.table_ptr[c]
        for e in range(layout.table_ptr[c + 1] - first):
            x = e // step % count
            h = dtype.type(0)
            if joint[e].real > -np.inf:
                h = g[x] * np.exp(joint[e] - out[x])
                d_rho[c] -= h * theta_c[first + e] / (rho[c] * rho[c])
            joint[e] = h
            d_factors[first + e] += h / rho[c]
        _spread(layout, rho, current, c, k, joint, running, d_state, d_rho)
    _distribute(layout, rho, running, d_state, d_unary)


@inlined
def _spread(layout, rho, l, c, skip, d_joint, running, d_state, d_rho):
    """Send the adjoint of a joint table to the q_cj of all slots but ``skip``, and so to D_j and to l_c."""
    for k in range(layout.scope_ptr[c], layout.scope_ptr[c + 1]):
        if k == skip:
            continue
        j = layout.scope[k]
        count, step = layout.labels[j], layout.stride[k]
        for x in range(count):
            total = l.dtype.type(0)
            for e in range(layout.table_ptr[c + 1] - layout.table_ptr[c]):
                if e // step % count == x:
                    total += d_joint[e]
            running[layout.var_ptr[j] + x] += total
            d_state[layout.msg_ptr[k] + x] -= total
            for s in range(layout.inc_ptr[j], layout.inc_ptr[j + 1]):
                d = layout.inc[s]
                value = l[layout.msg_ptr[d] + x]
                if value.real > -np.inf:
                    d_rho[layout.slot_factor[d]] += total * value


@exact_part
def _distribute(layout, rho, running, d_state, d_unary):
    """Add D_j to theta(x_j) and rho_d D_j to every message into j."""
    for k in range(len(layout.scope)):
        i = layout.scope[k]
        for x in range(layout.labels[i]):
            d_state[layout.msg_ptr[k] + x] += rho[layout.slot_factor[k]] * running[layout.var_ptr[i] + x]
    for a in range(len(d_unary)):
        d_unary[a] += running[a]


@exact_part
def _softmax(x):
    """Replace x by exp(x) / sum exp(x), divided at the end: a rounded log of the sum would show in huge x."""
    top = x[0]
    for a in range(1, len(x)):
        if x[a].real > top.real:
            top = x[a]
    total = x.dtype.type(0)
    for a in range(len(x)):
        x[a] = np.exp(x[a] - top) if x[a].real > -np.inf else x.dtype.type(0)
        total += x[a]
    for a in range(len(x) if top.real > -np.inf else 0):
        x[a] /= total


@exact_kernel
def _beliefs(layout, theta_u, rho, l, mu):
    # [D13] theorem below (18): mu(x_i)
    for i in range(len(layout.labels)):
        start = layout.var_ptr[i]
        for x in range(layout.labels[i]):
            total = theta_u[start + x]
            for s in range(layout.inc_ptr[i], layout.inc_ptr[i + 1]):
                d = layout.inc[s]
                total += rho[layout.slot_factor[d]] * l[layout.msg_ptr[d] + x]
            mu[start + x] = total
        _softmax(mu[start : start + layout.labels[i]])


@exact_kernel
def _factor_beliefs(layout, theta_u, theta_c, rho, l, mu):
    # [D13] theorem below (18): mu(x_c)
    labels, table = _largest(layout)
    q = np.empty(labels, l.dtype)
    for c in range(len(layout.table_ptr) - 1):
        joint = mu[layout.table_ptr[c] : layout.table_ptr[c + 1]]
        _joint(layout, theta_u, theta_c, rho, l, c, -1, q, joint)
        if log_sum_exp(joint).real == -np.inf:
            return layout.scope_ptr[c]
        _softmax(joint)
    return -1


@exact_kernel
def _marginals_vjp(layout, theta_c, rho, l, mu_u, mu_c, d_mu_u, d_mu_c, d_state, d_unary, d_factors, d_rho):
    # [D13] Alg. 3 (back TRW): adjoints of the beliefs
    zero = l.dtype.type(0)
    running = np.zeros_like(d_unary)
    for i in range(len(layout.labels)):
        mean = zero
        for a in range(layout.var_ptr[i], layout.var_ptr[i + 1]):
            if mu_u[a] != zero:
                mean += d_mu_u[a] * mu_u[a]
        for a in range(layout.var_ptr[i], layout.var_ptr[i + 1]):
            if mu_u[a] != zero:
                running[a] = mu_u[a] * (d_mu_u[a] - mean)
                x = a - layout.var_ptr[i]
                for s in range(layout.inc_ptr[i], layout.inc_ptr[i + 1]):
                    d = layout.inc[s]
                    d_rho[layout.slot_factor[d]] += running[a] * l[layout.msg_ptr[d] + x]
    labels, table = _largest(layout)
    nu = np.empty(table, l.dtype)
    for c in range(len(layout.table_ptr) - 1 if len(d_mu_c) else 0):
        first, size = layout.table_ptr[c], layout.table_ptr[c + 1] - layout.table_ptr[c]
        mean = zero
        for e in range(size):
            nu[e] = zero
            if mu_c[first + e] != zero:
                mean += d_mu_c[first + e] * mu_c[first + e]
        for e in range(size):
            if mu_c[first + e] != zero:
                nu[e] = mu_c[first + e] * (d_mu_c[first + e] - mean)
                d_factors[first + e] += nu[e] / rho[c]
                d_rho[c] -= nu[e] * theta_c[first + e] / (rho[c] * rho[c])
        _spread(layout, rho, l, c, -1, nu, running, d_state, d_rho)
    _distribute(layout, rho, running, d_state, d_unary)
