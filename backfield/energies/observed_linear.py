"""Linear energies on sparse features with weights only for what occurs: (feature, label) pairs seen together in training.

    theta_i(x) = sum_f u_f(i) w[f, x]   over the pairs (f, x) of the pattern

The usual model of taggers with hundreds of thousands of features, most of which go with one or two labels. Cost and
memory are linear in the pairs, not in features times labels. The few features that go with many labels make up most of the
pairs that a row has: over many rows, these are rows of a dense matrix, whose labels a processor adds several at a time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from backfield.energies.base import Energy
from backfield.energies.compact_rows import CompactRows
from backfield.errors import InputError
from backfield.indices import are_indices, are_pointers
from backfield.kernels.compile import kernel

_BITS = 64
#: Features whose pairs are written out at once.
_FEATURES = 2**14


@dataclass(frozen=True, repr=False)
class ObservedLinear(Energy, name="observed_linear"):
    """A weight per (feature, label) pair that occurs in training; no intercept.

    Parameters
    ----------
    min_count
        Pairs in which the values of the feature sum up to less have no weight; where all are 1, pairs that occur less often.
    """

    min_count: float = 0.0

    def bind(self, ptr: np.ndarray, labels: np.ndarray, n_outputs: int) -> BoundLinear:
        """Return the energy with its pattern: feature f has weights for ``labels[ptr[f]:ptr[f + 1]]``."""
        if labels.ndim != 1 or not are_pointers(ptr, len(labels)) or not are_indices(labels, n_outputs):
            raise InputError(f"the pattern of observed_linear does not hold pairs of features and of {n_outputs} labels.")
        return BoundLinear(ptr, labels)


class DenseRows(NamedTuple):
    """The features that are rows of a dense (n_rows, K) matrix, and where their weights are in it."""

    of: np.ndarray  # (F,) row of each feature, -1: none
    n_rows: int
    weights: np.ndarray  # numbers of the weights of these features
    entries: np.ndarray  # their flat places in the matrix

    @classmethod
    def choose(cls, ptr: np.ndarray, labels: np.ndarray, n_outputs: int) -> DenseRows:
        """Return the features for which K additions of a vector unit are cheaper than one for each of their labels."""
        sizes = np.diff(ptr)
        chosen = np.flatnonzero(sizes > n_outputs // 5 + 1)
        of = np.full(len(sizes), -1, dtype=np.int32)
        of[chosen] = np.arange(len(chosen))
        owner = np.repeat(of, sizes)
        weights = np.flatnonzero(owner >= 0)
        return cls(of, len(chosen), weights, owner[weights].astype(np.int64) * n_outputs + labels[weights])

    def none(self) -> DenseRows:
        """Return that no feature is one; ``of`` stays empty for the kernels."""
        return DenseRows(self.of[:0], 0, self.weights[:0], self.entries[:0])


class BoundLinear(ObservedLinear):
    """An :class:`ObservedLinear` that knows its pattern."""

    def __init__(self, ptr: np.ndarray, labels: np.ndarray) -> None:
        object.__setattr__(self, "ptr", np.ascontiguousarray(ptr, dtype=np.int64))
        object.__setattr__(self, "labels", np.ascontiguousarray(labels, dtype=np.int32))
        object.__setattr__(self, "dense", {})

    ptr: np.ndarray
    labels: np.ndarray
    dense: dict[int, DenseRows]

    def __getstate__(self) -> dict[str, Any]:
        return {"ptr": self.ptr, "labels": self.labels, "dense": {}}

    def __repr__(self) -> str:
        return "observed_linear"

    def n_weights(self, n_features: int, n_outputs: int, intercept: bool) -> int:
        """Return the number of pairs."""
        if n_features != len(self.ptr) - 1:
            raise InputError(f"the pattern of observed_linear is of {len(self.ptr) - 1} features, not of {n_features}.")
        return len(self.labels)

    def scores(self, w: np.ndarray, features: Any, n_outputs: int, intercept: bool) -> np.ndarray:
        """Return the scores (N, K)."""
        out = np.zeros((features.shape[0], n_outputs), features.dtype)
        rows = self._dense_rows(features, n_outputs)
        dense = np.zeros((rows.n_rows, n_outputs), features.dtype)
        dense.reshape(-1)[rows.entries] = w[rows.weights]
        _scores(features.indptr, features.indices, features.data, self.ptr, self.labels, rows.of, w, dense, out)
        return out

    def vjp(self, features: Any, d_scores: np.ndarray, intercept: bool, w: np.ndarray | None = None) -> np.ndarray:
        """Return the adjoint of the weights."""
        d_w = np.zeros(len(self.labels))
        rows = self._dense_rows(features, d_scores.shape[1])
        d_dense = np.zeros((rows.n_rows, d_scores.shape[1]))
        _scores_vjp(features.indptr, features.indices, features.data, self.ptr, self.labels, rows.of, d_scores, d_dense, d_w)
        d_w[rows.weights] = d_dense.reshape(-1)[rows.entries]
        return d_w

    def prepared(self, features: Any, n_outputs: int, intercept: bool, width: int) -> CompactRows:
        """Return the rows with the weights that they use."""
        return CompactRows.of(features, self.ptr, self.labels, n_outputs, width)

    def _dense_rows(self, features: Any, n_outputs: int) -> DenseRows:
        """Return which features are rows of a dense matrix: none where filling it would cost more than it saves."""
        if n_outputs not in self.dense:
            self.dense[n_outputs] = DenseRows.choose(self.ptr, self.labels, n_outputs)
        rows = self.dense[n_outputs]
        return rows if features.nnz > len(rows.weights) else rows.none()


def observed_pairs(
    features: Sequence[Any], labels: Sequence[np.ndarray], n_labels: int, min_count: float = 0.0
) -> tuple[np.ndarray, np.ndarray]:
    """Return the pattern of CSR features and labels (-1: hidden, or a mask of possible ones) that occur together."""
    ptr, found = _seen_pairs(features, labels, n_labels)
    if min_count <= 0:
        return ptr, found
    counts = np.zeros(len(found))
    for matrix, each in zip(features, labels, strict=True):
        _count(matrix.indptr, matrix.indices, matrix.data, *_known(each), ptr, found, counts)
    kept = counts >= min_count
    return np.append(0, np.cumsum(kept))[ptr], found[kept]


def _seen_pairs(features: Sequence[Any], labels: Sequence[np.ndarray], n_labels: int) -> tuple[np.ndarray, np.ndarray]:
    n_words = -(-n_labels // _BITS)
    seen = np.zeros((features[0].shape[1], n_words), dtype=np.uint64)  # one bit for each pair
    for matrix, each in zip(features, labels, strict=True):
        if not hasattr(matrix, "indptr"):
            raise InputError("observed_linear needs sparse features: CSR matrices or dicts; use 'linear' for dense ones.")
        rows, known = _known(each)
        _mark(matrix.indptr, matrix.indices, rows, known, seen)
    parts = [_pairs_of(seen[first : first + _FEATURES], n_labels) for first in range(0, len(seen), _FEATURES)]
    return np.append(0, np.cumsum(np.concatenate([sizes for sizes, _ in parts]))), np.concatenate(
        [each for _, each in parts]
    )


def _pairs_of(seen: np.ndarray, n_labels: int) -> tuple[np.ndarray, np.ndarray]:
    """Return how many labels each feature has, and these."""
    bits = np.unpackbits(seen.view(np.uint8), axis=1, bitorder="little")[:, :n_labels]
    feature, label = np.nonzero(bits)
    return np.bincount(feature, minlength=len(seen)), label


def _known(labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return positions and their possible labels; hidden ones are left out."""
    if labels.ndim == 2:
        return np.nonzero(labels.astype(bool) & ~labels.all(axis=1, keepdims=True))  # type: ignore[return-value]
    rows = np.flatnonzero(labels >= 0)
    return rows, labels[rows]


@kernel
def _mark(indptr, indices, rows, labels, seen):
    """Set the bit of each pair of a feature and a label."""
    for k in range(len(rows)):
        word, bit = labels[k] >> 6, np.uint64(1) << np.uint64(labels[k] & 63)
        for p in range(indptr[rows[k]], indptr[rows[k] + 1]):
            seen[indices[p], word] |= bit


@kernel
def _count(indptr, indices, data, rows, labels, ptr, known, counts):
    """Add the values of each pair of a feature and a label."""
    for k in range(len(rows)):
        for p in range(indptr[rows[k]], indptr[rows[k] + 1]):
            for q in range(ptr[indices[p]], ptr[indices[p] + 1]):
                if known[q] == labels[k]:
                    counts[q] += data[p]


@kernel
def _scores(indptr, indices, data, ptr, labels, dense_row, w, dense, out):
    count, use_dense = out.shape[1], len(dense) > 0
    for t in range(len(indptr) - 1):
        row = out[t]
        for p in range(indptr[t], indptr[t + 1]):
            feature, value = indices[p], data[p]
            at = dense_row[feature] if use_dense else -1
            if at >= 0:
                for x in range(count):
                    row[x] += value * dense[at, x]
            else:
                for q in range(ptr[feature], ptr[feature + 1]):
                    row[labels[q]] += value * w[q]


@kernel
def _scores_vjp(indptr, indices, data, ptr, labels, dense_row, d_out, d_dense, d_w):
    count, use_dense = d_out.shape[1], len(d_dense) > 0
    for t in range(len(indptr) - 1):
        row = d_out[t]
        for p in range(indptr[t], indptr[t + 1]):
            feature, value = indices[p], data[p]
            at = dense_row[feature] if use_dense else -1
            if at >= 0:
                for x in range(count):
                    d_dense[at, x] += value * row[x]
            else:
                for q in range(ptr[feature], ptr[feature + 1]):
                    d_w[q] += value * row[labels[q]]
