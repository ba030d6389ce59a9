"""Where a label would help most, and whether to go on.

A place is drawn with probability proportional to the square of the mean entropy of its surroundings (so single noisy pixels
do not count), away from what is painted already; an image, to the sum of that over its pixels. To take the most uncertain
place every time would ask about borders again and again, whose pixels look like nothing else, and never where a wrong model
is sure.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from scipy.ndimage import uniform_filter

from backfield.labelling.strokes import HIDDEN

#: Side of the surroundings whose entropy counts, in pixels.
AROUND = 9
#: No place is asked for nearer than this to paint.
AWAY = 6
_STRIDE = 2


class Place(NamedTuple):
    """A pixel, how uncertain its surroundings are (0 to 1), and how much its image as a whole asks for labels."""

    x: int
    y: int
    entropy: float
    weight: float


def uncertain_place(entropy: np.ndarray, labels: np.ndarray, rng: np.random.Generator) -> Place:
    """Draw a place to ask about, of entropy (H, W) in bytes and labels with 255 = not painted."""
    around = uniform_filter(entropy.astype(np.float32), AROUND, mode="nearest")[::_STRIDE, ::_STRIDE] / 255
    painted = uniform_filter((labels != HIDDEN).astype(np.float32), 2 * AWAY + 1, mode="constant")[::_STRIDE, ::_STRIDE]
    weight = np.where(painted > 1e-6, 0, np.square(around)).astype(np.float64)
    total = float(weight.sum())
    if total <= 0:
        return anywhere(entropy.shape, rng)
    at = min(int(np.searchsorted(np.cumsum(weight), rng.random() * total, side="right")), weight.size - 1)
    row, column = divmod(at, weight.shape[1])
    return Place(column * _STRIDE, row * _STRIDE, float(around[row, column]), total)


def anywhere(shape: tuple[int, ...], rng: np.random.Generator) -> Place:
    """Return a random place."""
    return Place(int(rng.integers(shape[1])), int(rng.integers(shape[0])), 0.0, 0.0)


def choose_image(places: Mapping[int, Place], rng: np.random.Generator) -> int:
    """Draw one of the images that have places."""
    numbers = sorted(places)
    weights = np.array([places[number].weight for number in numbers])
    return int(rng.choice(numbers, p=weights / weights.sum() if weights.sum() > 0 else None))


def advice(groups: int, labels: int, error: float | None, spread: float | None, changes: list[float]) -> str:
    """Return, in one sentence, whether to go on; ``changes`` are the shares of pixels that the last strokes changed."""
    if labels < 2:
        return "Paint a stroke of each of two labels."
    if error is None or spread is None or groups < 6:
        return "Paint each label in several places: then the error can be estimated."
    if len(changes) >= 3 and max(changes[-3:]) < 0.005 and groups >= 8:
        return "The last three strokes changed little: try another image, or export the model."
    if spread > 0.5 * error and groups < 12:
        return "The estimate is rough: add strokes in other places."
    return "Strokes still change the picture: keep going."
