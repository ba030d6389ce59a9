"""Pixels of images, each joined to its neighbours."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from backfield.data.codecs import Codec, GridCodec
from backfield.data.format import Format
from backfield.data.kinds import ImageArrays, ImageFolder
from backfield.data.samples import GridSample
from backfield.data.stack_folder import StackFolder
from backfield.data.windows import Window, read_window
from backfield.errors import InputError
from backfield.graph.lattice import axes
from backfield.structures.base import Instance
from backfield.structures.lattice import Gridded


@dataclass(frozen=True, repr=False)
class Grid(Gridded, name="grid"):
    """Images: (H, W, F) arrays or :class:`GridSample` s; edges of each direction have their own weights."""

    neighbours: Any = 4

    n_axes: ClassVar[int] = 2
    form: ClassVar[str] = "(H, W, F)"
    unit: ClassVar[tuple[str, str]] = ("image", "pixel")
    codec: ClassVar[Codec] = GridCodec()
    files: ClassVar[tuple[Format, ...]] = (ImageFolder(), ImageArrays(), StackFolder(2))

    def holds(self, x: Any, y: Any = None) -> bool:
        """Whether x is an image: three axes, or labels with two."""
        mask = y is not None and np.ndim(y) == 2 and np.asarray(y).dtype != bool
        return isinstance(x, GridSample) or np.ndim(x) == 3 or mask

    def sample(self, x: Any, names: dict[str, int] | None = None) -> Instance:
        """Return the instance of an image."""
        if not isinstance(x, GridSample):
            return super().sample(x, names)
        if self.steps != axes(2):
            raise InputError("a GridSample has features of horizontal and vertical edges; it needs a grid of 4 neighbours.")
        array = self._array(x.features)
        return self._instance(array, _edge_features(np.asarray(x.horizontal), np.asarray(x.vertical), *array.shape[:2]))

    def extent(self, x: Any) -> tuple[int, ...]:
        """Return (H, W)."""
        return super().extent(x.features if isinstance(x, GridSample) else x)

    def cut(self, x: Any, window: Window) -> Any:
        """Return a window of an image, with the edges inside of it."""
        if not isinstance(x, GridSample):
            return super().cut(x, window)
        rows, columns = window
        across = rows, slice(columns.start, columns.stop - 1)
        down = slice(rows.start, rows.stop - 1), columns
        parts = (x.features, window), (x.horizontal, across), (x.vertical, down)
        return GridSample(*(read_window(*each) for each in parts))


def _edge_features(across: np.ndarray, down: np.ndarray, height: int, width: int) -> np.ndarray:
    for edge, shape in ((across, (height, width - 1)), (down, (height - 1, width))):
        if edge.ndim != 3 or edge.shape[:2] != shape:
            raise InputError(f"edge features must have shape ({shape[0]}, {shape[1]}, D), received {edge.shape}.")
    if across.shape[2] != down.shape[2]:
        raise InputError("horizontal and vertical edges must have the same number of features.")
    return np.concatenate([edge.reshape(-1, across.shape[2]) for edge in (across, down)])
