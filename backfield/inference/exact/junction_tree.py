"""The junction tree of a graph, as a list of steps over tables.

Each clique C = S + R joins the tables assigned to it and sums out its own variables R; the message over the separator
S is then a table of its parent. Axes of tables are in reverse order of elimination, so R comes last; variables
with one label have no axis.

Joining adds tables as in a trie over their axes: first those that share the last axis, among them first those that
also share the one before it, and so on. That costs a few times the clique's table, not one pass over it for each of
the many small tables that a dense clique holds. The same steps backwards take the marginals apart.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from backfield.graph import Graph
from backfield.inference.exact.elimination import Elimination, eliminate

COPY, ADD, SUM_OUT = 0, 1, 2


class Table(NamedTuple):
    """A table over ``axes`` (slowest first). ``number`` < 0: a table of theta, at ``address``."""

    number: int
    axes: tuple[int, ...]
    strides: tuple[int, ...]
    size: int
    owned: bool = False  # a partial sum, which may be added to
    address: int = -1


class Step(NamedTuple):
    """``dst = src`` or ``dst += src``, repeated along the axes that src lacks."""

    op: int
    dst: Table
    src: Table


class Clique(NamedTuple):
    """The steps that join a clique's table, and the message that is left when its own variables are summed out."""

    steps: list[Step]
    table: Table
    message: Table
    parent: int  # place of the receiver in the list of cliques, -1 for roots
    own: list[int]  # the free variables that are summed out


class JunctionTree:
    """Cliques in an order in which children come before parents.

    Parameters
    ----------
    graph : Graph
    order : Elimination, optional
        An order of the ``free`` variables, by their places among them; without it the cheapest of several.
    merge : bool
        Let cliques sum out several variables where that saves tables.

    Attributes
    ----------
    free : ndarray
        The variables with more than one label.
    cliques : list of Clique
    axis_labels : list of int
        Label count of each axis.
    constants : ndarray
        Places in theta of tables whose variables all have one label: they only add to log Z.
    n_theta, n_tables : int
        Entries of theta, and the number of tables that are not theta's.
    """

    def __init__(self, graph: Graph, order: Elimination | None = None, merge: bool = True) -> None:
        self.n_theta = int(graph.layout.var_ptr[-1] + graph.layout.table_ptr[-1])
        self.n_tables = 0
        self.cliques: list[Clique] = []
        leaves = list(_leaves(graph))
        self.constants = np.array([at for at, scope, _ in leaves if not scope], dtype=np.int64)
        self.free = np.flatnonzero(graph.labels > 1)
        if len(self.free):
            number = dict(zip(self.free.tolist(), range(len(self.free)), strict=True))
            inner = [(at, [number[v] for v in scope], strides) for at, scope, strides in leaves if scope]
            labels = graph.labels[self.free].tolist()
            if order is None:
                order = eliminate(labels, [scope for _, scope, _ in inner])
            self._build(labels, order, inner, merge)

    @property
    def largest(self) -> Table:
        """The largest table of a clique."""
        return max((clique.table for clique in self.cliques), key=lambda table: table.size)

    def _build(
        self, labels: list[int], order: Elimination, leaves: list[tuple[int, list[int], list[int]]], merge: bool
    ) -> None:
        last_first = order.order[::-1].tolist()
        self._axis = [0] * len(labels)
        for axis, v in enumerate(last_first):
            self._axis[v] = axis
        self.axis_labels = [labels[v] for v in last_first]
        home, residual, separator = _merge(order, merge)
        parent = {v: home[max(around, key=self._axis.__getitem__)] if around else -1 for v, around in separator.items()}
        tables: dict[int, list[Table]] = {v: [] for v in residual}
        for at, scope, strides in leaves:
            tables[home[max(scope, key=self._axis.__getitem__)]].append(self._leaf(at, scope, strides))
        sequence = _children_first(parent)
        place = dict(zip(sequence, range(len(sequence)), strict=True))
        for v in sequence:
            steps: list[Step] = []
            table = self._clique_table(tables.pop(v), self._axes(separator[v] + residual[v]), steps)
            message = self._new(self._axes(separator[v]))
            if parent[v] >= 0:
                tables[parent[v]].append(message)
            self.cliques.append(Clique(steps, table, message, place.get(parent[v], -1), residual[v]))

    def _axes(self, variables: Sequence[int]) -> tuple[int, ...]:
        return tuple(sorted(self._axis[v] for v in variables))

    def _leaf(self, address: int, scope: list[int], strides: list[int]) -> Table:
        pairs = sorted((self._axis[v], stride) for v, stride in zip(scope, strides, strict=True))
        size = int(np.prod([self.axis_labels[axis] for axis, _ in pairs]))
        return Table(-1, tuple(axis for axis, _ in pairs), tuple(stride for _, stride in pairs), size, False, address)

    def _new(self, axes: tuple[int, ...], owned: bool = False) -> Table:
        strides, size = [0] * len(axes), 1
        for k in range(len(axes) - 1, -1, -1):
            strides[k] = size
            size *= self.axis_labels[axes[k]]
        self.n_tables += 1
        return Table(self.n_tables - 1, axes, tuple(strides), size, owned)

    def _clique_table(self, tables: list[Table], axes: tuple[int, ...], steps: list[Step]) -> Table:
        table = self._join(tables, 1, steps)
        return table if table.owned and table.axes == axes else self._expand(axes, table, steps)

    def _join(self, tables: list[Table], depth: int, steps: list[Step]) -> Table:
        """Sum tables that share their ``depth - 1`` last axes."""
        if len(tables) == 1:
            return tables[0]
        groups: dict[int, list[Table]] = {}
        for table in tables:
            groups.setdefault(table.axes[-depth] if len(table.axes) >= depth else -1, []).append(table)
        parts = groups.pop(-1, [])
        parts += [self._join(groups[axis], depth + 1, steps) for axis in sorted(groups)]
        total = parts[0]
        for part in parts[1:]:
            total = self._add(total, part, steps)
        return total

    def _add(self, a: Table, b: Table, steps: list[Step]) -> Table:
        """Add in place where one of the two is a partial sum with all axes."""
        axes = tuple(sorted({*a.axes, *b.axes}))
        if b.owned and b.axes == axes:
            a, b = b, a
        if not (a.owned and a.axes == axes):
            a = self._expand(axes, a, steps)
        steps.append(Step(ADD, a, b))
        return a

    def _expand(self, axes: tuple[int, ...], source: Table, steps: list[Step]) -> Table:
        out = self._new(axes, owned=True)
        steps.append(Step(COPY, out, source))
        return out


def free_scopes(graph: Graph) -> tuple[list[int], list[list[int]]]:
    """Return the label counts of the variables with more than one label, and the scopes of all factors among them."""
    free = np.flatnonzero(graph.labels > 1)
    number = dict(zip(free.tolist(), range(len(free)), strict=True))
    return graph.labels[free].tolist(), [[number[v] for v in scope] for _, scope, _ in _leaves(graph) if len(scope) > 1]


def _leaves(graph: Graph) -> Iterator[tuple[int, list[int], list[int]]]:
    """Yield each table of theta: its address, its variables with more than one label, their strides."""
    layout = graph.layout
    labels, scope, stride = layout.labels.tolist(), layout.scope.tolist(), layout.stride.tolist()
    for i, at in enumerate(layout.var_ptr[:-1].tolist()):
        yield at, [i] if labels[i] > 1 else [], [1] if labels[i] > 1 else []
    n_unary, ptr = int(layout.var_ptr[-1]), layout.scope_ptr.tolist()
    for c, at in enumerate(layout.table_ptr[:-1].tolist()):
        slots = [k for k in range(ptr[c], ptr[c + 1]) if labels[scope[k]] > 1]
        yield n_unary + at, [scope[k] for k in slots], [stride[k] for k in slots]


def _merge(order: Elimination, merge: bool) -> tuple[list[int], dict[int, list[int]], dict[int, list[int]]]:
    """Merge a clique with its parent where the parent has no further variable, if ``merge``.

    Returns the clique of each variable (named by the first one it sums out), and its residual and separator.
    """
    sequence, separators = order.order.tolist(), order.separators
    rank = dict(zip(sequence, range(len(sequence)), strict=True))
    home = list(range(len(sequence)))
    residual: dict[int, list[int]] = {}
    separator: dict[int, list[int]] = {}
    for v, around in zip(sequence, separators, strict=True):
        residual.setdefault(home[v], []).append(v)
        separator[home[v]] = around
        if around and merge:
            parent = min(around, key=rank.__getitem__)
            if home[parent] == parent and len(separators[rank[parent]]) == len(around) - 1:
                home[parent] = home[v]
    return home, residual, separator


def _children_first(parent: dict[int, int]) -> list[int]:
    children: dict[int, list[int]] = {}
    for v, above in parent.items():
        children.setdefault(above, []).append(v)
    order: list[int] = []
    stack = list(children[-1])
    while stack:  # parents before children, then turned around
        order.append(stack.pop())
        stack.extend(children.get(order[-1], []))
    return order[::-1]
