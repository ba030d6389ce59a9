"""Arrays whose windows are computed on demand from windows of another array, somewhat larger ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from backfield.errors import InputError

#: (block, start of the window, where the window lies in the block) -> values of the window.
Make = Callable[[np.ndarray, tuple[int, ...], tuple[slice, ...]], np.ndarray]


class LazyArray:
    """Features of an image that need not fit into memory: ``shape``, ``dtype``, and windows by ``[...]``.

    ``predict(array, tile=...)`` reads it tile by tile; numpy computes all of it at once.

    Parameters
    ----------
    image : array
        Anything with windows: numpy, memory map, zarr.
    extent : tuple of int
        Of the image without channels.
    n_features : int
    reach : tuple of int
        How far a feature looks along each axis. Outside, the image is mirrored.
    make : callable
        Computes a window from a block.
    """

    def __init__(self, image: Any, extent: tuple[int, ...], n_features: int, reach: tuple[int, ...], make: Make) -> None:
        self.image, self.extent, self.reach, self.make = image, extent, reach, make
        self.shape, self.dtype = (*extent, n_features), np.dtype(np.float32)

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return len(self.shape)

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, index: Any) -> np.ndarray:
        window = self._window(index)
        parts, pads = [], []
        for part, length, reach in zip(window, self.extent, self.reach, strict=True):
            first, last = part.start - reach, part.stop + reach
            parts.append(slice(max(0, first), min(length, last)))
            pads.append((max(0, -first), max(0, last - length)))
        image = self.image if hasattr(self.image, "shape") else np.asarray(self.image)
        block = np.asarray(image[tuple(parts)])
        block = np.pad(block, pads + [(0, 0)] * (block.ndim - len(pads)), mode="symmetric")
        inner = tuple(slice(r, r + part.stop - part.start) for r, part in zip(self.reach, window, strict=True))
        return self.make(block, tuple(part.start for part in window), inner)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        values = self[...]
        return values if dtype is None else values.astype(dtype, copy=False)

    def _window(self, index: Any) -> list[slice]:
        parts = [part for part in (index if isinstance(index, tuple) else (index,)) if part is not Ellipsis]
        if len(parts) > len(self.extent) or not all(isinstance(p, slice) and p.step in (None, 1) for p in parts):
            raise InputError(f"features are computed in windows of {len(self.extent)} slices, received [{index!r}].")
        parts += [slice(None)] * (len(self.extent) - len(parts))
        window = [slice(*part.indices(n)[:2]) for part, n in zip(parts, self.extent, strict=True)]
        if any(part.stop <= part.start for part in window):
            raise InputError(f"a window of features must not be empty, received [{index!r}] of shape {self.shape}.")
        return window
