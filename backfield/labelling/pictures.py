"""What the page shows of beliefs: planes of bytes, and which part of them is new.

Planes: label of the field, how sure it is, entropy, label of the classifier alone, how sure it is. Sure is 0 for even odds,
255 for certainty; entropy is 255 where all labels are equally likely.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import NamedTuple

import numpy as np

from backfield.labelling.field import Beliefs
from backfield.labelling.strokes import HIDDEN, Box

FIELD, SURE, ENTROPY, CLASSIFIER, CLASSIFIER_SURE = range(5)
#: Bytes of pictures that are kept in memory.
ROOM = 2**29
#: Changes of which the boxes are remembered.
_MEMORY = 64
_P = np.linspace(0, 1, 256)
with np.errstate(divide="ignore", invalid="ignore"):
    _BINARY = np.nan_to_num(-(_P * np.log2(_P) + (1 - _P) * np.log2(1 - _P)))
_BINARY_ENTROPY = np.rint(255 * _BINARY).astype(np.uint8)


class Progress(NamedTuple):
    """Of how many strokes a picture knows, and whether the part that is seen, or all of it, does."""

    strokes: int = 0
    seen: bool = False
    whole: bool = False


class News(NamedTuple):
    """A version and how far it is, the box that changed up to it, and the planes of that box."""

    version: int
    progress: Progress
    box: Box
    planes: list[np.ndarray]


class Picture:
    """The planes of one image.

    Parameters
    ----------
    shape : rows and columns
    version : of the empty picture, where an image had one before
    """

    def __init__(self, shape: tuple[int, int], version: int = 0) -> None:
        self.planes = np.zeros((5, *shape), np.uint8)
        self.planes[[FIELD, CLASSIFIER]] = HIDDEN
        self.version = self._first = version
        self.progress = Progress()
        self._boxes: list[tuple[int, Box]] = []

    @property
    def empty(self) -> bool:
        """Whether nothing was ever put in."""
        return self.version == self._first

    def put(self, box: Box, beliefs: Beliefs, known: np.ndarray, progress: Progress = Progress()) -> int:  # noqa: B008
        """Take what is believed about a box; return the number of pixels whose label changed."""
        before = self.planes[FIELD][box.slices]
        new = quantised(beliefs, known)
        moved = int(((before != new[FIELD]) & (before != HIDDEN)).sum())
        self._replace(box, new, progress)
        return moved

    def clear(self, strokes: int = 0) -> None:
        """Show nothing."""
        new = np.zeros_like(self.planes)
        new[[FIELD, CLASSIFIER]] = HIDDEN
        self._replace(Box(0, 0, *self.planes.shape[:0:-1]), new, Progress(strokes, True, True))

    def _replace(self, box: Box, new: np.ndarray, progress: Progress) -> None:
        self.planes[(slice(None), *box.slices)] = new
        self.progress = progress
        self.version += 1
        self._boxes = [*self._boxes[-_MEMORY:], (self.version, box)]

    def since(self, version: int) -> News | None:
        """Return what changed after a version; None where nothing did."""
        now, progress, boxes = self.version, self.progress, self._boxes
        if version == now:
            return None
        height, width = self.planes.shape[1:]
        changed = [box for number, box in boxes if number > version]
        if not 0 <= version < now or len(changed) < now - version:
            changed = [Box(0, 0, width, height)]
        box = _around(changed)
        return News(now, progress, box, list(self.planes[(slice(None), *box.slices)]))


class Gallery:
    """The pictures that were looked at last, within a limit of memory."""

    def __init__(self, room: int = ROOM) -> None:
        self.room = room
        self._kept: OrderedDict[int, Picture] = OrderedDict()
        self._versions = 0  # the largest of pictures that were let go

    def get(self, image: int) -> Picture | None:
        """Return the picture of an image; None where there is none."""
        return self._kept.get(image)

    def open(self, image: int, shape: tuple[int, int]) -> Picture:
        """Return the picture of an image, an empty one where there is none; those not seen for long are let go."""
        if image not in self._kept:
            self._kept[image] = Picture(shape, self._versions)
        self._kept.move_to_end(image)
        while len(self._kept) > 1 and sum(each.planes.nbytes for each in list(self._kept.values())) > self.room:
            _, gone = self._kept.popitem(last=False)
            self._versions = max(self._versions, gone.version)
        return self._kept[image]


def quantised(beliefs: Beliefs, known: np.ndarray) -> np.ndarray:
    """Return the five planes of beliefs (H, W, K) about labels ``known``."""
    names = known.astype(np.uint8)
    field, sure = _label_and_sure(beliefs.field, names)
    classifier, classifier_sure = _label_and_sure(beliefs.classifier, names)
    return np.stack([field, sure, entropy(beliefs.field), classifier, classifier_sure])


def entropy(mu: np.ndarray) -> np.ndarray:
    """Return the entropy of marginals (H, W, K) as bytes."""
    if mu.shape[2] == 2:
        return _BINARY_ENTROPY[(mu[..., 1] * 255 + 0.5).astype(np.uint8)]
    logs = np.log(np.maximum(mu, 1e-12))
    return np.rint(np.einsum("ijk,ijk->ij", mu, logs) * (-255 / np.log(mu.shape[2]))).astype(np.uint8)


def _label_and_sure(p: np.ndarray, names: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    count = len(names)
    if count == 2:
        one = p[..., 1]
        return np.where(one > 0.5, names[1], names[0]), (np.abs(2 * one - 1) * 255 + 0.5).astype(np.uint8)
    largest = p.max(axis=2)
    return names[p.argmax(axis=2)], (np.clip((largest * count - 1) / (count - 1), 0, 1) * 255 + 0.5).astype(np.uint8)


def _around(boxes: list[Box]) -> Box:
    x, y = min(box.x for box in boxes), min(box.y for box in boxes)
    right, bottom = max(box.x + box.width for box in boxes), max(box.y + box.height for box in boxes)
    return Box(x, y, right - x, bottom - y)
