"""The filter that suits points: exact for few, along the axes for narrow kernels of a grid, else the lattice."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from backfield.errors import InputError
from backfield.kernels.gaussian.base import Collector, Filter, check_bandwidths, check_features
from backfield.kernels.gaussian.exact import Exact
from backfield.kernels.gaussian.lattice import MAX_DIMENSIONS
from backfield.kernels.gaussian.permutohedral import Permutohedral
from backfield.kernels.gaussian.separable import Separable

#: How a kernel may be filtered.
FILTERS = ("auto", "exact", "lattice", "published", "grid")
#: ``auto``: so many points are filtered exactly,
FEW_POINTS = 512
#: and grids along their axes up to this bandwidth in steps, beyond which the lattice is faster.
NARROW = 2.0


class Axes(NamedTuple):
    """A regular grid: the length of each axis, slowest first, with its column of the features and its step."""

    shape: tuple[int, ...]
    columns: tuple[int, ...]
    steps: tuple[float, ...]


def make_filter(kind: str, features: Any, bandwidths: Any, dtype: Any) -> Filter:
    """Return the filter of points with features (n, d)."""
    points = check_features(features)
    sigma = check_bandwidths(bandwidths, points.shape[1])
    kind = choose(kind, points, sigma)
    if kind == "exact":
        return Exact(points, sigma, dtype)
    if kind == "grid":
        return GridPoints(points, sigma, dtype)
    return Permutohedral(points, sigma, dtype, published=kind == "published")


def choose(kind: str, points: np.ndarray, sigma: np.ndarray) -> str:
    """Return the kind of filter that ``auto`` stands for; others are checked."""
    if kind not in FILTERS:
        raise InputError(f"filter must be one of {', '.join(FILTERS)}, received {kind!r}.")
    n, d = points.shape
    if kind == "auto":
        axes = None if n <= FEW_POINTS else axes_of(points)
        narrow = axes is not None and all(
            sigma[c] <= NARROW * abs(s)
            for c, s, length in zip(axes.columns, axes.steps, axes.shape, strict=True)
            if length > 1
        )
        kind = "exact" if n <= FEW_POINTS else "grid" if narrow else "lattice"
    if kind in ("lattice", "published") and d > MAX_DIMENSIONS:
        raise InputError(
            f"a permutohedral lattice takes at most {MAX_DIMENSIONS} features, received {d}; use fewer, or "
            "filter='exact' where "
            "there are few points."
        )
    return kind


def axes_of(points: np.ndarray) -> Axes | None:
    """Return the grid whose points, row by row, these are; None where they are something else."""
    n, d = points.shape
    shape: list[int] = []
    columns: list[int] = []
    steps: list[float] = []
    stride = 1
    while stride < n:
        moved = np.flatnonzero(points[stride] != points[0])
        if len(moved) != 1 or int(moved[0]) in columns:
            return None
        column = int(moved[0])
        line = points[::stride, column]
        back = np.flatnonzero(line[1:] == line[0])
        length = int(back[0]) + 1 if len(back) else len(line)
        if n % (stride * length):
            return None
        shape, columns, steps = [length, *shape], [column, *columns], [float(line[1] - line[0]), *steps]
        stride *= length
    for column in range(d):
        if column not in columns:
            shape, columns, steps = [1, *shape], [column, *columns], [1.0, *steps]
    axes = Axes(tuple(shape), tuple(columns), tuple(steps))
    return axes if _is_grid(points, axes) else None


def _is_grid(points: np.ndarray, axes: Axes) -> bool:
    box = points.reshape(*axes.shape, points.shape[1])
    for axis, (length, column, step) in enumerate(zip(axes.shape, axes.columns, axes.steps, strict=True)):
        line = points[0, column] + step * np.arange(length).reshape([-1 if k == axis else 1 for k in range(len(axes.shape))])
        if not (np.abs(box[..., column] - line) <= 1e-6 * abs(step)).all():
            return False
    return True


class GridPoints(Separable):
    """:class:`Separable` for points that lie on a regular grid; bandwidths are in units of the features."""

    def __init__(self, points: np.ndarray, sigma: np.ndarray, dtype: Any) -> None:
        axes = axes_of(points)
        if axes is None:
            raise InputError("filter='grid' needs the points of a regular grid, row by row; use filter='lattice'.")
        self.axes = axes
        steps = np.abs(axes.steps)
        # Learned bandwidths jump where a tap is added: beyond 5 bandwidths by 4e-6.
        super().__init__(axes.shape, np.maximum(sigma[list(axes.columns)] / steps, 1e-3), dtype, cut=5.0)

    def bandwidths_vjp(self, d: Collector) -> np.ndarray:
        """Return the adjoint of the bandwidths, one for each column of the features."""
        out = np.zeros(len(self.axes.columns))
        out[list(self.axes.columns)] = super().bandwidths_vjp(d) / np.abs(self.axes.steps)
        return out
