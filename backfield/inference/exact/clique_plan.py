"""The plan of a junction tree in the probability domain: which products are formed and summed, block by block.

A *job* runs over the entries of a table that is never stored: the product of its operands, block by block in a short
buffer, is added into its outputs, each of which lacks some of the axes. A clique's job on the way up has one output, its
message m(x_S); on the way down the same product times p(x_S) / m(x_S) is added into the marginals of its children's
separators and of tables. Two more kinds save passes over cliques: small operands are first multiplied into a larger one
that has all their axes, and marginals of small tables are read off those of larger ones.

A *view* is a table as a job sees it: strides along the job's axes (0 where the table lacks one). The fastest axes make a
block; in it a view is constant or contiguous along runs of entries, else an index array says where its entries lie.
Axes of all tables are in reverse order of elimination.

Parts that are called at one place are written into it (``inlined``): a call that hands over many arrays costs more than
most of them do, to run and to compile.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from backfield.kernels.compile import exact_kernel, exact_part, inlined

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
#: Columns of a member of a clique. Where its variables start and stop; its axes as bits; its entries; where it lies (after a
#: join: the product); the member that it joins, or -1; whether others join it; whether its marginal is needed and not yet
#: planned; where that lies, or -1.
START, STOP, MASK, ENTRIES, PLACE, HOST, IS_HOST, NEED, MARGINAL = range(9)
#: What is counted: jobs up and down, views, strides and label counts; entries of the memory, the buffer and index arrays.
N_UP, N_DOWN, N_VIEWS, N_STRIDES, N_COUNTS, TOP, BUFFER, N_INDICES = range(8)


class Tree(NamedTuple):
    """The cliques, in the order of their last variables; each is the table of its first one."""

    order: np.ndarray  # (m,) variables as they are summed out
    depth: np.ndarray  # (m,) minus the place of each in that order: axes are sorted by it
    sep_ptr: np.ndarray  # (m + 1,) what the k-th one's table leaves behind is separators[sep_ptr[k] : sep_ptr[k + 1]]
    separators: np.ndarray
    clique: np.ndarray  # (m,) where the k-th one is summed out
    first: np.ndarray  # (n,) place of the first variable that a clique sums out
    last: np.ndarray  # (n,) and of the last, which leaves the clique's separator behind
    parent: np.ndarray  # (n,) -1 for a root


class Clique(NamedTuple):
    """One clique while its jobs are planned."""

    labels: np.ndarray  # (d,) label counts along its axes
    members: np.ndarray  # their numbers
    by_size: np.ndarray  # the same, the smallest first
    whole: int  # all axes as bits
    small: int  # most entries of a table that others may join or be read off


class Jobs(NamedTuple):
    """Pools of jobs and of what they refer to, and how much of them is used."""

    rows: np.ndarray  # jobs on the way up from the first row on, on the way down from the last row back
    views: np.ndarray
    strides: np.ndarray
    labels: np.ndarray  # label counts along the jobs' axes
    used: np.ndarray  # counters, by the columns above


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
    n_tables = len(address)
    tree = _tree(order, ends, flat)
    sorted_slots = _sorted_slots(tab_ptr, tab_var, tree.depth)
    members, ptr, numbers = _members(tree, tab_ptr, tab_var, sorted_slots, wanted, address)
    jobs = _no_jobs(tree.sep_ptr, len(members), top)
    axis, sizes = np.empty(len(labels), np.int64), np.empty(len(members), np.int64)
    for j in range(len(tree.parent)):
        message = n_tables + j
        local = _axes(tree, j, labels, axis)
        for i in numbers[ptr[j] : ptr[j + 1]]:
            _set_mask(members[i], tab_var if i < n_tables else flat, axis, local)
        clique = _clique(numbers[ptr[j] : ptr[j + 1]], local, members, sizes)
        _place_message(members[message], local, jobs.used)
        _plan_joins(clique, members, jobs)
        _plan_message(message, clique, members, jobs)
        if members[message, NEED]:
            _plan_down(clique, members, jobs)
    out, roots = _results(tree.parent, wanted, members)
    up, down, views, strides, axes = _used(jobs)
    used = jobs.used
    return up, down, views, strides, axes, sorted_slots, out, roots, used[TOP], used[BUFFER], used[N_INDICES]


@inlined
def _tree(order, ends, flat):
    """Return the tree of cliques."""
    m = len(order)
    depth, sep_ptr, above = np.empty(m, np.int64), np.empty(m + 1, np.int64), np.empty(m, np.int64)
    sep_ptr[0] = 0
    for k in range(m):
        depth[order[k]], sep_ptr[k + 1] = -k, ends[k]
    for k in range(m):  # the place of the next variable of its table, -1 if there is none
        above[k] = -1
        for e in range(sep_ptr[k], sep_ptr[k + 1]):
            if above[k] < 0 or -depth[flat[e]] < above[k]:
                above[k] = -depth[flat[e]]
    clique, first, last = _merge(above, sep_ptr)
    parent = np.empty(len(last), np.int64)
    for j in range(len(last)):
        parent[j] = clique[above[last[j]]] if above[last[j]] >= 0 else -1
    return Tree(order, depth, sep_ptr, flat, clique, first, last, parent)


@inlined
def _merge(above, sep_ptr):
    """Return the clique of each place in the order, and the first and last places of each clique.

    Each variable's table is a clique, which swallows its parent where that has no variable of its own.
    """
    m = len(above)
    home, end = np.empty(m, np.int64), np.empty(m, np.int64)
    for k in range(m):
        home[k] = k
    for k in range(m):
        end[home[k]], a = k, above[k]
        if a >= 0 and home[a] == a and sep_ptr[a + 1] - sep_ptr[a] == sep_ptr[k + 1] - sep_ptr[k] - 1:
            home[a] = home[k]
    clique, first, last, n = np.empty(m, np.int64), np.empty(m, np.int64), np.empty(m, np.int64), 0
    for k in range(m):
        if end[home[k]] == k:
            clique[home[k]], first[n], last[n] = n, home[k], k
            n += 1
    for k in range(m):
        clique[k] = clique[home[k]]
    return clique, first[:n], last[:n]


@exact_part
def _sort(items, key):
    """Sort by rising key; equal ones stay in their order."""
    for a in range(1, len(items)):
        item, b = items[a], a
        while b > 0 and key[items[b - 1]] > key[item]:
            items[b] = items[b - 1]
            b -= 1
        items[b] = item


@inlined
def _sorted_slots(tab_ptr, tab_var, depth):
    """Return the slots of all tables in the order of the axes."""
    slots, key = np.empty(len(tab_var), np.int64), np.empty(len(tab_var), np.int64)
    for s in range(len(tab_var)):
        slots[s], key[s] = s, depth[tab_var[s]]
    for t in range(len(tab_ptr) - 1):
        _sort(slots[tab_ptr[t] : tab_ptr[t + 1]], key)
    return slots


@inlined
def _members(tree, tab_ptr, tab_var, sorted_slots, wanted, address):
    """Return the members of all cliques (theta's tables, then each clique's message) and the numbers of each clique's."""
    n_tables, n = len(address), len(address) + len(tree.parent)
    members, clique = np.zeros((n, 9), np.int64), np.empty(n, np.int64)
    for i in range(n):
        clique[i], members[i, HOST], members[i, MARGINAL] = -1, -1, -1
        if i >= n_tables:
            k = tree.last[i - n_tables]
            clique[i] = tree.parent[i - n_tables]
            members[i, START], members[i, STOP] = tree.sep_ptr[k], tree.sep_ptr[k + 1]
        else:
            members[i, START], members[i, STOP] = tab_ptr[i], tab_ptr[i + 1]
            members[i, PLACE], members[i, NEED] = address[i], wanted[i]
            if tab_ptr[i + 1] > tab_ptr[i]:  # where its first variable is summed out
                clique[i] = tree.clique[-tree.depth[tab_var[sorted_slots[tab_ptr[i + 1] - 1]]]]
        if members[i, NEED] and clique[i] >= 0:  # a clique's marginals need that of its separator
            members[n_tables + clique[i], NEED] = 1
    ptr, numbers = _rows(clique, len(tree.parent))
    return members, ptr, numbers


@inlined
def _rows(clique, n_cliques):
    """Return the members of cliques in compressed rows."""
    ptr = np.zeros(n_cliques + 2, np.int64)  # one place ahead until the rows are filled
    for i in range(len(clique)):
        if clique[i] >= 0:
            ptr[clique[i] + 2] += 1
    for j in range(n_cliques):
        ptr[j + 2] += ptr[j + 1]
    numbers = np.empty(ptr[n_cliques + 1], np.int64)
    for i in range(len(clique)):
        if clique[i] >= 0:
            numbers[ptr[clique[i] + 1]] = i
            ptr[clique[i] + 1] += 1
    return ptr, numbers


@inlined
def _no_jobs(sep_ptr, n_members, top):
    """Return pools with room for all jobs: at most four of them and eight views for each table or message."""
    widest = 0
    for k in range(len(sep_ptr) - 1):
        widest = max(widest, sep_ptr[k + 1] - sep_ptr[k] + 1)
    rows, views = np.empty((4 * n_members, 12), np.int64), np.empty((8 * n_members, 10), np.int64)
    strides, labels = np.empty(8 * n_members * widest, np.int64), np.empty(4 * n_members * widest, np.int64)
    used = np.zeros(8, np.int64)
    used[TOP], used[BUFFER] = top, 1
    return Jobs(rows, views, strides, labels, used)


@inlined
def _axes(tree, j, labels, axis):
    """Return the label counts along a clique's axes, and write which axis each of its variables is."""
    k = tree.first[j]
    first, d = tree.sep_ptr[k], tree.sep_ptr[k + 1] - tree.sep_ptr[k] + 1
    variables, local = np.empty(d, np.int64), np.empty(d, np.int64)
    for a in range(d - 1):
        variables[a] = tree.separators[first + a]
    variables[d - 1] = tree.order[k]
    _sort(variables, tree.depth)
    for a in range(d):
        axis[variables[a]], local[a] = a, labels[variables[a]]
    return local


@inlined
def _set_mask(member, variables, axis, local):
    """Write the axes of a member as a set, and its entries."""
    member[MASK] = 0
    for e in range(member[START], member[STOP]):
        member[MASK] |= 1 << axis[variables[e]]
    member[ENTRIES] = _entries(member[MASK], local)


@exact_part
def _entries(mask, local):
    """Return the entries of a table over some axes."""
    size = 1
    for a in range(len(local)):
        if mask >> a & 1:
            size *= local[a]
    return size


@inlined
def _clique(numbers, local, members, sizes):
    """Return a clique; ``sizes`` is room for the entries of its members."""
    whole, by_size = (1 << len(local)) - 1, numbers.copy()
    for i in numbers:
        sizes[i] = members[i, ENTRIES]
    _sort(by_size, sizes)
    return Clique(local, numbers, by_size, whole, _entries(whole, local) // SHARE)


@exact_part
def _take(size, used):
    """Return the address of so much memory that nothing else uses."""
    used[TOP] += size
    return used[TOP] - size


@inlined
def _place_message(member, local, used):
    """Give places to a clique's message, the marginal of its separator, and what the message is divided by."""
    member[MASK] = (1 << member[STOP] - member[START]) - 1
    member[ENTRIES] = _entries(member[MASK], local)
    member[PLACE] = _take(2 * member[ENTRIES] + 1, used)
    member[MARGINAL] = member[PLACE] + member[ENTRIES]


@inlined
def _plan_joins(clique, members, jobs):
    """Let small members join the smallest other one that has all their axes."""
    by_size = clique.by_size
    for a in range(len(by_size)):
        for b in range(a + 1, len(by_size)):
            i, other = by_size[a], by_size[b]
            if members[i, MASK] & ~members[other, MASK] == 0 and members[other, ENTRIES] <= clique.small:
                members[i, HOST], members[other, IS_HOST] = other, 1
                break
    for i in by_size:
        if members[i, IS_HOST]:
            _plan_join(i, clique, members, jobs)


@inlined
def _plan_join(host, clique, members, jobs):
    """Plan the product of a member and those that join it."""
    job, mask = jobs.used[N_UP], members[host, MASK]
    jobs.rows[job, KIND] = JOIN
    _start_job(job, mask, clique.labels, jobs)
    _add_view(job, mask, mask, members[host, PLACE], clique.labels, jobs)  # the first one is read where it lies
    for i in clique.members:
        if members[i, HOST] == host:
            _add_view(job, mask, members[i, MASK], members[i, PLACE], clique.labels, jobs)
    members[host, PLACE] = _take(members[host, ENTRIES], jobs.used)
    jobs.rows[job, OUT] = jobs.used[N_VIEWS]
    _add_view(job, mask, mask, members[host, PLACE], clique.labels, jobs)
    jobs.rows[job, END] = jobs.used[N_VIEWS]
    jobs.used[N_UP] += 1


@inlined
def _plan_message(message, clique, members, jobs):
    """Plan a clique's message: the product of the members that joined no other, summed."""
    job, by_size = jobs.used[N_UP], clique.by_size
    row = jobs.rows[job]
    row[KIND] = MESSAGE
    _start_job(job, clique.whole, clique.labels, jobs)
    for b in range(len(by_size) - 1, -1, -1):
        i = by_size[b]
        if members[i, HOST] < 0:
            _add_view(job, clique.whole, members[i, MASK], members[i, PLACE], clique.labels, jobs)
    row[OUT] = jobs.used[N_VIEWS]
    _add_view(job, clique.whole, members[message, MASK], members[message, PLACE], clique.labels, jobs)
    row[END] = jobs.used[N_VIEWS]
    row[M], row[M_SIZE], row[P] = members[message, PLACE], members[message, ENTRIES], members[message, MARGINAL]
    jobs.used[N_UP] += 1


@inlined
def _plan_down(clique, members, jobs):
    """Plan a clique's way down: the product of its message once more, and marginals that are read off its outputs."""
    by_size, message, out = clique.by_size, jobs.used[N_UP] - 1, jobs.used[N_VIEWS]
    shown = _show(message, clique, members, jobs)
    end = jobs.used[N_VIEWS]
    for b in range(len(by_size) - 1, -1, -1):
        if members[by_size[b], NEED]:
            _plan_reading(by_size[b], _source(by_size[b], shown, clique.small, members), clique.labels, members, jobs)
    jobs.used[N_DOWN] += 1
    job = jobs.rows[len(jobs.rows) - jobs.used[N_DOWN]]
    for column in range(len(job)):
        job[column] = jobs.rows[message, column]
    job[KIND], job[OUT], job[END] = DOWN, out, end


@inlined
def _show(job, clique, members, jobs):
    """Write the outputs of a clique on the way down; return the members whose marginals they are."""
    by_size = clique.by_size
    shown, n = np.empty(len(by_size), np.int64), 0
    for turn in range(2):
        for b in range(len(by_size) - 1, -1, -1):
            i = by_size[b]
            if turn == 0:
                shows = members[i, HOST] < 0 and _is_worth_showing(i, by_size, clique.small, members)
            else:  # what no larger marginal has
                shows = members[i, NEED] and _source(i, shown[:n], clique.small, members) < 0
            if shows:
                _place_marginal(i, members, jobs.used)
                _add_view(job, clique.whole, members[i, MASK], members[i, MARGINAL], clique.labels, jobs)
                shown[n] = i
                n += 1
    return shown[:n]


@inlined
def _is_worth_showing(i, numbers, small, members):
    """Return whether a member's marginal is needed, or at least two that can be read off it."""
    if members[i, NEED] or members[i, ENTRIES] > small:
        return members[i, NEED] == 1
    readers = 0
    for reader in numbers:
        if members[reader, NEED]:
            host = reader
            while host >= 0 and host != i:
                host = members[host, HOST]
            readers += host == i
    return readers > 1


@exact_part
def _source(i, shown, small, members):
    """Return the member with the smallest of the shown marginals from which one can be read, -1 where there is none."""
    best = -1
    for s in shown:
        size = members[s, ENTRIES]
        fits = members[i, MASK] & ~members[s, MASK] == 0 and members[i, ENTRIES] <= size <= small
        if fits and (best < 0 or size < members[best, ENTRIES]):
            best = s
    return best


@exact_part
def _place_marginal(i, members, used):
    """Give the marginal of a member a place; where a message's is needed, it has one."""
    if not members[i, NEED] or members[i, MARGINAL] < 0:
        members[i, MARGINAL] = _take(members[i, ENTRIES], used)
    members[i, NEED] = 0


@inlined
def _plan_reading(i, source, local, members, jobs):
    """Plan the marginal of a member as a sum of another's."""
    jobs.used[N_DOWN] += 1
    job, mask = len(jobs.rows) - jobs.used[N_DOWN], members[source, MASK]
    jobs.rows[job, KIND] = READ
    _place_marginal(i, members, jobs.used)
    _start_job(job, mask, local, jobs)
    _add_view(job, mask, mask, members[source, MARGINAL], local, jobs)
    jobs.rows[job, OUT] = jobs.used[N_VIEWS]
    _add_view(job, mask, members[i, MASK], members[i, MARGINAL], local, jobs)
    jobs.rows[job, END] = jobs.used[N_VIEWS]


@exact_part
def _start_job(job, mask, local, jobs):
    """Write the axes of a job, their blocks, and where its views begin."""
    row, used = jobs.rows[job], jobs.used
    first, n_axes = used[N_COUNTS], 0
    for a in range(len(local)):
        if mask >> a & 1:
            jobs.labels[first + n_axes] = local[a]
            n_axes += 1
    n_slow, n_fast = n_axes, 1
    while n_slow > 0 and (n_fast * jobs.labels[first + n_slow - 1] <= BLOCK or n_slow == n_axes):
        n_slow -= 1
        n_fast *= jobs.labels[first + n_slow]
    row[AXES], row[N_AXES], row[N_SLOW], row[N_FAST], row[FIRST] = first, n_axes, n_slow, n_fast, used[N_VIEWS]
    row[N_BLOCKS], row[M], row[M_SIZE], row[P] = _entries(mask, local) // n_fast, 0, 0, 0
    used[N_COUNTS] += n_axes
    used[BUFFER] = max(used[BUFFER], n_fast)


@exact_part
def _add_view(job, job_mask, mask, address, local, jobs):
    """Add a view of the table over ``mask`` that lies at ``address`` to a job over ``job_mask``."""
    row, view, used = jobs.rows[job], jobs.views[jobs.used[N_VIEWS]], jobs.used
    n_axes, n_slow, n_fast, first = row[N_AXES], row[N_SLOW], row[N_FAST], used[N_STRIDES]
    stride, k = 1, n_axes - 1
    run, mode, running = 1, CONSTANT, True
    for a in range(len(local) - 1, -1, -1):
        if not job_mask >> a & 1:
            continue
        present = mask >> a & 1
        jobs.strides[first + k] = stride if present else 0
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
    view[ADDRESS], view[SIZE], view[STRIDES] = address, stride, first
    view[MODE], view[LENGTH], view[INDEX], view[N_INDEX] = mode, run, used[N_INDICES], n_fast // run
    view[JOB_AXES], view[JOB_N_AXES], view[JOB_N_SLOW] = row[AXES], n_axes, n_slow
    used[N_VIEWS] += 1
    used[N_STRIDES] += n_axes
    used[N_INDICES] += n_fast // run


@inlined
def _results(parent, wanted, members):
    """Return where the marginals of wanted tables lie, and those of the roots' separators."""
    n_tables, n_roots = len(wanted), 0
    out, roots = np.empty(n_tables, np.int64), np.empty(len(parent), np.int64)
    for t in range(n_tables):
        out[t] = members[t, MARGINAL] if wanted[t] else -1
    for j in range(len(parent)):
        if parent[j] < 0:
            roots[n_roots] = members[n_tables + j, MARGINAL]
            n_roots += 1
    return out, roots[:n_roots].copy()


@inlined
def _used(jobs):
    """Return the used parts of all pools: jobs up, jobs down, views, strides and axes."""
    rows, used = jobs.rows, jobs.used
    up, down = rows[: used[N_UP]].copy(), rows[len(rows) - used[N_DOWN] :].copy()
    views, strides = jobs.views[: used[N_VIEWS]].copy(), jobs.strides[: used[N_STRIDES]].copy()
    return up, down, views, strides, jobs.labels[: used[N_COUNTS]].copy()


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
