"""Which part of an image is drawn first: what is seen, in pieces, then what lies around it."""

from __future__ import annotations

from backfield.labelling.field import pieces
from backfield.labelling.strokes import Box, clipped

#: Pixels (width, height) around a stroke that come first where more is seen.
FIRST = (1024, 768)


def first_seen(box: Box, view: Box | None, shape: tuple[int, int]) -> Box | None:
    """Return what to draw first: what is seen, or the surroundings of the stroke where that is much."""
    if view is None or view.area <= FIRST[0] * FIRST[1]:
        return view
    x, y = box.x + box.width // 2, box.y + box.height // 2
    return clipped(x - FIRST[0] // 2, y - FIRST[1] // 2, x + FIRST[0] // 2, y + FIRST[1] // 2, shape)


def in_order(view: Box | None, shape: tuple[int, int]) -> tuple[list[Box], list[Box]]:
    """Return the pieces of the view, and those of the four strips around it."""
    height, width = shape
    if view is None or not view.area:
        return pieces(Box(0, 0, width, height)), []
    right, bottom = view.x + view.width, view.y + view.height
    strips = [
        Box(0, 0, width, view.y),
        Box(0, view.y, view.x, view.height),
        Box(right, view.y, width - right, view.height),
        Box(0, bottom, width, height - bottom),
    ]
    return pieces(view), [piece for box in strips if box.area for piece in pieces(box)]
