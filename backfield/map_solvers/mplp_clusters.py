r"""Clusters that tighten the bound of ``mplp``: short cycles, cut into triangles [SMGJW08].

A cluster C is a set of factors whose joint table is small. It adds messages to the tables of its members and a term to
the bound,

    T_c = theta_c + sum_{C: c in C} lambda_Cc,      bound = ... + sum_C max_{x_C} ( - sum_{c in C} lambda_Cc(x_c) )

and one step minimises over all messages of a cluster of k members at once:

    lambda_Cc(x_c) = - r_c(x_c) + 1/k max_{x_C with x_c} sum_{d in C} r_d(x_d)
    r_c = T_c - lambda_Cc - sum_{i in c} lambda_ci

which never raises the bound. A cycle of variables is cut into triangles from its first variable; a pair of variables that
has no factor gets one of zeros. Where larger factors meet in a pair, a cluster of the factor and the pair joins them.

Cost O(members) per entry of a joint table and sweep; memory O(tables of the members), joint tables are never stored.

[SMGJW08] Sontag, Meltzer, Globerson, Jaakkola and Weiss, Tightening LP relaxations for MAP using message passing, UAI 2008.
"""

from __future__ import annotations

from itertools import combinations, pairwise

import numpy as np

from backfield.graph import Graph
from backfield.kernels.compile import exact_kernel, exact_part

#: Longest cycle that is looked for, most entries of a joint table, and of all of them.
LONGEST, LARGEST, MOST = 8, 2**20, 2**26


class Clusters:
    """The clusters of a graph's short cycles.

    Parameters
    ----------
    model : Graph

    Attributes
    ----------
    graph : Graph
        The model's factors, then one of zeros for each new pair.
    """

    def __init__(self, model: Graph) -> None:
        scopes = [tuple(scope) for scope in np.split(model.layout.scope, model.layout.scope_ptr[1:-1].tolist())]
        self._labels = model.labels.tolist()
        self._pair: dict[tuple[int, int], int] = {}
        for c, scope in enumerate(scopes):
            if len(scope) == 2:
                self._pair.setdefault((min(scope), max(scope)), c)
        self._scopes = [tuple(int(i) for i in scope) for scope in scopes]
        self._members: list[tuple[int, ...]] = []
        self._axes: list[tuple[int, ...]] = []
        self.entries = 0
        self._triangles(model)
        self._joints(len(scopes))
        ptr = np.cumsum([0] + [len(scope) for scope in self._scopes])
        self.graph = Graph._from_arrays(model.labels, ptr, np.array([i for s in self._scopes for i in s], dtype=np.int64))
        self._compile()

    def __len__(self) -> int:
        return len(self._members)

    def _triangles(self, model: Graph) -> None:
        seen: set[tuple[int, ...]] = set()
        for cycle in sorted(_cycles(model), key=len):
            first, *rest = cycle
            for a, b in pairwise(rest):
                axes = tuple(sorted((first, a, b)))
                if axes not in seen and self._fits(axes):
                    seen.add(axes)
                    self._add(axes, tuple(self._number(pair) for pair in combinations(axes, 2)))

    def _joints(self, n_factors: int) -> None:
        """Join factors that share a pair of variables with the factor of that pair."""
        count: dict[tuple[int, int], list[int]] = {}
        for c in range(n_factors):
            for pair in combinations(sorted(self._scopes[c]), 2):
                count.setdefault(pair, []).append(c)
        for pair, inside in count.items():
            if len(inside) > 1 or pair in self._pair:
                own = self._number(pair)
                for c in inside:
                    if c != own and self._fits(self._scopes[c]):
                        self._add(tuple(sorted(self._scopes[c])), (c, own))

    def _fits(self, axes: tuple[int, ...]) -> bool:
        size = int(np.prod([self._labels[i] for i in axes], dtype=np.float64))
        return size <= LARGEST and self.entries + size <= MOST

    def _number(self, pair: tuple[int, int]) -> int:
        if pair not in self._pair:
            self._pair[pair] = len(self._scopes)
            self._scopes.append(pair)
        return self._pair[pair]

    def _add(self, axes: tuple[int, ...], members: tuple[int, ...]) -> None:
        self._axes.append(axes)
        self._members.append(members)
        self.entries += int(np.prod([self._labels[i] for i in axes]))

    def _compile(self) -> None:
        """Write members, label counts and strides as flat arrays: a stride of each member along each axis of its cluster."""
        layout = self.graph.layout
        own = layout.stride.tolist()
        start = layout.scope_ptr.tolist()
        stride = {(c, i): own[start[c] + k] for c, scope in enumerate(self._scopes) for k, i in enumerate(scope)}
        rows = [stride.get((c, i), 0) for axes, inside in self._clusters() for c in inside for i in axes]
        size = np.diff(layout.table_ptr)
        member = np.array([c for inside in self._members for c in inside], dtype=np.int64)
        self.arrays = (
            np.cumsum([0] + [len(inside) for inside in self._members]),
            member,
            np.cumsum([0] + [len(axes) for axes in self._axes]),
            np.array([self._labels[i] for axes in self._axes for i in axes], dtype=np.int64),
            np.cumsum([0] + [len(axes) * len(inside) for axes, inside in self._clusters()]),
            np.array(rows, dtype=np.int64),
            np.concatenate([[0], np.cumsum(size[member])]).astype(np.int64),
        )
        self.messages = np.zeros(int(self.arrays[-1][-1]))

    def _clusters(self) -> zip[tuple[tuple[int, ...], tuple[int, ...]]]:
        return zip(self._axes, self._members, strict=True)


def _cycles(graph: Graph) -> list[list[int]]:
    """Return for each pair of neighbours a shortest cycle through both that leaves their factors, if it is short."""
    layout = graph.layout
    pairs = sorted({pair for scope in graph.factors for pair in combinations(sorted(int(i) for i in scope), 2)})
    out: dict[tuple[int, ...], list[int]] = {}
    path = np.empty(LONGEST, dtype=np.int64)
    distance, before = np.full((2, graph.n_variables), -1, dtype=np.int64)
    queue = np.empty(graph.n_variables, dtype=np.int64)
    for a, b in pairs:
        length = _shortest(layout, a, b, distance, before, queue, path)
        if length:
            cycle = path[:length].tolist()
            out.setdefault(tuple(sorted(cycle)), cycle[cycle.index(min(cycle)) :] + cycle[: cycle.index(min(cycle))])
    return list(out.values())


@exact_kernel
def _shortest(layout, a, b, distance, before, queue, path):
    """Write a shortest path from a to b through factors that do not hold both; 0: none of at most LONGEST variables."""
    head, tail = 0, 1
    queue[0], distance[a], before[a] = a, 0, -1
    found = False
    while head < tail and not found:
        u = queue[head]
        head += 1
        if distance[u] + 2 > len(path):
            break
        for j in range(layout.inc_ptr[u], layout.inc_ptr[u + 1]):
            c = layout.slot_factor[layout.inc[j]]
            has_a, has_b = False, False
            for s in range(layout.scope_ptr[c], layout.scope_ptr[c + 1]):
                has_a = has_a or layout.scope[s] == a
                has_b = has_b or layout.scope[s] == b
            if has_a and has_b:
                continue
            for s in range(layout.scope_ptr[c], layout.scope_ptr[c + 1]):
                v = layout.scope[s]
                if distance[v] < 0:
                    queue[tail], distance[v], before[v] = v, distance[u] + 1, u
                    tail += 1
                    found = found or v == b
    length = 0
    if found:
        v = b
        while v >= 0:
            path[length] = v
            length += 1
            v = before[v]
    for k in range(tail):
        distance[queue[k]] = -1
    return length


@exact_part
def _residual(scope_ptr, stride, table_ptr, msg_ptr, messages, tables, c, lambdas, r):
    """Write r_c = T_c - lambda_Cc - sum_i lambda_ci."""
    s, table = scope_ptr[c], table_ptr[c]
    if scope_ptr[c + 1] - s == 2:  # written out: divisions would take most of the time of a pair
        for x in range(msg_ptr[s + 1] - msg_ptr[s]):
            for y in range(msg_ptr[s + 2] - msg_ptr[s + 1]):
                e = x * stride[s] + y * stride[s + 1]
                r[e] = tables[table + e] - lambdas[e] - messages[msg_ptr[s] + x] - messages[msg_ptr[s + 1] + y]
        return
    for e in range(table_ptr[c + 1] - table):
        r[e] = tables[table + e] - lambdas[e]
        for k in range(s, scope_ptr[c + 1]):
            r[e] -= messages[msg_ptr[k] + (e // stride[k]) % (msg_ptr[k + 1] - msg_ptr[k])]


@exact_part
def _triangle(labels, rows, at, r, best):
    """Write the maxima of the pairs (a, b), (a, c), (b, c) of three variables, in the order in which clusters list them."""
    ab, ac, bc = at[0], at[1], at[2]
    for x in range(labels[0]):
        for y in range(labels[1]):
            pair, step, other = r[ab + x * rows[0] + y * rows[1]], rows[5], rows[8]
            mine, theirs, top = ac + x * rows[3], bc + y * rows[7], -np.inf
            for z in range(labels[2]):
                total = pair + r[mine + z * step] + r[theirs + z * other]
                top = total if total > top else top
                if total > best[mine + z * step]:
                    best[mine + z * step] = total
                if total > best[theirs + z * other]:
                    best[theirs + z * other] = total
            best[ab + x * rows[0] + y * rows[1]] = top


@exact_part
def _joint(n_axes, count, labels, rows, x, at, r, best):
    """Write the maxima of the members of any cluster; ``at`` is where each begins, and is moved along."""
    last = labels[n_axes - 1]
    x[:n_axes] = 0
    axis = 0
    while axis >= 0:
        for y in range(last):
            total = 0.0
            for m in range(count):
                total += r[at[m] + y * rows[(m + 1) * n_axes - 1]]
            for m in range(count):
                e = at[m] + y * rows[(m + 1) * n_axes - 1]
                best[e] = total if total > best[e] else best[e]
        axis = n_axes - 2  # the next labels of all axes but the last
        while axis >= 0:
            x[axis] += 1
            step = 1
            if x[axis] == labels[axis]:
                x[axis] = 0
                step = 1 - labels[axis]
            for m in range(count):
                at[m] += step * rows[m * n_axes + axis]
            if step == 1:
                break
            axis -= 1


@exact_kernel
def cluster_sweep(
    scope_ptr, stride, table_ptr, msg_ptr, messages, backward,
    ptr, member, axis_ptr, labels, row_ptr, rows, own_ptr, lambdas, tables,
):  # fmt: skip
    """Minimise the bound over the messages of one cluster after the other; ``tables`` are T."""
    n = len(ptr) - 1
    largest = 0
    for k in range(n):
        largest = max(largest, own_ptr[ptr[k + 1]] - own_ptr[ptr[k]])
    r, best = np.empty(largest), np.empty(largest)
    x = np.empty(64, dtype=np.int64)
    at = np.empty(64, dtype=np.int64)
    for turn in range(n):
        k = n - 1 - turn if backward else turn
        first, count, base = ptr[k], ptr[k + 1] - ptr[k], own_ptr[ptr[k]]
        for m in range(count):
            c = member[first + m]
            start = own_ptr[first + m]
            _residual(scope_ptr, stride, table_ptr, msg_ptr, messages, tables, c, lambdas[start:], r[start - base :])
            best[start - base : start - base + table_ptr[c + 1] - table_ptr[c]] = -np.inf
            at[m] = start - base
        n_axes = axis_ptr[k + 1] - axis_ptr[k]
        if n_axes == 3 and count == 3:
            _triangle(labels[axis_ptr[k] :], rows[row_ptr[k] :], at, r, best)
        else:
            _joint(n_axes, count, labels[axis_ptr[k] :], rows[row_ptr[k] :], x, at, r, best)
        share = 1.0 / count
        for m in range(count):
            c = member[first + m]
            start = own_ptr[first + m]
            for e in range(table_ptr[c + 1] - table_ptr[c]):
                new = share * best[start - base + e] - r[start - base + e]
                tables[table_ptr[c] + e] += new - lambdas[start + e]
                lambdas[start + e] = new


@exact_kernel
def cluster_bound(ptr, member, axis_ptr, labels, row_ptr, rows, own_ptr, lambdas):
    """Return the sum over clusters of the maximum of - sum of their messages."""
    bound = 0.0
    x = np.empty(64, dtype=np.int64)
    at = np.empty(64, dtype=np.int64)
    for k in range(len(ptr) - 1):
        count, n_axes = ptr[k + 1] - ptr[k], axis_ptr[k + 1] - axis_ptr[k]
        last = labels[axis_ptr[k + 1] - 1]
        for m in range(count):
            at[m] = own_ptr[ptr[k] + m]
        x[:n_axes] = 0
        top, axis = -np.inf, 0
        while axis >= 0:
            for y in range(last):
                total = 0.0
                for m in range(count):
                    total -= lambdas[at[m] + y * rows[row_ptr[k] + (m + 1) * n_axes - 1]]
                top = total if total > top else top
            axis = n_axes - 2
            while axis >= 0:
                x[axis] += 1
                step = 1
                if x[axis] == labels[axis_ptr[k] + axis]:
                    x[axis] = 0
                    step = 1 - labels[axis_ptr[k] + axis]
                for m in range(count):
                    at[m] += step * rows[row_ptr[k] + m * n_axes + axis]
                if step == 1:
                    break
                axis -= 1
        bound += top
    return bound
