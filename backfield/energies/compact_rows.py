"""Sparse rows whose weights are numbered from 0, in the order in which they lie in w: what a cache holds of a large model.

A few thousand rows use a small part of the weights of a tagger. These are copied together, scores and adjoints run on the
copy, and the adjoints are added to the gradient at the end. Features that go with few labels have one entry for each label;
the others, most of what rows hold, are rows of a matrix, whose labels a processor adds several at a time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from backfield.energies.linear_rows import padding
from backfield.kernels.compile import kernel

#: Features with more labels are rows of a matrix.
_FEW = 4


@dataclass(frozen=True, eq=False)
class CompactRows:
    """Rows of features of the pairs (feature, label) that have weights.

    ``row_values`` and ``entry_values`` are empty where all features are 1.
    """

    n_outputs: int
    width: int  # of scores and of the matrix: n_outputs and padding
    entry_weights: np.ndarray  # numbers in w of the weights that have entries
    matrix_weights: np.ndarray  # numbers in w of those in the matrix
    places: np.ndarray  # their flat places in it
    n_features: int  # rows of the matrix
    row_ptr: np.ndarray  # (N + 1,) of the features of each row that are rows of the matrix
    rows: np.ndarray
    row_values: np.ndarray
    entry_ptr: np.ndarray  # (N + 1,) of the entries of each row
    slots: np.ndarray
    labels: np.ndarray
    entry_values: np.ndarray

    @classmethod
    def of(cls, features: Any, ptr: np.ndarray, labels: np.ndarray, n_outputs: int, width: int) -> CompactRows:
        """Compact CSR features; feature f has the weights ``ptr[f]:ptr[f + 1]``, of ``labels``."""
        index, data = features.indices, np.asarray(features.data, dtype=np.float64)
        used = np.zeros(len(ptr) - 1, dtype=bool)
        used[index] = True
        known = np.flatnonzero(used)
        number = np.empty(len(ptr) - 1, dtype=np.int32)
        number[known] = np.arange(len(known))
        local, counts = number[index], np.diff(ptr)[known]
        wide = counts > _FEW
        owner = np.repeat(np.arange(features.shape[0]), np.diff(features.indptr))
        values = data[:0] if (data == 1).all() else data
        of_matrix, of_entries = wide[local], ~wide[local]
        # the matrix
        matrix_weights = _ranges(ptr[known[wide]], counts[wide])
        matrix_row = np.cumsum(wide, dtype=np.int32) - 1
        places = np.repeat(np.arange(int(wide.sum())), counts[wide]) * width + labels[matrix_weights]
        # the entries
        entry_weights = _ranges(ptr[known[~wide]], counts[~wide])
        few = np.where(wide, 0, counts)
        starts, sizes = (np.cumsum(few) - few)[local[of_entries]], few[local[of_entries]]
        slots = _ranges(starts, sizes)
        return cls(
            n_outputs, width, entry_weights.astype(np.int32), matrix_weights.astype(np.int32), places.astype(np.int32),
            int(wide.sum()),
            _pointers(owner[of_matrix], features.shape[0]), matrix_row[local[of_matrix]],
            values[of_matrix] if len(values) else values,
            _pointers(np.repeat(owner[of_entries], sizes), features.shape[0]), slots.astype(np.int32),
            labels[entry_weights][slots].astype(np.uint16),
            np.repeat(values[of_entries], sizes) if len(values) else values,
        )  # fmt: skip

    def __len__(self) -> int:
        return len(self.row_ptr) - 1

    def scores(self, w: np.ndarray, out: np.ndarray) -> np.ndarray:
        """Write scores (N, width) without the bias, and return it."""
        matrix = np.zeros((self.n_features, self.width))
        _set_at(matrix.reshape(-1), self.places, w, self.matrix_weights)
        _scores(*self._parts, w[self.entry_weights], matrix, out)
        return padding(self.n_outputs, self.width)

    def add_vjp(self, d_scores: np.ndarray, d_w: np.ndarray) -> None:
        """Add the adjoint of the weights, from that of the scores (N, width)."""
        d_entries, d_matrix = np.zeros(len(self.entry_weights)), np.zeros((self.n_features, self.width))
        _scores_vjp(*self._parts, d_scores, d_entries, d_matrix)
        _add(d_w, self.entry_weights, d_entries)
        _add_at(d_w, self.matrix_weights, d_matrix.reshape(-1), self.places)

    @property
    def _parts(self) -> tuple[np.ndarray, ...]:
        return self.row_ptr, self.rows, self.row_values, self.entry_ptr, self.slots, self.labels, self.entry_values


def _ranges(starts: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """Return starts[0], starts[0] + 1, ..., so many of each."""
    return np.repeat(starts - (np.cumsum(sizes) - sizes), sizes) + np.arange(int(sizes.sum()))


def _pointers(owner: np.ndarray, count: int) -> np.ndarray:
    ptr = np.zeros(count + 1, dtype=np.int32)
    np.cumsum(np.bincount(owner, minlength=count), out=ptr[1:])
    return ptr


@kernel
def _set_at(to, places, values, numbers):
    for k in range(len(places)):
        to[places[k]] = values[numbers[k]]


@kernel
def _add(to, places, values):
    for k in range(len(places)):
        to[places[k]] += values[k]


@kernel
def _add_at(to, places, values, numbers):
    for k in range(len(places)):
        to[places[k]] += values[numbers[k]]


@kernel
def _scores(row_ptr, rows, row_values, entry_ptr, slots, labels, entry_values, w, matrix, out):
    count, weighted = out.shape[1], len(row_values) + len(entry_values) > 0
    for t in range(len(row_ptr) - 1):
        row = out[t]
        for x in range(count):
            row[x] = 0.0
        for p in range(row_ptr[t], row_ptr[t + 1]):
            part, value = matrix[rows[p]], row_values[p] if weighted else 1.0
            for x in range(count):
                row[x] += value * part[x]
        for p in range(entry_ptr[t], entry_ptr[t + 1]):
            row[labels[p]] += (entry_values[p] if weighted else 1.0) * w[slots[p]]


@kernel
def _scores_vjp(row_ptr, rows, row_values, entry_ptr, slots, labels, entry_values, d_out, d_w, d_matrix):
    count, weighted = d_out.shape[1], len(row_values) + len(entry_values) > 0
    for t in range(len(row_ptr) - 1):
        row = d_out[t]
        for p in range(row_ptr[t], row_ptr[t + 1]):
            part, value = d_matrix[rows[p]], row_values[p] if weighted else 1.0
            for x in range(count):
                part[x] += value * row[x]
        for p in range(entry_ptr[t], entry_ptr[t + 1]):
            d_w[slots[p]] += (entry_values[p] if weighted else 1.0) * row[labels[p]]
