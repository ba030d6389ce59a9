"""Gaussian filtering of a regular grid by its positions alone, one axis after the other.

    K = G_1 x ... x G_D,   G(s, t) = exp(-(s - t)^2 / (2 sigma^2)) for |s - t| <= cut sigma, else 0

What is cut off is at most erfc(cut / sqrt(2)) of the sum of a row for each axis: 6e-5 at cut = 4, 2e-9 at 6. Outside of the
grid there is nothing. Cost O(n C D cut sigma). On one core in float32 at 320 x 480 with 21 labels: 10 ms at sigma = 1 and
12 at 3 (permutohedral lattice: 18 and 4); the lattice is wrong by some percent, this by what is cut off.

Bandwidths have derivatives, dG / dsigma = G (s - t)^2 / sigma^3, exact while cut sigma keeps its integer part.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from backfield.errors import InputError
from backfield.kernels.compile import kernel, part
from backfield.kernels.gaussian.base import Collector, check_bandwidths, float_type

#: Columns of an axis that are filtered at a time, so they stay in the cache.
_COLUMNS = 16


class Separable:
    """The filter of a grid of the given shape.

    Parameters
    ----------
    shape
        The length of each axis; values are in row-major order.
    bandwidths
        In pixels: one for all axes, or one for each.
    dtype
        Of the values: float32 or float64.
    cut
        Bandwidths beyond which the kernel is 0.
    """

    def __init__(self, shape: Any, bandwidths: Any, dtype: Any = np.float64, *, cut: float = 4.0) -> None:
        self.shape = tuple(int(length) for length in shape)
        if not self.shape or min(self.shape) < 1:
            raise InputError(f"a grid needs axes of length 1 or more, received the shape {self.shape}.")
        if not 0 < cut < np.inf:
            raise InputError(f"cut must be a positive number of bandwidths, received {cut!r}.")
        self.n, self.d = int(np.prod(self.shape)), len(self.shape)
        self.dtype = float_type(dtype)
        self.bandwidths = check_bandwidths(bandwidths, self.d)
        axes = list(zip(self.shape, self.bandwidths, strict=True))
        self.taps = [_taps(length, sigma, cut).astype(self.dtype) for length, sigma in axes]
        self.slopes = [
            (taps * np.arange(len(taps)) ** 2 / sigma**3).astype(self.dtype)
            for taps, sigma in zip(self.taps, self.bandwidths, strict=True)
        ]

    def apply(self, q: np.ndarray, before: np.ndarray, after: np.ndarray, out: np.ndarray) -> None:
        """Add diag(after) K diag(before) q to ``out``."""
        _scale_and_add(self._filtered(q, before, self.taps), after, out)

    def transpose(self, d_out: np.ndarray, before: np.ndarray, after: np.ndarray, d_q: np.ndarray) -> None:
        """Add diag(before) K' diag(after) d_out to ``d_q``; K is symmetric."""
        self.apply(d_out, after, before, d_q)

    def vjp(
        self, q: np.ndarray, d_out: np.ndarray, before: np.ndarray, after: np.ndarray, d_q: np.ndarray, d: Collector
    ) -> None:
        """Add the adjoints of q, of the bandwidths and of the scales."""
        back = self._filtered(d_out, after, self.taps)
        _scale_and_add(back, before, d_q)
        d.before += np.einsum("ia,ia->i", q, back)
        d.after += np.einsum("ia,ia->i", d_out, self._filtered(q, before, self.taps))
        for axis in range(self.d):
            taps = [self.slopes[k] if k == axis else self.taps[k] for k in range(self.d)]
            moved = np.einsum("ia,ia->i", d_out, self._filtered(q, before, taps))
            d.parameters[axis] += np.dot(moved.astype(np.float64), after)

    def collector(self) -> Collector:
        """Return an empty collector; parameters are the bandwidths (D,)."""
        return Collector.empty(self.bandwidths, self.n, self.dtype)

    def diagonal(self) -> np.ndarray:
        """Return K_ii = 1."""
        return np.ones(self.n, self.dtype)

    def diagonal_vjp(self, d_diagonal: np.ndarray, d: Collector) -> None:
        """Do nothing: K_ii is constant."""

    def bandwidths_vjp(self, d: Collector) -> np.ndarray:
        """Return the adjoint of the bandwidths (D,)."""
        return d.parameters

    def _filtered(self, q: np.ndarray, before: np.ndarray, taps: list[np.ndarray]) -> np.ndarray:
        """Return K diag(before) q."""
        values = q * before[:, None]
        for axis, along in enumerate(taps):
            length = self.shape[axis]
            shape = int(np.prod(self.shape[:axis], initial=1)), length, values.size // int(np.prod(self.shape[: axis + 1]))
            _convolve(along, values.reshape(shape), values.reshape(shape))
        return values


def _taps(length: int, sigma: float, cut: float) -> np.ndarray:
    """Return G(0, t) for t = 0 .. cut sigma, and zeros up to 1 + a multiple of four."""
    t = np.arange(min(int(cut * sigma), length - 1) + 1)
    taps = np.exp(-((t / sigma) ** 2) / 2)
    return np.concatenate([taps, np.zeros(-(len(t) - 1) % 4)])


@kernel
def _scale_and_add(values, after, out):
    for i in range(len(out)):
        for a in range(out.shape[1]):
            out[i, a] += after[i] * values[i, a]


@kernel
def _convolve(taps, values, out):
    """Filter the middle axis; ``out`` may be ``values``. The taps are 1 + a multiple of four, filled up with zeros."""
    outer, length, inner = values.shape
    reach = len(taps) - 1
    columns = min(inner, _COLUMNS)
    for first in range(0, inner, columns):
        step = min(columns, inner - first)
        padded = np.zeros((length + 2 * reach) * step, values.dtype)  # columns with zeros around them
        middle, result = reach * step, np.empty(length * step, values.dtype)
        for o in range(outer):
            _copy(values[o, :, first : first + step], padded[middle : middle + length * step].reshape(length, step))
            _sum_taps(taps, padded, middle, step, length * step, result)
            _copy(result.reshape(length, step), out[o, :, first : first + step])


@part
def _copy(rows, out):
    for s in range(len(rows)):
        row, into = rows[s], out[s]
        for x in range(len(row)):
            into[x] = row[x]


@part
def _sum_taps(taps, padded, middle, step, count, result):
    """Write the sums for one line of columns, four taps at a time: the result goes through memory once for each."""
    # Slices begin at 0: an index that may be negative keeps LLVM from vectors.
    centre = padded[middle : middle + count]
    for x in range(count):
        result[x] = taps[0] * centre[x]
    for t in range(1, len(taps), 4):
        a, b, c, d = taps[t], taps[t + 1], taps[t + 2], taps[t + 3]
        low, high = middle - t * step, middle + t * step
        a0, a1 = padded[low : low + count], padded[high : high + count]
        b0, b1 = padded[low - step : low - step + count], padded[high + step : high + step + count]
        c0, c1 = padded[low - 2 * step : low - 2 * step + count], padded[high + 2 * step : high + 2 * step + count]
        d0, d1 = padded[low - 3 * step : low - 3 * step + count], padded[high + 3 * step : high + 3 * step + count]
        for x in range(count):
            result[x] += a * (a0[x] + a1[x]) + b * (b0[x] + b1[x]) + c * (c0[x] + c1[x]) + d * (d0[x] + d1[x])
