"""What zeros decide: labels that no possible labeling can have, found factor by factor.

A label stays only while every factor around it has an entry that is possible and whose other labels stay, too
(generalised arc consistency). Evidence on a deterministic network thus decides more variables, and label sets shrink,
before any table is joined. No possible labeling is lost; log Z and marginals stay the same.

Cost: for each time that a label of a factor's variables goes, a search for one possible entry of each other label.
"""

from __future__ import annotations

import numpy as np

from backfield.graph import Potentials
from backfield.inference.exact.base import ImpossibleError
from backfield.kernels.compile import exact_kernel, exact_part


def propagate(theta: Potentials, allowed: np.ndarray) -> np.ndarray:
    """Return the labels (flat, as unary tables) of ``allowed`` that zeros leave.

    Raises
    ------
    ImpossibleError
        Where a variable has no label left, so nothing is possible.
    """
    layout, tables = theta.graph.layout, theta.factors_flat
    out = allowed & (theta.unary_flat > -np.inf)
    blocks = np.zeros(theta.graph.n_factors, dtype=bool)
    _find_zeros(layout.table_ptr, tables, blocks)
    _propagate(
        layout.var_ptr, layout.scope_ptr, layout.scope, layout.stride, layout.table_ptr, layout.inc_ptr, layout.inc,
        layout.slot_factor, tables, blocks, out,
    )  # fmt: skip
    left = np.logical_or.reduceat(out, layout.var_ptr[:-1])
    if not left.all():
        raise ImpossibleError
    return out


@exact_kernel
def _find_zeros(table_ptr, tables, blocks):
    """Mark the factors that forbid something."""
    for c in range(len(blocks)):
        for e in range(np.uint64(table_ptr[c]), np.uint64(table_ptr[c + 1])):
            if tables[e] == -np.inf:
                blocks[c] = True
                break


@exact_kernel
def _propagate(var_ptr, scope_ptr, scope, stride, table_ptr, inc_ptr, inc, slot_factor, tables, blocks, allowed):
    """Visit factors that forbid something (``blocks``) until no label goes."""
    n_factors = len(blocks)
    queue = np.empty(n_factors + 1, np.int64)  # a ring: each factor is in it at most once
    waits = np.zeros(n_factors, np.bool_)
    head, count = 0, 0
    for c in range(n_factors):
        if blocks[c]:
            queue[count] = c
            waits[c] = True
            count += 1
    while count > 0:
        c = queue[head]
        head = (head + 1) % len(queue)
        count -= 1
        waits[c] = False
        first, last = scope_ptr[c], scope_ptr[c + 1]
        total = 0
        for k in range(first, last):
            total += var_ptr[scope[k] + 1] - var_ptr[scope[k]]
        supported = np.zeros(total, np.bool_)
        chosen = np.empty(last - first, np.int64)
        at = 0
        for k in range(first, last):
            i = scope[k]
            for x in range(var_ptr[i + 1] - var_ptr[i]):
                if allowed[var_ptr[i] + x] and not supported[at + x]:
                    _find_support(
                        k, x, first, last, var_ptr, scope, stride, tables, table_ptr[c], allowed, chosen, supported
                    )
            at += var_ptr[i + 1] - var_ptr[i]
        at = 0
        for k in range(first, last):
            i = scope[k]
            size = var_ptr[i + 1] - var_ptr[i]
            changed = False
            for x in range(size):
                if allowed[var_ptr[i] + x] and not supported[at + x]:
                    allowed[var_ptr[i] + x] = False
                    changed = True
            at += size
            if changed:
                for j in range(inc_ptr[i], inc_ptr[i + 1]):
                    other = slot_factor[inc[j]]
                    if other != c and blocks[other] and not waits[other]:
                        queue[(head + count) % len(queue)] = other
                        waits[other] = True
                        count += 1


@exact_part
def _find_support(fixed, x, first, last, var_ptr, scope, stride, tables, start, allowed, chosen, supported):
    """Look for a possible entry whose labels stay, with label x at slot ``fixed``; it supports all its labels."""
    at = start
    for k in range(first, last):
        v = var_ptr[scope[k]]
        chosen[k - first] = 0
        if k == fixed:
            chosen[k - first] = x
        else:
            while not allowed[v + chosen[k - first]]:
                chosen[k - first] += 1
                if chosen[k - first] == var_ptr[scope[k] + 1] - v:
                    return
        at += chosen[k - first] * stride[k]
    while True:
        if tables[at] > -np.inf:
            to = 0
            for k in range(first, last):
                supported[to + chosen[k - first]] = True
                to += var_ptr[scope[k] + 1] - var_ptr[scope[k]]
            return
        k = last - 1
        while k >= first:  # the next entry
            if k != fixed:
                v, before = var_ptr[scope[k]], chosen[k - first]
                y = before + 1
                while v + y < var_ptr[scope[k] + 1] and not allowed[v + y]:
                    y += 1
                if v + y < var_ptr[scope[k] + 1]:
                    chosen[k - first] = y
                    at += (y - before) * stride[k]
                    break
                y = 0
                while not allowed[v + y]:
                    y += 1
                chosen[k - first] = y
                at += (y - before) * stride[k]
            k -= 1
        if k < first:
            return
