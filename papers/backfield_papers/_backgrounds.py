"""The Stanford background images as [D13] §8.4 prepares them: features, then a fifth of the resolution."""

from __future__ import annotations

import numpy as np

from backfield.datasets import backgrounds
from backfield.estimators import GridSample
from backfield.features import EdgeFeatures, PixelFeatures, subsample
from backfield_papers._base import Context, need_data
from backfield_papers._d13 import Images

STRIDE = 5
# Differs from [D13]: features are sin(pi c·s) and cos(pi c·s), as in the work that the paper cites for them. The paper
# itself prints sin(c·s); Table 3 has a row with these, on one fold.
PIXELS = PixelFeatures(stride=STRIDE)
PIXELS_OF_THE_PAPER = PixelFeatures(stride=STRIDE, scale=1.0)
EDGES = EdgeFeatures(("constant", "difference"))


def load(
    context: Context, n_images: int | None, pixels: PixelFeatures = PIXELS
) -> tuple[Images, np.ndarray, list[np.ndarray]]:
    """Return the images as samples, the fold of each, and the pictures."""
    data = backgrounds.load(need_data(context, "stanford_background"), n_images=n_images)
    small = [subsample(image, STRIDE) for image in data.images]
    EDGES.fit(small[: min(len(small), 200)])  # thresholds, without labels
    X = []
    for number, image in enumerate(data.images):
        context.progress(f"features of image {number + 1} of {len(data.images)}")
        X.append(_sample(image, pixels))
    return (
        Images(X, [subsample(y, STRIDE) for y in data.labels], list(data.labels), STRIDE),
        data.folds,
        list(data.images),
    )


def mirrored(pictures: list[np.ndarray]) -> list[GridSample]:
    """Return the pictures as they are seen in a mirror."""
    return [_sample(np.ascontiguousarray(picture[:, ::-1])) for picture in pictures]


def _sample(image: np.ndarray, pixels: PixelFeatures = PIXELS) -> GridSample:
    return GridSample(pixels.transform_one(image), *EDGES.transform_one(subsample(image, STRIDE)))


def varied(pictures: list[np.ndarray], labels: list[np.ndarray], copies: int, seed: int) -> Images:
    """Return ``copies`` random parts of each picture, .6 to 1 of its sides, enlarged to its size, half of them mirrored."""
    from PIL import Image

    rng = np.random.default_rng(seed)
    X, y, full = [], [], []
    for picture, truth in [pair for pair in zip(pictures, labels, strict=True) for _ in range(copies)]:
        height, width = truth.shape
        share = rng.uniform(0.6, 1.0)
        h, w = round(share * height), round(share * width)
        top, left, step = rng.integers(height - h + 1), rng.integers(width - w + 1), rng.choice([-1, 1])
        window = np.s_[top : top + h, left : left + w]
        image, known = (
            np.asarray(Image.fromarray(part).resize((width, height), how))[:, ::step]
            for part, how in (
                (picture[window], Image.Resampling.BILINEAR),
                (truth[window].astype(np.int32), Image.Resampling.NEAREST),
            )
        )
        X.append(_sample(np.ascontiguousarray(image)))
        y.append(subsample(known, STRIDE))
        full.append(known)
    return Images(X, y, full, STRIDE)
