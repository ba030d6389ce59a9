"""Where the tables of a junction tree lie in one array, and the program that the kernels run over it.

    theta | messages that are kept | clique tables of one block | partial sums and messages of one block

All q(x_R | x_S) are needed on the way down. Where they are too many, the cliques are cut into blocks: on the way up
only messages that cross from block to block are kept, and on the way down each block is computed once more before it
is used, which costs one more way up. Going down uses tables in the reverse order of going up, so the addresses
planned for the way up serve both ways.
"""

from __future__ import annotations

from bisect import bisect_left
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from backfield.inference.exact.junction_tree import COPY, SUM_OUT, Clique, JunctionTree, Step, Table

#: Index arrays are split into three parts, the two faster ones at least this long; so they stay small.
PART = 128


class Program(NamedTuple):
    """Steps with addresses."""

    code: np.ndarray  # (K, 8) op, dst, src, entries of dst, of src, start in ``places``, lengths of two parts
    places: np.ndarray  # places in src for the slow, middle and fast part of a place in dst
    block_ptr: np.ndarray  # (B + 1,) rows of ``code``
    local: int  # from this address on memory is reused from block to block
    size: int  # entries of the whole array
    roots: np.ndarray  # addresses of log Z of each component


class Plan:
    """Addresses for blocks that start at the cliques ``cut``."""

    def __init__(self, tree: JunctionTree, cut: list[int]) -> None:
        self.tree, self.cut = tree, cut
        self.block = np.repeat(np.arange(len(cut) - 1), np.diff(cut)).tolist()
        self.address = [-1] * tree.n_tables
        self.local = tree.n_theta
        for k, clique in enumerate(tree.cliques):
            if self._kept(k, clique):
                self.address[clique.message.number] = self.local
                self.local += clique.message.size
        self.size = self.local
        for first, end in pairwise(cut):
            self._plan_block(tree.cliques[first:end])

    def _kept(self, k: int, clique: Clique) -> bool:
        return clique.parent < 0 or self.block[k] != self.block[clique.parent]

    def _plan_block(self, cliques: list[Clique]) -> None:
        top = self.local
        for clique in cliques:
            self.address[clique.table.number] = top
            top += clique.table.size
        scratch = _Scratch(top)
        for clique in cliques:
            for step in clique.steps:
                if step.op == COPY and step.dst is not clique.table:
                    self.address[step.dst.number] = scratch.take(step.dst.size)
                if step.src.number >= 0 and self.address[step.src.number] >= top:
                    scratch.give(self.address[step.src.number], step.src.size)
            if self.address[clique.message.number] < 0:
                self.address[clique.message.number] = scratch.take(clique.message.size)
        self.size = max(self.size, scratch.top)

    def _at(self, table: Table) -> int:
        return table.address if table.number < 0 else self.address[table.number]

    def program(self) -> Program:
        """Write the steps down for the kernels."""
        rows, index, block_ptr = [], _Index(self.tree.axis_labels), [0]
        for first, end in pairwise(self.cut):
            for clique in self.tree.cliques[first:end]:
                for step in clique.steps:
                    sizes = step.dst.size, step.src.size
                    rows.append((step.op, self._at(step.dst), self._at(step.src), *sizes, *index.add(step)))
                message, table = clique.message, clique.table
                rows.append((SUM_OUT, self._at(message), self._at(table), message.size, table.size, 0, 0, 0))
            block_ptr.append(len(rows))
        roots = [self._at(clique.message) for clique in self.tree.cliques if clique.parent < 0]
        code = np.array(rows, dtype=np.int64)
        return Program(_frozen(code), _frozen(index.array()), _frozen(block_ptr), self.local, self.size, _frozen(roots))


def fit(tree: JunctionTree, limit: int) -> Plan:
    """Return the plan with the fewest blocks that needs at most ``limit`` entries, else the smallest one."""
    best, n_blocks = Plan(tree, _cut(tree, 1)), 1
    while best.size > limit and n_blocks < len(tree.cliques):
        n_blocks *= 2
        best = min(best, Plan(tree, _cut(tree, n_blocks)), key=lambda plan: plan.size)
    return best


def _cut(tree: JunctionTree, n_blocks: int) -> list[int]:
    """Cut the cliques into blocks of about equal entries: the first clique of each, and the end."""
    total = np.cumsum([clique.table.size for clique in tree.cliques])
    inner = np.searchsorted(total, total[-1] * np.arange(1, n_blocks) / n_blocks)
    return [*sorted({0, *inner.tolist()}), len(total)]


class _Scratch:
    """First-fit memory from ``top`` on."""

    def __init__(self, top: int) -> None:
        self.top = top
        self.holes: list[tuple[int, int]] = []  # (start, end), rising

    def take(self, size: int) -> int:
        for k, (start, end) in enumerate(self.holes):
            if end - start >= size:
                self.holes[k : k + 1] = [(start + size, end)] if end - start > size else []
                return start
        start = self.holes.pop()[0] if self.holes and self.holes[-1][1] == self.top else self.top
        self.top = start + size
        return start

    def give(self, start: int, size: int) -> None:
        end = start + size
        k = bisect_left(self.holes, (start, end))
        if k < len(self.holes) and self.holes[k][0] == end:
            end = self.holes.pop(k)[1]
        if k > 0 and self.holes[k - 1][1] == start:
            k -= 1
            start = self.holes.pop(k)[0]
        self.holes.insert(k, (start, end))


class _Index:
    """Index arrays of steps, each different one once."""

    def __init__(self, axis_labels: list[int]) -> None:
        self.axis_labels = axis_labels
        self.parts: list[np.ndarray] = []
        self.length = 0
        self.known: dict[tuple[tuple[int, int], ...], tuple[int, int, int]] = {}

    def add(self, step: Step) -> tuple[int, int, int]:
        """Return the place of the arrays of ``step`` and the lengths of the slow and the middle one."""
        stride = dict(zip(step.src.axes, step.src.strides, strict=True))
        key = tuple((self.axis_labels[axis], stride.get(axis, 0)) for axis in step.dst.axes)
        if key not in self.known:
            fast = _split(key, len(key))
            middle = _split(key, fast)
            arrays = [_places(part) for part in (key[:middle], key[middle:fast], key[fast:])]
            self.known[key] = self.length, len(arrays[0]), len(arrays[1])
            self.parts += arrays
            self.length += sum(map(len, arrays))
        return self.known[key]

    def array(self) -> np.ndarray:
        return np.concatenate(self.parts) if self.parts else np.zeros(0, dtype=np.int64)


def _split(axes: tuple[tuple[int, int], ...], end: int) -> int:
    """Return where the last axes before ``end`` with at least ``PART`` entries begin."""
    size = 1
    while end > 0 and size < PART:
        end -= 1
        size *= axes[end][0]
    return end


def _places(axes: tuple[tuple[int, int], ...]) -> np.ndarray:
    out = np.zeros(1, dtype=np.int64)
    for labels, stride in axes:
        out = (out[:, None] + stride * np.arange(labels)).ravel()
    return out


def _frozen(values: np.ndarray | list[int]) -> np.ndarray:
    array = np.ascontiguousarray(values, dtype=np.int64)
    array.flags.writeable = False
    return array
