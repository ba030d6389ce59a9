"""Strokes: what a brush, an eraser or a fill changes in a map of labels.

A stroke of the brush labels all pixels (x, y) whose centre is at most size / 2 away from the line through its points; the
page draws by the same rule (``page/strokes.js``). Cost: pixels of the box around each segment.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from scipy.ndimage import label as components

from backfield.errors import InputError

#: The value of a pixel that nobody has painted, in memory and in PNG files.
HIDDEN = 255
KINDS = ("brush", "erase", "fill")
MAX_POINTS = 20_000
MAX_SIZE = 512
_FAR = 1e5


class Box(NamedTuple):
    """A part of an image: columns x .. x + width, rows y .. y + height."""

    x: int
    y: int
    width: int
    height: int

    @property
    def slices(self) -> tuple[slice, slice]:
        """Rows and columns."""
        return slice(self.y, self.y + self.height), slice(self.x, self.x + self.width)

    @property
    def area(self) -> int:
        """Number of pixels."""
        return self.width * self.height

    def grown(self, margin: int, shape: tuple[int, int]) -> Box:
        """Return the box with a margin, as far as the image goes."""
        return clipped(self.x - margin, self.y - margin, self.x + self.width + margin, self.y + self.height + margin, shape)


def clipped(left: float, top: float, right: float, bottom: float, shape: tuple[int, int]) -> Box:
    """Return the pixels between these borders that an image (H, W) has."""
    height, width = shape
    x0, y0 = (int(min(max(v, 0), side)) for v, side in ((left, width), (top, height)))
    x1, y1 = (int(min(max(v, 0), side)) for v, side in ((right, width), (bottom, height)))
    return Box(x0, y0, max(x1 - x0, 0), max(y1 - y0, 0))


@dataclass(frozen=True)
class Stroke:
    """One gesture: a kind, the label it gives (none for the eraser), the diameter and the points (N, 2) as x, y."""

    kind: str
    label: int
    size: float
    points: np.ndarray

    @classmethod
    def parse(cls, content: Any, n_labels: int) -> Stroke:
        """Read a stroke that somebody sent, refused where anything about it is odd."""
        if not isinstance(content, dict):
            raise InputError("a stroke is an object with kind, label, size and points.")
        kind, label, size = content.get("kind"), content.get("label", 0), content.get("size", 1)
        if kind not in KINDS:
            raise InputError(f"the kind of a stroke is one of {', '.join(KINDS)}, received {str(kind)[:40]!r}.")
        if type(label) is not int or not 0 <= label < n_labels:
            raise InputError(f"a stroke has a label 0 .. {n_labels - 1}, received {str(label)[:40]!r}.")
        if type(size) not in (int, float) or not 0 < size <= MAX_SIZE:
            raise InputError(f"the size of a brush is above 0 and at most {MAX_SIZE}, received {str(size)[:40]!r}.")
        return cls(kind, label, float(size), _points(content.get("points")))

    @property
    def value(self) -> int:
        """What pixels become."""
        return HIDDEN if self.kind == "erase" else self.label

    def change(self, labels: np.ndarray) -> tuple[Box, np.ndarray]:
        """Return a box of an (H, W) map of labels and what it holds after the stroke."""
        if self.kind == "fill":
            return self._fill(labels)
        reach = self.size / 2
        low, high = self.points.min(axis=0) - reach, self.points.max(axis=0) + reach
        box = clipped(math.floor(low[0]), math.floor(low[1]), math.ceil(high[0]) + 1, math.ceil(high[1]) + 1, labels.shape)
        after = labels[box.slices].copy()
        if box.area:
            after[covered(self.points - [box.x, box.y], reach, after.shape)] = self.value
        return box, after

    def _fill(self, labels: np.ndarray) -> tuple[Box, np.ndarray]:
        """Fill the pixels of one value that are connected to the last point."""
        x, y = (math.floor(v) for v in self.points[-1])
        if not (0 <= y < labels.shape[0] and 0 <= x < labels.shape[1]):
            return Box(0, 0, 0, 0), labels[:0, :0].copy()
        numbers, _ = components(labels == labels[y, x])
        region = numbers == numbers[y, x]
        rows, columns = (np.flatnonzero(region.any(axis=axis)) for axis in (1, 0))
        box = clipped(columns[0], rows[0], columns[-1] + 1, rows[-1] + 1, labels.shape)
        return box, np.where(region[box.slices], np.uint8(self.value), labels[box.slices])


def covered(points: np.ndarray, reach: float, shape: tuple[int, int]) -> np.ndarray:
    """Return which pixels (H, W) have their centre at most ``reach`` from the line through ``points``."""
    out = np.zeros(shape, dtype=bool)
    starts = points[:-1] if len(points) > 1 else points
    ends = points[1:] if len(points) > 1 else points
    for (ax, ay), (bx, by) in zip(starts.tolist(), ends.tolist(), strict=True):
        low, high = (min(ax, bx) - reach, min(ay, by) - reach), (max(ax, bx) + reach, max(ay, by) + reach)
        box = clipped(math.floor(low[0]), math.floor(low[1]), math.ceil(high[0]) + 1, math.ceil(high[1]) + 1, shape)
        y = np.arange(box.y, box.y + box.height)[:, None] + 0.5
        x = np.arange(box.x, box.x + box.width)[None] + 0.5
        dx, dy = bx - ax, by - ay
        length = dx * dx + dy * dy
        along = np.clip(((x - ax) * dx + (y - ay) * dy) / length, 0, 1) if length else 0.0
        out[box.slices] |= (x - ax - along * dx) ** 2 + (y - ay - along * dy) ** 2 <= reach * reach
    return out


def _points(content: Any) -> np.ndarray:
    if not isinstance(content, list) or not 0 < len(content) <= MAX_POINTS:
        raise InputError(f"a stroke has 1 to {MAX_POINTS} points.")
    for point in content:
        pair = isinstance(point, list) and len(point) == 2 and all(type(v) in (int, float) for v in point)
        if not pair or not all(abs(v) <= _FAR for v in point):
            raise InputError(f"a point of a stroke is [x, y], received {str(point)[:60]}.")
    return np.array(content, dtype=np.float64)
