"""A linear classifier with a field on top, and what they believe about a part of an image.

    theta_i(x) = a (W f_i)_x,    theta_ij(x, x') = (s c_ij + t) [x = x']

f: 30 numbers of a filter bank, c: contrast of an edge. It is a :class:`backfield.GridCRF` with the energies ``linear`` and
``potts``, whose file :meth:`Field.estimator` makes. Inference is n sweeps of tree-reweighted messages: what a pixel believes
depends on nothing further than 2 n + 1 pixels away, so a part of an image with that margin gives the same numbers as the
whole, as long as red and black pixels stay what they are.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from backfield.data.samples import GridSample
from backfield.errors import InputError
from backfield.estimators import GridCRF
from backfield.estimators.model_file import load
from backfield.features import EdgeFeatures, FilterBank
from backfield.graph import Graph, Potentials
from backfield.graph.conditioning import evidence
from backfield.inference.base import Inference
from backfield.inference.conditioned import beliefs_given
from backfield.labelling.strokes import HIDDEN, Box
from backfield.registry import get

N_ITER = 5
INFERENCE = f"tree_reweighted(n_iter={N_ITER})"
#: Pixels beyond which nothing matters.
MARGIN: int = 2 * N_ITER + 2
#: Largest side of a piece of an image that is thought about at once.
SIDE = 512
#: How a model file says what the features are.
PREPROCESSING = {"format": "images", "features": "filters", "edges": "contrast", "thresholds": {}}
#: Score of a label that nobody has painted yet.
_NEVER = -30.0


class Features(NamedTuple):
    """What a field sees of an image."""

    pixels: np.ndarray  # (H, W, F)
    across: np.ndarray  # (H, W - 1) contrast of horizontal edges
    down: np.ndarray  # (H - 1, W)

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""
        return self.pixels.shape[0], self.pixels.shape[1]

    def part(self, box: Box) -> Features:
        """Return the features of a box, as views."""
        rows, columns = box.slices
        across = self.across[rows, columns.start : max(columns.stop - 1, columns.start)]
        down = self.down[rows.start : max(rows.stop - 1, rows.start), columns]
        return Features(self.pixels[rows, columns], across, down)

    @property
    def n_bytes(self) -> int:
        """Bytes in memory."""
        return sum(array.nbytes for array in self)


def features_of(image: np.ndarray) -> Features:
    """Return the features of an image."""
    across, down = EdgeFeatures(("contrast",)).transform_one(image)
    return Features(FilterBank().transform_one(image), across[..., 0], down[..., 0])


class Beliefs(NamedTuple):
    """Probabilities (H, W, labels) of the classifier alone and of the field."""

    classifier: np.ndarray
    field: np.ndarray


@dataclass(frozen=True, eq=False)
class Field:
    """The classifier's weights (F + 1, labels that are known), and the three numbers of the field.

    Attributes
    ----------
    weights : (F + 1, K) of the labels ``known``, intercept last
    scale, contrast, constant : a, s and t
    known : (K,) labels that were painted
    """

    weights: np.ndarray
    scale: float
    contrast: float
    constant: float
    known: np.ndarray

    def scores(self, pixels: np.ndarray) -> np.ndarray:
        """Return W f for pixels (..., F) in float32."""
        weights = self.weights.astype(np.float32)
        return pixels @ weights[:-1] + weights[-1]

    def potentials(self, scores: np.ndarray, across: np.ndarray, down: np.ndarray) -> Potentials:
        """Return theta of scores (H, W, K) and the contrast of edges."""
        height, width, count = scores.shape
        edges = np.concatenate([across.reshape(-1), down.reshape(-1)])
        tables = np.zeros((len(edges), count * count), np.float32)
        tables[:, :: count + 1] = (np.float32(self.contrast) * edges + np.float32(self.constant))[:, None]
        unary = (np.float32(self.scale) * scores).reshape(-1)
        return Potentials.from_flat(grid(height, width, count), unary, tables.reshape(-1))

    def beliefs(self, features: Features, box: Box, labels: np.ndarray) -> Beliefs:
        """Return what classifier and field believe about a box; painted pixels (``labels``, 255 = not) are known."""
        wide = window(box, features.shape)
        part = features.part(wide)
        scores = self.scores(part.pixels)
        theta = self.potentials(scores, part.across, part.down)
        observed = self._positions(labels[wide.slices]).reshape(-1)
        given = evidence(theta.graph, observed if (observed >= 0).any() else None)
        mu = beliefs_given(method(), theta, given).reshape(scores.shape)
        inner = Box(box.x - wide.x, box.y - wide.y, box.width, box.height).slices
        return Beliefs(softmax(scores[inner]), mu[inner])

    def _positions(self, labels: np.ndarray) -> np.ndarray:
        """Return positions among the known labels, -1 elsewhere."""
        table = np.full(HIDDEN + 1, -1, np.int64)
        table[self.known] = np.arange(len(self.known))
        return table[labels]

    def estimator(self, n_labels: int) -> GridCRF:
        """Return the same model as an estimator, which can be saved."""
        weights = np.zeros((len(self.weights), n_labels))
        weights[-1] = _NEVER
        weights[:, self.known] = self.scale * self.weights
        return _with_weights(template(n_labels), _flat(weights, self.contrast, self.constant))

    @classmethod
    def of(cls, crf: Any, n_labels: int) -> Field:
        """Return the field of an estimator that :meth:`estimator` made; others are refused."""
        if getattr(crf, "preprocessing_", None) != PREPROCESSING or repr(crf.inference) != repr(INFERENCE):
            raise InputError("the model is not one that backfield label has exported.")
        count = len(crf.classes_)
        if count > n_labels:
            raise InputError(f"the model has {count} labels, the session {n_labels}; name them all with --labels.")
        weights = crf.weights_[:-4].reshape(-1, count)
        known = np.flatnonzero(weights[-1] > _NEVER)
        return cls(weights[:, known], 1.0, float(crf.weights_[-4]), float(crf.weights_[-3]), known)

    @classmethod
    def load(cls, path: Path, n_labels: int) -> Field:
        """Return the field of a file that a session exported."""
        try:
            return cls.of(load(path), n_labels)
        except InputError as error:
            raise InputError(f"{path}: {error}") from error


def template(n_labels: int) -> GridCRF:
    """Return the estimator of such a model, not fitted."""
    return GridCRF(inference=INFERENCE, pairwise="potts", n_labels=n_labels, learner="lbfgs(max_iter=1)", start="zero")


def method() -> Inference:
    """Return the inference of the field."""
    return get("inference", INFERENCE)  # type: ignore[return-value]


@lru_cache(maxsize=6)
def grid(height: int, width: int, n_labels: int) -> Graph:
    """Return a grid; what is compiled for it is kept with it."""
    return Graph.grid(height, width, labels=n_labels)


def pieces(box: Box) -> list[Box]:
    """Return the pieces of a box, each at most ``SIDE`` wide and high."""
    rows, columns = (_cut(start, length) for start, length in ((box.y, box.height), (box.x, box.width)))
    return [Box(x, y, width, height) for y, height in rows for x, width in columns]


def _cut(start: int, length: int) -> list[tuple[int, int]]:
    count = -(-length // SIDE)
    ends = [start + length * k // count for k in range(count + 1)]
    return [(low, high - low) for low, high in pairwise(ends)]


def window(box: Box, shape: tuple[int, int]) -> Box:
    """Return what must be seen to answer for a piece: with a margin, and of one size for all pieces of an image.

    Its corner is a red pixel (x and y are even), as that of the image: sweeps begin with those.
    """
    (y, height), (x, width) = (_span(*each) for each in ((box.y, box.height, shape[0]), (box.x, box.width, shape[1])))
    return Box(x, y, width, height)


def _span(start: int, length: int, side: int) -> tuple[int, int]:
    size = min(side, SIDE + 2 * MARGIN + 2)
    low = max(0, min(start - MARGIN, side - size))
    low -= low % 2
    return low, max(min(size, side - low), start + length - low)


def softmax(scores: np.ndarray) -> np.ndarray:
    """Return probabilities of scores (..., K)."""
    if scores.shape[-1] == 2:
        one = 1 / (1 + np.exp(np.clip(scores[..., 0] - scores[..., 1], -60, 60)))
        return np.stack([1 - one, one], axis=-1)
    powers = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return powers / powers.sum(axis=-1, keepdims=True)


def _flat(weights: np.ndarray, contrast: float, constant: float) -> list[float]:
    """Return the weights in the order of a GridCRF: variables, horizontal edges, vertical edges; intercepts last."""
    return [*weights.reshape(-1).tolist(), contrast, constant, contrast, constant]


def _with_weights(crf: GridCRF, weights: list[float]) -> GridCRF:
    """Return an estimator with these weights: fitted to a few pixels, which fixes all sizes, then given them."""
    count = crf.get_params()["n_labels"]
    n_features = len(FilterBank().get_feature_names_out())
    sample = GridSample(np.zeros((2, count, n_features)), np.zeros((2, count - 1, 1)), np.zeros((1, count, 1)))
    crf.fit([sample], [np.repeat(np.arange(count)[None], 2, axis=0)])
    crf.weights_ = np.array(weights)
    crf.preprocessing_ = dict(PREPROCESSING)
    return crf
