"""The plan of a junction tree in the probability domain: which products are formed and summed, block by block.

A *job* runs over the entries of a table that is never stored: the product of its operands, block by block in a short
buffer, is added into its outputs, each of which lacks some of the axes. A clique's job on the way up has one output, its
message m(x_S); on the way down the same product times p(x_S) / m(x_S) is added into the marginals of its children's
separators and of tables. Two more kinds save passes over cliques: small operands are first multiplied into a larger one
that has all their axes, and marginals of small tables are read off those of larger ones.

A *view* is a table as a job sees it: strides along the job's axes (0 where the table lacks one). The fastest axes make a
block; in it a view is constant or contiguous along runs of entries, else an index array says where its entries lie.
Axes of all tables are in reverse order of elimination.
"""

from __future__ import annotations

import numpy as np

from backfield.kernels.compile import exact_kernel

#: Most entries of a block, unless one axis is longer; and the shortest contiguous run that is worth a loop.
BLOCK, RUN = 2048, 4
#: A table joins, or is read off, a larger one only where that has at most this share (1 / SHARE) of the clique's entries.
SHARE = 4
#: Kinds of jobs: operands that join; a message; a clique on the way down; marginals read off others.
JOIN, MESSAGE, DOWN, READ = 0, 1, 2, 3
#: Columns of a job.
KIND, AXES, N_AXES, N_SLOW, N_BLOCKS, N_FAST, FIRST, OUT, END, M, M_SIZE, P = range(12)
#: Columns of a view, and its modes.
ADDRESS, SIZE, MODE, LENGTH, INDEX, N_INDEX, STRIDES, JOB_AXES, JOB_N_AXES, JOB_N_SLOW = range(10)
CONSTANT, CONTIGUOUS, GATHER = 0, 1, 2


@exact_kernel
def plan(labels, order, ends, flat, tab_ptr, tab_var, wanted, address, top):
    """Plan all jobs.

    Parameters
    ----------
    labels : (m,) label counts
    order, ends, flat : an elimination
    tab_ptr, tab_var : the variables of theta's tables; those without any have no part in this
    wanted : (T,) whose marginals are needed
    address : (T,) where the tables lie
    top : the first address that is free

    Returns
    -------
    up, down : jobs in their order
    views, strides, axes : what jobs refer to
    sorted_slots : slots of tables (places in ``tab_var``) in the order of the axes
    out : (T,) where marginals will lie, -1 if unwanted
    roots : addresses of p = 1
    top, buffer, length : size of the memory, of the buffer and of all index arrays
    """
    m, n_tables = len(labels), len(tab_ptr) - 1
    rank = np.empty(m, np.int64)
    for k in range(m):
        rank[order[k]] = k
    sorted_slots = np.arange(len(tab_var))
    for t in range(n_tables):
        _sort_by_rank(sorted_slots[tab_ptr[t] : tab_ptr[t + 1]], tab_var, rank)
    # A clique swallows its parent where that has no variable of its own.
    home, last = np.arange(m), np.full(m, -1, np.int64)
    for k in range(m):
        v = order[k]
        last[home[v]] = k
        first = ends[k - 1] if k > 0 else 0
        if ends[k] > first:
            u = _earliest(flat[first : ends[k]], rank)
            size = ends[rank[u]] - ends[rank[u] - 1]
            if home[u] == u and size == ends[k] - first - 1:
                home[u] = home[v]
    clique, n_cliques = np.full(m, -1, np.int64), 0
    for k in range(m):
        if last[home[order[k]]] == k:
            clique[home[order[k]]] = n_cliques
            n_cliques += 1
    name = np.empty(n_cliques, np.int64)
    for v in range(m):
        if clique[v] >= 0:
            name[clique[v]] = v
    parent = np.full(n_cliques, -1, np.int64)
    for j in range(n_cliques):
        k = last[name[j]]
        first = ends[k - 1] if k > 0 else 0
        if ends[k] > first:
            parent[j] = clique[home[_earliest(flat[first : ends[k]], rank)]]
    # Members of cliques: theta's tables, then the children's messages (numbers n_tables + j).
    at = np.empty(n_tables, np.int64)
    count = np.zeros(n_cliques + 1, np.int64)
    for t in range(n_tables):
        at[t] = -1
        if tab_ptr[t + 1] > tab_ptr[t]:
            at[t] = clique[home[tab_var[sorted_slots[tab_ptr[t + 1] - 1]]]]
            count[at[t] + 1] += 1
    for j in range(n_cliques):
        if parent[j] >= 0:
            count[parent[j] + 1] += 1
    member_ptr = np.cumsum(count)
    member, fill = np.empty(member_ptr[n_cliques], np.int64), member_ptr[:-1].copy()
    for t in range(n_tables):
        if at[t] >= 0:
            member[fill[at[t]]] = t
            fill[at[t]] += 1
    for j in range(n_cliques):
        if parent[j] >= 0:
            member[fill[parent[j]]] = n_tables + j
            fill[parent[j]] += 1
    own_need = np.zeros(n_cliques, np.bool_)
    for t in range(n_tables):
        if wanted[t] and at[t] >= 0:
            own_need[at[t]] = True
    for j in range(n_cliques):
        if own_need[j] and parent[j] >= 0:
            own_need[parent[j]] = True
    widest = 1
    for k in range(m):
        widest = max(widest, ends[k] - (ends[k - 1] if k > 0 else 0) + 1)
    largest = 0
    for j in range(n_cliques):
        largest = max(largest, member_ptr[j + 1] - member_ptr[j])
    bound = 8 * (len(member) + n_cliques) + 8
    views, n_views = np.zeros((bound, 10), np.int64), 0
    strides, n_strides = np.zeros(bound * (widest + 1) + 8, np.int64), 0
    up, n_up = np.zeros((len(member) + n_cliques + 1, 12), np.int64), 0
    down, n_down = np.zeros((len(member) + n_cliques + 1, 12), np.int64), 0
    axes, n_axes_pool = np.zeros((len(member) + n_cliques + 1) * 2 * (widest + 1), np.int64), 0
    message, message_size, message_p = (
        np.empty(n_cliques, np.int64),
        np.ones(n_cliques, np.int64),
        np.empty(n_cliques, np.int64),
    )
    out = np.full(n_tables, -1, np.int64)
    position, variables = np.full(m, -1, np.int64), np.empty(widest, np.int64)
    mask, size, where, inside = (
        np.empty(largest, np.int64), np.empty(largest, np.int64), np.empty(largest, np.int64), np.empty(largest, np.int64)
    )  # fmt: skip
    shown, shown_size, shown_at = (
        np.empty(2 * largest, np.int64), np.empty(2 * largest, np.int64), np.empty(2 * largest, np.int64)
    )  # fmt: skip
    need = np.empty(largest, np.bool_)
    local = np.empty(widest, np.int64)
    buffer, length = 1, 0
    for j in range(n_cliques):
        k = last[name[j]]
        first = ends[k - 1] if k > 0 else 0
        n_sep = ends[k] - first
        d = 0
        for e in range(first, ends[k]):
            variables[d] = flat[e]
            d += 1
        for e in range(rank[name[j]], k + 1):
            if home[order[e]] == name[j]:
                variables[d] = order[e]
                d += 1
        _sort_by_rank(variables[:d], np.arange(m), rank)
        total = 1
        for a in range(d):
            position[variables[a]] = a
            local[a] = labels[variables[a]]
            total *= local[a]
        for a in range(n_sep):
            message_size[j] *= local[a]
        message[j], message_p[j] = top, top + message_size[j]
        top += 2 * message_size[j] + 1  # m, p, and what m was divided by
        # Members by rising size, as sets of axes
        n_members = member_ptr[j + 1] - member_ptr[j]
        numbers = member[member_ptr[j] : member_ptr[j + 1]]
        for i in range(n_members):
            t = numbers[i]
            mask[i], size[i] = 0, 1
            if t < n_tables:
                for e in range(tab_ptr[t], tab_ptr[t + 1]):
                    mask[i] |= 1 << position[tab_var[e]]
                    size[i] *= labels[tab_var[e]]
                where[i] = address[t]
                need[i] = wanted[t]
            else:
                child = t - n_tables
                last_child = last[name[child]]
                for e in range(ends[last_child - 1] if last_child > 0 else 0, ends[last_child]):
                    mask[i] |= 1 << position[flat[e]]
                size[i], where[i], need[i] = message_size[child], message[child], own_need[child]
        by_size = np.argsort(size[:n_members], kind="mergesort")
        # Small members join the smallest other one that has all their axes.
        inside[:n_members] = -1
        for a in range(n_members):
            i = by_size[a]
            for b in range(a + 1, n_members):
                other = by_size[b]
                if mask[i] & ~mask[other] == 0 and size[other] * SHARE <= total:
                    inside[i] = other
                    break
        for b in range(n_members):
            i = by_size[b]
            joins = False
            for a in range(n_members):
                joins = joins or inside[a] == i
            if not joins:
                continue
            n_local, first_view = 0, n_views
            job_axes = n_axes_pool
            for a in range(d):
                if mask[i] >> a & 1:
                    axes[n_axes_pool] = local[a]
                    n_axes_pool += 1
                    n_local += 1
            n_slow, n_fast = _blocks(axes[job_axes : job_axes + n_local])
            buffer = max(buffer, n_fast)
            for turn in range(n_members + 1):  # the whole one first: it is read where it lies
                a = i if turn == 0 else turn - 1
                if turn == 0 or inside[a] == i:
                    n_strides, length = _view(
                        mask[a], mask[i], d, local, where[a], size[a], job_axes, n_local, n_slow, n_fast,
                        views[n_views], strides, n_strides, length,
                    )  # fmt: skip
                    n_views += 1
            where[i] = top
            top += size[i]
            n_strides, length = _view(
                mask[i], mask[i], d, local, where[i], size[i], job_axes, n_local, n_slow, n_fast, views[n_views], strides,
                n_strides, length,
            )  # fmt: skip
            n_views += 1
            _job(up[n_up], JOIN, job_axes, n_local, n_slow, size[i], n_fast, first_view, n_views - 1, n_views)
            n_up += 1
        # The clique itself
        job_axes, first_view = n_axes_pool, n_views
        axes[job_axes : job_axes + d] = local[:d]
        n_axes_pool += d
        whole = (1 << d) - 1
        n_slow, n_fast = _blocks(axes[job_axes : job_axes + d])
        buffer = max(buffer, n_fast)
        for b in range(n_members):
            i = by_size[n_members - 1 - b]
            if inside[i] < 0:
                n_strides, length = _view(
                    mask[i], whole, d, local, where[i], size[i], job_axes, d, n_slow, n_fast, views[n_views], strides,
                    n_strides, length,
                )  # fmt: skip
                n_views += 1
        n_strides, length = _view(
            (1 << n_sep) - 1, whole, d, local, message[j], message_size[j], job_axes, d, n_slow, n_fast, views[n_views],
            strides, n_strides, length,
        )  # fmt: skip
        n_views += 1
        _job(up[n_up], MESSAGE, job_axes, d, n_slow, total, n_fast, first_view, n_views - 1, n_views)
        up[n_up, M], up[n_up, M_SIZE], up[n_up, P] = message[j], message_size[j], message_p[j]
        n_up += 1
        if not own_need[j]:
            continue
        # The way down, written in reverse order: jobs that read come before (after the reversal: behind) the clique's.
        n_shown, n_read = 0, 0
        clique_out = n_views
        for b in range(n_members):
            i = by_size[n_members - 1 - b]
            if inside[i] >= 0:
                continue
            many = 0
            for a in range(n_members):
                if need[a] and _in_group(a, i, inside):
                    many += 1
            if many == 0 or (size[i] * SHARE > total and not need[i]) or (many == 1 and not need[i]):
                continue
            shown[n_shown], shown_size[n_shown] = mask[i], size[i]
            shown_at[n_shown], top = _marginal(numbers[i], need[i], n_tables, message_p, out, top, size[i])
            n_strides, length = _view(
                mask[i], whole, d, local, shown_at[n_shown], size[i], job_axes, d, n_slow, n_fast, views[n_views], strides,
                n_strides, length,
            )  # fmt: skip
            n_views += 1
            n_shown += 1
            if need[i]:
                need[i] = False
        for b in range(n_members):  # what no larger marginal has comes straight from the clique
            i = by_size[n_members - 1 - b]
            if not need[i] or _smallest(mask[i], size[i], shown, shown_size, n_shown, total) >= 0:
                continue
            shown[n_shown], shown_size[n_shown] = mask[i], size[i]
            shown_at[n_shown], top = _marginal(numbers[i], True, n_tables, message_p, out, top, size[i])
            n_strides, length = _view(
                mask[i], whole, d, local, shown_at[n_shown], size[i], job_axes, d, n_slow, n_fast, views[n_views], strides,
                n_strides, length,
            )  # fmt: skip
            n_views += 1
            n_shown += 1
            need[i] = False
        clique_end = n_views
        for b in range(n_members):
            i = by_size[n_members - 1 - b]
            if not need[i]:
                continue
            source = _smallest(mask[i], size[i], shown, shown_size, n_shown, total)
            place, top = _marginal(numbers[i], True, n_tables, message_p, out, top, size[i])
            n_local, read_axes, first_read = 0, n_axes_pool, n_views
            for a in range(d):
                if shown[source] >> a & 1:
                    axes[n_axes_pool] = local[a]
                    n_axes_pool += 1
                    n_local += 1
            read_slow, read_fast = _blocks(axes[read_axes : read_axes + n_local])
            buffer = max(buffer, read_fast)
            for side in range(2):
                n_strides, length = _view(
                    shown[source] if side == 0 else mask[i], shown[source], d, local,
                    shown_at[source] if side == 0 else place, shown_size[source] if side == 0 else size[i],
                    read_axes, n_local, read_slow, read_fast, views[n_views], strides, n_strides, length,
                )  # fmt: skip
                n_views += 1
            _job(
                down[n_down], READ, read_axes, n_local, read_slow, shown_size[source], read_fast, first_read, first_read + 1,
                n_views,
            )  # fmt: skip
            n_down += 1
            n_read += 1
        _job(down[n_down], DOWN, job_axes, d, n_slow, total, n_fast, first_view, clique_out, clique_end)
        down[n_down, M], down[n_down, M_SIZE], down[n_down, P] = message[j], message_size[j], message_p[j]
        n_down += 1
    n_roots = 0
    roots = np.empty(n_cliques, np.int64)
    for j in range(n_cliques):
        if parent[j] < 0:
            roots[n_roots] = message_p[j]
            n_roots += 1
    return (
        up[:n_up].copy(), down[:n_down][::-1].copy(), views[:n_views].copy(), strides[:n_strides].copy(),
        axes[:n_axes_pool].copy(), sorted_slots, out, roots[:n_roots].copy(), top, buffer, length,
    )  # fmt: skip


@exact_kernel
def _sort_by_rank(slots, variables, rank):
    """Sort places of variables, the one that is eliminated last first."""
    for a in range(1, len(slots)):
        slot = slots[a]
        b = a
        while b > 0 and rank[variables[slots[b - 1]]] < rank[variables[slot]]:
            slots[b] = slots[b - 1]
            b -= 1
        slots[b] = slot


@exact_kernel
def _earliest(around, rank):
    best = around[0]
    for u in around:
        if rank[u] < rank[best]:
            best = u
    return best


@exact_kernel
def _in_group(i, root, inside):
    while i >= 0:
        if i == root:
            return True
        i = inside[i]
    return False


@exact_kernel
def _smallest(mask, size, shown, shown_size, n_shown, total):
    """Return the smallest marginal from which one over ``mask`` can be read, -1 where there is none."""
    best = -1
    for s in range(n_shown):
        fits = mask & ~shown[s] == 0 and shown_size[s] >= size and shown_size[s] * SHARE <= total
        if fits and (best < 0 or shown_size[s] < shown_size[best]):
            best = s
    return best


@exact_kernel
def _marginal(number, needed, n_tables, message_p, out, top, size):
    """Return where the marginal of a member lies, and the next free address."""
    if needed and number >= n_tables:
        return message_p[number - n_tables], top
    if needed:
        out[number] = top
    return top, top + size


@exact_kernel
def _blocks(local):
    """Return the number of slow axes, and the entries of a block over the others."""
    first, size = len(local), 1
    while first > 0 and (size * local[first - 1] <= BLOCK or first == len(local)):
        first -= 1
        size *= local[first]
    return first, size


@exact_kernel
def _job(row, kind, axes, n_axes, n_slow, total, n_fast, first, out, end):
    row[KIND], row[AXES], row[N_AXES], row[N_SLOW], row[N_BLOCKS], row[N_FAST] = (
        kind,
        axes,
        n_axes,
        n_slow,
        total // n_fast,
        n_fast,
    )
    row[FIRST], row[OUT], row[END] = first, out, end


@exact_kernel
def _view(mask, job, d, local, address, size, job_axes, n_axes, n_slow, n_fast, row, strides, at, length):
    """Write a view of a table over ``mask`` in a job over ``job``; return the next places for strides and indices."""
    row[ADDRESS], row[SIZE], row[STRIDES] = address, size, at
    row[JOB_AXES], row[JOB_N_AXES], row[JOB_N_SLOW] = job_axes, n_axes, n_slow
    stride, k = 1, n_axes - 1
    run, mode, running = 1, CONSTANT, True
    for a in range(d - 1, -1, -1):
        if not job >> a & 1:
            continue
        present = mask >> a & 1
        strides[at + k] = stride if present else 0
        if k == n_axes - 1:
            mode = CONTIGUOUS if present else CONSTANT
        running = running and k >= n_slow and (present == 1) == (mode == CONTIGUOUS)
        if running:
            run *= local[a]
        if present:
            stride *= local[a]
        k -= 1
    if mode == CONTIGUOUS and run < RUN:
        mode, run = GATHER, 1
    row[MODE], row[LENGTH], row[INDEX], row[N_INDEX] = mode, run, length, n_fast // run
    return at + n_axes, length + n_fast // run


@exact_kernel
def fill_indices(views, strides, axes, length):
    """Return the index arrays of all views: places of runs (or entries) of a block."""
    index = np.empty(length, np.int64)
    counter = np.zeros(64, np.int64)
    for v in range(len(views)):
        row = views[v]
        n_axes, n_slow = row[JOB_N_AXES], row[JOB_N_SLOW]
        local, stride = axes[row[JOB_AXES] : row[JOB_AXES] + n_axes], strides[row[STRIDES] : row[STRIDES] + n_axes]
        end, run = n_axes, 1  # axes of the runs
        while run < row[LENGTH]:
            end -= 1
            run *= local[end]
        counter[:n_axes] = 0
        place = 0
        for e in range(row[N_INDEX]):
            index[row[INDEX] + e] = place
            a = end - 1
            while a >= n_slow:
                counter[a] += 1
                place += stride[a]
                if counter[a] < local[a]:
                    break
                place -= stride[a] * local[a]
                counter[a] = 0
                a -= 1
    return index
