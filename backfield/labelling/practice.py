"""Learning from noise, once, before somebody paints: kernels that are not compiled yet are then ready."""

from __future__ import annotations

import numpy as np

from backfield.labelling.field import features_of
from backfield.labelling.learning import QUICK, Learner, Rows, Stop
from backfield.labelling.material import NEAR, collect
from backfield.labelling.strokes import HIDDEN, Box

_SIDE, _STEP = 128, 2 * NEAR


def practise(n_labels: int, stop: Stop) -> None:
    """Do what strokes of all labels ask for: dots, too far from each other to be one group, give each label several."""
    features = features_of(np.random.default_rng(0).integers(0, 256, (_SIDE, _SIDE, 3), dtype=np.uint8))
    labels = np.full((_SIDE, _SIDE), HIDDEN, np.uint8)
    dots = labels[::_STEP, ::_STEP]
    dots[:] = np.arange(dots.size).reshape(dots.shape) % n_labels
    material = [collect(features, labels, 0)]
    field, _ = Learner().refine(Rows.of(material), material, QUICK, stop)
    field.beliefs(features, Box(0, 0, _SIDE, _SIDE), labels)
