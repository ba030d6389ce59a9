"""The discriminative random fields of [K05] §5-6, for Table 1 and Figure 1.

Unary features [1, I_i], pairwise [1, |I_i - I_j|], labels coded -1 and +1, one interaction for both directions: four
parameters. Images are noisy copies of binary shapes; the parameters are learned from copies of the first.

# Differs from [K05]: its shapes are not available, these are generated (:func:`backfield.datasets.generated.shapes`), four
# by four to an image: errors under Gaussian noise come nearest to the paper's, which was seen on test images. Table 1 has
# two by two and one to an image as well. Its step of 1e-5 is for sums over 10 images, ours for means over their 40960
# pixels. PMA and CD converge, so their start does not matter: they start at the model without edges. SPA and MMA start at
# zero, not at random values.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from backfield.datasets.generated import Shapes, shapes
from backfield.estimators import GraphCRF, Sample
from backfield.graph import Graph

BP = "loopy_bp(n_iter=100, tol=0.001)"
CUT = "graph_cut(truncate=True)"
TILES = 4
#: Learning methods of Table 1: loss, learner and start.
LEARNING: dict[str, dict[str, Any]] = {
    "PMA": {"loss": "pseudo_marginal", "learner": "ascent(max_iter=1000, keep='last', cycles=0)"},
    "SPA": {
        "loss": f"saddle_point(solver='{CUT}')",
        "learner": "ascent(max_iter=400, projection='supermodular')",
        "start": "zero",
    },
    "MMA": {"loss": "maximum_marginal(stable=3)", "learner": "ascent(max_iter=400)", "start": "zero"},
    "PL": {"loss": "pseudolikelihood", "learner": "lbfgs"},
    "penalised PL": {"loss": "pseudolikelihood", "learner": "lbfgs", "l2": {"unary": 0.0, "pairwise": 0.01}},
    "CD": {"loss": "contrastive_divergence", "learner": "ascent(max_iter=400, keep='last', cycles=0)"},
}
#: Inference methods of Table 1, as columns of a coupling table.
INFERENCE = {"MAP": CUT, "MPM": BP, "ICM": "icm"}


def field(method: str, **changes: Any) -> GraphCRF:
    """Return the estimator that learns by one of :data:`LEARNING`."""
    shared = {"unary": "plus_minus", "pairwise": "plus_minus", "inference": BP, "gradient": None, "l2": 0.0}
    return GraphCRF(**{**shared, **LEARNING[method], **changes})


def noisy(noise: str, n_train: int, n_test: int, size: int, seed: int, tiles: int = TILES) -> Shapes:
    """Return the images of a noise model."""
    return shapes(noise, n_train=n_train, n_test=n_test, size=size, seed=seed, tiles=tiles)


def samples(images: list[np.ndarray]) -> list[Sample]:
    """Return images as fields with the features of [K05] §5."""
    height, width = images[0].shape[:2]
    graph = Graph.grid(height, width, labels=2)
    return [Sample(graph, image.reshape(-1, 1), _contrast(image[..., 0])) for image in images]


def _contrast(image: np.ndarray) -> np.ndarray:
    across, down = np.abs(np.diff(image, axis=1)), np.abs(np.diff(image, axis=0))
    return np.concatenate([across.ravel(), down.ravel()])[:, None]


def flat(masks: list[np.ndarray]) -> list[np.ndarray]:
    """Return the labels of each field."""
    return [mask.ravel().astype(np.int64) for mask in masks]
