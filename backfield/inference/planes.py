"""How kernels of grids of any dimension store what belongs to variables: class by class, so colours are vector loops.

A *plane* holds the variables of one class of coordinates modulo the periods of the lattice (see ``graph.lattice``), at
``place = first + sum_k (x_k // period_k) stride_k``. In direction d, every neighbour of a plane's variables lies in one
other plane at one constant shift in places, and thousands of variables are one vector loop. Along each axis there are a few
places more than variables: neighbours that border variables lack lie there. Beyond both ends there is a margin of two of the
longest shifts, of which the inner one takes part in the loops: all messages into a variable are written in every sweep.

Directions 0 .. K - 1 step along the offsets, K .. 2 K - 1 against them.
"""

from __future__ import annotations

import math
from functools import cached_property

import numpy as np

from backfield.graph import Graph
from backfield.graph.lattice import Lattice


class Planes:
    """The storage of a lattice (see the module's docstring)."""

    def __init__(self, lattice: Lattice) -> None:
        self.lattice = lattice
        periods = lattice.periods
        ahead = np.array(lattice.offsets) * (np.array(lattice.sizes) > 0)[:, None]  # one that steps out stays where it is
        steps = np.concatenate([ahead, -ahead])  # (2 K, N)
        classes = np.array(list(np.ndindex(*periods)))  # (P, N)
        moved = steps[:, None] + classes[None]
        whole, rest = np.divmod(moved, periods)
        counts = [-(-n // p) for n, p in zip(lattice.shape, periods, strict=True)]
        strides = _strides(counts, np.abs(whole).max(axis=(0, 1)))
        #: (2 K, P) plane and shift of the neighbour in each direction.
        self.to = _frozen(np.ravel_multi_index(tuple(np.moveaxis(rest, -1, 0)), periods))
        self.shift = _frozen(whole @ strides)
        self.colour = lattice.class_colours.reshape(-1)
        #: (P,) planes in the order in which they send.
        self.order = _frozen(np.argsort(self.colour, kind="stable"))
        margin = int(np.abs(self.shift).max())
        extent = int((np.array(counts) - 1) @ strides) + 1
        #: Places that take part in loops, and number of places.
        self.first, self.last, self.length = margin, 3 * margin + extent, 4 * margin + extent
        self._strides, self._origin = strides, 2 * margin

    @property
    def n_planes(self) -> int:
        """Number of planes."""
        return len(self.order)

    @cached_property
    def place(self) -> np.ndarray:
        """(n,) where each variable is in planes that follow one another."""
        shape, periods = self.lattice.shape, self.lattice.periods
        out = np.full(shape, self._origin, dtype=np.int64)
        plane = np.zeros(shape, dtype=np.int64)
        for axis, (n, p) in enumerate(zip(shape, periods, strict=True)):
            along = [1] * len(shape)
            along[axis] = n
            whole, rest = np.divmod(np.arange(n).reshape(along), p)
            out += whole * self._strides[axis]
            plane = plane * p + rest
        return _frozen((out + plane * self.length).reshape(-1))

    @cached_property
    def updated(self) -> np.ndarray:
        """(2 K, P) whether the neighbour in each direction sends before the variable itself, in a sweep."""
        return _frozen(self.colour[self.to] < self.colour[None])

    def lags(self, sequence: np.ndarray) -> np.ndarray:
        """Return by how many places each plane of a sequence of steps must stay behind, all going through places in turn.

        A step reads and writes at the neighbours of its variables: where a plane joined to it came before, that one must
        be ahead by the longest shift between them, and a plane's own last step must not be behind.
        """
        out = np.zeros(len(sequence), dtype=np.int64)
        latest = np.full(self.n_planes, -1)
        for k, plane in enumerate(sequence):
            if latest[plane] >= 0:
                out[k] = out[latest[plane]]
            for d in range(len(self.to)):
                before = latest[self.to[d, plane]]
                if before >= 0:
                    out[k] = max(out[k], out[before] + self.shift[d, plane])
            latest[plane] = k
        return _frozen(out)


def planes(graph: Graph) -> Planes:
    """Return the storage of a grid (compiled once)."""
    assert graph.lattice is not None
    lattice = graph.lattice
    built: Planes = graph.compiled("planes", lambda: Planes(lattice))
    return built


def _strides(counts: list[int], reach: np.ndarray) -> np.ndarray:
    sizes = [count + int(more) for count, more in zip(counts, reach, strict=True)]
    return np.array([math.prod(sizes[k + 1 :]) for k in range(len(sizes))], dtype=np.int64)


def _frozen(array: np.ndarray) -> np.ndarray:
    array = np.ascontiguousarray(array, dtype=np.int64)
    array.flags.writeable = False
    return array
