"""The 715 Stanford background images (Gould et al. 2009) with eight classes; unknown pixels are -1.

[D13] §8.4 estimates errors by five-fold cross-validation and there are no official folds; here they are drawn with a seed.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np

from backfield.datasets._files import locate, read_image, read_mask, require, same_size
from backfield.errors import InputError

URL = "http://dags.stanford.edu/data/iccv09Data.tar.gz"
CLASSES = ("sky", "tree", "road", "grass", "water", "building", "mountain", "foreground")


class Backgrounds(NamedTuple):
    """Images (H, W, 3) uint8, labels (H, W) int32 (0..7, -1 = unknown), names, and the fold of each image."""

    images: list[np.ndarray]
    labels: list[np.ndarray]
    names: list[str]
    folds: np.ndarray


def load(data: str | Path | None = None, n_folds: int = 5, seed: int = 0, n_images: int | None = None) -> Backgrounds:
    """Return the images of ``stanford_background``, their labels and seeded folds of nearly equal size.

    ``n_images`` takes the first ones only; their folds are those that they have in the full set.
    """
    folder = locate("stanford_background", data, "Stanford background images", URL)
    paths = sorted((folder / "images").glob("*.jpg"))
    require(paths, n_folds, "images", folder / "images")
    folds = np.random.default_rng(seed).permutation(np.arange(len(paths)) % n_folds)
    paths = paths[:n_images]
    pairs = [_pair(path) for path in paths]
    names = [path.stem for path in paths]
    return Backgrounds([image for image, _ in pairs], [label for _, label in pairs], names, folds[: len(paths)])


def _pair(path: Path) -> tuple[np.ndarray, np.ndarray]:
    region_path = path.parents[1] / "regions" / f"{path.stem}.png"
    original = path.parents[1] / "labels" / f"{path.stem}.regions.txt"  # as in the archive of the authors
    if not region_path.is_file() and original.is_file():
        region_path = original
    if not region_path.is_file():
        raise InputError(f"{path} has no labels: there is no {region_path}.")
    image = read_image(path)
    regions = _read_text(region_path) if region_path == original else read_mask(region_path)
    same_size(image, regions, path, region_path)
    wrong = (regions >= len(CLASSES)) & (regions != 255)
    if wrong.any():
        raise InputError(f"{region_path}: classes are 0 .. 7 or 255 (unknown), received {regions[wrong].max()}.")
    labels = regions.astype(np.int32)
    labels[labels == 255] = -1
    return image, labels


def _read_text(path: Path) -> np.ndarray:
    try:
        regions = np.loadtxt(path, dtype=np.int64, ndmin=2)
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: is not a matrix of integers.") from error
    return np.maximum(regions, -1)
