"""Which features a kernel of a dense field looks at: ``"position(3)"``, ``"bilateral(60, 10)"``, ``"features(2)"``."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar, NamedTuple

import numpy as np

from backfield.errors import InputError
from backfield.kernels.gaussian import MAX_DIMENSIONS
from backfield.registry import Component


class Points(NamedTuple):
    """Features (n, d) of the variables for one kernel; bandwidth g serves the next ``widths[g]`` of them."""

    features: np.ndarray
    widths: tuple[int, ...]


class KernelSpec(Component):
    """A kernel: which features it looks at, with which bandwidths and weight it starts."""

    room: ClassVar[str] = "kernel_specs"
    weight: float

    @property
    def bandwidths(self) -> tuple[float, ...]:
        """The bandwidths to start from."""
        raise NotImplementedError

    def points(self, shape: tuple[int, ...], values: np.ndarray) -> Points:
        """Return what the kernel sees of values (n, F) that lie on a grid of a shape, or (n,) for points."""
        raise NotImplementedError

    def _check(self) -> None:
        for value in self.bandwidths:
            if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < np.inf:
                raise InputError(f"{self!r}: bandwidths must be positive numbers, received {value!r}.")
        if isinstance(self.weight, bool) or not isinstance(self.weight, int | float) or not np.isfinite(self.weight):
            raise InputError(f"{self!r}: the weight must be a finite number.")

    def _check_channels(self, channels: Any) -> None:
        listed = isinstance(channels, list | tuple) and all(type(k) is int and k >= 0 for k in channels)
        if channels is not None and not (listed and channels):
            raise InputError(f"{self!r}: channels must list numbers of features, such as [0, 2].")


@dataclass(frozen=True, repr=False)
class Position(KernelSpec, name="position"):
    """Nearness: positions of pixels or voxels; of points the first three features."""

    scale: float = 3.0
    weight: float = 1.0

    def __post_init__(self) -> None:
        self._check()

    @property
    def bandwidths(self) -> tuple[float, ...]:
        """One for all axes."""
        return (self.scale,)

    def points(self, shape: tuple[int, ...], values: np.ndarray) -> Points:
        """Return positions."""
        places = positions(shape, values)
        return Points(places, (places.shape[1],))


@dataclass(frozen=True, repr=False)
class Bilateral(KernelSpec, name="bilateral"):
    """Nearness and equal colour: positions and the first three features after them, or ``channels``.

    Colours are meant as 0 .. 255; where all of an example lie within 0 .. 1 they are multiplied by 255.
    """

    scale: float = 60.0
    colour: float = 10.0
    weight: float = 2.0
    channels: Any = None

    def __post_init__(self) -> None:
        self._check()
        self._check_channels(self.channels)

    @property
    def bandwidths(self) -> tuple[float, ...]:
        """One for the axes, one for the colours."""
        return (self.scale, self.colour)

    def points(self, shape: tuple[int, ...], values: np.ndarray) -> Points:
        """Return positions and colours."""
        places = positions(shape, values)
        first = places.shape[1] if len(shape) == 1 else 0
        colours = _columns(self, values, self.channels, first)
        low, high = colours.min(initial=0.0), colours.max(initial=0.0)
        if colours.dtype.kind == "f" and low >= 0 and high <= 1:
            colours = colours * 255
        return Points(np.concatenate([places, colours], axis=1, dtype=np.float32), (places.shape[1], colours.shape[1]))


@dataclass(frozen=True, repr=False)
class Features(KernelSpec, name="features"):
    """Equal features, wherever they are: all of them, or ``channels``."""

    scale: float = 1.0
    weight: float = 1.0
    channels: Any = None

    def __post_init__(self) -> None:
        self._check()
        self._check_channels(self.channels)

    @property
    def bandwidths(self) -> tuple[float, ...]:
        """One for all features."""
        return (self.scale,)

    def points(self, shape: tuple[int, ...], values: np.ndarray) -> Points:
        """Return the features."""
        chosen = range(values.shape[1]) if self.channels is None else self.channels
        columns = _columns(self, values, list(chosen), 0)
        return Points(np.ascontiguousarray(columns, dtype=np.float32), (columns.shape[1],))


def positions(shape: tuple[int, ...], values: np.ndarray) -> np.ndarray:
    """Return where variables are: on the grid, or in the first three features of points."""
    return _grid(shape) if len(shape) > 1 else np.ascontiguousarray(values[:, :3], dtype=np.float32)


@lru_cache(maxsize=64)
def _grid(shape: tuple[int, ...]) -> np.ndarray:
    """Return the positions of a grid, row by row; images of one size share them."""
    places = np.stack(np.meshgrid(*(np.arange(n, dtype=np.float32) for n in shape), indexing="ij"), axis=-1)
    return places.reshape(-1, len(shape))


def _columns(spec: KernelSpec, values: np.ndarray, channels: Any, first: int) -> np.ndarray:
    count = values.shape[1]
    chosen = list(range(first, min(first + 3, count))) if channels is None else list(channels)
    if not chosen or max(chosen) >= count:
        raise InputError(f"{spec!r} needs features {chosen or 'after the positions'}; there are {count}.")
    if len(chosen) > MAX_DIMENSIONS:
        raise InputError(
            f"{spec!r} looks at {len(chosen)} features; a lattice takes at most {MAX_DIMENSIONS}: give channels=."
        )
    return values[:, chosen]
