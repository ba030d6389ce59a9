"""Messages on any graph in the probability domain: [D13] eq. (18) for any arity and any label counts.

Beliefs are kept while messages change, so a message costs its table and no loop over neighbours:

    m_c(x_i) ∝ sum_{x_c\\i} psi(x_c) prod_{j in c\\i} b_j(x_j) / m_c(x_j),      b_i *= (m_new / m_old)^rho_c

They are recomputed at the start of every sweep, so messages alone are the state. Adjoints as in
``_messages_log``; undoing a message divides the belief by what it was multiplied with.
"""

from __future__ import annotations

import numpy as np

from backfield.graph import Graph, Potentials
from backfield.inference.base import Adjoint
from backfield.inference.message_passing.engine import MessageEngine, uniform_power
from backfield.inference.schedule import Schedule
from backfield.kernels.compile import inlined, kernel, label_count, part
from backfield.kernels.unrolled import small_array, unrolled_kernel
from backfield.kernels.vector_math import vector_exp, vector_log

# Columns of a program: what a message needs to know, in one row, in the order in which messages are sent.
FIRST, COUNT, UNARY, FACTOR, SLOT = 0, 1, 2, 3, 4  # its numbers, its variable's numbers, its factor, its slot
OTHERS, NEAR, AT, TABLE, SIDE = 5, 6, 7, 8, 9  # of factors of two: the other variable, and its step in the table

#: For these numbers of labels, kernels are compiled for the number where all variables share it.
UNROLLED = range(2, 17)


def program(graph: Graph, schedule: Schedule) -> np.ndarray:
    """Compile a schedule; ``OTHERS`` is 0 where the factor has more than two variables."""
    layout = graph.layout
    order = schedule.order
    c = layout.slot_factor[order]
    pair = layout.scope_ptr[c + 1] - layout.scope_ptr[c] == 2
    other = np.where(pair, 2 * layout.scope_ptr[c] + 1 - order, order)
    variable, neighbour = layout.scope[order], layout.scope[other]
    columns = [
        layout.msg_ptr[order],
        layout.labels[variable],
        layout.var_ptr[variable],
        c,
        order,
        np.where(pair, layout.labels[neighbour], 0),
        layout.msg_ptr[other],
        layout.var_ptr[neighbour],
        layout.table_ptr[c],
        layout.stride[other],
    ]
    rows = np.stack(columns, axis=1)
    if rows.max(initial=0) < 2**32:
        rows = rows.astype(np.uint32)  # half the memory, and an index that cannot be negative costs less
    rows.flags.writeable = False
    return rows


class GeneralEngine(MessageEngine):
    """State: messages, each summing to one, flat, in the order of the slots."""

    def __init__(self, theta: Potentials, rho: np.ndarray, schedule: Schedule, damping: float) -> None:
        super().__init__(theta, np.ascontiguousarray(rho, dtype=np.float64), schedule, damping)
        layout = theta.graph.layout
        self.program = schedule.compiled(theta.graph, "program", program)
        # None where all factors have two variables: the kernels are then compiled without the rest. Graphs without factors
        # use the same ones.
        self.wide = None if theta.graph.arity == 2 or not len(rho) else True
        n_labels = theta.graph.n_labels
        self.count = label_count(n_labels) if n_labels is not None and n_labels in UNROLLED else None
        self.keep = damping if damping > 0 else None
        self.uniform = uniform_power(rho)
        self.psi_unary = np.empty_like(theta.unary_flat)
        self.psi = np.empty_like(theta.factors_flat)
        _shift(layout.var_ptr, np.ones(theta.graph.n_variables), theta.unary_flat, self.psi_unary)
        _shift(layout.table_ptr, self.rho, theta.factors_flat, self.psi)
        np.exp(self.psi_unary, out=self.psi_unary)
        np.exp(self.psi, out=self.psi)

    def init(self) -> np.ndarray:
        """Return uniform messages."""
        layout = self.theta.graph.layout
        count = layout.labels[layout.scope]
        return np.repeat(1 / count, count).astype(self.psi.dtype)

    def sweep(self, state: np.ndarray, t: int) -> None:
        """Update every message once."""
        flooding = self.schedule.flooding
        source = state.copy() if flooding else state
        args = self.uniform, self.psi_unary, self.psi, self.rho, self.keep, flooding, source, state
        _sweep(self.theta.graph.layout, self.program, self.count, self.wide, self.schedule.backward(t), *args)

    def sweep_vjp(self, before: np.ndarray, after: np.ndarray, t: int, d_state: np.ndarray, d_theta: Adjoint) -> None:
        """Turn the adjoint of ``after`` into that of ``before``."""
        flooding = self.schedule.flooding
        current = before if flooding else after
        args = self.uniform, self.psi_unary, self.psi, self.rho, self.keep, flooding, before, after, current, d_state
        into = d_theta.unary, d_theta.factors
        forward = not self.schedule.backward(t)
        _sweep_vjp(self.theta.graph.layout, self.program, self.count, self.wide, forward, *args, *into)

    def beliefs(self, state: np.ndarray) -> np.ndarray:
        """Return mu(x_i) for all variables."""
        mu = np.empty_like(self.psi_unary)
        _beliefs(self.theta.graph.layout, self.count, self.uniform, self.psi_unary, self.rho, state, mu)
        return mu

    def marginals(self, state: np.ndarray, factors: bool = True) -> Potentials:
        """Return mu(x_i) and mu(x_c)."""
        unary = self.beliefs(state)
        mu = np.empty_like(self.psi) if factors else self.psi[:0]
        if factors:
            _factor_beliefs(self.theta.graph.layout, self.psi, unary, state, mu)
        return Potentials.from_flat(self.theta.graph, unary, mu)

    def marginals_vjp(self, state: np.ndarray, d_mu: Potentials, d_state: np.ndarray, d_theta: Adjoint) -> None:
        """Add the adjoints that ``d_mu`` causes."""
        mu = self.marginals(state, factors=bool(d_mu.factors_flat.size))
        values = mu.unary_flat, mu.factors_flat, d_mu.unary_flat, d_mu.factors_flat
        into = d_state, d_theta.unary, d_theta.factors
        _marginals_vjp(self.theta.graph.layout, self.count, self.rho, *values, *into)


@kernel
def _shift(ptr, rho, theta, out):
    """Write (theta - max) / rho for each table."""
    for c in range(len(ptr) - 1):
        top = theta[ptr[c]]
        for e in range(ptr[c] + 1, ptr[c + 1]):
            top = max(top, theta[e])
        scale = out.dtype.type(1 / rho[c])
        for e in range(ptr[c], ptr[c + 1]):
            out[e] = (theta[e] - top) * scale


@inlined
def _power(x, rho):
    if rho == 1:
        return x
    if rho == 0.5:
        return np.sqrt(x)
    return vector_exp(type(x)(rho) * vector_log(x))


@unrolled_kernel
def _products(layout, count, uniform, psi_u, rho, m, b):
    """Write psi_i prod_d m_d^rho_d to b; with one rho for all (``uniform``) the power is taken once per variable."""
    # [D13] (18): exp theta(x_j) prod_d m_d(x_j)^rho_d of every variable
    scope, slot_factor = layout.scope, layout.slot_factor
    for a in range(len(b)):
        b[a] = m.dtype.type(1)
    if count is None:
        for k in range(len(scope)):
            start, first = layout.var_ptr[scope[k]], layout.msg_ptr[k]
            for x in range(layout.msg_ptr[k + 1] - first):
                b[start + x] *= m[first + x] if uniform is not None else _power(m[first + x], rho[slot_factor[k]])
    else:
        L = len(count)
        product, message, value = b.reshape((-1, L)), m.reshape((-1, L)), small_array(count, m)
        for k in range(len(scope)):
            i = np.uint64(scope[k])
            for x in range(L):
                value[x] = message[k, x] if uniform is not None else _power(message[k, x], rho[slot_factor[k]])
            for x in range(L):
                product[i, x] *= value[x]
    if uniform is not None and uniform != 1:
        for a in range(len(b)):
            b[a] = np.sqrt(b[a]) if uniform == 0.5 else vector_exp(b.dtype.type(uniform) * vector_log(b[a]))
    for a in range(len(b)):
        b[a] *= psi_u[a]


# Factors of two variables are written out in both sweeps: a call counts references for every array it is handed, which
# is more than such a message costs. Where an inlined piece writes to many arrays of the heap, numba counts them as well:
# with mixed label counts a separate roll back made ``_sweep_vjp`` 1.7 times slower.


@part
def _transfer(layout, k, psi, b, m, q, digits, out):
    """Write b_j / m_c for the other variables of the factor to q, and the unnormalised message of slot k to out."""
    # [D13] (18): the sum over all variables of c but i
    msg_ptr = layout.msg_ptr
    c = layout.slot_factor[k]
    first, last = layout.scope_ptr[c], layout.scope_ptr[c + 1]
    base = msg_ptr[first]
    for s in range(first, last):
        unary = layout.var_ptr[layout.scope[s]]
        for e in range(msg_ptr[s], msg_ptr[s + 1]):
            q[e - base] = b[unary + e - msg_ptr[s]] / m[e] if s != k else m.dtype.type(1)
    for x in range(msg_ptr[k + 1] - msg_ptr[k]):
        out[x] = out.dtype.type(0)
    digits[: last - first] = 0
    for e in range(layout.table_ptr[c], layout.table_ptr[c + 1]):
        weight = psi[e]
        for s in range(first, last):
            weight *= q[msg_ptr[s] - base + digits[s - first]]
        out[digits[k - first]] += weight
        _advance(msg_ptr, first, last, digits)


@inlined
def _advance(msg_ptr, first, last, digits):
    """Step to the labels of the next table entry."""
    for s in range(last - 1, first - 1, -1):
        digits[s - first] += 1
        if digits[s - first] < msg_ptr[s + 1] - msg_ptr[s]:
            break
        digits[s - first] = 0


@part
def _scratch(layout):
    """Return the largest number of labels of a variable, and of all variables of a factor together, and the arity."""
    scope_ptr, msg_ptr = layout.scope_ptr, layout.msg_ptr
    labels, together, arity = 1, 1, 1
    for i in range(len(layout.labels)):  # numpy's max compiles for half a second
        labels = max(labels, layout.labels[i])
    for c in range(len(scope_ptr) - 1):
        first, last = scope_ptr[c], scope_ptr[c + 1]
        together = max(together, msg_ptr[last] - msg_ptr[first])
        arity = max(arity, last - first)
    return labels, together, arity


@inlined
def _raise(size, power, values):
    """Raise positive values to a power."""
    if power == 0.5:
        for x in range(size):
            values[x] = np.sqrt(values[x])
    elif power != 1:
        for x in range(size):
            values[x] = vector_exp(values.dtype.type(power) * vector_log(values[x]))


@unrolled_kernel
def _sweep(layout, program, count, wide, backward, uniform, psi_u, psi, rho, damping, flooding, source, state):
    """Update every message; ``count`` has as many items as every variable has labels, or is None."""
    # [D13] (18), message by message, damped and normalised
    labels, together, arity = _scratch(layout)
    dtype = state.dtype
    b = np.empty_like(psi_u)
    _products(layout, count, uniform, psi_u, rho, source, b)
    if count is None:
        q, out, old = np.empty(labels, dtype), np.empty(labels, dtype), np.empty(labels, dtype)
    else:
        q, out, old = small_array(count, state), small_array(count, state), small_array(count, state)
    if wide is not None:
        parts, message, digits = np.empty(together, dtype), np.empty(labels, dtype), np.empty(arity, np.int64)
    n = len(program)
    for position in range(n):
        g = n - 1 - position if backward else position  # a view of the row would count references
        first, unary = program[g, FIRST], program[g, UNARY]
        size = program[g, COUNT] if count is None else len(count)
        if wide is None or program[g, OTHERS] > 0:
            near, at, start = program[g, NEAR], program[g, AT], program[g, TABLE]
            others = program[g, OTHERS] if count is None else len(count)
            for y in range(others):
                q[y] = b[at + y]
            for y in range(others):
                q[y] /= source[near + y]
            if program[g, SIDE] == 1:
                for x in range(size):
                    total = dtype.type(0)
                    for y in range(others):
                        total += psi[start + x * others + y] * q[y]
                    out[x] = total
            else:
                for x in range(size):
                    out[x] = dtype.type(0)
                for y in range(others):
                    weight = q[y]
                    for x in range(size):
                        out[x] += psi[start + y * size + x] * weight
        if wide is not None and program[g, OTHERS] == 0:
            _transfer(layout, program[g, SLOT], psi, b, source, parts, digits, message)
            for x in range(size):
                out[x] = message[x]
        for x in range(size):
            old[x] = source[first + x]
        if damping is not None:
            for x in range(size):
                out[x] = old[x] ** dtype.type(damping) * out[x] ** dtype.type(1 - damping)
        total = dtype.type(0)
        for x in range(size):
            total += out[x]
        scale = dtype.type(1) / total
        for x in range(size):
            state[first + x] = out[x] * scale
        if not flooding:
            power = rho[program[g, FACTOR]]
            for x in range(size):  # a division beside the one above: the next message may wait for this belief
                out[x] /= total * old[x]
            _raise(size, power, out)
            for x in range(size):
                b[unary + x] *= out[x]


@inlined
def _table_vjp(size, others, few, start, step, side, scale, psi, q, h, old, share, d_factors):
    """Add psi(x, y) h(x) q(y) to the adjoint of a table of two variables; write its sums over x to ``share``."""
    if few:  # a branch that is hard to foresee would cost more than this
        for y in range(others):
            total = psi.dtype.type(0)
            for x in range(size):
                old[x] = psi[start + x * step + y * side] * (h[x] * q[y])
                total += old[x]
            share[y] = total
            for x in range(size):
                d_factors[start + x * step + y * side] += old[x] * scale
    elif side == 1:
        for y in range(others):
            share[y] = psi.dtype.type(0)
        for x in range(size):
            weight = h[x]
            for y in range(others):
                old[y] = psi[start + x * others + y] * (q[y] * weight)
            for y in range(others):
                share[y] += old[y]
            for y in range(others):
                d_factors[start + x * others + y] += old[y] * scale
    else:
        for y in range(others):
            weight = q[y]
            for x in range(size):
                old[x] = psi[start + y * size + x] * (h[x] * weight)
            total = psi.dtype.type(0)
            for x in range(size):
                total += old[x]
            share[y] = total
            for x in range(size):
                d_factors[start + y * size + x] += old[x] * scale


@unrolled_kernel
def _sweep_vjp(
    layout, program, count, wide, backward, uniform, psi_u, psi, rho, damping, flooding, before, after, current,
    d_state, d_unary, d_factors,
):  # fmt: skip
    """Undo one sweep; ``current`` starts as the state after it (flooding: before it) and is rolled back."""
    labels, together, arity = _scratch(layout)
    dtype = before.dtype
    b = np.empty_like(psi_u)
    _products(layout, count, uniform, psi_u, rho, current, b)
    if count is None:
        # [D13] Alg. 3 (back TRW): adjoints of the messages
        q, out, old = np.empty(labels, dtype), np.empty(labels, dtype), np.empty(labels, dtype)
        h, share = np.empty(labels, dtype), np.empty(labels, dtype)
    else:
        q, out, old = small_array(count, psi), small_array(count, psi), small_array(count, psi)
        h, share = small_array(count, psi), small_array(count, psi)
    if wide is not None:
        parts, message, digits = np.empty(together, dtype), np.empty(labels, dtype), np.empty(arity, np.int64)
    inverse = (1 / rho).astype(dtype)
    running = np.zeros_like(d_unary)
    incoming = d_state
    if flooding:
        incoming = d_state.copy()
        d_state[:] = dtype.type(0)
    keep = dtype.type(0)
    if damping is not None:
        keep = dtype.type(damping)
    n = len(program)
    for position in range(n):
        g = n - 1 - position if backward else position  # a view of the row would count references
        first, unary = program[g, FIRST], program[g, UNARY]
        size = program[g, COUNT] if count is None else len(count)
        for x in range(size):
            h[x] = incoming[first + x]
        if flooding:
            for x in range(size):
                d_state[first + x] += keep * h[x]
            for x in range(size):
                out[x] = after[first + x]
        else:
            power = rho[program[g, FACTOR]]
            factor = dtype.type(power)
            for x in range(size):
                share[x] = factor * running[unary + x]
            for x in range(size):
                h[x] += share[x]
            for x in range(size):
                d_state[first + x] = keep * h[x] - share[x]
            for x in range(size):
                out[x] = current[first + x]
            for x in range(size):
                old[x] = before[first + x]
            for x in range(size):
                current[first + x] = old[x]
            for x in range(size):
                old[x] /= out[x]
            _raise(size, power, old)
            for x in range(size):
                b[unary + x] *= old[x]
        excess = dtype.type(0)
        for x in range(size):
            excess += h[x]
        excess *= dtype.type(1 / size)
        for x in range(size):
            h[x] -= excess
        scale = inverse[program[g, FACTOR]]
        if wide is None or program[g, OTHERS] > 0:
            near, at, start = program[g, NEAR], program[g, AT], program[g, TABLE]
            others = program[g, OTHERS] if count is None else len(count)
            for y in range(others):
                q[y] = b[at + y]
            for y in range(others):
                q[y] /= current[near + y]
            # The message before its normalisation: known up to a factor, which one of its entries gives.
            side = program[g, SIDE]
            step = others if side == 1 else 1
            known = dtype.type(1) - keep
            if damping is None:
                total = dtype.type(0)
                for y in range(others):
                    total += q[y] * psi[start + y * side]
                known = out[0] / total
            else:
                for x in range(size):
                    total = dtype.type(0)
                    for y in range(others):
                        total += q[y] * psi[start + x * step + y * side]
                    out[x] = total
            for x in range(size):
                h[x] = known * h[x] / out[x]
            few = count is not None and len(count) < 4
            _table_vjp(size, others, few, start, step, side, scale, psi, q, h, old, share, d_factors)
            for y in range(others):
                running[at + y] += share[y]
            for y in range(others):
                d_state[near + y] -= share[y]
        if wide is not None and program[g, OTHERS] == 0:
            _transfer(layout, program[g, SLOT], psi, b, current, parts, digits, message)
            for x in range(size):
                message[x] = h[x] * (dtype.type(1) - keep) / message[x]
            _transfer_vjp(layout, program[g, SLOT], psi, scale, parts, message, digits, running, d_state, d_factors)
    _distribute(layout, count, rho, running, d_state, d_unary)


@part
def _transfer_vjp(layout, k, psi, scale, q, h, digits, running, d_state, d_factors):
    """Add the adjoints of theta and of log q, given h = adjoint of the log message over the message."""
    # [D13] Alg. 3 (back TRW): one message
    msg_ptr = layout.msg_ptr
    c = layout.slot_factor[k]
    first, last = layout.scope_ptr[c], layout.scope_ptr[c + 1]
    base = msg_ptr[first]
    digits[: last - first] = 0
    for e in range(layout.table_ptr[c], layout.table_ptr[c + 1]):
        value = psi[e] * h[digits[k - first]]
        for s in range(first, last):
            value *= q[msg_ptr[s] - base + digits[s - first]]
        d_factors[e] += value * scale
        for s in range(first, last):
            if s != k:
                running[layout.var_ptr[layout.scope[s]] + digits[s - first]] += value
                d_state[msg_ptr[s] + digits[s - first]] -= value
        _advance(msg_ptr, first, last, digits)


@unrolled_kernel
def _distribute(layout, count, rho, running, d_state, d_unary):
    """Add the running adjoint to theta(x_j), and rho_d times it to every message into j."""
    scope, slot_factor = layout.scope, layout.slot_factor
    dtype = d_state.dtype
    if count is None:
        for k in range(len(scope)):
            start, power = layout.var_ptr[scope[k]], dtype.type(rho[slot_factor[k]])
            first = layout.msg_ptr[k]
            for x in range(layout.msg_ptr[k + 1] - first):
                d_state[first + x] += power * running[start + x]
    else:
        L = len(count)
        total, message, value = running.reshape((-1, L)), d_state.reshape((-1, L)), small_array(count, running)
        for k in range(len(scope)):
            i, power = np.uint64(scope[k]), dtype.type(rho[slot_factor[k]])
            for x in range(L):
                value[x] = power * total[i, x]
            for x in range(L):
                message[k, x] += value[x]
    for a in range(len(d_unary)):
        d_unary[a] += running[a]


@kernel
def _beliefs(layout, count, uniform, psi_u, rho, m, mu):
    # [D13] theorem below (18): mu(x_i)
    labels, var_ptr = layout.labels, layout.var_ptr
    _products(layout, count, uniform, psi_u, rho, m, mu)
    for i in range(len(labels)):
        total = mu.dtype.type(0)
        for a in range(var_ptr[i], var_ptr[i + 1]):
            total += mu[a]
        for a in range(var_ptr[i], var_ptr[i + 1]):
            mu[a] /= total


@kernel
def _factor_beliefs(layout, psi, mu_u, m, mu):
    # [D13] theorem below (18): mu(x_c)
    var_ptr, scope_ptr, scope, table_ptr, msg_ptr = (
        layout.var_ptr,
        layout.scope_ptr,
        layout.scope,
        layout.table_ptr,
        layout.msg_ptr,
    )
    labels, together, arity = _scratch(layout)
    q = np.empty(together, m.dtype)
    digits = np.empty(arity, np.int64)
    for c in range(len(table_ptr) - 1):
        first, last = scope_ptr[c], scope_ptr[c + 1]
        base = msg_ptr[first]
        for s in range(first, last):
            start = var_ptr[scope[s]]
            for e in range(msg_ptr[s], msg_ptr[s + 1]):
                q[e - base] = mu_u[start + e - msg_ptr[s]] / m[e]
        digits[: last - first] = 0
        total = m.dtype.type(0)
        for e in range(table_ptr[c], table_ptr[c + 1]):
            weight = psi[e]
            for s in range(first, last):
                weight *= q[msg_ptr[s] - base + digits[s - first]]
            mu[e] = weight
            total += weight
            _advance(msg_ptr, first, last, digits)
        for e in range(table_ptr[c], table_ptr[c + 1]):
            mu[e] /= total


@kernel
def _marginals_vjp(layout, count, rho, mu_u, mu_c, d_mu_u, d_mu_c, d_state, d_unary, d_factors):
    # [D13] Alg. 3 (back TRW): adjoints of the beliefs
    labels, var_ptr, scope_ptr, scope, table_ptr, msg_ptr = (
        layout.labels,
        layout.var_ptr,
        layout.scope_ptr,
        layout.scope,
        layout.table_ptr,
        layout.msg_ptr,
    )
    zero = mu_u.dtype.type(0)
    running = np.zeros_like(d_unary)
    digits = np.empty(_scratch(layout)[2], np.int64)
    for i in range(len(labels)):
        mean = zero
        for a in range(var_ptr[i], var_ptr[i + 1]):
            mean += mu_u[a] * d_mu_u[a]
        for a in range(var_ptr[i], var_ptr[i + 1]):
            running[a] = mu_u[a] * (d_mu_u[a] - mean)
    for c in range(len(table_ptr) - 1 if len(d_mu_c) else 0):
        first, last = scope_ptr[c], scope_ptr[c + 1]
        scale = mu_u.dtype.type(1 / rho[c])
        mean = zero
        for e in range(table_ptr[c], table_ptr[c + 1]):
            mean += mu_c[e] * d_mu_c[e]
        digits[: last - first] = 0
        for e in range(table_ptr[c], table_ptr[c + 1]):
            nu = mu_c[e] * (d_mu_c[e] - mean)
            d_factors[e] += scale * nu
            for s in range(first, last):
                running[var_ptr[scope[s]] + digits[s - first]] += nu
                d_state[msg_ptr[s] + digits[s - first]] -= nu
            _advance(msg_ptr, first, last, digits)
    _distribute(layout, count, rho, running, d_state, d_unary)
