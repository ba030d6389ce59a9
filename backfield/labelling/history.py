"""Undo and redo: what boxes of a map held before and after each change, compressed."""

from __future__ import annotations

import zlib
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from backfield.labelling.strokes import Box

#: Changes that can be taken back.
DEPTH = 200


class Change(NamedTuple):
    """One change of a box."""

    box: Box
    before: bytes
    after: bytes


@dataclass
class History:
    """The changes of one map of labels."""

    done: list[Change] = field(default_factory=list)
    undone: list[Change] = field(default_factory=list)

    def add(self, box: Box, before: np.ndarray, after: np.ndarray) -> None:
        """Note a change; what was undone before it is gone."""
        self.done.append(Change(box, _packed(before), _packed(after)))
        del self.done[:-DEPTH]
        self.undone.clear()

    def undo(self) -> tuple[Box, np.ndarray] | None:
        """Return what a box held before the last change; None where there is none."""
        if not self.done:
            return None
        change = self.done.pop()
        self.undone.append(change)
        return change.box, _unpacked(change.before, change.box)

    def redo(self) -> tuple[Box, np.ndarray] | None:
        """Return what a box held after the change that was undone last."""
        if not self.undone:
            return None
        change = self.undone.pop()
        self.done.append(change)
        return change.box, _unpacked(change.after, change.box)


def _packed(values: np.ndarray) -> bytes:
    return zlib.compress(np.ascontiguousarray(values).tobytes(), 1)


def _unpacked(data: bytes, box: Box) -> np.ndarray:
    return np.frombuffer(zlib.decompress(data), np.uint8).reshape(box.height, box.width)
