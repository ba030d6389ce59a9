"""Where a label would help most, and whether to go on.

Asked for is the place whose surroundings are most uncertain on average (so single noisy pixels and thin borders do not win),
away from what is painted already, and a little at random, so that a wrong model is also surprised where it is sure.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.ndimage import uniform_filter

from backfield.labelling.strokes import HIDDEN

#: Side of the surroundings whose entropy counts, in pixels.
AROUND = 9
#: No place is asked for nearer than this to paint.
AWAY = 6
#: Size of the random part, against an entropy of at most 1.
_NOISE = 0.05
_STRIDE = 2


class Place(NamedTuple):
    """A pixel and how uncertain its surroundings are, 0 to 1."""

    score: float
    x: int
    y: int


def most_uncertain(entropy: np.ndarray, labels: np.ndarray, rng: np.random.Generator) -> Place:
    """Return the place to ask about, of entropy (H, W) in bytes and labels with 255 = not painted."""
    coarse = uniform_filter(entropy.astype(np.float32), AROUND, mode="nearest")[::_STRIDE, ::_STRIDE] / 255
    painted = uniform_filter((labels != HIDDEN).astype(np.float32), 2 * AWAY + 1, mode="constant")[::_STRIDE, ::_STRIDE]
    score = coarse + _NOISE * rng.random(coarse.shape, np.float32)
    score[painted > 1e-6] = -1
    row, column = np.unravel_index(int(score.argmax()), score.shape)
    return Place(float(coarse[row, column]), int(column) * _STRIDE, int(row) * _STRIDE)


def anywhere(shape: tuple[int, int], rng: np.random.Generator) -> Place:
    """Return a random place."""
    return Place(0.0, int(rng.integers(shape[1])), int(rng.integers(shape[0])))


def advice(groups: int, labels: int, error: float | None, spread: float | None, changes: list[float]) -> str:
    """Return, in one sentence, whether to go on; ``changes`` are the shares of pixels that the last strokes changed."""
    if labels < 2:
        return "Paint a stroke of each of two labels."
    if error is None or spread is None:
        return "Paint each label in a second place: then the error can be estimated."
    if len(changes) >= 3 and max(changes[-3:]) < 0.005 and groups >= 8:
        return "The last three strokes changed little: try another image, or export."
    if spread > 0.5 * error and groups < 12:
        return "The estimate is rough: more strokes, in other places."
    return "Strokes still change the picture: go on."
