"""Greedy elimination in compiled code: neighbourhoods as growing lists, a heap of the variables that are left.

Summing out v joins its neighbours. For each variable the kernel keeps the size of its table and its fill, the weight of
the edges that summing it out would add (1 each, or the product of the two label counts), and corrects both where an
edge comes or a variable goes. Cost: each added edge costs one intersection of two neighbourhoods.

Small models are done before these kernels would be compiled: they are interpreted at first (``kernels.setup``).
"""

from __future__ import annotations

import numpy as np

from backfield.kernels.setup import SetupKernel, setup_part

#: What the next variable has the least of: fill, then size; size, then fill; weighted fill, then size; or its place alone.
FILL, SIZE, WEIGHTED_FILL, GIVEN = 0, 1, 2, 3


@SetupKernel
def greedy(labels, ptr, near, group, ties, noise, rule, hopeless):
    """Return order, ends of the separators, separators, entries of all tables and of the largest.

    Variables of a lower ``group`` go first; ``noise`` scales the first key, ``ties`` decides what is left. Where a table
    has more than ``hopeless`` entries, the order is empty and the size of that table is returned as the largest.
    """
    n = len(labels)
    start, count, room = np.empty(n, np.int64), np.empty(n, np.int64), np.empty(n, np.int64)
    for v in range(n):
        start[v] = ptr[v]
        count[v] = room[v] = ptr[v + 1] - ptr[v]
    pool = np.empty(2 * len(near) + 16, np.int64)
    top = len(near)
    for k in range(top):  # one by one: an assignment of arrays compiles for seconds
        pool[k] = near[k]
    heavy = np.ones(n) if rule != WEIGHTED_FILL else labels.copy()
    around_weight, size, fill = np.zeros(n), np.empty(n), np.zeros(n)
    mark, touched = np.full(n, -1, np.int64), np.full(n, -1, np.int64)
    stamp = 0
    for v in range(n):
        size[v] = labels[v]
        for k in range(start[v], start[v] + count[v]):
            size[v] *= labels[pool[k]]
            around_weight[v] += heavy[pool[k]]
    if rule != GIVEN:
        for v in range(n):
            for k in range(start[v], start[v] + count[v]):
                mark[pool[k]] = v
            total = 0.0
            for k in range(start[v], start[v] + count[v]):
                u = pool[k]
                total += heavy[u] * (around_weight[v] - heavy[u])
                for j in range(start[u], start[u] + count[u]):
                    if mark[pool[j]] == v:
                        total -= heavy[u] * heavy[pool[j]]
            fill[v] = total / 2
        stamp = n
    first, second = np.zeros(n), np.zeros(n)
    for v in range(n):
        _set_keys(v, rule, size, fill, noise, first, second)
    heap, place = np.arange(n), np.arange(n)
    for k in range(n // 2 - 1, -1, -1):
        _sink(k, n, heap, place, group, first, second, ties)
    order, ends, separators = np.empty(n, np.int64), np.empty(n, np.int64), np.empty(4 * n + 16, np.int64)
    length, entries, largest = 0, 0.0, 0.0
    changed = np.empty(n, np.int64)
    for step in range(n):
        v, left = heap[0], n - 1 - step
        heap[0] = heap[left]
        place[heap[0]] = 0
        _sink(0, left, heap, place, group, first, second, ties)
        place[v] = -1
        if size[v] > hopeless:
            return order[:0], ends[:0], separators[:0], 0.0, size[v]
        degree = count[v]
        if length + degree > len(separators):
            separators = _longer(separators, length + degree)
        around = separators[length : length + degree]
        for k in range(degree):
            around[k] = pool[start[v] + k]
        around.sort()
        order[step], ends[step] = v, length + degree
        length += degree
        entries += size[v]
        largest = max(largest, size[v])
        n_changed = 0
        stamp += 1
        for u in around:
            mark[u] = stamp
        mark[v] = stamp
        for u in around:
            gone = 0.0
            for j in range(start[u], start[u] + count[u]):
                if mark[pool[j]] != stamp:
                    gone += heavy[pool[j]]
            fill[u] -= heavy[v] * gone
            for j in range(start[u], start[u] + count[u]):
                if pool[j] == v:
                    pool[j] = pool[start[u] + count[u] - 1]
                    break
            count[u] -= 1
            around_weight[u] -= heavy[v]
            touched[u] = step
            changed[n_changed] = u
            n_changed += 1
        if rule == GIVEN or fill[v] > 0.5:
            for i in range(degree):
                a = around[i]
                stamp += 1
                for j in range(start[a], start[a] + count[a]):
                    mark[pool[j]] = stamp
                for other in range(i + 1, degree):
                    b = around[other]
                    if mark[b] == stamp:
                        continue
                    if rule != GIVEN:
                        shared = 0.0
                        for j in range(start[b], start[b] + count[b]):
                            u = pool[j]
                            if mark[u] == stamp:
                                shared += heavy[u]
                                fill[u] -= heavy[a] * heavy[b]
                                if touched[u] != step:
                                    touched[u] = step
                                    changed[n_changed] = u
                                    n_changed += 1
                        fill[a] += heavy[b] * (around_weight[a] - shared)
                        fill[b] += heavy[a] * (around_weight[b] - shared)
                        around_weight[a] += heavy[b]
                        around_weight[b] += heavy[a]
                    for pair in range(2):
                        u, w = (a, b) if pair == 0 else (b, a)
                        if count[u] == room[u]:
                            room[u] = 2 * count[u] + 4
                            if top + room[u] > len(pool):
                                pool = _longer(pool, top + room[u])
                            for j in range(count[u]):
                                pool[top + j] = pool[start[u] + j]
                            start[u] = top
                            top += room[u]
                        pool[start[u] + count[u]] = w
                        count[u] += 1
                    mark[b] = stamp
        for k in range(n_changed):
            u = changed[k]
            if k < degree:
                size[u] = labels[u]
                for j in range(start[u], start[u] + count[u]):
                    size[u] *= labels[pool[j]]
            _set_keys(u, rule, size, fill, noise, first, second)
            _rise(place[u], heap, place, group, first, second, ties)
            _sink(place[u], left, heap, place, group, first, second, ties)
    return order, ends, separators[:length], entries, largest


@setup_part
def _longer(array, needed):
    out = np.empty(2 * needed, array.dtype)
    for k in range(len(array)):
        out[k] = array[k]
    return out


@setup_part
def _set_keys(v, rule, size, fill, noise, first, second):
    if rule == SIZE:
        first[v], second[v] = size[v] * noise[v], fill[v]
    elif rule != GIVEN:
        first[v], second[v] = fill[v] * noise[v], size[v]


@setup_part
def _before(u, v, group, first, second, ties):
    if group[u] != group[v]:
        return group[u] < group[v]
    if first[u] != first[v]:
        return first[u] < first[v]
    if second[u] != second[v]:
        return second[u] < second[v]
    return ties[u] < ties[v]


@setup_part
def _sink(k, n, heap, place, group, first, second, ties):
    while True:
        best = k
        for child in (2 * k + 1, 2 * k + 2):
            if child < n and _before(heap[child], heap[best], group, first, second, ties):
                best = child
        if best == k:
            return
        heap[k], heap[best] = heap[best], heap[k]
        place[heap[k]], place[heap[best]] = k, best
        k = best


@setup_part
def _rise(k, heap, place, group, first, second, ties):
    while k > 0:
        above = (k - 1) // 2
        if not _before(heap[k], heap[above], group, first, second, ties):
            return
        heap[k], heap[above] = heap[above], heap[k]
        place[heap[k]], place[heap[above]] = k, above
        k = above


@SetupKernel
def neighbours(n, scope_ptr, scope):
    """Return the neighbourhoods of variables, sorted, in compressed rows."""
    count = np.zeros(n + 1, np.int64)
    for c in range(len(scope_ptr) - 1):
        arity = scope_ptr[c + 1] - scope_ptr[c]
        for k in range(scope_ptr[c], scope_ptr[c + 1]):
            count[scope[k] + 1] += arity - 1
    start = np.cumsum(count)
    row, fill = np.empty(start[n], np.int64), start[:-1].copy()
    for c in range(len(scope_ptr) - 1):
        for k in range(scope_ptr[c], scope_ptr[c + 1]):
            for j in range(scope_ptr[c], scope_ptr[c + 1]):
                if j != k:
                    row[fill[scope[k]]] = scope[j]
                    fill[scope[k]] += 1
    ptr, at = np.zeros(n + 1, np.int64), 0
    for v in range(n):
        part = row[start[v] : start[v + 1]].copy()
        part.sort()
        for k in range(len(part)):
            if part[k] != v and (k == 0 or part[k] != part[k - 1]):
                row[at] = part[k]
                at += 1
        ptr[v + 1] = at
    return ptr, row[:at].copy()
