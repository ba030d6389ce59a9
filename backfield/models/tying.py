"""From weights to theta: one weight for each entry of a table, and tables that share theirs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from backfield.errors import InputError
from backfield.graph import Graph


class Tying:
    """theta = w[index]: which weight each entry of theta is.

    Parameters
    ----------
    graph : Graph
        A pairwise graph.
    groups : sequence of sequences
        Columns (one name each) or edges (pairs of names) that share a table.
    number : function from a name to its variable
    """

    def __init__(self, graph: Graph, groups: Sequence[Any], number: Callable[[Any], int]) -> None:
        layout, cut = graph.layout, int(graph.layout.var_ptr[-1])
        place = np.arange(cut + int(layout.table_ptr[-1]))
        factor = {(int(i), int(j)): c for c, (i, j) in enumerate(graph.factors)}
        taken: set[Any] = set()
        for group in groups:
            spans = [_entries(graph, member, number, factor, taken) for member in _members(group)]
            for span in spans[1:]:
                if span.shape != spans[0].shape:
                    raise InputError(f"tied tables have one shape; received {spans[0].shape} and {span.shape} in {group!r}.")
                place[span] = place[spans[0]]
        self.index: np.ndarray = np.unique(place, return_inverse=True)[1]
        self.n_weights = int(self.index.max()) + 1

    def theta(self, w: np.ndarray) -> np.ndarray:
        """Return theta, flat."""
        return w[self.index]

    def gradient(self, d_theta: np.ndarray) -> np.ndarray:
        """Return d_w: the sum over all entries that are one weight."""
        return np.bincount(self.index, weights=d_theta, minlength=self.n_weights)


def _members(group: Any) -> list[Any]:
    if isinstance(group, str) or not isinstance(group, Iterable) or len(list(group)) < 2:
        raise InputError(f"tied holds lists of two or more columns or edges, received {group!r}.")
    return list(group)


def _entries(
    graph: Graph, member: Any, number: Callable[[Any], int], factor: dict[tuple[int, int], int], taken: set[Any]
) -> np.ndarray:
    """Return the places in theta of the table of a column, or of an edge with axes in the order of its names."""
    layout, labels = graph.layout, graph.labels
    if isinstance(member, tuple | list):
        i, j = (number(name) for name in member) if len(member) == 2 else (-1, -1)
        key: Any = (min(i, j), max(i, j))
        if key not in factor:
            raise InputError(f"tied names the edge {member!r}, which is not among the edges.")
        table = np.arange(layout.table_ptr[factor[key]], layout.table_ptr[factor[key] + 1]).reshape(labels[list(key)])
        out = int(layout.var_ptr[-1]) + (table if i < j else table.T)
    else:
        key = number(member)
        out = np.arange(layout.var_ptr[key], layout.var_ptr[key + 1])
    if key in taken:
        raise InputError(f"tied names {member!r} twice.")
    taken.add(key)
    return out
