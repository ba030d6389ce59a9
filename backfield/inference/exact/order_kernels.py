"""Greedy elimination in compiled code: neighbourhoods as growing lists, a heap of the variables that are left.

Summing out v joins its neighbours. For each variable the kernel keeps the size of its table and its fill, the weight of
the edges that summing it out would add (1 each, or the product of the two label counts), and corrects both where an
edge comes or a variable goes. Cost: each added edge costs one intersection of two neighbourhoods.

Small models are done before these kernels would be compiled: they are interpreted at first (``kernels.setup``).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from backfield.kernels.setup import SetupKernel, setup_part

#: What the next variable has the least of: fill, then size; size, then fill; weighted fill, then size; or its place alone.
FILL, SIZE, WEIGHTED_FILL, GIVEN = 0, 1, 2, 3
#: What is counted: steps, sets that were marked, used places of the pool, variables whose keys change in this step.
STEP, STAMP, TOP, N_CHANGED = range(4)


class Lists(NamedTuple):
    """Neighbourhoods in a pool: that of v is ``pool[start[v] : start[v] + degree[v]]``, with room for ``room[v]``."""

    start: np.ndarray
    degree: np.ndarray
    room: np.ndarray


class Costs(NamedTuple):
    """What summing out each variable costs."""

    labels: np.ndarray
    weight: np.ndarray  # 1, or the label count
    around: np.ndarray  # weight of the neighbourhood
    size: np.ndarray  # entries of the table
    fill: np.ndarray  # weight of the edges that are added


class Marks(NamedTuple):
    """Sets of variables, and the counters."""

    stamp: np.ndarray  # the number of the set that a variable was last put into
    touched: np.ndarray  # the step in which its keys last changed
    changed: np.ndarray  # variables whose keys change in this step, the neighbours first
    counter: np.ndarray  # by the columns above


class Queue(NamedTuple):
    """A heap of the variables that are left, by group, first key, second key and ties."""

    heap: np.ndarray
    place: np.ndarray  # of each variable in the heap
    group: np.ndarray
    first: np.ndarray
    second: np.ndarray
    ties: np.ndarray
    noise: np.ndarray


@SetupKernel
def greedy(labels, ptr, near, group, ties, noise, rule, hopeless):
    """Return order, ends of the separators, separators, entries of all tables and of the largest.

    Variables of a lower ``group`` go first; ``noise`` scales the first key, ``ties`` decides what is left. Where a table
    has more than ``hopeless`` entries, the order is empty and the size of that table is returned as the largest.
    """
    n = len(labels)
    pool = _longer(near, len(near) + 8)
    lists, marks = _lists(ptr), _marks(n, len(near))
    costs = _costs(labels, rule, lists, pool)
    if rule != GIVEN:
        _set_fills(lists, pool, costs, marks)
    queue = _queue(group, ties, noise)
    for v in range(n):
        costs.size[v] = _table_size(v, lists, pool, labels)
        _set_keys(v, rule, costs, queue)
    for k in range(n // 2 - 1, -1, -1):
        _sink(k, n, queue)
    order, ends, separators = np.empty(n, np.int64), np.empty(n, np.int64), np.empty(4 * n + 16, np.int64)
    length, entries, largest = 0, 0.0, 0.0
    for step in range(n):
        left = n - 1 - step
        v = _pop(left, queue)
        _sink(0, left, queue)
        if costs.size[v] > hopeless:
            return order[:0], ends[:0], separators[:0], 0.0, costs.size[v]
        degree = lists.degree[v]
        if length + degree > len(separators):
            separators = _longer(separators, length + degree)
        around = separators[length : length + degree]
        for k in range(degree):
            around[k] = pool[lists.start[v] + k]
        _sort(around)
        length += degree
        order[step], ends[step] = v, length
        entries += costs.size[v]
        largest = max(largest, costs.size[v])
        marks.counter[STEP] = step
        _remove(v, around, lists, pool, costs, marks)
        if degree > 1 and (rule == GIVEN or costs.fill[v] > 0.5):
            top = _top_with_room(around, lists, marks.counter)
            if top > len(pool):
                pool = _longer(pool, top)
            _make_room(around, lists, pool, marks.counter)
            _connect(around, rule, lists, pool, costs, marks)
        for k in range(marks.counter[N_CHANGED]):
            u = marks.changed[k]
            if k < degree:
                costs.size[u] = _table_size(u, lists, pool, costs.labels)
            _set_keys(u, rule, costs, queue)
            _rise(queue.place[u], queue)
            _sink(queue.place[u], left, queue)
    return order, ends, separators[:length], entries, largest


@setup_part
def _lists(ptr):
    """Return neighbourhoods that lie where those of compressed rows do."""
    n = len(ptr) - 1
    start, degree, room = np.empty(n, np.int64), np.empty(n, np.int64), np.empty(n, np.int64)
    for v in range(n):
        start[v] = ptr[v]
        degree[v] = room[v] = ptr[v + 1] - ptr[v]
    return Lists(start, degree, room)


@setup_part
def _marks(n, top):
    """Return no marks, and the counters."""
    stamp, touched, counter = np.empty(n, np.int64), np.empty(n, np.int64), np.zeros(4, np.int64)
    for v in range(n):
        stamp[v] = touched[v] = -1
    counter[TOP] = top
    return Marks(stamp, touched, np.empty(n, np.int64), counter)


@setup_part
def _costs(labels, rule, lists, pool):
    """Return weights; sizes and fills are written later."""
    n = len(labels)
    weight, around = np.ones(n), np.zeros(n)
    for v in range(n):
        if rule == WEIGHTED_FILL:
            weight[v] = labels[v]
    for v in range(n):
        for k in range(lists.start[v], lists.start[v] + lists.degree[v]):
            around[v] += weight[pool[k]]
    return Costs(labels, weight, around, np.zeros(n), np.zeros(n))


@setup_part
def _table_size(v, lists, pool, labels):
    """Return the entries of the table over a variable and its neighbours."""
    size = labels[v]
    for k in range(lists.start[v], lists.start[v] + lists.degree[v]):
        size *= labels[pool[k]]
    return size


@setup_part
def _set_fills(lists, pool, costs, marks):
    """Write all fills."""
    weight = costs.weight
    for v in range(len(weight)):
        stamp = _mark_around(v, lists, pool, marks)
        total = 0.0
        for k in range(lists.start[v], lists.start[v] + lists.degree[v]):
            u = pool[k]
            total += weight[u] * (costs.around[v] - weight[u])
            for j in range(lists.start[u], lists.start[u] + lists.degree[u]):
                if marks.stamp[pool[j]] == stamp:
                    total -= weight[u] * weight[pool[j]]
        costs.fill[v] = total / 2


@setup_part
def _mark_around(v, lists, pool, marks):
    """Mark the neighbours of a variable; return the stamp that they have then."""
    marks.counter[STAMP] += 1
    stamp = marks.counter[STAMP]
    for k in range(lists.start[v], lists.start[v] + lists.degree[v]):
        marks.stamp[pool[k]] = stamp
    return stamp


@setup_part
def _queue(group, ties, noise):
    """Return all variables, not yet in order."""
    n = len(group)
    heap, place = np.empty(n, np.int64), np.empty(n, np.int64)
    for v in range(n):
        heap[v] = place[v] = v
    return Queue(heap, place, group, np.zeros(n), np.zeros(n), ties, noise)


@setup_part
def _pop(left, queue):
    """Return the first variable of the heap; the last of those that are left takes its place, and has to sink."""
    heap, place = queue.heap, queue.place
    v = heap[0]
    heap[0] = heap[left]
    place[heap[0]], place[v] = 0, -1
    return v


@setup_part
def _sort(numbers):
    """Sort a few numbers; numpy's way compiles for seconds."""
    for a in range(1, len(numbers)):
        number, b = numbers[a], a
        while b > 0 and numbers[b - 1] > number:
            numbers[b] = numbers[b - 1]
            b -= 1
        numbers[b] = number


@setup_part
def _remove(v, around, lists, pool, costs, marks):
    """Take a variable out of its neighbours' lists and costs."""
    start, degree, stamp, weight = lists.start, lists.degree, _mark_around(v, lists, pool, marks), costs.weight
    marks.stamp[v] = stamp
    for k in range(len(around)):
        u = around[k]
        gone, place = 0.0, start[u]
        for j in range(start[u], start[u] + degree[u]):
            if marks.stamp[pool[j]] != stamp:
                gone += weight[pool[j]]
            if pool[j] == v:
                place = j
        costs.fill[u] -= weight[v] * gone
        costs.around[u] -= weight[v]
        degree[u] -= 1
        pool[place] = pool[start[u] + degree[u]]
        marks.touched[u], marks.changed[k] = marks.counter[STEP], u
    marks.counter[N_CHANGED] = len(around)


@setup_part
def _top_with_room(around, lists, counter):
    """Return the places of the pool that are used when each of these variables has room for all others."""
    top = counter[TOP]
    for u in around:
        if lists.degree[u] + len(around) > lists.room[u]:
            top += 2 * (lists.degree[u] + len(around))
    return top


@setup_part
def _make_room(around, lists, pool, counter):
    """Move neighbourhoods to the end of the pool where a variable has no room for all others."""
    for u in around:
        if lists.degree[u] + len(around) > lists.room[u]:
            top = counter[TOP]
            for k in range(lists.degree[u]):
                pool[top + k] = pool[lists.start[u] + k]
            lists.start[u], lists.room[u] = top, 2 * (lists.degree[u] + len(around))
            counter[TOP] += lists.room[u]


@setup_part
def _connect(around, rule, lists, pool, costs, marks):
    """Make all of these variables neighbours, and correct costs for each edge (a, b) that is added."""
    start, degree, weight, fill, counter = lists.start, lists.degree, costs.weight, costs.fill, marks.counter
    for i in range(len(around)):
        a = around[i]
        stamp = _mark_around(a, lists, pool, marks)
        for k in range(i + 1, len(around)):
            b = around[k]
            if marks.stamp[b] == stamp:
                continue
            if rule != GIVEN:
                shared = 0.0
                for j in range(start[b], start[b] + degree[b]):
                    u = pool[j]
                    if marks.stamp[u] == stamp:
                        shared += weight[u]
                        fill[u] -= weight[a] * weight[b]
                        if marks.touched[u] != counter[STEP]:
                            marks.touched[u], marks.changed[counter[N_CHANGED]] = counter[STEP], u
                            counter[N_CHANGED] += 1
                fill[a] += weight[b] * (costs.around[a] - shared)
                fill[b] += weight[a] * (costs.around[b] - shared)
                costs.around[a] += weight[b]
                costs.around[b] += weight[a]
            pool[start[a] + degree[a]], pool[start[b] + degree[b]], marks.stamp[b] = b, a, stamp
            degree[a] += 1
            degree[b] += 1


@setup_part
def _longer(array, needed):
    """Return a copy with twice the room that is needed."""
    out = np.empty(2 * needed, array.dtype)
    for k in range(len(array)):
        out[k] = array[k]
    return out


@setup_part
def _set_keys(v, rule, costs, queue):
    """Write the keys of a variable."""
    if rule == SIZE:
        queue.first[v], queue.second[v] = costs.size[v] * queue.noise[v], costs.fill[v]
    elif rule != GIVEN:
        queue.first[v], queue.second[v] = costs.fill[v] * queue.noise[v], costs.size[v]


@setup_part
def _before(u, v, queue):
    """Return whether a variable goes before another."""
    if queue.group[u] != queue.group[v]:
        return queue.group[u] < queue.group[v]
    if queue.first[u] != queue.first[v]:
        return queue.first[u] < queue.first[v]
    if queue.second[u] != queue.second[v]:
        return queue.second[u] < queue.second[v]
    return queue.ties[u] < queue.ties[v]


@setup_part
def _sink(k, n, queue):
    """Move what is at place k of a heap of n down to where it belongs."""
    heap = queue.heap
    while True:
        best = k
        for child in (2 * k + 1, 2 * k + 2):
            if child < n and _before(heap[child], heap[best], queue):
                best = child
        if best == k:
            return
        _swap(k, best, queue)
        k = best


@setup_part
def _rise(k, queue):
    """Move what is at place k of a heap up to where it belongs."""
    while k > 0:
        above = (k - 1) // 2
        if not _before(queue.heap[k], queue.heap[above], queue):
            return
        _swap(k, above, queue)
        k = above


@setup_part
def _swap(a, b, queue):
    """Swap what is at two places of a heap."""
    heap, place = queue.heap, queue.place
    heap[a], heap[b] = heap[b], heap[a]
    place[heap[a]], place[heap[b]] = a, b


@SetupKernel
def neighbours(n, scope_ptr, scope):
    """Return the neighbourhoods of variables, sorted, in compressed rows."""
    tab_ptr, start = np.zeros(n + 2, np.int64), np.zeros(n + 1, np.int64)
    for c in range(len(scope_ptr) - 1):
        for k in range(scope_ptr[c], scope_ptr[c + 1]):
            tab_ptr[scope[k] + 2] += 1
            start[scope[k] + 1] += scope_ptr[c + 1] - scope_ptr[c] - 1
    for v in range(n):
        tab_ptr[v + 2] += tab_ptr[v + 1]
        start[v + 1] += start[v]
    tables, end, row = np.empty(len(scope), np.int64), np.empty(n, np.int64), np.empty(start[n], np.int64)
    for c in range(len(scope_ptr) - 1):  # tables of v will lie from tab_ptr[v] to tab_ptr[v + 1]
        for k in range(scope_ptr[c], scope_ptr[c + 1]):
            tables[tab_ptr[scope[k] + 1]] = c
            tab_ptr[scope[k] + 1] += 1
    for v in range(n):
        end[v] = start[v]
    for v in range(n):  # rows get variables in rising order: they need not be sorted
        for t in range(tab_ptr[v], tab_ptr[v + 1]):
            for k in range(scope_ptr[tables[t]], scope_ptr[tables[t] + 1]):
                u = scope[k]
                if u != v and (end[u] == start[u] or row[end[u] - 1] != v):
                    row[end[u]] = v
                    end[u] += 1
    ptr, top = np.zeros(n + 1, np.int64), 0
    for v in range(n):
        for k in range(start[v], end[v]):
            row[top] = row[k]
            top += 1
        ptr[v + 1] = top
    return ptr, row[:top].copy()
