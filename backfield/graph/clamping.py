"""Clamping: variables with one possible label, set apart without taking the graph apart.

A variable all but one of whose labels are forbidden (-inf in its unary table) is *fixed*. In theta' = R theta it is
independent of all others, so that any method runs on theta' with the graph's own rho, order and kernels:

    one other variable free     theta'(x_j) = theta(x_j) + theta(x_c) at the fixed labels,   theta'(x_c) = 0
    more than one free          theta'(x_c) = theta(x_c) at the fixed labels, for all labels of the fixed variables
    none free                   the entry is added to the unary table of the first variable of the scope

The first line is the limit of the message that a fixed variable sends, m(x_j)^rho = exp(theta(x_c)): it is there from the
start, and the messages over such a factor stay uniform. R is linear. Its adjoint, and the way from the marginals of
theta' to those of theta (sums over the labels of fixed variables) with its own adjoint, are below.
"""

from __future__ import annotations

import numpy as np

from backfield.graph.graph import Graph
from backfield.graph.potentials import Potentials
from backfield.kernels.compile import exact_kernel, inlined


class Clamp:
    """The fixed variables of a graph: ``label`` (n,), -1 = not fixed; ``factors`` are those that touch one of them."""

    def __init__(self, graph: Graph, label: np.ndarray) -> None:
        self.graph, self.label = graph, label
        self.variables = np.flatnonzero(label >= 0)
        self.factors = _touched(graph.layout, self.label, self.variables)

    def apply(self, theta: Potentials) -> Potentials:
        """Return theta'."""
        out = Potentials.from_flat(self.graph, theta.unary_flat.copy(), theta.factors_flat.copy())
        tables = theta.unary_flat, theta.factors_flat, out.unary_flat, out.factors_flat
        _apply(self.graph.layout, self.label, self.variables, self.factors, *tables)
        return out

    def adjoint(self, d_theta: Potentials) -> Potentials:
        """Return the adjoint of theta from that of theta', which is used up; forbidden entries get zero."""
        rows = np.empty(len(self.variables), d_theta.dtype)
        tables = d_theta.unary_flat, d_theta.factors_flat
        _adjoint(self.graph.layout, self.label, self.variables, self.factors, *tables, rows)
        return d_theta

    def set_beliefs(self, mu: np.ndarray) -> np.ndarray:
        """Make the flat unary marginals of fixed variables one-hot, in place."""
        _set_rows(self.graph.layout, self.label, self.variables, mu)
        return mu

    def expand(self, mu: Potentials) -> Potentials:
        """Return the marginals of theta from those of theta', which are used up; factor tables may be empty."""
        self.set_beliefs(mu.unary_flat)
        if mu.factors_flat.size:
            _collect(self.graph.layout, self.label, self.factors, mu.factors_flat)
        return mu

    def expand_vjp(self, d_mu: Potentials) -> Potentials:
        """Return the adjoint of the marginals of theta' from that of those of theta."""
        unary, factors = d_mu.unary_flat.copy(), d_mu.factors_flat.copy()
        _clear_rows(self.graph.layout, self.variables, unary)
        if factors.size:
            _broadcast(self.graph.layout, self.label, self.factors, d_mu.factors_flat, factors)
        return Potentials.from_flat(d_mu.graph, unary, factors)


def clamp_of(theta: Potentials) -> Clamp | None:
    """Return what the unary tables fix; None where no variable is left with one label of several."""
    with np.errstate(all="ignore"):
        if np.isfinite(theta.unary_flat.sum()):
            return None
    theta.verify()
    label = _fixed_labels(theta.graph.labels, theta.unary_flat)
    return Clamp(theta.graph, label) if (label >= 0).any() else None


@exact_kernel
def _fixed_labels(counts, unary):
    """Return the label of each variable that has one possible label of several, else -1."""
    label = np.full(len(counts), -1)
    at = 0
    for i in range(len(counts)):
        possible = 0
        for x in range(counts[i]):
            if unary[at + x].real != -np.inf:
                possible += 1
                label[i] = x
        if possible != 1 or counts[i] == 1:
            label[i] = -1
        at += counts[i]
    return label


@exact_kernel
def _touched(layout, label, variables):
    """Return the factors of fixed variables, each once: at the first fixed variable of its scope."""
    size = 0
    for i in variables:
        size += layout.inc_ptr[i + 1] - layout.inc_ptr[i]
    out = np.empty(size, np.int64)
    size = 0
    for i in variables:
        for s in range(layout.inc_ptr[i], layout.inc_ptr[i + 1]):
            k = layout.inc[s]
            c = layout.slot_factor[k]
            first = True
            for before in range(layout.scope_ptr[c], k):
                first &= label[layout.scope[before]] < 0
            if first:
                out[size] = c
                size += 1
    return out[:size].copy()


@inlined
def _free(layout, label, c):
    """Return the number of free variables of a factor, the slot of the last of them, and the first entry at the labels."""
    count, slot, base = 0, -1, layout.table_ptr[c]
    for k in range(layout.scope_ptr[c], layout.scope_ptr[c + 1]):
        x = label[layout.scope[k]]
        if x < 0:
            count += 1
            slot = k
        else:
            base += x * layout.stride[k]
    return count, slot, base


@inlined
def _source(layout, label, c, e):
    """Return the entry of a table at the labels of the fixed variables and, of the others, those of entry ``e``."""
    at = e
    for k in range(layout.scope_ptr[c], layout.scope_ptr[c + 1]):
        i = layout.scope[k]
        if label[i] >= 0:
            at += (label[i] - (e - layout.table_ptr[c]) // layout.stride[k] % layout.labels[i]) * layout.stride[k]
    return at


@exact_kernel
def _apply(layout, label, variables, factors, theta_u, theta_c, unary, tables):
    for i in variables:
        unary[layout.var_ptr[i] : layout.var_ptr[i + 1]] = theta_u[layout.var_ptr[i] + label[i]]
    for c in factors:
        count, slot, base = _free(layout, label, c)
        first, last = layout.table_ptr[c], layout.table_ptr[c + 1]
        if count > 1:
            for e in range(first, last):
                tables[e] = theta_c[_source(layout, label, c, e)]
            continue
        # A fixed variable has one number, in all entries of its row.
        i = layout.scope[layout.scope_ptr[c] if count == 0 else slot]
        step = 0 if count == 0 else layout.stride[slot]
        for x in range(layout.labels[i]):
            unary[layout.var_ptr[i] + x] += theta_c[base + x * step]
        tables[first:last] = tables.dtype.type(0)


@exact_kernel
def _adjoint(layout, label, variables, factors, d_unary, d_tables, rows):
    """Do the transpose of ``_apply`` in place."""
    zero = d_unary.dtype.type(0)
    for v in range(len(variables)):
        i = variables[v]
        rows[v] = d_unary[layout.var_ptr[i] : layout.var_ptr[i + 1]].sum()
        d_unary[layout.var_ptr[i] : layout.var_ptr[i + 1]] = zero
        d_unary[layout.var_ptr[i] + label[i]] = rows[v]
    for c in factors:
        count, slot, base = _free(layout, label, c)
        first, last = layout.table_ptr[c], layout.table_ptr[c + 1]
        if count > 1:
            _sum_to_source(layout, label, c, d_tables)
            continue
        d_tables[first:last] = zero
        if count == 0:
            i = layout.scope[layout.scope_ptr[c]]
            d_tables[base] = d_unary[layout.var_ptr[i] + label[i]]
        else:
            i = layout.scope[slot]
            for x in range(layout.labels[i]):
                d_tables[base + x * layout.stride[slot]] = d_unary[layout.var_ptr[i] + x]


@exact_kernel
def _sum_to_source(layout, label, c, tables):
    """Add the entries of a table that differ in labels of fixed variables, at the labels that those have."""
    first, last = layout.table_ptr[c], layout.table_ptr[c + 1]
    old = tables[first:last].copy()
    tables[first:last] = tables.dtype.type(0)
    for e in range(first, last):
        tables[_source(layout, label, c, e)] += old[e - first]


@exact_kernel
def _set_rows(layout, label, variables, mu):
    for i in variables:
        mu[layout.var_ptr[i] : layout.var_ptr[i + 1]] = mu.dtype.type(0)
        mu[layout.var_ptr[i] + label[i]] = mu.dtype.type(1)


@exact_kernel
def _clear_rows(layout, variables, d_mu):
    for i in variables:
        d_mu[layout.var_ptr[i] : layout.var_ptr[i + 1]] = d_mu.dtype.type(0)


@exact_kernel
def _collect(layout, label, factors, mu):
    """Turn marginals of factors in theta' to those in theta."""
    for c in factors:
        count, slot, base = _free(layout, label, c)
        first, last = layout.table_ptr[c], layout.table_ptr[c + 1]
        if count == 0:
            mu[first:last] = mu.dtype.type(0)
            mu[base] = mu.dtype.type(1)
        elif count == 1 and layout.scope_ptr[c + 1] - layout.scope_ptr[c] == 2:
            labels, step = layout.labels[layout.scope[slot]], layout.stride[slot]
            across = labels if step == 1 else 1  # from one label of the fixed variable to the next
            for x in range(labels):
                total = mu.dtype.type(0)
                for e in range(first + x * step, last if step == 1 else first + (x + 1) * step, across):
                    total += mu[e]
                    mu[e] = mu.dtype.type(0)
                mu[base + x * step] = total
        else:
            _sum_to_source(layout, label, c, mu)


@exact_kernel
def _broadcast(layout, label, factors, d_mu, out):
    """Do the transpose of ``_collect``."""
    for c in factors:
        count, slot, base = _free(layout, label, c)
        first, last = layout.table_ptr[c], layout.table_ptr[c + 1]
        if count == 0:
            out[first:last] = out.dtype.type(0)
        elif count == 1 and layout.scope_ptr[c + 1] - layout.scope_ptr[c] == 2:
            labels, step = layout.labels[layout.scope[slot]], layout.stride[slot]
            across = labels if step == 1 else 1
            for x in range(labels):
                for e in range(first + x * step, last if step == 1 else first + (x + 1) * step, across):
                    out[e] = d_mu[base + x * step]
        else:
            for e in range(first, last):
                out[e] = d_mu[_source(layout, label, c, e)]
