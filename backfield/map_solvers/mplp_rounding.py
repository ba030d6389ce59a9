"""From a dual solution to labels: read off in order, then improved tree by tree.

*Reading*: variables are chosen one by one; factors whose other variables are chosen count by their table, others by their
message ([SGJ11] §1.7). *Tree moves*: a random set of variables that induces no cycle takes its best labels together, all
others held (Hamze and de Freitas 2004, with max for sum). The value never falls; a single variable is such a set, so what is
left is a maximum of ICM too.

Cost of a move O(tables); memory O(unary tables).
"""

from __future__ import annotations

import numpy as np

from backfield.graph import Potentials
from backfield.kernels.compile import exact_kernel, exact_part
from backfield.map_solvers.base import MapResult
from backfield.map_solvers.icm import icm

#: Moves without a better value after which a search ends.
PATIENCE = 10


def improve(
    theta: Potentials, unary: np.ndarray, tables: np.ndarray, labels: np.ndarray, moves: int, seed: int
) -> MapResult:
    """Return labels improved by tree moves; ``unary`` and ``tables`` are those of theta with finite numbers for -inf."""
    graph, rng = theta.graph, np.random.default_rng(seed)
    best = icm(theta, labels, 20)
    value, idle = best.value, 0
    labels = best.labels.copy()
    for _ in range(moves):
        move(graph.layout, unary, tables, rng.permutation(graph.n_variables), labels)
        new = theta.score(labels)
        idle = 0 if new > value else idle + 1
        if new > best.value:
            best = MapResult(labels.copy(), new, optimal=False)
        value = new
        if idle == PATIENCE:
            break
    return best


@exact_kernel
def decode(
    var_ptr, scope_ptr, scope, stride, table_ptr, msg_ptr, inc_ptr, inc, slot_factor, unary, tables, messages, labels
):
    """Choose labels one by one: factors whose other variables are chosen count as such, others by their messages."""
    for i in range(len(labels)):
        score = unary[var_ptr[i] : var_ptr[i + 1]].copy()
        for j in range(inc_ptr[i], inc_ptr[i + 1]):
            s = inc[j]
            c = slot_factor[s]
            at, known = table_ptr[c], True
            for other in range(scope_ptr[c], scope_ptr[c + 1]):
                if other != s:
                    if labels[scope[other]] < 0:
                        known = False
                    else:
                        at += labels[scope[other]] * stride[other]
            for x in range(len(score)):
                score[x] += tables[at + x * stride[s]] if known else messages[msg_ptr[s] + x]
        labels[i] = np.argmax(score)


@exact_kernel
def move(layout, unary, tables, order, labels):
    """Grow a forest along ``order`` and give its variables their best labels together, in place."""
    n = len(labels)
    root = np.full(n, -1, dtype=np.int64)  # union-find; -1: not in the forest
    inside = np.zeros(len(layout.scope_ptr) - 1, dtype=np.int64)  # variables of the forest in each factor
    for v in order:
        if _keeps_forest(layout, v, root, inside):
            root[v] = v
            for j in range(layout.inc_ptr[v], layout.inc_ptr[v + 1]):
                c = layout.slot_factor[layout.inc[j]]
                inside[c] += 1
                for s in range(layout.scope_ptr[c], layout.scope_ptr[c + 1]):
                    u = layout.scope[s]
                    if u != v and root[u] >= 0:
                        root[_find(root, u)] = v
    _solve_forest(layout, unary, tables, root, labels)


@exact_part
def _find(root, v):
    while root[v] != v:
        root[v] = root[root[v]]
        v = root[v]
    return v


@exact_part
def _keeps_forest(layout, v, root, inside):
    """Whether v joins no tree twice, and no factor gets a third variable of the forest."""
    near = np.empty(layout.inc_ptr[v + 1] - layout.inc_ptr[v], dtype=np.int64)
    count = 0
    for j in range(layout.inc_ptr[v], layout.inc_ptr[v + 1]):
        c = layout.slot_factor[layout.inc[j]]
        if inside[c] > 1:
            return False
        if inside[c] == 1:
            for s in range(layout.scope_ptr[c], layout.scope_ptr[c + 1]):
                u = layout.scope[s]
                if u != v and root[u] >= 0:
                    tree = _find(root, u)
                    for k in range(count):
                        if near[k] == tree:
                            return False
                    near[count] = tree
                    count += 1
    return True


@exact_part
def _solve_forest(layout, unary, tables, root, labels):
    """Pass maxima from the leaves of each tree to its root, then choose from the root down."""
    n = len(labels)
    queue = np.empty(n, dtype=np.int64)
    up = np.full(n, -2, dtype=np.int64)  # the slot through which a variable hangs on its parent; -1: a root; -2: not seen
    score = unary.copy()
    tail = 0
    for v in range(n):
        if root[v] != v:
            continue
        head = tail
        queue[tail], up[v] = v, -1
        tail += 1
        while head < tail:
            u = queue[head]
            head += 1
            for j in range(layout.inc_ptr[u], layout.inc_ptr[u + 1]):
                mine = layout.inc[j]
                c = layout.slot_factor[mine]
                entry, child = layout.table_ptr[c], -1
                for s in range(layout.scope_ptr[c], layout.scope_ptr[c + 1]):
                    if s != mine:
                        if root[layout.scope[s]] >= 0:
                            child = s
                        else:
                            entry += layout.stride[s] * labels[layout.scope[s]]
                if child < 0:  # all others are held
                    for x in range(layout.labels[u]):
                        score[layout.var_ptr[u] + x] += tables[entry + x * layout.stride[mine]]
                elif up[layout.scope[child]] == -2:
                    queue[tail], up[layout.scope[child]] = layout.scope[child], child
                    tail += 1
    for k in range(tail - 1, -1, -1):
        v = queue[k]
        if up[v] >= 0:
            p, parent, entry = _edge(layout, up[v], root, labels)
            for y in range(layout.labels[p]):
                top = -np.inf
                for x in range(layout.labels[v]):
                    at = entry + x * layout.stride[up[v]] + y * layout.stride[parent]
                    top = max(top, score[layout.var_ptr[v] + x] + tables[at])
                score[layout.var_ptr[p] + y] += top
    for k in range(tail):
        v = queue[k]
        first = layout.var_ptr[v]
        best, top = labels[v], -np.inf
        entry, step = 0, 0
        if up[v] >= 0:
            p, parent, entry = _edge(layout, up[v], root, labels)
            entry += labels[p] * layout.stride[parent]
            step = layout.stride[up[v]]
        for x in range(layout.labels[v]):
            value = score[first + x] + (tables[entry + x * step] if up[v] >= 0 else 0.0)
            if value > top:
                best, top = x, value
        labels[v] = best


@exact_part
def _edge(layout, slot, root, labels):
    """Return the parent of the variable at ``slot``, its slot, and the entry of the table where both have label 0."""
    c = layout.slot_factor[slot]
    entry, parent = layout.table_ptr[c], -1
    for s in range(layout.scope_ptr[c], layout.scope_ptr[c + 1]):
        if s != slot:
            if root[layout.scope[s]] >= 0:
                parent = s
            else:
                entry += layout.stride[s] * labels[layout.scope[s]]
    return layout.scope[parent], parent, entry
