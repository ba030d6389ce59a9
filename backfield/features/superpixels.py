"""Superpixels: image -> regions -> features of regions and of their borders -> labels -> mask.

Regions are an (H, W) map of numbers 0 .. n-1, each region connected along sides; ``Graph.from_regions`` of it is the graph
whose nodes and edges the features here belong to. Cost: O(H W) beside that of SLIC; needs scikit-image (``vision``) for
:func:`superpixels` only.
"""

from __future__ import annotations

from numbers import Real
from typing import Any

import numpy as np

from backfield.errors import InputError
from backfield.graph import Graph

#: Columns of :func:`region_features`.
REGION_FEATURES = (
    *("mean_red", "mean_green", "mean_blue", "sd_red", "sd_green", "sd_blue"),
    *("vertical", "horizontal", "size", "mean_sobel", "sd_sobel"),
    *(f"hog_{k}" for k in range(36)),
)
#: Columns of :func:`region_edges`.
EDGE_FEATURES = ("constant", "border_share", "colour_difference", "border_contrast", "border_sobel")
#: Mask values that mean "unknown": -1 in this library, 255 in image files.
HIDDEN = (-1, 255)


def superpixels(image: Any, n_segments: int = 200, compactness: float = 10.0) -> np.ndarray:
    """Return about ``n_segments`` superpixels of an image by SLIC (Achanta et al. 2012), which has no randomness.

    Parameters
    ----------
    image : (H, W) or (H, W, 1, 3 or 4), integers or floats in [0, 1]
    n_segments : about how many regions
    compactness : large: round regions; small: regions that follow the colours

    Returns
    -------
    (H, W) int64 region numbers 0 .. n-1; each region is connected along sides
    """
    from backfield.features.image import as_rgb

    try:
        from skimage.measure import label
        from skimage.segmentation import slic
    except ImportError as error:
        raise InputError("superpixels needs scikit-image: pip install 'backfield[vision]'.") from error
    if isinstance(n_segments, bool) or not isinstance(n_segments, int | np.integer) or n_segments < 1:
        raise InputError(f"n_segments must be a positive integer, received {n_segments!r}.")
    if not (isinstance(compactness, Real) and 0 < compactness < np.inf):
        raise InputError(f"compactness must be a positive number, received {compactness!r}.")
    parts = slic(as_rgb(image), n_segments=n_segments, compactness=compactness, start_label=1, channel_axis=-1)
    return label(parts, connectivity=1, background=0).astype(np.int64) - 1


def region_features(image: Any, regions: Any) -> np.ndarray:
    """Return the (n, 47) float32 features of the regions of an image, named in ``REGION_FEATURES``.

    Mean and standard deviation of the colours; mean position in [0, 1]; share of the image, times n, so it is 1 for
    regions of average size; mean and standard deviation of the Sobel response; mean histogram of gradients.
    """
    from backfield.features.edges import sobel_response
    from backfield.features.image import as_rgb, histogram_of_gradients

    rgb = as_rgb(image)
    parts, n = _checked(regions, rgb.shape[:2])
    flat, size = parts.ravel(), np.bincount(parts.ravel(), minlength=n)
    height, width = parts.shape
    rows, columns = np.mgrid[:height, :width].reshape(2, -1)
    place = np.stack([rows / max(height - 1, 1), columns / max(width - 1, 1)], axis=1)
    response = sobel_response(rgb).reshape(-1, 1)
    colour_mean, colour_sd = _moments(rgb.reshape(-1, 3), flat, size)
    sobel_mean, sobel_sd = _moments(response, flat, size)
    hog_mean = _means(histogram_of_gradients(rgb).reshape(-1, 36), flat, size)
    share = (size * n / flat.size)[:, None]
    features = [colour_mean, colour_sd, _means(place, flat, size), share, sobel_mean, sobel_sd, hog_mean]
    return np.concatenate(features, axis=1).astype(np.float32)


def region_edges(image: Any, regions: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return the borders between regions: edges (E, 2), as ``Graph.from_regions`` sorts them, and their features (E, 5).

    The features, named in ``EDGE_FEATURES``: 1; length of the common border over the whole border of the region where that
    is shorter; l2 distance of the mean colours; mean l2 distance of the colours on both sides of the border; mean over the
    border of the larger Sobel response.
    """
    from backfield.features.image import as_rgb

    rgb = as_rgb(image)
    parts, n = _checked(regions, rgb.shape[:2])
    edges = np.asarray(Graph.from_regions(parts).factors, dtype=np.int64).reshape(-1, 2)
    if len(edges) == 0:
        return edges, np.zeros((0, len(EDGE_FEATURES)), dtype=np.float32)
    pairs, contrast, response = _borders(rgb, parts)
    which = np.searchsorted(edges[:, 0] * n + edges[:, 1], pairs[:, 0] * n + pairs[:, 1])
    length = np.bincount(which, minlength=len(edges))
    around = np.bincount(pairs.ravel(), minlength=n)
    flat = parts.ravel()
    colour = _means(rgb.reshape(-1, 3), flat, np.bincount(flat, minlength=n))
    columns = [
        np.ones(len(edges)),
        length / around[edges].min(axis=1),
        np.linalg.norm(colour[edges[:, 0]] - colour[edges[:, 1]], axis=1),
        np.bincount(which, contrast, len(edges)) / length,
        np.bincount(which, response, len(edges)) / length,
    ]
    return edges, np.stack(columns, axis=1).astype(np.float32)


def _borders(rgb: np.ndarray, parts: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """For each side between two pixels of different regions: the regions (a < b), contrast, Sobel response."""
    from backfield.features.edges import sobel_response

    response = sobel_response(rgb)
    found = []
    for one, two in ((np.s_[:, :-1], np.s_[:, 1:]), (np.s_[:-1], np.s_[1:])):
        differ = parts[one] != parts[two]
        pair = np.stack([parts[one][differ], parts[two][differ]], axis=1)
        contrast = np.linalg.norm(rgb[one][differ] - rgb[two][differ], axis=1)
        found.append((np.sort(pair, axis=1), contrast, np.maximum(response[one], response[two])[differ]))
    pairs, contrasts, responses = (np.concatenate(column) for column in zip(*found, strict=True))
    return pairs, contrasts, responses


def paint(labels: Any, regions: Any) -> np.ndarray:
    """Return what belongs to each region at each of its pixels: (n, ...) labels or marginals -> (H, W, ...)."""
    parts, n = _checked(regions)
    labels = np.asarray(labels)
    if labels.ndim == 0 or len(labels) != n:
        raise InputError(f"{n} regions need as many labels, received an array of shape {labels.shape}.")
    return labels[parts]


def majority_labels(mask: Any, regions: Any) -> np.ndarray:
    """Return the most frequent label of each region, (n,) int64; -1 where all its pixels are hidden (-1 or 255).

    Of equally frequent labels the smallest is taken.
    """
    parts, n = _checked(regions)
    mask = np.asarray(mask)
    if mask.shape != parts.shape:
        raise InputError(f"the mask has shape {mask.shape} but the regions have {parts.shape}.")
    if mask.dtype.kind not in "biu":
        raise InputError(f"a mask holds integers, received dtype {mask.dtype}.")
    mask = mask.astype(np.int64)
    seen = ~np.isin(mask, HIDDEN)
    if (mask[seen] < 0).any():
        raise InputError(f"mask values are labels 0, 1, ... or hidden (-1, 255), received {mask[seen].min()}.")
    n_labels = int(mask[seen].max(initial=0)) + 1
    votes = np.bincount(parts[seen] * n_labels + mask[seen], minlength=n * n_labels).reshape(n, n_labels)
    return np.where(votes.any(axis=1), votes.argmax(axis=1), -1)


def _means(values: np.ndarray, flat: np.ndarray, size: np.ndarray) -> np.ndarray:
    return np.stack([np.bincount(flat, column, len(size)) for column in values.T], axis=1) / size[:, None]


def _moments(values: np.ndarray, flat: np.ndarray, size: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    mean = _means(values, flat, size)
    return mean, np.sqrt(_means((values - mean[flat]) ** 2, flat, size))


def _checked(regions: Any, shape: tuple[int, ...] | None = None) -> tuple[np.ndarray, int]:
    parts = np.asarray(regions)
    if parts.ndim != 2 or parts.size == 0 or parts.dtype.kind not in "iu":
        raise InputError(f"regions must be an (H, W) array of integers, received {parts.dtype} of shape {parts.shape}.")
    if shape is not None and parts.shape != shape:
        raise InputError(f"the regions have shape {parts.shape} but the image has {shape}.")
    n = int(parts.max()) + 1
    if parts.min() < 0 or n > parts.size or not np.bincount(parts.ravel(), minlength=n).all():
        raise InputError("regions must use every number 0 .. n-1 (skimage counts from 1: subtract it, or relabel).")
    return parts.astype(np.int64), n
