"""An upper bound of log Z that holds at any messages, converged or not.

At any messages, beliefs are a reparameterisation: with b_i and b_c normalised and C a constant,

    theta·f(x) = C + sum_i log b_i(x_i) + sum_c rho_c log( b_c(x_c) / prod_{i in c} b_i(x_i) )       ([D13] (17) and below)

With rho from a distribution over acyclic subsets of factors, Hölder's inequality gives log Z <= C + sum_T w_T log Z_T. In a
subset T variables are summed out from the leaves, and each factor leaves b_c(x_i) / b_i(x_i) at the variable i next to the
root, which is 1 at a fixed point. So

    log Z <= C + sum_c rho_c max_{i in c} max_{x_i} log( sum_{x_c\\i} b_c(x_c) / b_i(x_i) )

which falls to theta·mu + H(mu) as the messages converge. Computed in the log domain: nothing is too small to count.
Cost: as two sweeps in the log domain.
"""

from __future__ import annotations

import numpy as np

from backfield.graph import Potentials
from backfield.kernels.compile import exact_kernel, log_sum_exp

#: Sums of probabilities below it may have lost digits to underflow.
_SMALL = 1e-250


def upper_bound(theta: Potentials, rho: np.ndarray, log_messages: np.ndarray) -> float:
    """Return the bound; ``log_messages`` are flat, one block for each slot, up to a constant each."""
    layout = theta.graph.layout
    unary, factors = (part.astype(np.float64, copy=False) for part in (theta.unary_flat, theta.factors_flat))
    return float(_upper_bound(layout, unary, factors, np.array(rho, dtype=np.float64), log_messages.astype(np.float64)))


@exact_kernel
def _upper_bound(layout, theta_u, theta_c, rho, l):
    low = -np.inf
    belief = theta_u.copy()  # log b_i, first without its constant
    for k in range(len(layout.scope)):
        start, power = layout.var_ptr[layout.scope[k]], rho[layout.slot_factor[k]]
        for x in range(layout.msg_ptr[k + 1] - layout.msg_ptr[k]):
            value = l[layout.msg_ptr[k] + x]
            belief[start + x] = low if value == low else belief[start + x] + power * value
    norm = np.empty(len(layout.labels))
    total = 0.0
    for i in range(len(layout.labels)):
        norm[i] = log_sum_exp(belief[layout.var_ptr[i] : layout.var_ptr[i + 1]])
        total += norm[i]
    size = 1
    for c in range(len(layout.table_ptr) - 1):
        size = max(size, layout.table_ptr[c + 1] - layout.table_ptr[c])
    joint, weight, sums = np.empty(size), np.empty(size), np.empty(layout.labels.max())
    for c in range(len(layout.table_ptr) - 1):
        first, size = layout.table_ptr[c], layout.table_ptr[c + 1] - layout.table_ptr[c]
        for e in range(size):
            joint[e] = theta_c[first + e] / rho[c]  # log b_c, without its constant
        for k in range(layout.scope_ptr[c], layout.scope_ptr[c + 1]):
            i = layout.scope[k]
            start, message, step = layout.var_ptr[i], layout.msg_ptr[k], layout.stride[k]
            for x in range(layout.labels[i]):
                value = low if belief[start + x] == low else belief[start + x] - l[message + x]
                for block in range(x * step, size, layout.labels[i] * step):
                    for e in range(block, block + step):
                        joint[e] += value
        top, own = low, 0.0
        for e in range(size):
            top = max(top, joint[e])
        for e in range(size):
            weight[e] = np.exp(joint[e] - top)
            own += weight[e]
        own = top + np.log(own)
        largest, around = 0.0, 0.0
        for k in range(layout.scope_ptr[c], layout.scope_ptr[c + 1]):
            i = layout.scope[k]
            count, step, start = layout.labels[i], layout.stride[k], layout.var_ptr[i]
            around += norm[i]
            sums[:count] = 0.0
            for block in range(0, size, count * step):
                for x in range(count):
                    for e in range(block + x * step, block + (x + 1) * step):
                        sums[x] += weight[e]
            for x in range(count):
                if belief[start + x] > low:
                    marginal = top + np.log(sums[x]) if sums[x] > _SMALL else _log_sum(joint, x * step, size, count, step)
                    largest = max(largest, marginal - own - (belief[start + x] - norm[i]))
        total += rho[c] * (own - around + largest)
    return total


@exact_kernel
def _log_sum(joint, first, size, count, step):
    """Return the log of the sum of exp(joint) over the entries of one label, with its own largest term taken out."""
    top, total = -np.inf, 0.0
    for block in range(first, size, count * step):
        for e in range(block, block + step):
            top = max(top, joint[e])
    for block in range(first, size, count * step):
        for e in range(block, block + step):
            total += np.exp(joint[e] - top) if top > -np.inf else 0.0
    return top + np.log(total) if top > -np.inf else top
