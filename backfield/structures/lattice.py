"""What images and volumes share: variables on a grid, each joined to its neighbours.

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
from backfield.errors import InputError
from backfield.graph import Graph
from backfield.graph.lattice import Lattice, Offset, checked_offsets, inside, neighbourhood
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
        return Graph.grid(sample.shape, n_labels, offsets=self.steps)

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
