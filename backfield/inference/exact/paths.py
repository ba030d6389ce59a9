"""Graphs that consist of paths: positions along them, and where theta's tables go.

Any numbering, any orientation of edges, any label counts; tables of parallel edges are added. Every entry of theta goes
to one entry along the paths, so marginals and adjoints come back by a gather over the same index arrays.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from backfield.errors import InputError
from backfield.graph import Graph, Potentials
from backfield.kernels.compile import exact_kernel


class Paths(NamedTuple):
    """Positions along paths. Table ``t`` lies between positions t - 1 and t."""

    labels: np.ndarray  # (n,) of each position
    unary_ptr: np.ndarray  # (n + 1,)
    table_ptr: np.ndarray  # (n,) start of table t, -1 where a path starts
    n_table: int  # entries of all tables
    unary_from: np.ndarray | None  # place in theta's unary tables; None: the same
    table_to: np.ndarray | None  # entry along the paths to which each entry of theta's tables adds; None: the same


def paths_of(graph: Graph) -> Paths:
    """Return the paths of a graph; refuse other graphs."""
    return graph.compiled("paths", lambda: consecutive_paths(graph) or _general(graph))


def consecutive_paths(graph: Graph) -> Paths | None:
    """Return the paths of a graph of factors (i, i + 1), each at most once: theta is used as it lies."""
    if graph.n_factors and graph.arity != 2:
        return None
    pairs = graph._scope.reshape(-1, 2)
    if (pairs[:, 1] != pairs[:, 0] + 1).any() or np.bincount(pairs[:, 1], minlength=1).max() > 1:
        return None
    table_ptr = np.full(graph.n_variables, -1, dtype=np.int64)
    table_ptr[pairs[:, 1]] = graph.layout.table_ptr[:-1]
    table_ptr.flags.writeable = False
    return Paths(graph.layout.labels, graph.layout.var_ptr, table_ptr, int(graph.layout.table_ptr[-1]), None, None)


def _general(graph: Graph) -> Paths:
    """Return the paths of any graph that consists of paths; refuse others."""
    order = _order(graph)
    layout, n = graph.layout, graph.n_variables
    position = np.empty(n, dtype=np.int64)
    position[order] = np.arange(n)
    labels = layout.labels[order]
    pairs = position[layout.scope.reshape(-1, 2)]
    size = np.zeros(n, dtype=np.int64)
    later = pairs.max(axis=1)
    size[later] = (labels[1:] * labels[:-1])[later - 1]
    table_ptr = np.where(size > 0, np.cumsum(size) - size, -1)
    unary_ptr = np.concatenate([[0], np.cumsum(labels)])
    unary_from = np.repeat(layout.var_ptr[order] - unary_ptr[:-1], labels) + np.arange(unary_ptr[-1])
    for array in (labels, unary_ptr, table_ptr):
        array.flags.writeable = False
    return Paths(labels, unary_ptr, table_ptr, int(size.sum()), unary_from, _targets(graph, pairs, table_ptr))


def _targets(graph: Graph, pairs: np.ndarray, table_ptr: np.ndarray) -> np.ndarray:
    """Return the entry of the paths' tables to which each entry of theta's tables adds."""
    layout = graph.layout
    factor = np.repeat(np.arange(graph.n_factors), np.diff(layout.table_ptr))
    entry = np.arange(layout.table_ptr[-1]) - layout.table_ptr[factor]
    count = layout.labels[layout.scope.reshape(-1, 2)][factor]
    first, second = entry // count[:, 1], entry % count[:, 1]
    forward = (pairs[:, 0] < pairs[:, 1])[factor]
    within = np.where(forward, entry, second * count[:, 0] + first)
    return table_ptr[pairs.max(axis=1)][factor] + within


def _order(graph: Graph) -> np.ndarray:
    """Return the variables in the order of the paths."""
    if graph.n_factors and graph.arity != 2:
        c = int(np.argmax(np.diff(graph._scope_ptr) != 2))
        raise _refusal(f"factor {c} has {np.diff(graph._scope_ptr)[c]} variables")
    pairs = np.unique(np.sort(graph._scope.reshape(-1, 2), axis=1), axis=0)
    degree = np.bincount(pairs.ravel(), minlength=graph.n_variables)
    if degree.max() > 2:
        v = int(np.argmax(degree > 2))
        raise _refusal(f"variable {v} has {degree[v]} neighbours")
    near = np.full((graph.n_variables, 2), -1, dtype=np.int64)
    ends = np.concatenate([pairs, pairs[:, ::-1]])
    ends = ends[np.lexsort((ends[:, 1], ends[:, 0]))]
    second = np.concatenate([[False], ends[1:, 0] == ends[:-1, 0]])[: len(ends)].astype(np.int64)
    near[ends[:, 0], second] = ends[:, 1]
    order = np.full(graph.n_variables, -1, dtype=np.int64)
    cyclic = _walk(near, order)
    if cyclic >= 0:
        raise _refusal(f"variable {cyclic} lies on a cycle")
    return order


def _refusal(what: str) -> InputError:
    return InputError(f"chain needs a graph of paths, but {what}; use 'exact' or 'loopy_bp'.")


def arrange(paths: Paths, theta: Potentials) -> tuple[np.ndarray, np.ndarray]:
    """Return unary and pairwise tables along the paths; parallel tables are added."""
    unary, tables = theta.unary_flat, theta.factors_flat
    if paths.unary_from is None or paths.table_to is None:
        return unary, tables
    out = np.zeros(paths.n_table, dtype=tables.dtype)
    np.add.at(out, paths.table_to, tables)
    return unary[paths.unary_from], out


def restore(paths: Paths, graph: Graph, unary: np.ndarray, tables: np.ndarray) -> Potentials:
    """Undo :func:`arrange` for marginals and for adjoints."""
    if paths.unary_from is None or paths.table_to is None:
        return Potentials.from_flat(graph, unary, tables)
    out = np.empty_like(unary)
    out[paths.unary_from] = unary
    return Potentials.from_flat(graph, out, tables[paths.table_to])


@exact_kernel
def _walk(near, order):
    """Write down the variables path by path; return a variable that is on a cycle, else -1."""
    seen = np.zeros(len(order), np.bool_)
    count = 0
    for start in range(len(order)):
        if seen[start] or near[start, 1] >= 0:
            continue
        v, before = start, -1
        while v >= 0:
            seen[v] = True
            order[count] = v
            count += 1
            v, before = (near[v, 0] if near[v, 0] != before else near[v, 1]), v
    for v in range(len(order)):
        if not seen[v]:
            return v
    return -1
