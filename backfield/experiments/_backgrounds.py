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


def mirrored(images: Images, pictures: list[np.ndarray]) -> Images:
    """Return samples as seen in a mirror; HOG is not symmetric, so that features are computed anew from the pictures."""
    X = []
    for sample, picture in zip(images.X, pictures, strict=True):
        across, down = (np.ascontiguousarray(part[:, ::-1]) for part in (sample.horizontal, sample.vertical))
        X.append(GridSample(PIXELS.transform_one(np.ascontiguousarray(picture[:, ::-1])), across, down))
    y, full = ([np.ascontiguousarray(labels[:, ::-1]) for labels in part] for part in (images.y, images.full))
    return Images(X, y, full, images.stride)
