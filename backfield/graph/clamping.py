"""Clamping: variables with one possible label, set apart without taking the graph apart.

A variable all but one of whose labels are forbidden (-inf in its unary table) is *fixed*. In theta' = R theta it is
independent of all others, so any method runs on theta' with the graph's own rho, order and kernels:

    one other variable free     theta'(x_j) = theta(x_j) + theta(x_c) at the fixed labels,   theta'(x_c) = 0
    more than one free          theta'(x_c) = theta(x_c) at the fixed labels, for all labels of the fixed variables
    none free                   the entry is added to the unary table of the first variable of the scope

The first line is the limit of the message that a fixed variable sends, m(x_j)^rho = exp(theta(x_c)): it is there from the
start, and the messages over such a factor stay uniform. R is linear. Its adjoint, and the way from the marginals of
theta' to those of theta (sums over the labels of fixed variables) with its own adjoint, are below.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any

import numpy as np

from backfield.graph.graph import Graph
from backfield.graph.potentials import Potentials
from backfield.kernels.compile import exact_kernel, exact_part

# Columns of a plan, one row for each factor that touches a fixed variable: its table, the variable that gets its numbers
# (the free one, where there is one), the entry at the fixed labels, the steps of the free and the fixed variable of a pair.
FACTOR, FIRST, LAST, FREE, START, LABELS, BASE, STEP, OTHERS, ACROSS = range(10)


class Clamp:
    """The fixed variables of a graph: ``label`` (n,), -1 = not fixed."""

    def __init__(self, graph: Graph, label: np.ndarray) -> None:
        self.graph, self.label = graph, label
        self.variables = np.flatnonzero(label >= 0)
        self._memo: dict[str, Any] = {}

    @cached_property
    def plan(self) -> np.ndarray:
        """The factors that touch a fixed variable, and what becomes of each."""
        layout, fixed = self.graph.layout, self.variables
        small = max(layout.table_ptr[-1], layout.var_ptr[-1]) < 2**31
        most = int((layout.inc_ptr[fixed + 1] - layout.inc_ptr[fixed]).sum())
        plan = np.empty((most, 10), np.int32 if small else np.int64)
        fill = _fill_plan_of_pairs if self.graph.is_pairwise else _fill_plan
        return plan[: fill(layout, self.label, fixed, plan)]

    @property
    def _fixed(self) -> tuple[Any, ...]:
        return self.graph.layout, self.label, self.variables, self.plan

    @property
    def most(self) -> bool:
        """Whether more than half of the variables are fixed."""
        return 2 * len(self.variables) > self.graph.n_variables

    @property
    def allowed(self) -> np.ndarray:
        """Which labels are possible, flat: one of each fixed variable."""
        labels, var_ptr = self.graph.labels, self.graph.layout.var_ptr
        allowed = np.repeat(self.label < 0, labels)
        allowed[var_ptr[:-1][self.variables] + self.label[self.variables]] = True
        return allowed

    def compiled(self, key: str, build: Callable[[], Any]) -> Any:
        """Return what ``build`` made of the clamp when ``key`` was first asked for."""
        if key not in self._memo:
            self._memo[key] = build()
        return self._memo[key]

    @property
    def factors(self) -> np.ndarray:
        """The factors that touch a fixed variable."""
        return self.plan[:, FACTOR]

    def apply(self, theta: Potentials) -> Potentials:
        """Return theta'."""
        out = Potentials.from_flat(self.graph, theta.unary_flat.copy(), theta.factors_flat.copy())
        tables = theta.unary_flat, theta.factors_flat, out.unary_flat, out.factors_flat
        _apply(*self._fixed, *tables)
        return out

    def adjoint(self, d_theta: Potentials) -> Potentials:
        """Return the adjoint of theta from that of theta', which is used up; forbidden entries get zero."""
        _adjoint(*self._fixed, d_theta.unary_flat, d_theta.factors_flat)
        return d_theta

    def set_beliefs(self, mu: np.ndarray) -> np.ndarray:
        """Make the flat unary marginals of fixed variables one-hot, in place."""
        _set_rows(self.graph.layout, self.label, self.variables, mu)
        return mu

    def expand(self, mu: Potentials) -> Potentials:
        """Return the marginals of theta from those of theta', which are used up; factor tables may be empty."""
        self.set_beliefs(mu.unary_flat)
        if mu.factors_flat.size:
            _collect(self.graph.layout, self.label, self.plan, mu.factors_flat)
        return mu

    def expand_vjp(self, d_mu: Potentials) -> Potentials:
        """Return the adjoint of the marginals of theta' from that of those of theta."""
        unary, factors = d_mu.unary_flat.copy(), d_mu.factors_flat.copy()
        _clear_rows(self.graph.layout, self.variables, unary)
        if factors.size:
            _broadcast(self.graph.layout, self.label, self.plan, d_mu.factors_flat, factors)
        return Potentials.from_flat(d_mu.graph, unary, factors)


def clamp_of(theta: Potentials) -> Clamp | None:
    """Return what the unary tables fix; None where no variable is left with one label of several."""
    with np.errstate(all="ignore"):
        if np.isfinite(theta.unary_flat.sum()):
            return None
    theta.verify()
    return clamp_to(theta.graph, theta.unary_flat.real != -np.inf)


def clamp_to(graph: Graph, allowed: np.ndarray) -> Clamp | None:
    """Return what the allowed labels, flat, fix; None where that is nothing."""
    label = _fixed_labels(graph.labels, allowed)
    return Clamp(graph, label) if (label >= 0).any() else None


@exact_kernel
def _fixed_labels(counts, allowed):
    """Return the label of each variable that has one possible label of several, else -1."""
    label = np.full(len(counts), -1)
    at = 0
    for i in range(len(counts)):
        possible = 0
        for x in range(counts[i]):
            if allowed[at + x]:
                possible += 1
                label[i] = x
        if possible != 1 or counts[i] == 1:
            label[i] = -1
        at += counts[i]
    return label


@exact_kernel
def _fill_plan(layout, label, variables, plan):
    """Write a row for each factor that touches a fixed variable, at the first of these; return the number of rows."""
    scope_ptr, scope, stride, counts = layout.scope_ptr, layout.scope, layout.stride, layout.labels
    g = 0
    for i in variables:
        for k in range(layout.inc_ptr[i], layout.inc_ptr[i + 1]):
            c = layout.slot_factor[layout.inc[k]]
            start, stop = scope_ptr[c], scope_ptr[c + 1]
            free, step, own, base, first = 0, 0, start, layout.table_ptr[c], True
            for slot in range(start, stop):
                x = label[scope[slot]]
                if x < 0:
                    free += 1
                    step = stride[slot]
                    own = slot
                else:
                    base += x * stride[slot]
                    first &= scope[slot] >= i
            if not first:
                continue
            plan[g, FACTOR] = c
            plan[g, FIRST] = layout.table_ptr[c]
            plan[g, LAST] = layout.table_ptr[c + 1]
            plan[g, FREE] = free
            plan[g, BASE] = base
            plan[g, STEP] = step
            plan[g, START] = layout.var_ptr[scope[own]]
            plan[g, LABELS] = counts[scope[own]]
            plan[g, OTHERS] = 0  # where the factor is not a pair with one free variable
            if free == 1 and stop - start == 2:
                other = 2 * start + 1 - own
                plan[g, OTHERS] = counts[scope[other]]
                plan[g, ACROSS] = stride[other]
            g += 1
    return g


@exact_kernel
def _fill_plan_of_pairs(layout, label, variables, plan):
    """Do the same where every factor is a pair and all variables have one label count: a third of the time."""
    count = layout.labels[0]
    g = 0
    for i in variables:
        for k in range(layout.inc_ptr[i], layout.inc_ptr[i + 1]):
            slot = layout.inc[k]
            j, c = layout.scope[slot ^ 1], slot // 2
            if label[j] >= 0 and j < i:
                continue
            own, across = (count, 1) if slot % 2 == 0 else (1, count)  # steps of i and of j
            free = label[j] < 0
            plan[g, FACTOR] = c
            plan[g, FIRST] = c * count * count
            plan[g, LAST] = (c + 1) * count * count
            plan[g, FREE] = 1 if free else 0
            plan[g, BASE] = c * count * count + label[i] * own + (0 if free else label[j] * across)
            plan[g, STEP] = across if free else 0
            plan[g, START] = (j if free else i) * count
            plan[g, LABELS] = count
            plan[g, OTHERS] = count if free else 0
            plan[g, ACROSS] = own
            g += 1
    return g


@exact_part
def _source(layout, label, c, e):
    """Return the entry of a table at the labels of the fixed variables and, of the others, those of entry ``e``."""
    at = e
    for k in range(layout.scope_ptr[c], layout.scope_ptr[c + 1]):
        i = layout.scope[k]
        if label[i] >= 0:
            at += (label[i] - (e - layout.table_ptr[c]) // layout.stride[k] % layout.labels[i]) * layout.stride[k]
    return at


@exact_kernel
def _apply(layout, label, variables, plan, theta_u, theta_c, unary, tables):
    for i in variables:
        for a in range(layout.var_ptr[i], layout.var_ptr[i + 1]):
            unary[a] = theta_u[layout.var_ptr[i] + label[i]]
    zero = tables.dtype.type(0)
    for g in range(len(plan)):
        first, last = plan[g, FIRST], plan[g, LAST]
        if plan[g, FREE] > 1:
            for e in range(first, last):
                tables[e] = theta_c[_source(layout, label, plan[g, FACTOR], e)]
        else:  # a fixed variable has one number, in all entries of its row
            start, base, step = plan[g, START], plan[g, BASE], plan[g, STEP]
            for x in range(plan[g, LABELS]):
                unary[start + x] += theta_c[base + x * step]
            for e in range(first, last):
                tables[e] = zero


@exact_kernel
def _adjoint(layout, label, variables, plan, d_unary, d_tables):
    """Do the transpose of ``_apply`` in place."""
    zero = d_unary.dtype.type(0)
    for i in variables:
        total = zero
        for a in range(layout.var_ptr[i], layout.var_ptr[i + 1]):
            total += d_unary[a]
            d_unary[a] = zero
        d_unary[layout.var_ptr[i] + label[i]] = total
    for g in range(len(plan)):
        first, last = plan[g, FIRST], plan[g, LAST]
        if plan[g, FREE] > 1:
            _sum_to_source(layout, label, plan[g, FACTOR], d_tables)
            continue
        for e in range(first, last):
            d_tables[e] = zero
        start, base, step = plan[g, START], plan[g, BASE], plan[g, STEP]
        for x in range(plan[g, LABELS]):  # of a fixed variable, one entry of the row is not zero
            d_tables[base + x * step] += d_unary[start + x]


@exact_part
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
        for a in range(layout.var_ptr[i], layout.var_ptr[i + 1]):
            mu[a] = mu.dtype.type(0)
        mu[layout.var_ptr[i] + label[i]] = mu.dtype.type(1)


@exact_kernel
def _clear_rows(layout, variables, d_mu):
    for i in variables:
        for a in range(layout.var_ptr[i], layout.var_ptr[i + 1]):
            d_mu[a] = d_mu.dtype.type(0)


@exact_kernel
def _collect(layout, label, plan, mu):
    """Turn marginals of factors in theta' to those in theta."""
    zero, one = mu.dtype.type(0), mu.dtype.type(1)
    for g in range(len(plan)):
        first, base = plan[g, FIRST], plan[g, BASE]
        if plan[g, FREE] == 0:
            for e in range(first, plan[g, LAST]):
                mu[e] = zero
            mu[base] = one
        elif plan[g, OTHERS] > 0:
            step, across = plan[g, STEP], plan[g, ACROSS]
            for x in range(plan[g, LABELS]):
                total = zero
                for y in range(plan[g, OTHERS]):
                    e = first + x * step + y * across
                    total += mu[e]
                    mu[e] = zero
                mu[base + x * step] = total
        else:
            _sum_to_source(layout, label, plan[g, FACTOR], mu)


@exact_kernel
def _broadcast(layout, label, plan, d_mu, out):
    """Do the transpose of ``_collect``."""
    zero = out.dtype.type(0)
    for g in range(len(plan)):
        first, base = plan[g, FIRST], plan[g, BASE]
        if plan[g, FREE] == 0:
            for e in range(first, plan[g, LAST]):
                out[e] = zero
        elif plan[g, OTHERS] > 0:
            step, across = plan[g, STEP], plan[g, ACROSS]
            for x in range(plan[g, LABELS]):
                value = d_mu[base + x * step]
                for y in range(plan[g, OTHERS]):
                    out[first + x * step + y * across] = value
        else:
            for e in range(first, plan[g, LAST]):
                out[e] = d_mu[_source(layout, label, plan[g, FACTOR], e)]
