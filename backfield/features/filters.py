"""A bank of filters: what a pixel and its surroundings look like, in 30 numbers that need no training.

At scales sigma = 1, 2, 4, 8 pixels: the colour smoothed by a Gaussian, the size of the gradient of the intensity, the two
eigenvalues of its Hessian (ridges, valleys, blobs) and its deviation (texture); at sigma = 16 intensity and deviation again.
Derivatives are scaled by sigma (its square for second ones), so that all scales weigh the same. These are the features that
pixel classifiers learn best from few labels (Sommer et al. 2011, ilastik).

Cost: O(H W) per scale, about 1.5 microseconds per pixel in all; memory 120 bytes per pixel.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import numpy as np
from scipy.ndimage import gaussian_filter
from sklearn.base import BaseEstimator, TransformerMixin

from backfield.features.cache import LazyFeatures, Progress, transform_all
from backfield.features.image import as_rgb, grey

#: Gaussian filters are cut off at so many sigma.
_REACH = 3.0
_WIDE = 16.0
#: Brings every feature to about the size of the colours, which lie in [0, 1].
_GAIN = {"gradient": 6.0, "ridge": 6.0, "valley": 6.0, "deviation": 4.0}


class FilterBank(TransformerMixin, BaseEstimator, auto_wrap_output_keys=None):  # type: ignore[call-arg]
    """Images -> (H, W, 30) float32 features of their pixels: colour, edges, ridges and texture at several scales.

    Parameters
    ----------
    scales : standard deviations of the Gaussians, in pixels; 7 features each, and 2 of a wide one
    """

    def __init__(self, scales: Sequence[float] = (1.0, 2.0, 4.0, 8.0)) -> None:
        self.scales = scales

    def fit(self, images: Any = None, y: Any = None) -> Self:
        """Do nothing: there is nothing to learn."""
        return self

    def transform(self, images: Sequence[Any], progress: Progress | None = None) -> list[np.ndarray]:
        """Return the (H, W, F) features of each image; ``progress(done, total)`` is called after each."""
        return transform_all(self.transform_one, images, progress)

    def lazy(self, images: Sequence[Any]) -> LazyFeatures:
        """Return a sequence that computes the features of an image when asked for them."""
        return LazyFeatures(self.transform_one, images)

    def get_feature_names_out(self, input_features: Any = None) -> np.ndarray:
        """Return the names of the F features."""
        kinds = ("red", "green", "blue", "gradient", "ridge", "valley", "deviation")
        names = [f"{kind}_{scale:g}" for scale in self.scales for kind in kinds]
        return np.array([*names, f"intensity_{_WIDE:g}", f"deviation_{_WIDE:g}"], dtype=object)

    def transform_one(self, image: Any) -> np.ndarray:
        """Return the (H, W, F) features of one image: (H, W) or (H, W, 1, 3 or 4), integers or floats in [0, 1]."""
        rgb = as_rgb(image)
        values = grey(rgb)
        planes: list[np.ndarray] = []
        for scale in self.scales:
            planes += [_smooth(rgb[..., channel], scale) for channel in range(3)]
            planes += _shape(values, scale)
            planes.append(_deviation(values, scale))
        planes += [_smooth(values, _WIDE), _deviation(values, _WIDE)]
        out = np.empty((*values.shape, len(planes)), np.float32)
        for number, plane in enumerate(planes):
            out[..., number] = plane
        return out


def _smooth(values: np.ndarray, scale: float, order: tuple[int, int] = (0, 0)) -> np.ndarray:
    return gaussian_filter(values, scale, order=order, mode="nearest", truncate=_REACH)


def _shape(values: np.ndarray, scale: float) -> list[np.ndarray]:
    """Return the size of the gradient and the eigenvalues of the Hessian, the larger one first."""
    # Differences of the smoothed image are its derivatives, at a fifth of the cost of five more filters.
    smooth = _smooth(values, scale)
    down, right = np.gradient(smooth) if min(smooth.shape) > 1 else (np.zeros_like(smooth), np.zeros_like(smooth))
    if min(smooth.shape) > 1:
        (dd, dr), (_, rr) = np.gradient(down), np.gradient(right)
    else:
        dd = dr = rr = np.zeros_like(smooth)
    middle, spread = (dd + rr) / 2, np.hypot((dd - rr) / 2, dr)
    s = np.float32(scale)
    return [
        np.hypot(down, right) * s * np.float32(_GAIN["gradient"]),
        (middle + spread) * s * s * np.float32(_GAIN["ridge"]),
        (middle - spread) * s * s * np.float32(_GAIN["valley"]),
    ]


def _deviation(values: np.ndarray, scale: float) -> np.ndarray:
    mean = _smooth(values, scale)
    variance = _smooth(values * values, scale) - mean * mean
    return np.sqrt(np.maximum(variance, 0)) * np.float32(_GAIN["deviation"])
