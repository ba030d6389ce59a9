"""A binary pairwise model as a cut: its nodes, its arcs, and what the factors add to their capacities.

A factor table is ``const + d_i x_i + d_j x_j - p [x_i = 0, x_j = 1] - q [x_i = 1, x_j = 0]`` with

    p = q = c/2,   c = theta(0,0) + theta(1,1) - theta(0,1) - theta(1,0),
    d_i = (theta(1,0) + theta(1,1) - theta(0,0) - theta(0,1)) / 2,   d_j likewise,

so it adds ``d`` to the terminal capacities, ``p`` to the arc j -> i and ``q`` to the arc i -> j. Tables with -inf are
split until only capacities and terminals that forbid something are infinite. See ``graph_cut`` for truncation.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from backfield.graph import Graph, Potentials
from backfield.graph.lattice import Lattice
from backfield.kernels.compile import exact_kernel, exact_part

#: The scopes of no factors; read-only as all graph arrays are, else every kernel is compiled twice.
NO_SCOPE = np.empty((0, 2), dtype=np.int64)
NO_SCOPE.flags.writeable = False


class Topology(NamedTuple):
    """Nodes and arcs of a pairwise graph; both arcs of a pair of variables follow from its first factor.

    A grid is not written out. Node ``i`` is variable ``i - offset``; its arcs start at ``width i``, the longest step back
    first (in an image left, up, down and right), and the arc back has the complementary number. The width is a power of two:
    the number of an arc says which step it is. Idle nodes at both ends keep the neighbours inside the arrays, and arcs that
    leave the grid have no capacity.
    """

    # (columns,) of an image, (steps, width) of a grid, or (first arc of a node, head and sister of an arc)
    arcs: tuple  # type: ignore[type-arg]
    n_nodes: int
    n_arcs: int
    offset: int  # node of variable 0
    pair: np.ndarray  # (F,) pair of a factor; empty for a grid
    flipped: np.ndarray  # (F,) whether a factor names its pair the other way round
    forward: np.ndarray  # (P,) arc from the first to the second variable of a pair; of a grid: its number for each offset
    backward: np.ndarray  # (P,) and back


def topology(graph: Graph) -> Topology:
    """Return the nodes and arcs of a pairwise graph (compiled once)."""
    built: Topology = graph.compiled(
        "max_flow", lambda: _sparse(graph) if graph.lattice is None else _lattice(graph.lattice)
    )
    return built


def edge_terms(theta: Potentials, tolerance: float, linear: np.ndarray, cap: np.ndarray) -> tuple[int, int, float]:
    """Add the terms of all factors to ``linear`` (N,) and the capacities ``cap`` (A,) of the graph's topology.

    Returns the number of truncated couplings, a factor of the worst one, and how far that is from submodular.
    """
    graph = theta.graph
    topo = topology(graph)
    tables = theta.factors_flat.astype(np.float64, copy=False)
    if graph.lattice is not None:
        args = graph.lattice.edges, topo.forward, topo.backward, topo.n_arcs // topo.n_nodes, topo.offset
        bad, worst, lost = _lattice_terms(*args, tables, tolerance, linear, cap)
        return int(bad), int(worst), float(lost)
    if graph.n_factors == 0:
        return 0, -1, 0.0
    scale = np.zeros(len(topo.forward))
    bad, worst, lost = _sparse_terms(
        graph.factors, topo.arcs[1], topo.pair, topo.flipped, topo.forward, topo.backward, tables, tolerance,
        linear, cap, scale,
    )  # fmt: skip
    return int(bad), int(worst), float(lost)


def _lattice(lattice: Lattice) -> Topology:
    steps = np.where(np.array(lattice.sizes) > 0, lattice.edges.step, 0)  # an offset that steps out has idle arcs
    count, none = len(steps), _frozen(np.empty(0))
    margin = max(int(np.abs(steps).max()), lattice.shape[-1])
    nodes = lattice.n_variables + 2 * margin
    if lattice.image_shape is not None:
        return Topology((margin,), nodes, 4 * nodes, margin, none, none, _frozen([3, 2]), _frozen([0, 1]))
    rank = np.empty(count, dtype=np.int64)
    rank[np.argsort(-np.abs(steps), kind="stable")] = np.arange(count)
    ahead = np.where(steps > 0, 2 * count - 1 - rank, rank)  # the complement of the step back
    back = 2 * count - 1 - ahead
    moves = np.empty(2 * count, dtype=np.int64)
    moves[ahead], moves[back] = steps, -steps
    moves.flags.writeable = False
    width = 1 << (2 * count - 1).bit_length()
    return Topology((moves, width), nodes, width * nodes, margin, none, none, _frozen(ahead), _frozen(back))


def _sparse(graph: Graph) -> Topology:
    scope = graph.factors if graph.n_factors else NO_SCOPE
    pair, flipped, first = (np.empty(len(scope), dtype=np.int32) for _ in range(3))
    first = first[: _pairs(scope, graph.n_variables, pair, flipped, first)]
    forward, backward = np.empty_like(first), np.empty_like(first)
    head, sister = (np.empty(2 * len(first), dtype=np.int32) for _ in range(2))
    ptr = np.zeros(graph.n_variables + 1, dtype=np.int32)
    _arcs(scope, first, ptr, head, sister, forward, backward)
    arcs = tuple(map(_frozen, (ptr, head, sister)))
    return Topology(arcs, graph.n_variables, len(head), 0, *map(_frozen, (pair, flipped, forward, backward)))


def _frozen(array: Any) -> np.ndarray:
    array = np.ascontiguousarray(array, dtype=np.int32)
    array.flags.writeable = False
    return array


@exact_kernel
def _pairs(scope, n, pair, flipped, first):
    """Count the pairs of variables that factors join, numbered by their smaller variable."""
    start = np.zeros(n + 1, dtype=np.int64)
    for e in range(len(scope)):
        start[min(scope[e, 0], scope[e, 1]) + 1] += 1
    start = np.cumsum(start)
    order, place = np.empty(len(scope), dtype=np.int64), start.copy()
    for e in range(len(scope)):
        low = min(scope[e, 0], scope[e, 1])
        order[place[low]] = e
        place[low] += 1
    mark = np.full(n, -1)
    count = 0
    for i in range(n):
        own = count  # marks from here on are pairs of variable i
        for k in range(start[i], start[i + 1]):
            e = order[k]
            j = max(scope[e, 0], scope[e, 1])
            if mark[j] < own:
                mark[j] = count
                first[count] = e
                count += 1
            pair[e] = mark[j]
            flipped[e] = scope[e, 0] != scope[first[mark[j]], 0]
    return count


@exact_kernel
def _arcs(scope, first, ptr, head, sister, forward, backward):
    """Lay out both arcs of every pair, node by node."""
    for k in range(len(first)):
        for end in range(2):
            ptr[scope[first[k], end] + 1] += 1
    for i in range(len(ptr) - 1):
        ptr[i + 1] += ptr[i]
    place = ptr.copy()
    for k in range(len(first)):
        i, j = scope[first[k], 0], scope[first[k], 1]
        a, b = place[i], place[j]
        place[i] += 1
        place[j] += 1
        head[a], head[b], sister[a], sister[b] = j, i, b, a
        forward[k], backward[k] = a, b


@exact_kernel
def _lattice_terms(edges, forward, backward, width, offset, tables, tolerance, linear, cap):
    bad, worst, most = 0, -1, 0.0
    last = edges.extent.shape[1] - 1
    e = 0
    for k in range(len(edges.step)):
        rows = 1
        for axis in range(last):
            rows *= edges.extent[k, axis]
        for row in range(rows):
            i, rest = edges.corner[k] + offset, row
            for axis in range(last - 1, -1, -1):
                i += rest % edges.extent[k, axis] * edges.strides[axis]
                rest //= edges.extent[k, axis]
            for _ in range(edges.extent[k, last]):
                j = i + edges.step[k]
                d_i, d_j, p, q, scale, forbidden = _split(tables, 4 * e)
                p, q, shift, lost = _settle(p, q, tolerance * scale)
                linear[i] += d_i + shift
                linear[j] += d_j - shift
                cap[width * i + forward[k]] = q
                cap[width * j + backward[k]] = p
                lost = np.inf if forbidden else lost
                if lost > 0:
                    bad += 1
                    if lost > most:
                        worst, most = e, lost
                i += 1
                e += 1
    return bad, worst, most


@exact_kernel
def _sparse_terms(scope, head, pair, flipped, forward, backward, tables, tolerance, linear, cap, scale):
    """Parallel factors are added up first: only their sum must be submodular."""
    bad, worst, most = 0, -1, 0.0
    for e in range(len(scope)):
        d_i, d_j, p, q, size, forbidden = _split(tables, 4 * e)
        linear[scope[e, 0]] += d_i
        linear[scope[e, 1]] += d_j
        k = pair[e]
        if flipped[e]:
            p, q = q, p
        cap[forward[k]] += q
        cap[backward[k]] += p
        scale[k] += size
        if forbidden:
            bad += 1
            worst, most = e, np.inf
    worst_pair = -1
    for k in range(len(forward)):
        p, q, shift, lost = _settle(cap[backward[k]], cap[forward[k]], tolerance * scale[k])
        cap[backward[k]], cap[forward[k]] = p, q
        linear[head[backward[k]]] += shift
        linear[head[forward[k]]] -= shift
        if lost > 0:
            bad += 1
            if lost > most:
                worst_pair, most = k, lost
    if worst_pair >= 0:
        worst = 0
        while pair[worst] != worst_pair:
            worst += 1
    return bad, worst, most


@exact_part
def _split(tables, e):
    """Return d_i, d_j, p, q of the table at ``e``, the size of its entries, and whether it cannot be a cut at all."""
    t00, t01, t10, t11 = tables[e], tables[e + 1], tables[e + 2], tables[e + 3]
    size = abs(t00) + abs(t01) + abs(t10) + abs(t11)
    if size < np.inf:
        c = 0.5 * (t00 + t11 - t01 - t10)
        return 0.5 * (t10 + t11 - t00 - t01), 0.5 * (t01 + t11 - t00 - t10), c, c, size, False
    no00, no01, no10, no11 = t00 == -np.inf, t01 == -np.inf, t10 == -np.inf, t11 == -np.inf
    forbidden = (no00 or no11) and not (no01 or no10)
    if forbidden:  # the two variables must not agree on a label: no cut says that
        no01 = True
    if no00 and no01:
        return np.inf, t11 - t10, 0.0, 0.0, 0.0, forbidden
    if no10 and no11:
        return -np.inf, t01 - t00, 0.0, 0.0, 0.0, forbidden
    if no00 and no10:
        return t11 - t01, np.inf, 0.0, 0.0, 0.0, forbidden
    if no01 and no11:
        return t10 - t00, -np.inf, 0.0, 0.0, 0.0, forbidden
    if no01 and no10:
        return 0.5 * (t11 - t00), 0.5 * (t11 - t00), np.inf, np.inf, 0.0, forbidden
    if no01:
        return t10 - t00, t11 - t10, np.inf, 0.0, 0.0, forbidden
    return t11 - t01, t01 - t00, 0.0, np.inf, 0.0, forbidden


@exact_part
def _settle(p, q, tolerance):
    """Make both capacities nonnegative; return them, the part of one that moved to d_i - d_j, and what was cut off."""
    if p >= 0 and q >= 0:
        return p, q, 0.0, 0.0
    if p + q < 0:
        return 0.0, 0.0, 0.5 * (p - q), (-(p + q) if p + q < -tolerance else 0.0)
    if q < 0:
        return p + q, 0.0, -q, 0.0
    return 0.0, p + q, p, 0.0
