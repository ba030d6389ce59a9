"""Bounding boxes as labels: outside of them is background, inside nothing is known ([S18] §4)."""

from __future__ import annotations

from typing import Any

import numpy as np

from backfield.errors import InputError


def box_labels(shape: Any, boxes: Any, regions: Any = None, background: int = 0) -> np.ndarray:
    """Return labels that say what boxes say: ``background`` outside all of them, -1 (hidden) inside.

    Parameters
    ----------
    shape : (height, width)
        Of the image.
    boxes : (K, 4) ints
        Rows (top, left, bottom, right) in pixels, bottom and right not included; no boxes: all is background.
    regions : (height, width) ints, optional
        Superpixels; a region is hidden if at least half of it lies inside.
    background : int
        The label outside.

    Returns
    -------
    (height, width) int64, or (n,) for n regions
    """
    height, width = _checked_shape(shape)
    table = np.asarray(boxes)
    table = table.reshape(-1, 4) if table.size in (0, 4) else table
    if table.ndim != 2 or table.shape[1] != 4 or (table.size and table.dtype.kind not in "iu"):
        raise InputError(f"boxes must be rows of integers (top, left, bottom, right), received shape {np.shape(boxes)}.")
    inside = np.zeros((height, width), dtype=bool)
    for number, box in enumerate(table):
        top, left, bottom, right = (int(side) for side in box)
        if not (0 <= top < bottom <= height and 0 <= left < right <= width):
            raise InputError(
                f"box {number} is (top, left, bottom, right) = {(top, left, bottom, right)}; it must be inside the image of "
                f"{height} x {width} pixels, with top < bottom and left < right."
            )
        inside[top:bottom, left:right] = True
    if regions is None:
        return np.where(inside, -1, background).astype(np.int64)
    parts = np.asarray(regions)
    if parts.shape != inside.shape or parts.dtype.kind not in "iu" or parts.min() < 0:
        raise InputError(
            f"regions must be ({height}, {width}) integers >= 0, received {parts.dtype} of shape {parts.shape}."
        )
    size, covered = (np.bincount(parts.ravel(), values, int(parts.max()) + 1) for values in (None, inside.ravel()))
    return np.where(2 * covered >= size, -1, background).astype(np.int64)


def box_of(mask: Any) -> tuple[int, int, int, int]:
    """Return the bounding box (top, left, bottom, right) of the pixels that are true."""
    rows, columns = np.nonzero(np.asarray(mask))
    if len(rows) == 0:
        raise InputError("the mask is empty; it has no bounding box.")
    return int(rows.min()), int(columns.min()), int(rows.max()) + 1, int(columns.max()) + 1


def _checked_shape(shape: Any) -> tuple[int, int]:
    sides = tuple(shape)
    if len(sides) < 2 or any(int(side) != side or side < 1 for side in sides[:2]):
        raise InputError(f"shape must be (height, width), two integers >= 1; received {shape!r}.")
    return int(sides[0]), int(sides[1])
