"""Gaussian filtering on the permutohedral lattice ([A10], see ``lattice``): K ~ S' B S in O(n (d + 1) C).

    S   splat: each point is given to the d + 1 vertices of its simplex with its barycentric weights b
    B   blur: [1 2 1] / 4 in each of the d + 1 directions; vertices that no point touches count as 0
    S'  slice: each point reads its vertices with the same weights

times a constant: on a lattice without holes the filter of 1 is the integral of exp(-|x|^2 / 2).

Differs from [A10]: where vertices are missing the blurs do not commute, and their product is not symmetric. B is the mean of
both orders, which makes K symmetric (a field with it has a free energy) and, in the norm of matrices, nearer to the exact
one; and bridges are added (see ``lattice``). ``published=True`` does neither, as pydensecrf. The adjoint in q then blurs in
the other order:

    d_q = S' B' S d_out,   d_b = (B S q) d_out + (B' S d_out) q   at the vertices of each point.

Where the simplex of a point changes, the output may jump; everywhere else these are its exact derivatives.

Vertices hold the labels side by side, and kernels are compiled for each number of labels, so a row is a few vector
registers. On one core in float32 at 153,600 pixels, d = 5: 2 ms with 2 labels, 9 ms with 21.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from backfield.errors import InputError
from backfield.kernels.compile import kernel, label_count
from backfield.kernels.gaussian import self_terms
from backfield.kernels.gaussian.base import Collector, check_bandwidths, check_features, float_type, scaled_features
from backfield.kernels.gaussian.lattice import MAX_DIMENSIONS, build, scales
from backfield.kernels.unrolled import small_array, unrolled_kernel

#: More labels are filtered in blocks: a row of a vertex must fit into the vector registers.
MAX_COLUMNS = 32


class Permutohedral:
    """The filter of points with features (n, d).

    Parameters
    ----------
    features
        (n, d) real numbers: positions, positions and colours, anything. At most 16 dimensions.
    bandwidths
        One for all features, or one for each.
    dtype
        Of the values: float32 or float64. Where a point lies on the lattice is computed in float64.
    published
        As in the paper and in pydensecrf: one order of blurs, touched vertices alone. Faster, but not symmetric.
    """

    def __init__(self, features: Any, bandwidths: Any = 1.0, dtype: Any = np.float64, *, published: bool = False) -> None:
        raw = check_features(features)
        self.n, self.d = raw.shape
        self.dtype, self.published = float_type(dtype), published
        if self.d > MAX_DIMENSIONS:
            raise InputError(f"a permutohedral lattice takes at most {MAX_DIMENSIONS} features, received {self.d}.")
        self.bandwidths = check_bandwidths(bandwidths, self.d)
        self.features = scaled_features(raw, self.bandwidths)
        self.lattice = build(self.features, self.dtype, bridges=not published)
        #: The filter of a constant is the integral of exp(-|x|^2 / 2) on a lattice without holes.
        self.gain = self.dtype.type(np.sqrt(self.d + 1) * (4 * np.pi / 3) ** (self.d / 2))

    @property
    def n_vertices(self) -> int:
        """Vertices of the lattice."""
        return self.lattice.neighbours.shape[1]

    def apply(self, q: np.ndarray, before: np.ndarray, after: np.ndarray, out: np.ndarray) -> None:
        """Add diag(after) K diag(before) q to ``out``."""
        for q_block, out_block in _blocks(q, out):
            values = self._blurred(q_block, before, 1)
            _slice(*self._widths(q_block), *self.lattice[:2], values, self.gain, after, out_block)

    def transpose(self, d_out: np.ndarray, before: np.ndarray, after: np.ndarray, d_q: np.ndarray) -> None:
        """Add diag(before) K' diag(after) d_out to ``d_q``."""
        for d_out_block, d_q_block in _blocks(d_out, d_q):
            values = self._blurred(d_out_block, after, -1)
            _slice(*self._widths(d_out_block), *self.lattice[:2], values, self.gain, before, d_q_block)

    def vjp(
        self, q: np.ndarray, d_out: np.ndarray, before: np.ndarray, after: np.ndarray, d_q: np.ndarray, d: Collector
    ) -> None:
        """Add the adjoints of q, of the barycentric weights and of the scales."""
        for q_block, d_out_block, d_q_block in _blocks(q, d_out, d_q):
            values, d_values = self._blurred(q_block, before, 1), self._blurred(d_out_block, after, -1)
            inputs = values, d_values, self.gain, q_block, d_out_block, before, after
            _vjp(*self._widths(q_block), *self.lattice[:2], *inputs, d_q_block, d.parameters, d.before, d.after)

    def collector(self) -> Collector:
        """Return an empty collector; parameters are the barycentric weights (n, d + 1)."""
        return Collector.empty(self.lattice.weights, self.n, self.dtype)

    def diagonal(self) -> np.ndarray:
        """Return K_ii (n,)."""
        out = np.empty(self.n, self.dtype)
        self_terms.diagonal(*self.lattice, self.gain, out)
        return out

    def diagonal_vjp(self, d_diagonal: np.ndarray, d: Collector) -> None:
        """Add the adjoint of the barycentric weights."""
        self_terms.diagonal_vjp(*self.lattice, self.gain, d_diagonal, d.parameters)

    def features_vjp(self, d: Collector) -> np.ndarray:
        """Return the adjoint of the features divided by their bandwidths: (n, d) float64."""
        d_features = np.empty_like(self.features)
        _features_vjp(self.lattice.ranks, scales(self.d), d.parameters, d_features)
        return d_features

    def bandwidths_vjp(self, d: Collector) -> np.ndarray:
        """Return the adjoint of the bandwidths (d,)."""
        return -np.einsum("ij,ij->j", self.features_vjp(d), self.features) / self.bandwidths

    def _widths(self, q: np.ndarray) -> tuple[tuple[int, ...], tuple[int, ...]]:
        return label_count(q.shape[1]), label_count(self.d + 1)

    def _blurred(self, q: np.ndarray, before: np.ndarray, direction: int) -> np.ndarray:
        """Splat and blur; in one order the directions run backward where ``direction`` is -1."""
        width, neighbours = label_count(q.shape[1]), self.lattice.neighbours
        values, spare, other, out = np.empty((4, self.n_vertices + 1, q.shape[1]), self.dtype)
        _splat(width, label_count(self.d + 1), *self.lattice[:2], before, q, values)
        if self.published:
            _blur_all(width, neighbours[::direction], False, 1.0, values, spare, other, out)
        else:
            _blur_all(width, neighbours, False, 0.5, values, spare, other, out)
            _blur_all(width, neighbours[::-1], True, 0.5, values, spare, other, out)
        return out


def _blocks(*arrays: np.ndarray) -> Iterator[tuple[np.ndarray, ...]]:
    """Yield columns of all arrays, as many at a time as kernels are compiled for; the last array is written to."""
    count = arrays[0].shape[1]
    if count <= MAX_COLUMNS:
        yield arrays
        return
    for first in range(0, count, MAX_COLUMNS):
        block = tuple(np.ascontiguousarray(array[:, first : first + MAX_COLUMNS]) for array in arrays)
        yield block
        arrays[-1][:, first : first + MAX_COLUMNS] = block[-1]


@unrolled_kernel
def _splat(width, simplex, vertices, weights, before, q, values):
    # [A10] §3.2
    row = small_array(width, q)
    values[:] = 0
    for i in range(len(q)):
        for a in range(len(width)):
            row[a] = before[i] * q[i, a]
        for k in range(len(simplex)):
            v, w = vertices[i, k], weights[i, k]
            for a in range(len(width)):
                values[v, a] += w * row[a]


def _blur_all(
    width: tuple[int, ...],
    directions: np.ndarray,
    add: bool,
    share: float,
    values: np.ndarray,
    spare: np.ndarray,
    other: np.ndarray,
    out: np.ndarray,
) -> None:
    """Write or add ``share`` times the blur of values in all directions to ``out``."""
    for along in directions[:-1]:
        _blur(width, along, False, 1.0, values, spare)
        values, spare, other = spare, other, spare
    _blur(width, directions[-1], add, share, values, out)


@unrolled_kernel
def _blur(width, neighbours, add, share, values, out):
    # [A10] §3.3; the last row stands for vertices that do not exist.
    row = small_array(width, values)
    half, quarter = values.dtype.type(share * 0.5), values.dtype.type(share * 0.25)
    for v in range(len(neighbours)):
        low, high = neighbours[v, 0], neighbours[v, 1]
        for a in range(len(width)):
            row[a] = half * values[v, a] + quarter * (values[low, a] + values[high, a])
        if add:
            for a in range(len(width)):
                out[v, a] += row[a]
        else:
            for a in range(len(width)):
                out[v, a] = row[a]
    out[len(neighbours), :] = 0


@unrolled_kernel
def _slice(width, simplex, vertices, weights, values, gain, after, out):
    # [A10] §3.4. A product that is added later keeps rows in registers, whatever their length.
    row = small_array(width, out)
    for i in range(len(out)):
        scale = gain * after[i]
        for k in range(len(simplex)):
            v, w = vertices[i, k], scale * weights[i, k]
            for a in range(len(width)):
                row[a] = w * values[v, a]
            for a in range(len(width)):
                out[i, a] += row[a]


@unrolled_kernel
def _vjp(
    width, simplex, vertices, weights, values, d_values, gain, q, d_out, before, after, d_q, d_weights, d_before, d_after
):
    """Values are B S q, d_values B' S d_out."""
    row = small_array(width, q)
    zero = q.dtype.type(0)
    for i in range(len(q)):
        from_before, from_after = zero, zero
        scale_q, scale_out = gain * before[i], gain * after[i]
        for k in range(len(simplex)):
            v, w = vertices[i, k], weights[i, k]
            left, right = zero, zero
            for a in range(len(width)):
                left += d_out[i, a] * values[v, a]
                right += q[i, a] * d_values[v, a]
            d_weights[i, k] += scale_out * left + scale_q * right
            from_after += w * left
            from_before += w * right
            for a in range(len(width)):
                row[a] = scale_q * w * d_values[v, a]
            for a in range(len(width)):
                d_q[i, a] += row[a]
        d_before[i] += gain * from_before
        d_after[i] += gain * from_after


@kernel
def _features_vjp(ranks, c, d_weights, d_features):
    """The adjoint of [A10] §3.1 and §3.2: b -> x -> y -> f."""
    size = ranks.shape[1]
    d_y = np.empty(size)
    for i in range(len(ranks)):
        for j in range(size):
            k = size - 1 - ranks[i, j]
            d_y[j] = (np.float64(d_weights[i, k]) - np.float64(d_weights[i, (k + 1) % size])) / size
        total = d_y[0]
        for j in range(1, size):
            d_features[i, j - 1] = c[j - 1] * (total - j * d_y[j])
            total += d_y[j]
