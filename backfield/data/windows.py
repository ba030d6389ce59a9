"""Parts of arrays that need not fit into memory: windows, tiles with a halo, and what can be cut into them.

A tile is a box of pixels that is answered for; to answer, it is looked at with a halo around it, cut off at the border of
the array. Sizes are those of the leading axes; further ones (features, channels) are never cut.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from backfield.constraints import several, whole
from backfield.errors import InputError

Window = tuple[slice, ...]


class Tile(NamedTuple):
    """A box of an array: what is answered for, what is looked at, and where the first lies in the second."""

    core: Window
    outer: Window
    inner: Window


class Tiling(Sequence[Tile]):
    """The tiles of an array, row by row.

    Parameters
    ----------
    shape : tuple of int
        Of the array.
    size : tuple of int
        Of a tile; the last ones along an axis may be smaller.
    halo : tuple of int
        How far around a tile is looked at.
    step : tuple of int
        What is looked at begins at multiples of it.
    """

    def __init__(
        self, shape: tuple[int, ...], size: tuple[int, ...], halo: tuple[int, ...], step: tuple[int, ...] | None = None
    ) -> None:
        self.shape, self.size, self.halo = shape, size, halo
        self.step = (1,) * len(shape) if step is None else step
        self.counts = tuple(-(-n // t) for n, t in zip(shape, size, strict=True))

    def __len__(self) -> int:
        return math.prod(self.counts)

    def __getitem__(self, number: Any) -> Tile:  # type: ignore[override]
        if not 0 <= number < len(self):
            raise IndexError(f"there is no tile {number} among {len(self)}.")
        places = zip(np.unravel_index(number, self.counts), self.size, self.shape, strict=True)
        return self.around(tuple(slice(int(k) * size, min(int(k + 1) * size, n)) for k, size, n in places))

    def around(self, core: Window) -> Tile:
        """Return a box with its halo, whether it is one of the tiles or not."""
        axes = zip(core, self.shape, self.halo, self.step, strict=True)
        return Tile(*(tuple(each) for each in zip(*itertools.starmap(_along_axis, axes), strict=True)))


def _along_axis(core: slice, length: int, halo: int, step: int) -> tuple[slice, slice, slice]:
    first = max(0, core.start - halo)
    first -= first % step
    return core, slice(first, min(core.stop + halo, length)), slice(core.start - first, core.stop - first)


def checked_size(tile: Any, n_axes: int) -> tuple[int, ...]:
    """Return the size of a tile along each axis, of one number for all or one for each."""
    sizes = tuple(tile) if several("").accepts(tile) else (tile,) * n_axes
    if len(sizes) != n_axes or not all(whole(1).accepts(size) for size in sizes):
        raise InputError(f"tile must be an integer of pixels >= 1, or {n_axes} of them; received {tile!r}.")
    return tuple(int(size) for size in sizes)


def shape_of(x: Any, what: str) -> tuple[int, ...]:
    """Return the shape of an array of any kind, without reading it."""
    try:
        shape = tuple(int(n) for n in (x.shape if hasattr(x, "shape") else np.shape(x)))
    except (TypeError, ValueError) as error:
        raise InputError(f"{what} must be an array, received {type(x).__name__}.") from error
    return shape


def read_window(x: Any, window: Window) -> np.ndarray:
    """Return a window of an array of any kind (numpy, memory map, zarr, lazy features), read into memory."""
    return np.asarray(x[window] if hasattr(x, "shape") else np.asarray(x)[window])
