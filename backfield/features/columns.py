"""Columns of named features, found for many names at once.

Names are known by their 64-bit hashes, which Python keeps with each text, in one table of numbers (open addressing with
linear steps): a dict goes to five places in memory for each name, one after the other, the table to one, and the next
names do not wait for it. Two names with one hash would be one feature: among a million names, once in 10^7 models.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from backfield.kernels.compile import kernel
from backfield.kernels.python_objects import hashes

_EMPTY = -1


class Columns(dict[str, int]):
    """{name: column}; hashes differ between processes, so the table stays in its own."""

    _table: Table | None = None

    def __reduce__(self) -> Any:
        return Columns, (dict(self),)

    def find(self, wanted: np.ndarray) -> np.ndarray:
        """Return the columns of names that have these hashes, -1 where there is none."""
        if self._table is None:
            table = Table(len(self))
            _, new = table.add(hashes(list(self)))
            columns = np.fromiter(self.values(), np.int32, len(self))[new]
            table.columns = np.append(columns, np.int32(-1))  # the last one is that of -1
            self._table = table
        return self._table.find(wanted)


class Table:
    """Hashes, numbered in the order of their first use."""

    def __init__(self, capacity: int = 0) -> None:
        self._make(capacity)
        self.n_names = 0
        self.columns: np.ndarray | None = None

    def _make(self, capacity: int) -> None:
        size = 1 << max(10, (2 * capacity).bit_length())
        self.keys, self.numbers = np.zeros(size, dtype=np.int64), np.full(size, _EMPTY, dtype=np.int32)

    def add(self, hashes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the number of each hash, and the places of those that were not known."""
        if 2 * (self.n_names + len(hashes)) > len(self.keys):
            self._grow(self.n_names + len(hashes))
        out, new = np.empty(len(hashes), dtype=np.int32), np.empty(len(hashes), dtype=np.int64)
        before = self.n_names
        self.n_names = int(_add(self.keys, self.numbers, before, hashes, out, new))
        return out, new[: self.n_names - before]

    def _grow(self, capacity: int) -> None:
        used = np.flatnonzero(self.numbers != _EMPTY)
        used = used[np.argsort(self.numbers[used])]
        known = self.keys[used]
        self._make(2 * capacity)
        _add(self.keys, self.numbers, 0, known, np.empty(len(known), dtype=np.int32), np.empty(len(known), dtype=np.int64))

    def find(self, hashes: np.ndarray) -> np.ndarray:
        """Return the column of each hash."""
        assert self.columns is not None
        out = np.empty(len(hashes), dtype=np.int32)
        _find(self.keys, self.numbers, self.columns, hashes, out)
        return out


def number_names(batches: Iterable[tuple[np.ndarray, Callable[[], list[str]]]], min_count: int = 1) -> Columns:
    """Return the columns of the names that occur at least so many times, in the order of their first use.

    A batch is the hashes of its names, and a function that returns them, which is asked where some of them are new.
    """
    table, known, counts = Table(), [], np.zeros(0, dtype=np.int64)
    for each, names in batches:
        numbers, new = table.add(each)
        if len(new):
            written = names()
            known += [written[place] for place in new.tolist()]
        if min_count > 1:
            found = np.bincount(numbers, minlength=table.n_names)
            found[: len(counts)] += counts
            counts = found
    if min_count > 1:
        known = [name for name, count in zip(known, counts.tolist(), strict=True) if count >= min_count]
    return Columns(zip(known, range(len(known)), strict=True))


@kernel
def _add(keys, numbers, count, hashes, out, new):
    mask, start = len(keys) - 1, count
    for k in range(len(hashes)):
        at = hashes[k] & mask
        while numbers[at] >= 0 and keys[at] != hashes[k]:
            at = (at + 1) & mask
        if numbers[at] < 0:
            keys[at], numbers[at] = hashes[k], count
            new[count - start] = k
            count += 1
        out[k] = numbers[at]
    return count


@kernel
def _find(keys, numbers, columns, hashes, out):
    mask = len(keys) - 1
    for k in range(len(hashes)):
        at = hashes[k] & mask
        while numbers[at] >= 0 and keys[at] != hashes[k]:
            at = (at + 1) & mask
        out[k] = columns[numbers[at]]
