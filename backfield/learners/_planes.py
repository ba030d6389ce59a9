"""Planes of the dual of a structured SVM: a gradient and an offset, sparse where that is smaller."""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import numpy as np

from backfield.learners._problem import dot


class Plane(NamedTuple):
    """The linear function w -> g·w + loss; ``places`` are those of the entries of g, None if all are stored."""

    places: np.ndarray | None
    values: np.ndarray
    loss: float

    def at(self, w: np.ndarray) -> float:
        """Return the value at w."""
        return dot(self.values, w if self.places is None else w[self.places]) + self.loss

    def dense(self, n: int) -> np.ndarray:
        """Return g (n,), not to be changed."""
        if self.places is None:
            return self.values
        out = np.zeros(n)
        out[self.places] = self.values
        return out


def plane(g: np.ndarray, loss: float) -> Plane:
    """Return a plane in the smaller of its two forms."""
    index = np.flatnonzero(g)
    if 2 * len(index) < len(g):  # an entry and its place take 12 bytes
        return Plane(index.astype(np.int32), g[index], loss)
    return Plane(None, g, loss)


def pack(planes: list[Plane], name: str, n: int) -> dict[str, np.ndarray]:
    """Return planes as arrays."""
    index = [np.arange(n, dtype=np.int32) if each.places is None else each.places for each in planes]
    return {
        f"{name}_ptr": np.cumsum([0] + [len(each) for each in index]),
        f"{name}_index": np.concatenate([np.empty(0, np.int32), *index]),
        f"{name}_values": np.concatenate([np.empty(0), *(each.values for each in planes)]),
        f"{name}_loss": np.array([each.loss for each in planes]),
    }


def unpack(arrays: dict[str, np.ndarray], name: str, n: int) -> list[Plane]:
    """Return the planes that were packed."""
    ptr, index, values, loss = (arrays[f"{name}_{key}"] for key in ("ptr", "index", "values", "loss"))
    parts = [(index[a:b], values[a:b]) for a, b in pairwise(ptr)]
    return [Plane(None if len(i) == n else i, v, float(each)) for (i, v), each in zip(parts, loss, strict=True)]
