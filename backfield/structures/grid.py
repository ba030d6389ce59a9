"""Pixels of images, each joined to its four neighbours."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from backfield.data.codecs import Codec, GridCodec
from backfield.data.format import Format
from backfield.data.kinds import ImageArrays, ImageFolder
from backfield.data.samples import GridSample
from backfield.errors import InputError
from backfield.graph import Graph
from backfield.structures.base import Instance, Structure


@dataclass(frozen=True, repr=False)
class Grid(Structure, name="grid"):
    """Images: (H, W, F) arrays or :class:`GridSample` s; horizontal and vertical edges have weights of their own."""

    unit: ClassVar[tuple[str, str]] = ("image", "pixel")
    codec: ClassVar[Codec] = GridCodec()
    files: ClassVar[tuple[Format, ...]] = (ImageFolder(), ImageArrays())

    def holds(self, x: Any, y: Any = None) -> bool:
        """Whether x is an image: three axes, or labels with two."""
        mask = y is not None and np.ndim(y) == 2 and np.asarray(y).dtype != bool
        return isinstance(x, GridSample) or np.ndim(x) == 3 or mask

    def sample(self, x: Any, names: dict[str, int] | None = None) -> Instance:
        """Return the instance of an image."""
        edges = None
        if isinstance(x, GridSample):
            edges, x = (np.asarray(x.horizontal), np.asarray(x.vertical)), x.features
        array = np.asarray(x)
        if array.ndim == 2:
            array = array[:, :, None]
        if array.ndim != 3 or 0 in array.shape:
            raise InputError(f"an image must have shape (H, W, F), got {array.shape}.")
        height, width, count = array.shape
        across, down = height * (width - 1), (height - 1) * width
        return Instance(
            (height, width),
            across + down,
            array.reshape(height * width, count),
            None if edges is None else _edge_features(*edges, height, width),
            factor_types=np.repeat([0, 1], [across, down]),
        )

    def graph(self, sample: Instance, n_labels: int) -> Graph:
        """Return the grid."""
        height, width = sample.shape
        return Graph.grid(height, width, labels=n_labels)


def _edge_features(across: np.ndarray, down: np.ndarray, height: int, width: int) -> np.ndarray:
    for edge, shape in ((across, (height, width - 1)), (down, (height - 1, width))):
        if edge.ndim != 3 or edge.shape[:2] != shape:
            raise InputError(f"edge features must have shape ({shape[0]}, {shape[1]}, D), got {edge.shape}.")
    if across.shape[2] != down.shape[2]:
        raise InputError("horizontal and vertical edges must have the same number of features.")
    return np.concatenate([edge.reshape(-1, across.shape[2]) for edge in (across, down)])
