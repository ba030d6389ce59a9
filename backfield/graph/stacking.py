"""Many graphs of one form as one disconnected graph, whose factors lie group by group.

Variables follow graph by graph; factors follow group by group, and graph by graph in each. Grids of one size become one grid
with an axis more, along which nothing is joined: it has the colours, the order and the kernels of each.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import numpy as np

from backfield.graph.graph import Graph, union
from backfield.graph.lattice import Lattice


def form(graph: Graph) -> Hashable | None:
    """Return what graphs must share to be stacked: the names of groups, or all of a grid; None: it stays alone."""
    if graph.lattice is not None:
        return None if graph.n_labels is None else (graph.lattice, graph.n_labels)
    return tuple(group.name for group in graph.groups)


def stack(graphs: Sequence[Graph]) -> Graph:
    """Return graphs of one form as one."""
    stacked = _union(graphs) if graphs[0].lattice is None else _grids(graphs)
    stacked.parts = np.cumsum([0] + [graph.n_variables for graph in graphs])
    stacked.members = tuple(graphs)
    return stacked


def by_factor(graph: Graph, values: Sequence[np.ndarray]) -> np.ndarray:
    """Return numbers of the factors of each member as numbers of the factors of the stack."""
    assert graph.members is not None
    spans = [[(group.start, group.stop) for group in member.groups] for member in graph.members]
    return np.concatenate(
        [each[slice(*span[g])] for g in range(len(spans[0])) for each, span in zip(values, spans, strict=True)]
    )


def _grids(graphs: Sequence[Graph]) -> Graph:
    lattice, count = graphs[0].lattice, graphs[0].n_labels
    assert lattice is not None and count is not None
    deep = Lattice((len(graphs), *lattice.shape), tuple((0, *offset) for offset in lattice.offsets))
    return Graph.of_lattice(deep, np.broadcast_to(np.int64(count), deep.n_variables))


def _union(graphs: Sequence[Graph]) -> Graph:
    graph = union(graphs)
    names = [group.name for group in graphs[0].groups]
    if len(names) == 1:
        return graph
    sizes = np.array([[group.n_factors for group in each.groups] for each in graphs])
    order = np.argsort(np.repeat(np.tile(np.arange(len(names)), len(graphs)), sizes.ravel()), kind="stable")
    arity = np.diff(graph._scope_ptr)
    ptr = np.concatenate([[0], np.cumsum(arity[order])])
    within = np.arange(ptr[-1]) - np.repeat(ptr[:-1], arity[order])
    out = Graph._from_arrays(graph.labels, ptr, graph._scope[np.repeat(graph._scope_ptr[:-1][order], arity[order]) + within])
    out._group_sizes = tuple(zip(names, sizes.sum(axis=0).tolist(), strict=True))
    return out
