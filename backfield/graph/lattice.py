"""Grids of any number of dimensions: their shape, their offsets, and what follows from both without a look at the factors.

A factor joins the variables at x and x + o, for each of the offsets o; factors are numbered offset by offset, row-major by
their first end. The factors of one offset are straight lines, so each offset gives an acyclic cover: with K offsets,
rho = 1 / K is a distribution over acyclic subsets, and no other does better on large grids, which have K edges per variable.

Colours: variables are put into classes by their coordinates modulo ``periods``, the smallest for which no offset joins two
variables of a class; classes that no offset joins share a colour. All variables of a colour can send messages at once. The
colours of 4- and 6-connected grids are red and black; 8, 18 and 26 neighbours need 4, 4 and 8 colours.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from backfield.errors import InputError

Offset = tuple[int, ...]

#: Offsets of images have names.
_NAMES: dict[Offset, str] = {(0, 1): "horizontal", (1, 0): "vertical", (1, 1): "down-right", (1, -1): "down-left"}
#: Periods are looked for up to this one first; beyond, one more than the longest step along the axis always serves.
_SHORT_PERIOD = 7


class Edges(NamedTuple):
    """Where the factors of a lattice lie among row-major variables, for kernels."""

    extent: np.ndarray  # (K, N) numbers of first ends along each axis
    corner: np.ndarray  # (K,) the first of them
    step: np.ndarray  # (K,) from the first to the second end
    strides: np.ndarray  # (N,)


@dataclass(frozen=True)
class Lattice:
    """A grid of row-major variables with one group of factors for each offset.

    Parameters
    ----------
    shape : tuple of int
        Number of variables along each axis.
    offsets : tuple of tuples of int
        Steps from the first to the second variable of a factor.
    """

    shape: tuple[int, ...]
    offsets: tuple[Offset, ...]

    @cached_property
    def n_variables(self) -> int:
        """Number of variables."""
        return math.prod(self.shape)

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """Number of factors of each offset; 0 where it steps out of the grid everywhere."""
        return tuple(math.prod(self.extent(offset)) for offset in self.offsets)

    def extent(self, offset: Offset) -> tuple[int, ...]:
        """Return along how many places of each axis an offset stays inside."""
        return tuple(max(0, n - abs(o)) for n, o in zip(self.shape, offset, strict=True))

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the groups."""
        return tuple(_NAMES.get(offset, str(offset)) for offset in self.offsets)

    @cached_property
    def n_covers(self) -> int:
        """Number of offsets that have factors: as many sets of straight lines cover the grid."""
        return sum(size > 0 for size in self.sizes)

    @property
    def image_shape(self) -> tuple[int, int] | None:
        """(rows, columns) of a 4-connected grid of two dimensions, else None."""
        return self.shape if self.offsets == axes(2) else None  # type: ignore[return-value]

    @property
    def image_stack(self) -> tuple[int, int, int] | None:
        """(images, rows, columns) of one or several 4-connected images of one size, with nothing between them, else None."""
        if self.offsets == axes(2):
            return (1, *self.shape)  # type: ignore[return-value]
        return self.shape if self.offsets == axes(3)[:2] else None  # type: ignore[return-value]

    @property
    def strides(self) -> tuple[int, ...]:
        """By how much the number of a variable grows along each axis."""
        return tuple(math.prod(self.shape[k + 1 :]) for k in range(len(self.shape)))

    def scope(self) -> np.ndarray:
        """Return the two variables of every factor, (F, 2)."""
        index = np.arange(self.n_variables).reshape(self.shape)
        pairs = []
        for offset in self.offsets:
            ends = (index[inside(self.shape, offset, end)].ravel() for end in (0, 1))
            pairs.append(np.stack(list(ends), axis=1))
        return np.concatenate(pairs)

    @cached_property
    def edges(self) -> Edges:
        """Where the factors lie."""
        strides, offsets = np.array(self.strides), np.array(self.offsets)
        extent = np.array([self.extent(offset) for offset in self.offsets])
        return Edges(*map(_frozen, (extent, np.maximum(-offsets, 0) @ strides, offsets @ strides, strides)))

    @cached_property
    def periods(self) -> tuple[int, ...]:
        """The smallest period of each axis such that no offset joins two variables of equal coordinates modulo them."""
        longest = [max(abs(offset[k]) for offset in self.offsets) for k in range(len(self.shape))]
        for most in (_SHORT_PERIOD, max(longest) + 1):
            choices = itertools.product(*(range(1, min(step + 1, most) + 1) for step in longest))
            for periods in sorted(choices, key=lambda each: (math.prod(each), each)):
                if all(any(o % p for o, p in zip(offset, periods, strict=True)) for offset in self.offsets):
                    return periods
        raise AssertionError("one more than the longest step along each axis is always a period")

    @cached_property
    def class_colours(self) -> np.ndarray:
        """The colour of each class of coordinates modulo ``periods``: the lowest that none joined to it has."""
        colours = np.full(self.periods, -1)
        for place in np.ndindex(*self.periods):
            steps = [*self.offsets, *(tuple(-o for o in offset) for offset in self.offsets)]
            near = {int(colours[_wrapped(place, step, self.periods)]) for step in steps}
            colours[place] = next(colour for colour in itertools.count() if colour not in near)
        return colours

    @property
    def n_colours(self) -> int:
        """Number of colours."""
        return int(self.class_colours.max()) + 1

    def colours(self) -> np.ndarray:
        """Return the colour of each variable, (n,)."""
        axes = (np.arange(n) % p for n, p in zip(self.shape, self.periods, strict=True))
        return self.class_colours[np.ix_(*axes)].reshape(-1)


def inside(shape: tuple[int, ...], offset: Offset, end: int) -> tuple[slice, ...]:
    """Return where the first (0) or second (1) ends of an offset lie."""
    starts = (max(0, o if end else -o) for o in offset)
    return tuple(slice(start, start + max(0, n - abs(o))) for start, n, o in zip(starts, shape, offset, strict=True))


def _frozen(array: np.ndarray) -> np.ndarray:
    array = np.ascontiguousarray(array, dtype=np.int64)
    array.flags.writeable = False
    return array


def _wrapped(place: tuple[int, ...], step: Offset, periods: tuple[int, ...]) -> tuple[int, ...]:
    return tuple((x + o) % p for x, o, p in zip(place, step, periods, strict=True))


def axes(n_axes: int) -> tuple[Offset, ...]:
    """Return the offsets along the axes, the last axis first."""
    return tuple(tuple(int(k == axis) for k in range(n_axes)) for axis in reversed(range(n_axes)))


def box(n_axes: int, reach: int) -> tuple[Offset, ...]:
    """Return the offsets with steps of at most one along at most ``reach`` axes: the axes first, then the diagonals."""
    every = itertools.product((0, 1, -1), repeat=n_axes)
    ahead = [step for step in every if any(step) and next(o for o in step if o) > 0]
    near = [step for step in ahead if np.count_nonzero(step) <= reach]
    return tuple(sorted(near, key=lambda step: (np.count_nonzero(step), [abs(o) for o in step], [-o for o in step])))


def neighbourhood(n_axes: int, neighbours: Any) -> tuple[Offset, ...]:
    """Return the offsets of 4 or 8 neighbours in two dimensions, of 6, 18 or 26 in three; None: along the axes."""
    if neighbours is None:
        return axes(n_axes)
    known = {2 * len(found): found for found in (box(n_axes, reach) for reach in range(1, n_axes + 1))}
    if isinstance(neighbours, bool) or not isinstance(neighbours, int | np.integer) or neighbours not in known:
        counts = [str(count) for count in known]
        listed = " or ".join([", ".join(counts[:-1]), counts[-1]] if len(counts) > 1 else counts)
        raise InputError(f"a grid of {n_axes} dimensions has {listed} neighbours, received {neighbours!r}.")
    return known[int(neighbours)]


def checked_offsets(n_axes: int, offsets: Any) -> tuple[Offset, ...]:
    """Return offsets as tuples of int; those that are no steps, and those that name the same pairs twice, are refused."""
    if isinstance(offsets, np.ndarray):
        offsets = offsets.tolist()
    if isinstance(offsets, str | bytes) or not isinstance(offsets, Sequence) or len(offsets) == 0:
        raise InputError(f"offsets must list at least one step of {n_axes} integers, received {offsets!r}.")
    out: list[Offset] = []
    for offset in offsets:
        step = _checked_offset(n_axes, offset)
        if step in out:
            raise InputError(f"the offset {step} occurs twice.")
        if tuple(-o for o in step) in out:
            raise InputError(f"the offsets {tuple(-o for o in step)} and {step} join the same variables; give one of them.")
        out.append(step)
    return tuple(out)


def _checked_offset(n_axes: int, offset: Any) -> Offset:
    try:
        array = np.asarray(offset)
    except ValueError:
        array = np.empty(0)
    if array.shape != (n_axes,) or array.dtype.kind not in "iu":
        raise InputError(f"an offset of this grid has {n_axes} integers, received {offset!r}.")
    step = tuple(int(o) for o in array)
    if not any(step):
        raise InputError(f"the offset {step} joins a variable to itself.")
    return step


def checked_shape(shape: Any) -> tuple[int, ...]:
    """Return a shape as a tuple of positive ints."""
    sizes = tuple(shape)
    if not sizes:
        raise InputError("a grid needs at least one dimension, received the shape ().")
    for size in sizes:
        if isinstance(size, bool | np.bool_) or not isinstance(size, int | np.integer) or size < 1:
            raise InputError(f"the sizes of a grid must be positive integers, received {size!r} in {sizes!r}.")
    return tuple(int(size) for size in sizes)
