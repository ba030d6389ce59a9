"""Images and volumes: pixels or voxels on a grid, each joined to its neighbours.

Without ``spacing`` each offset has its own weights. With it all offsets share one set of weights, which multiplies the
inverse distance of the two variables, in units of the shortest: theta = T_0 + T_1 / d. ``contrast`` adds the feature
|x_i - x_j| (over d, with ``spacing``). Both are local: a tile has the edge features that the whole has there.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from backfield.constraints import check, flag
from backfield.data.codecs import Codec, GridCodec
from backfield.data.format import Format
from backfield.data.kinds import ArrayFile, ImageArrays, ImageFolder
from backfield.data.samples import GridSample
from backfield.data.slice_folder import SliceFolder
from backfield.data.stack_folder import StackFolder
from backfield.data.windows import Window, read_window
from backfield.errors import InputError
from backfield.graph import Graph
from backfield.graph.lattice import Lattice, Offset, axes, checked_offsets, inside, neighbourhood
from backfield.registry import plain
from backfield.structures.base import Instance, Structure


@dataclass(frozen=True, repr=False)
class Gridded(Structure):
    """Arrays whose last axis holds features.

    Parameters
    ----------
    neighbours : int
        To how many others a variable inside is joined.
    offsets : list of tuples of int, optional
        Instead of ``neighbours``, the steps to them; one of each step and its opposite.
    spacing : tuple of float, optional
        Distance of neighbours along each axis: weights are then shared and multiply the inverse distance.
    contrast : bool
        The distance of the features of its two ends is a feature of an edge.
    """

    neighbours: Any = None
    offsets: Any = None
    spacing: Any = None
    contrast: bool = False

    #: Number of axes, and what an entry of X must be.
    n_axes: ClassVar[int]
    form: ClassVar[str]

    def __post_init__(self) -> None:
        check({"contrast": self.contrast}, {"contrast": (flag,)})
        # Lists, as model files have them, become tuples: a part has a hash.
        if self.offsets is not None:
            object.__setattr__(self, "offsets", checked_offsets(self.n_axes, self.offsets))
        if self.spacing is not None:
            object.__setattr__(self, "spacing", _checked_spacing(self.spacing, self.n_axes))
        _ = self.steps

    @cached_property
    def steps(self) -> tuple[Offset, ...]:
        """The offsets of the grid."""
        return neighbourhood(self.n_axes, self.neighbours) if self.offsets is None else self.offsets

    @cached_property
    def inverse_distances(self) -> np.ndarray | None:
        """1 / d of each offset, the largest of them 1; None without spacing."""
        if self.spacing is None:
            return None
        length = np.linalg.norm(np.array(self.steps) * np.array(self.spacing), axis=1)
        return np.asarray(length.min() / length)

    def sample(self, x: Any, names: dict[str, int] | None = None) -> Instance:
        """Return the instance of an array."""
        return self._instance(self._array(x))

    def graph(self, sample: Instance, n_labels: int) -> Graph:
        """Return the grid."""
        return Graph.of_lattice(Lattice(sample.shape, self.steps), n_labels)

    def _array(self, x: Any) -> np.ndarray:
        try:
            array = np.asarray(x)
        except ValueError as error:
            raise InputError(f"{self._what} must have shape {self.form}, received rows of different lengths.") from error
        if array.ndim == self.n_axes:
            array = array[..., None]
        if array.ndim != self.n_axes + 1 or 0 in array.shape:
            raise InputError(f"{self._what} must have shape {self.form}, received {array.shape}.")
        if array.dtype.kind not in "biuf":
            raise InputError(f"{self._what} must hold numbers, received dtype {array.dtype}.")
        return array

    @property
    def _what(self) -> str:
        return f"{'an' if self.unit[0][0] in 'aeiou' else 'a'} {self.unit[0]}"

    def _instance(self, array: np.ndarray, given: np.ndarray | None = None) -> Instance:
        """Return the instance of an array with edge features of the user's, offset by offset."""
        lattice = Lattice(array.shape[:-1], self.steps)
        columns = [] if given is None else [given]
        columns += [column[:, None] for column in self._columns(array, lattice)]
        own = self.spacing is None
        return Instance(
            lattice.shape,
            sum(lattice.sizes),
            array.reshape(-1, array.shape[-1]),
            np.concatenate(columns, axis=1) if columns else None,
            factor_types=np.repeat(np.arange(len(lattice.sizes)), lattice.sizes) if own else None,
        )

    def _columns(self, array: np.ndarray, lattice: Lattice) -> list[np.ndarray]:
        """Return the features that the structure gives to edges."""
        dtype = np.result_type(array, np.float32)
        weight = np.ones(len(lattice.sizes)) if self.inverse_distances is None else self.inverse_distances
        out = [] if self.spacing is None else [np.repeat(weight.astype(dtype), lattice.sizes)]
        if self.contrast:
            parts = (scale * _contrast(array, offset) for scale, offset in zip(weight, lattice.offsets, strict=True))
            out.append(np.concatenate(list(parts)).astype(dtype))
        return out


@dataclass(frozen=True, repr=False)
class Grid(Gridded, name="grid"):
    """Images: (H, W, F) arrays or :class:`GridSample` s; edges of each direction have their own weights."""

    neighbours: Any = 4

    n_axes: ClassVar[int] = 2
    form: ClassVar[str] = "(H, W, F)"
    unit: ClassVar[tuple[str, str]] = ("image", "pixel")
    codec: ClassVar[Codec] = GridCodec()
    files: ClassVar[tuple[Format, ...]] = (ImageFolder(), ImageArrays(), StackFolder(2))
    files_if_named: ClassVar[tuple[Format, ...]] = (SliceFolder(),)

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


@dataclass(frozen=True, repr=False)
class Volume(Gridded, name="volume"):
    """Volumes: (D, H, W, F) arrays, labels (D, H, W); 6, 18 or 26 neighbours, or offsets."""

    neighbours: Any = 6

    n_axes: ClassVar[int] = 3
    form: ClassVar[str] = "(D, H, W, F)"
    unit: ClassVar[tuple[str, str]] = ("volume", "voxel")
    files: ClassVar[tuple[Format, ...]] = (ArrayFile(), StackFolder(3))

    def holds(self, x: Any, y: Any = None) -> bool:
        """Whether x is a volume: four axes, or labels with three."""
        mask = y is not None and np.ndim(y) == 3 and np.asarray(y).dtype.kind in "iu"
        return np.ndim(x) == 4 or mask


def _contrast(array: np.ndarray, offset: Offset) -> np.ndarray:
    """Return the Euclidean distance of the features of the two ends of each edge."""
    first, second = (array[inside(array.shape[:-1], offset, end)] for end in (0, 1))
    difference = first.astype(np.float64) - second
    return np.sqrt(np.square(difference, out=difference).sum(axis=-1)).reshape(-1)


def _checked_spacing(spacing: Any, n_axes: int) -> tuple[float, ...]:
    try:
        array = np.asarray(spacing, dtype=np.float64)
    except (TypeError, ValueError):
        array = np.empty(0)
    if array.shape != (n_axes,) or not ((array > 0) & np.isfinite(array)).all():
        raise InputError(f"spacing must be {n_axes} positive numbers, one for each axis, received {spacing!r}.")
    return tuple(plain(array))


def _edge_features(across: np.ndarray, down: np.ndarray, height: int, width: int) -> np.ndarray:
    for edge, shape in ((across, (height, width - 1)), (down, (height - 1, width))):
        if edge.ndim != 3 or edge.shape[:2] != shape:
            raise InputError(f"edge features must have shape ({shape[0]}, {shape[1]}, D), received {edge.shape}.")
    if across.shape[2] != down.shape[2]:
        raise InputError("horizontal and vertical edges must have the same number of features.")
    return np.concatenate([edge.reshape(-1, across.shape[2]) for edge in (across, down)])
