"""What scribbles of an image give to learn from: features of painted pixels, and small windows around them.

Painted pixels with the same label whose cells of 8 x 8 pixels touch are one *group*, about what a stroke is: they are much
alike, so groups, not pixels, are left out to see how well others are predicted. A window is a cell of 32 x 32 with the
margin that inference needs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.ndimage import label as components

from backfield.labelling.field import MARGIN, Features
from backfield.labelling.strokes import HIDDEN

CELL = 32
#: Side of the cells that make groups.
NEAR = 8
#: Side of a window.
WIDE = CELL + 2 * MARGIN
#: Painted pixels of one label in one cell that are learned from: neighbours say the same.
PER_CELL = 200
#: Windows of an image.
MOST_WINDOWS = 32


class Window(NamedTuple):
    """Features of a cell with its margin, and the painted pixels (label and group) inside the cell."""

    pixels: np.ndarray  # (WIDE, WIDE, F)
    across: np.ndarray  # (WIDE, WIDE - 1), zero beyond the image, as below
    down: np.ndarray
    inside: tuple[np.ndarray, np.ndarray]  # 1 where an edge lies in the image
    labels: np.ndarray  # (WIDE, WIDE), 255 = not painted
    groups: np.ndarray  # (WIDE, WIDE), -1 = not painted


@dataclass(frozen=True, eq=False)
class Material:
    """Rows (pixels to learn from) and windows of one image at one revision."""

    revision: int
    features: np.ndarray  # (N, F)
    labels: np.ndarray  # (N,)
    groups: np.ndarray  # (N,) numbers within the image
    windows: list[Window]
    n_groups: int
    n_cells: int  # cells that are painted, once for each label in them
    painted: float  # share of the image

    @property
    def group_labels(self) -> np.ndarray:
        """Return the label of each group."""
        out = np.zeros(self.n_groups, np.int64)
        out[self.groups] = self.labels
        return out


def collect(features: Features, labels: np.ndarray, revision: int) -> Material:
    """Return what the scribbles (H, W) of an image give."""
    flat = np.flatnonzero(labels.reshape(-1) != HIDDEN)
    rows, columns = np.divmod(flat, labels.shape[1])
    values = labels.reshape(-1)[flat].astype(np.int64)
    cells = (rows // CELL) * (-(-labels.shape[1] // CELL)) + columns // CELL
    groups, n_groups = _groups(rows // NEAR, columns // NEAR, values, labels.shape)
    kept = _thinned(cells, values)
    x = features.pixels[rows[kept], columns[kept]]
    windows = [_window(features, rows, columns, values, groups, cells, cell) for cell in _chosen(cells)]
    n_cells = len(np.unique(_keys(cells, values)))
    return Material(revision, x, values[kept], groups[kept], windows, n_groups, n_cells, len(flat) / labels.size)


def _groups(rows: np.ndarray, columns: np.ndarray, values: np.ndarray, shape: tuple[int, int]) -> tuple[np.ndarray, int]:
    """Return the group of each painted pixel: connected cells of one label."""
    groups, total = np.zeros(len(values), np.int64), 0
    for value in np.unique(values):
        mine = values == value
        occupied = np.zeros((-(-shape[0] // NEAR), -(-shape[1] // NEAR)), bool)
        occupied[rows[mine], columns[mine]] = True
        numbers, count = components(occupied, structure=np.ones((3, 3)))
        groups[mine] = numbers[rows[mine], columns[mine]] - 1 + total
        total += count
    return groups, total


def _thinned(cells: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Return which painted pixels are learned from: evenly spaced ones of each cell and label."""
    order = np.argsort(_keys(cells, values), kind="stable")
    keys = _keys(cells, values)[order]
    starts = np.flatnonzero(np.r_[True, keys[1:] != keys[:-1]]) if len(keys) else np.empty(0, np.int64)
    sizes = np.diff(np.r_[starts, len(keys)])
    rank = np.arange(len(keys)) - np.repeat(starts, sizes)
    step = np.repeat(np.maximum(1, -(-sizes // PER_CELL)), sizes)
    return np.sort(order[rank % step == 0])


def _keys(cells: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Return a number for each cell and label."""
    return cells * (HIDDEN + 1) + values


def _chosen(cells: np.ndarray) -> np.ndarray:
    """Return the cells that become windows, spread over those that are painted."""
    found = np.unique(cells)
    if len(found) <= MOST_WINDOWS:
        return found
    return np.random.default_rng(0).permutation(found)[:MOST_WINDOWS]


def _window(
    features: Features,
    rows: np.ndarray,
    columns: np.ndarray,
    values: np.ndarray,
    groups: np.ndarray,
    cells: np.ndarray,
    cell: int,
) -> Window:
    height, width = features.shape
    top, left = (CELL * v - MARGIN for v in divmod(int(cell), -(-width // CELL)))
    y0, x0, y1, x1 = max(top, 0), max(left, 0), min(top + WIDE, height), min(left + WIDE, width)
    pixels = np.zeros((WIDE, WIDE, features.pixels.shape[2]), np.float32)
    pixels[y0 - top : y1 - top, x0 - left : x1 - left] = features.pixels[y0:y1, x0:x1]
    across, down = np.zeros((WIDE, WIDE - 1), np.float32), np.zeros((WIDE - 1, WIDE), np.float32)
    inside = np.zeros_like(across), np.zeros_like(down)
    for to, value in ((across, features.across[y0:y1, x0 : x1 - 1]), (inside[0], 1)):
        to[y0 - top : y1 - top, x0 - left : x1 - left - 1] = value
    for to, value in ((down, features.down[y0 : y1 - 1, x0:x1]), (inside[1], 1)):
        to[y0 - top : y1 - top - 1, x0 - left : x1 - left] = value
    labels, numbers = np.full((WIDE, WIDE), HIDDEN, np.int64), np.full((WIDE, WIDE), -1, np.int64)
    mine = cells == cell
    labels[rows[mine] - top, columns[mine] - left] = values[mine]
    numbers[rows[mine] - top, columns[mine] - left] = groups[mine]
    return Window(pixels, across, down, inside, labels, numbers)
