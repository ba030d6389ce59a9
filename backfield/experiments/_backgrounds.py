"""The Stanford background images as [D13] §8.4 prepares them: features, then a fifth of the resolution."""

from __future__ import annotations

import numpy as np

from backfield.datasets import backgrounds
from backfield.estimators import GridSample
from backfield.experiments._base import Context, need_data
from backfield.experiments._d13 import Images
from backfield.features import EdgeFeatures, PixelFeatures, subsample

STRIDE = 5
PIXELS = PixelFeatures(stride=STRIDE)
EDGES = EdgeFeatures(("constant", "difference"))


def load(context: Context, n_images: int | None) -> tuple[Images, np.ndarray, list[np.ndarray]]:
    """Return the images as samples, the fold of each, and the pictures."""
    data = backgrounds.load(need_data(context, "stanford_background"), n_images=n_images)
    small = [subsample(image, STRIDE) for image in data.images]
    edges = EDGES.fit(small[: min(len(small), 200)])  # thresholds, without labels
    X = []
    for number, (image, reduced) in enumerate(zip(data.images, small, strict=True)):
        context.progress(f"features of image {number + 1} of {len(small)}")
        X.append(GridSample(PIXELS.transform_one(image), *edges.transform_one(reduced)))
    return (
        Images(X, [subsample(y, STRIDE) for y in data.labels], list(data.labels), STRIDE),
        data.folds,
        list(data.images),
    )
