"""An upper bound of log Z that holds at any messages, converged or not.

At any messages, beliefs are a reparameterisation: with b_i and b_c normalised and C a constant,

    theta·f(x) = C + sum_i log b_i(x_i) + sum_c rho_c log( b_c(x_c) / prod_{i in c} b_i(x_i) )       ([D13] (17) and below)

With rho from a distribution over acyclic subsets of factors, Hölder's inequality gives log Z <= C + sum_T w_T log Z_T. In a
subset T variables are summed out from the leaves, and each factor leaves b_c(x_i) / b_i(x_i) at the variable i next to the
root, which is 1 at a fixed point. So

    log Z <= C + sum_c rho_c max_{i in c} max_{x_i} log( sum_{x_c\\i} b_c(x_c) / b_i(x_i) )

which falls to theta·mu + H(mu) as the messages converge. Computed in the log domain: nothing is too small to count.
numpy, factors of one shape together: it runs once per answer, and a kernel would be the largest to compile.
Cost: as two sweeps in the log domain.
"""

from __future__ import annotations

import numpy as np

from backfield.graph import Graph, Potentials

#: Sums of probabilities below it may have lost digits to underflow.
_SMALL = 1e-250
#: Factors at a time.
_CHUNK = 4096


def upper_bound(theta: Potentials, rho: np.ndarray, log_messages: np.ndarray) -> float:
    """Return the bound; ``log_messages`` are flat, one block for each slot, up to a constant each."""
    graph, layout = theta.graph, theta.graph.layout
    unary, tables = (part.astype(np.float64, copy=False) for part in (theta.unary_flat, theta.factors_flat))
    rho, l = np.asarray(rho, dtype=np.float64), log_messages.astype(np.float64, copy=False)
    count = layout.labels[layout.scope]
    into = np.repeat(layout.var_ptr[layout.scope] - layout.msg_ptr[:-1], count) + np.arange(len(l))
    belief = unary.copy()  # log b_i, first without its constant
    np.add.at(belief, into, np.repeat(rho[layout.slot_factor], count) * l)
    with np.errstate(all="ignore"):  # logs of zero, and 0 / 0 where nothing is possible
        norm = _norms(layout.var_ptr, belief)
        total = norm.sum()
        cavity = np.where(belief[into] == -np.inf, -np.inf, belief[into] - l)
        log_b = belief[into] - np.repeat(norm[layout.scope], count)
        for shape, factors in graph.compiled("factors by shape", lambda: _by_shape(graph)):
            for first in range(0, len(factors), _CHUNK):
                part = factors[first : first + _CHUNK]
                places = layout.scope_ptr[part] + np.arange(len(shape))[:, None]
                joint = tables[layout.table_ptr[part] + np.arange(np.prod(shape))[:, None]] / rho[part]
                own, excess = _logs(joint.reshape(*shape, -1), layout.msg_ptr[places], cavity, log_b)
                total += rho[part] @ (own - norm[layout.scope[places]].sum(axis=0) + excess)
    return float(total)


def _by_shape(graph: Graph) -> list[tuple[tuple[int, ...], np.ndarray]]:
    """Return the factors of each shape of table."""
    layout, found = graph.layout, []
    arities = np.diff(layout.scope_ptr)
    for arity in np.unique(arities):
        factors = np.flatnonzero(arities == arity)
        shapes = layout.labels[layout.scope[layout.scope_ptr[factors][:, None] + np.arange(arity)]]
        each, which = np.unique(shapes, axis=0, return_inverse=True)
        found += [(tuple(shape.tolist()), factors[which.reshape(-1) == k]) for k, shape in enumerate(each)]
    return found


def _norms(var_ptr: np.ndarray, belief: np.ndarray) -> np.ndarray:
    """Return the log of the sum of exp(belief) of each variable."""
    top = np.maximum.reduceat(belief, var_ptr[:-1])
    sums = np.add.reduceat(np.exp(belief - np.repeat(top, np.diff(var_ptr))), var_ptr[:-1])
    return np.where(top == -np.inf, -np.inf, top + np.log(sums))


def _logs(joint: np.ndarray, messages: np.ndarray, cavity: np.ndarray, log_b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the log of the sum of b_c, without its constant, and max_i max_{x_i} log(b_c(x_i) / b_i(x_i)).

    ``joint`` is theta_c / rho_c with the factors along its last axis, ``messages`` (arity, factors) where theirs begin.
    """
    axes = tuple(range(joint.ndim - 1))
    entries = [messages[p] + np.arange(joint.shape[p])[:, None] for p in axes]
    for p in axes:
        joint += np.expand_dims(cavity[entries[p]], [a for a in axes if a != p])
    top = joint.max(axis=axes)
    weight = np.exp(joint - top)
    own = top + np.log(weight.sum(axis=axes))
    excess = np.zeros_like(own)
    for p in axes:
        others = tuple(a for a in axes if a != p)
        sums = weight.sum(axis=others)
        marginal = top + np.log(sums)
        if (sums <= _SMALL).any():  # with the largest term of each label taken out
            high = joint.max(axis=others)
            apart = high + np.log(np.exp(joint - np.expand_dims(high, others)).sum(axis=others))
            marginal = np.where(sums > _SMALL, marginal, np.where(high == -np.inf, -np.inf, apart))
        possible = log_b[entries[p]] > -np.inf
        ratio = np.where(possible, marginal - own - log_b[entries[p]], 0)
        excess = np.maximum(excess, ratio.max(axis=0))
    return own, excess
