"""Maximum flow by augmenting paths from two search trees, kept alive while terminal capacities change.

Every node ``i`` has one terminal residual ``excess[i]``: positive from the source, negative to the sink. The energy

    E(x) = constant + sum_i excess_i [x_i = 0] (or -excess_i [x_i = 1])  + sum_a cap_a [x_tail = 1, x_head = 0]

is that of the cut problem under any flow (a flow only reparametrises it), so adding ``delta`` to a terminal capacity
adds it to ``excess``, whatever the flow is: where the residual of [KT07] §3 would become negative, the constant that
they add to both terminal arcs is already inside the difference. Source side is label 1; nodes in neither tree (ties)
get label 0, so the labels are the smallest minimiser, whatever the flow.

Trees, active queue, orphans, time stamps and distances are those of [BK04]; the trees are repaired after a change as
[KT07] §4 does. Here in addition: short paths source - i - j - sink are saturated first in one pass over the arcs, and a node
that is fixed to a side is looked at with its neighbours first, which is often enough (``_easy``).
A residual that is rounding error of the flow just sent (below 2^-48 of it) is zero, at any scale of the capacities.

Cost: [BK04] has no useful bound; on images some passes over the arcs. Memory: 8 bytes an arc (16 off grids) and 36
a node.

[BK04] Boykov, Kolmogorov: An experimental comparison of min-cut/max-flow algorithms. TPAMI 26(9), 2004.
[KT07] Kohli, Torr: Dynamic graph cuts for efficient inference in Markov random fields. TPAMI 29(12), 2007.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from backfield.kernels.compile import exact_kernel, exact_part
from backfield.map_solvers._cut_graph import Topology

_FREE, _SOURCE, _SINK = 0, 1, 2  # tree of a node
_TERMINAL, _ORPHAN = -1, -2  # instead of the arc to the parent
_TIME, _HEAD, _COUNT, _TOUCHED = 0, 1, 2, 3  # places in ``clock``
_FAR = 1 << 30
_ROUNDING = 2.0**-48


class Flow(NamedTuple):
    """Residuals, search trees and labels: the state that all kernels change in place."""

    cap: np.ndarray  # (A,) residual capacity
    excess: np.ndarray  # (N,) residual of the terminal arcs: > 0 from the source, < 0 to the sink
    tree: np.ndarray  # (N,)
    parent: np.ndarray  # (N,) arc to the parent, or why there is none
    stamp: np.ndarray  # (N,) when ``dist`` was last known to be right
    dist: np.ndarray  # (N,) arcs to the terminal
    queue: np.ndarray  # (N,) ring of active nodes
    queued: np.ndarray  # (N,)
    orphans: np.ndarray  # (N,)
    label: np.ndarray  # (N,) side of the last cut: 1 = source
    seen: np.ndarray  # (N,) whether a node is listed in ``touched``
    touched: np.ndarray  # (N,) nodes that entered or left the source tree since then
    clock: np.ndarray  # (4,) time, head and length of the queue, length of ``touched``


def new_flow(topo: Topology) -> Flow:
    """Return a state without capacities."""

    def nodes(dtype: type) -> np.ndarray:
        return np.zeros(topo.n_nodes, dtype=dtype)

    return Flow(
        cap=np.zeros(topo.n_arcs),
        excess=nodes(np.float64),
        tree=nodes(np.int8),
        parent=nodes(np.int32),
        stamp=nodes(np.int32),
        dist=nodes(np.int32),
        queue=nodes(np.int32),
        queued=nodes(np.uint8),
        orphans=nodes(np.int32),
        label=nodes(np.uint8),
        seen=nodes(np.uint8),
        touched=nodes(np.int32),
        clock=np.zeros(4, dtype=np.int64),
    )


@exact_part
def _first(arcs, i):
    if len(arcs) == 1:
        return 4 * i
    elif len(arcs) == 2:
        return arcs[1] * i
    else:
        return np.int64(arcs[0][i])


@exact_part
def _last(arcs, i):
    if len(arcs) == 1:
        return 4 * i + 4
    elif len(arcs) == 2:
        return arcs[1] * i + len(arcs[0])
    else:
        return np.int64(arcs[0][i + 1])


@exact_part
def _head(arcs, i, a):
    if len(arcs) == 1:
        k = a & 3
        step = 1 if k == 0 or k == 3 else arcs[0]
        return i + step if k >= 2 else i - step
    elif len(arcs) == 2:
        return i + arcs[0][a - arcs[1] * i]
    else:
        return np.int64(arcs[1][a])


@exact_part
def _sister(arcs, a, j):
    """Return the arc back from ``j``, the head of ``a``."""
    if len(arcs) == 1:
        return 4 * j + 3 - (a & 3)
    elif len(arcs) == 2:
        return arcs[1] * j + len(arcs[0]) - 1 - (a & (arcs[1] - 1))
    else:
        return np.int64(arcs[2][a])


@exact_kernel
def solve(arcs, flow):
    """Find the maximum flow from any residuals with new trees; ``label`` is rewritten."""
    flow.seen[:] = 1  # nothing is listed
    _push_short(arcs, flow.cap, flow.excess)
    _plant(flow)
    _grow(arcs, flow)
    for i in range(len(flow.label)):
        flow.label[i] = flow.tree[i] == _SOURCE
        flow.seen[i] = 0


@exact_kernel
def resolve(arcs, nodes, flow, changed):
    """Find the maximum flow after ``excess`` of some nodes has changed; return how many labels did, and list them."""
    _resolve(arcs, nodes, len(nodes), flow)
    return _collect(flow, changed)


@exact_kernel
def change_each(arcs, nodes, deltas, record, start, flow, out, ptr, index):
    """Cut with each change alone: ``out`` is the label of the changed node; on request list who differs from now.

    Returns the number of changes done: fewer than all when ``index`` is full. The state is that before the call.
    """
    base = flow.label.copy() if record else flow.label[:0]
    differs = np.zeros(len(base), dtype=np.uint8)
    now = np.empty(len(base), dtype=np.int32)
    changed = np.empty(len(base), dtype=np.int32)
    two = np.empty(2, dtype=np.int64)
    easy = _easy(arcs, nodes, deltas, flow)
    before, undo, used, n_now = -1, 0.0, ptr[start], 0
    k = start
    while k < len(nodes):
        i, delta = nodes[k], deltas[k]
        if easy[k]:
            out[k] = delta > 0
        else:
            if before >= 0:
                flow.excess[before] += undo
            if np.isinf(delta):
                delta = np.sign(delta) * _dominating(arcs, i, flow)
            flow.excess[i] += delta
            two[0], two[1] = i, before
            _resolve(arcs, two, 2 if before >= 0 else 1, flow)
            before, undo = i, -delta
            out[k] = flow.tree[i] == _SOURCE
            if record:
                n_now = _differences(flow, base, _collect(flow, changed), changed, n_now, now, differs)
            else:
                _forget(flow)
        if record:
            count = np.int64(out[k] != base[i]) if easy[k] else n_now
            if used + count > len(index):
                break
            for p in range(count):
                index[used + p] = i if easy[k] else now[p]
            used += count
            ptr[k + 1] = used
        k += 1
    if before >= 0:
        flow.excess[before] += undo
        two[0] = before
        _resolve(arcs, two, 1, flow)
        if record:
            _collect(flow, changed)
        else:
            _forget(flow)
    return k


@exact_kernel
def change_each_afresh(arcs, nodes, deltas, cap, excess, start, flow, out, ptr, index):
    """Cut with each change alone, each from no flow: what ``change_each`` is measured against.

    ``cap`` and ``excess`` are the capacities without flow, and ``flow`` that of their own cut, as after the call.
    """
    base = flow.label.copy()
    k, used = start, ptr[start]
    while k < len(nodes):
        flow.cap[:], flow.excess[:] = cap, excess
        i, delta = nodes[k], deltas[k]
        flow.excess[i] += np.sign(delta) * _dominating(arcs, i, flow) if np.isinf(delta) else delta
        solve(arcs, flow)
        where = np.flatnonzero(flow.label != base)
        if used + len(where) > len(index):
            break
        out[k] = flow.label[i]
        index[used : used + len(where)] = where
        used += len(where)
        ptr[k + 1] = used
        k += 1
    flow.cap[:], flow.excess[:] = cap, excess
    solve(arcs, flow)
    return k


@exact_part
def _easy(arcs, nodes, deltas, flow):
    """Return which changes fix a node and surely leave the sides of all others: on noise most of them.

    So it is where every neighbour meets the flow from (or to) the node by its own terminal arc, and none hangs on it.
    """
    cap, excess, tree, parent = flow.cap, flow.excess, flow.tree, flow.parent
    easy = np.isinf(deltas)
    for k in range(len(nodes)):
        i, up = nodes[k], deltas[k] > 0
        if not easy[k] or up == (tree[i] == _SOURCE):
            continue
        for a in range(_first(arcs, i), _last(arcs, i)):
            j = _head(arcs, i, a)
            b = _sister(arcs, a, j)
            if up:
                fails = tree[j] != _SOURCE and -excess[j] < cap[a]
            else:
                fails = tree[j] == _SOURCE and (parent[j] == b or (cap[b] > 0 and _less(excess[j], cap[b]) <= 0))
            if fails:
                easy[k] = False
                break
    return easy


@exact_kernel
def min_marginals(arcs, nodes, flow, out):
    """Energy that the other label of each node costs: ``E(best with x_i flipped) - E(best)``."""
    two = np.empty(2, dtype=np.int64)
    before, undo = -1, 0.0
    for k in range(len(nodes)):
        i = nodes[k]
        # Undoing a forced label leaves a maximum flow of the first problem, so every flow from here on is the price.
        if before >= 0:
            flow.excess[before] += undo
        now = flow.excess[i]
        delta = _dominating(arcs, i, flow)
        if flow.label[i] == 1:
            delta = -delta
        flow.excess[i] += delta
        two[0], two[1] = i, before
        out[k] = abs(now) + _resolve(arcs, two, 2 if before >= 0 else 1, flow)
        before, undo = i, -delta
        _forget(flow)
    if before >= 0:
        flow.excess[before] += undo
        two[0] = before
        _resolve(arcs, two, 1, flow)
        _forget(flow)


@exact_part
def _dominating(arcs, i, flow):
    """Return a change of the terminal capacity that decides the label of ``i`` against all its arcs."""
    total = abs(flow.excess[i])
    for a in range(_first(arcs, i), _last(arcs, i)):
        total += flow.cap[a] + flow.cap[_sister(arcs, a, _head(arcs, i, a))]
    return 2 * total


@exact_part
def _collect(flow, changed):
    """Bring ``label`` up to date from the touched nodes; list and count those that changed."""
    count = 0
    for k in range(flow.clock[_TOUCHED]):
        i = flow.touched[k]
        flow.seen[i] = 0
        side = flow.tree[i] == _SOURCE
        if side != flow.label[i]:
            flow.label[i] = side
            changed[count] = i
            count += 1
    flow.clock[_TOUCHED] = 0
    return count


@exact_part
def _forget(flow):
    """Empty the list of touched nodes, whose labels are about to be as before."""
    for k in range(flow.clock[_TOUCHED]):
        flow.seen[flow.touched[k]] = 0
    flow.clock[_TOUCHED] = 0


@exact_part
def _differences(flow, base, n_changed, changed, n_now, now, differs):
    """Update the list ``now`` of nodes whose label is not that of ``base``; return its length."""
    kept = 0
    for k in range(n_now):
        i = now[k]
        differs[i] = flow.label[i] != base[i]
        if differs[i]:
            now[kept] = i
            kept += 1
    for k in range(n_changed):
        i = changed[k]
        if flow.label[i] != base[i] and not differs[i]:
            differs[i] = 1
            now[kept] = i
            kept += 1
    return kept


@exact_part
def _push_short(arcs, cap, excess):
    """Saturate the paths source - i - j - sink: on images most of the flow."""
    for i in range(len(excess)):
        left = excess[i]
        if left > 0:
            for a in range(_first(arcs, i), _last(arcs, i)):
                if cap[a] > 0:
                    j = _head(arcs, i, a)
                    if excess[j] < 0:
                        sent = min(min(left, -excess[j]), cap[a])
                        cap[a] = _less(cap[a], sent)
                        cap[_sister(arcs, a, j)] += sent
                        excess[j] = -_less(-excess[j], sent)
                        left = _less(left, sent)
                        if left == 0:
                            break
            excess[i] = left


@exact_part
def _less(value, sent):
    """``value - sent``, zero where only rounding is left."""
    rest = value - sent
    return rest if rest > sent * _ROUNDING else 0.0


@exact_part
def _plant(flow):
    """Start the trees: nodes with a terminal residual are roots and active."""
    _, excess, tree, parent, stamp, dist, queue, queued, _, _, _, _, clock = flow
    count = 0
    for i in range(len(excess)):
        root = excess[i] != 0
        tree[i], parent[i] = _FREE, _ORPHAN
        stamp[i], dist[i], queued[i] = 0, 1, root
        if root:
            tree[i] = _SOURCE if excess[i] > 0 else _SINK
            parent[i] = _TERMINAL
            queue[count] = i
            count += 1
    clock[_TIME], clock[_HEAD], clock[_COUNT] = 0, 0, count


@exact_part
def _resolve(arcs, nodes, count, flow):
    """Repair the trees after ``excess[nodes[:count]]`` has changed, then augment; return the flow that was added."""
    cap, excess, tree, parent, stamp, dist, queue, queued, orphans, _, seen, touched, clock = flow
    if clock[_TIME] > _FAR:  # stamps are int32
        for i in range(len(tree)):
            _touch(i, seen, touched, clock)
        _plant(flow)
        return _grow(arcs, flow)
    clock[_TIME] += 1
    n_orphans = 0
    for k in range(count):
        i = nodes[k]
        side = _SOURCE if excess[i] > 0 else _SINK
        if excess[i] == 0:
            if tree[i] != _FREE and parent[i] == _TERMINAL:
                parent[i] = _ORPHAN
                orphans[n_orphans] = i
                n_orphans += 1
            continue
        if tree[i] != side:
            _touch(i, seen, touched, clock)
            old, tree[i] = tree[i], side
            if old != _FREE:
                n_orphans, clock[_COUNT] = _desert(
                    arcs, i, old, n_orphans, clock[_HEAD], clock[_COUNT], cap, tree, parent, queue, queued, orphans
                )
            clock[_COUNT] = _activate(i, clock[_HEAD], clock[_COUNT], queue, queued)
        parent[i], stamp[i], dist[i] = _TERMINAL, clock[_TIME], 1
    if n_orphans > 0:
        clock[_COUNT] = _adopt(
            arcs, n_orphans, clock[_TIME], clock[_HEAD], clock[_COUNT], cap, tree, parent, stamp, dist, queue, queued,
            orphans, seen, touched, clock
        )  # fmt: skip
    return _grow(arcs, flow) if clock[_COUNT] > 0 else 0.0


@exact_part
def _touch(i, seen, touched, clock):
    if not seen[i]:
        seen[i] = 1
        touched[clock[_TOUCHED]] = i
        clock[_TOUCHED] += 1


@exact_part
def _activate(i, first, count, queue, queued):
    """Put a node at the end of the ring, unless it is there; return the new length."""
    if queued[i]:
        return count
    queued[i] = 1
    k = first + count
    queue[k if k < len(queue) else k - len(queue)] = i
    return count + 1


# One long function: a call that LLVM does not inline passes seven numbers an array (measured: half as fast when split).
@exact_part
def _grow(arcs, flow):
    """Grow both trees; where they meet, augment and let the orphans find parents. Return the flow sent."""
    cap, excess, tree, parent, stamp, dist, queue, queued, orphans, _, seen, touched, clock = flow
    time, first, count = clock[_TIME], clock[_HEAD], clock[_COUNT]
    total = 0.0
    i = -1
    while True:
        if i < 0 or tree[i] == _FREE:
            if count == 0:
                break
            i = np.int64(queue[first])  # type: ignore[assignment]
            queued[i] = 0
            count -= 1
            first = first + 1 if first + 1 < len(queue) else 0
            if tree[i] == _FREE:
                continue
        side, age, depth = tree[i], stamp[i], dist[i]
        meet = -1
        for a in range(_first(arcs, i), _last(arcs, i)):
            j = _head(arcs, i, a)
            b = _sister(arcs, a, j)
            if (cap[a] if side == _SOURCE else cap[b]) > 0:
                other = tree[j]
                if other == side:
                    if stamp[j] <= age and dist[j] > depth:  # a shorter way to the terminal
                        parent[j], stamp[j], dist[j] = b, age, depth + 1
                elif other == _FREE:
                    _touch(j, seen, touched, clock)
                    tree[j], parent[j], stamp[j], dist[j] = side, b, age, depth + 1
                    count = _activate(j, first, count, queue, queued)
                else:
                    meet = a
                    break
        if meet < 0:
            i = -1
            continue
        j = _head(arcs, i, meet)
        b = _sister(arcs, meet, j)
        if side == _SOURCE:
            sent, n_orphans = _augment(arcs, i, j, meet, b, cap, excess, parent, orphans)
        else:
            sent, n_orphans = _augment(arcs, j, i, b, meet, cap, excess, parent, orphans)
        total += sent
        time += 1
        count = _adopt(
            arcs, n_orphans, time, first, count, cap, tree, parent, stamp, dist, queue, queued,
            orphans, seen, touched, clock
        )  # fmt: skip
    clock[_TIME], clock[_HEAD], clock[_COUNT] = time, first, count
    return total


@exact_part
def _augment(arcs, s, t, middle, back, cap, excess, parent, orphans):
    """Send what the path root .. s - t .. root carries; return it and the number of orphans, nearest the root first."""
    sent = cap[middle]
    for side in range(2):
        i = s if side == 0 else t
        while parent[i] != _TERMINAL:
            a = np.int64(parent[i])
            j = _head(arcs, i, a)
            sent = min(sent, cap[_sister(arcs, a, j)] if side == 0 else cap[a])
            i = j
        sent = min(sent, abs(excess[i]))
    cap[middle] = _less(cap[middle], sent)
    cap[back] += sent
    count = 0
    for side in range(2):
        i = s if side == 0 else t
        while parent[i] != _TERMINAL:
            a = np.int64(parent[i])
            j = _head(arcs, i, a)
            b = _sister(arcs, a, j)
            if side == 0:
                a, b = b, a
            rest = _less(cap[a], sent)
            cap[a] = rest
            cap[b] += sent
            if rest == 0:
                parent[i] = _ORPHAN
                orphans[count] = i
                count += 1
            i = j
        rest = _less(abs(excess[i]), sent)
        excess[i] = rest if side == 0 else -rest
        if rest == 0:
            parent[i] = _ORPHAN
            orphans[count] = i
            count += 1
    for k in range(count // 2):
        last = count - 1 - k
        orphans[k], orphans[last] = orphans[last], orphans[k]
    return sent, count


@exact_part
def _adopt(
    arcs, n_orphans, time, first, count, cap, tree, parent, stamp, dist, queue, queued, orphans, seen, touched, clock
):
    """Find a new parent for every orphan, or set it free, which makes orphans of its children.

    Returns the number of active nodes.
    """
    k = 0
    while k < n_orphans:
        i = np.int64(orphans[k])
        k += 1
        if parent[i] != _ORPHAN:  # became a root meanwhile
            continue
        side = tree[i]
        best, nearest = -1, _FAR
        for a in range(_first(arcs, i), _last(arcs, i)):
            j = _head(arcs, i, a)
            if tree[j] == side and (cap[_sister(arcs, a, j)] if side == _SOURCE else cap[a]) > 0:
                depth = _depth(arcs, j, time, parent, stamp, dist)
                if depth < nearest:
                    best, nearest = a, depth
        if best >= 0:
            parent[i], stamp[i], dist[i] = best, time, nearest + 1
        else:
            _touch(i, seen, touched, clock)
            tree[i] = _FREE
            n_orphans, count = _desert(arcs, i, side, n_orphans, first, count, cap, tree, parent, queue, queued, orphans)
    return count


@exact_part
def _desert(arcs, i, side, n_orphans, first, count, cap, tree, parent, queue, queued, orphans):
    """Node ``i`` has left tree ``side``: its children are orphans, neighbours that could reach it are active.

    Returns the numbers of orphans and of active nodes.
    """
    for a in range(_first(arcs, i), _last(arcs, i)):
        j = _head(arcs, i, a)
        if tree[j] == side:
            b = _sister(arcs, a, j)
            if (cap[b] if side == _SOURCE else cap[a]) > 0:
                count = _activate(j, first, count, queue, queued)
            if parent[j] == b:
                parent[j] = _ORPHAN
                orphans[n_orphans] = j
                n_orphans += 1
    return n_orphans, count


@exact_part
def _depth(arcs, j, time, parent, stamp, dist):
    """Arcs between ``j`` and its terminal, remembered on the way; ``_FAR`` where the way ends at an orphan."""
    depth, i = 0, j
    while stamp[i] != time:
        a = np.int64(parent[i])
        if a == _ORPHAN:
            return _FAR
        if a == _TERMINAL:
            stamp[i], dist[i] = time, 1
            break
        depth += 1
        i = _head(arcs, i, a)
    depth += dist[i]
    left, i = depth, j
    while stamp[i] != time:
        stamp[i], dist[i] = time, left
        left -= 1
        i = _head(arcs, i, np.int64(parent[i]))
    return depth
