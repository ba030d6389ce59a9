"""The 328 Weizmann horses (Borenstein et al. 2004), size-normalised; a pixel is part of the horse or not.

[D13] §8.3 takes 200 images for training and 128 for testing and does not say which; here the split is drawn with a seed.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

import numpy as np

from backfield.datasets._files import locate, read_image, read_mask, require, same_size, seeded_split
from backfield.errors import InputError

URL = "https://www.kaggle.com/datasets/ztaihong/weizmann-horse-database"


class Horses(NamedTuple):
    """Images (H, W, 3) uint8, masks (H, W) int32 with 1 = horse, names, and the indices for training and testing."""

    images: list[np.ndarray]
    masks: list[np.ndarray]
    names: list[str]
    train: np.ndarray
    test: np.ndarray


def load(data: str | Path | None = None, n_train: int = 200, seed: int = 0) -> Horses:
    """Return all horses of ``weizmann_horses/{training,test}`` in the order of their numbers, and a seeded split."""
    folder = locate("weizmann_horses", data, "Weizmann horses", URL)
    paths = sorted(folder.glob("*/images/image-*.png"), key=lambda path: (_number(path), str(path)))
    require(paths, n_train + 1, "images", folder)
    pairs = [_pair(path) for path in paths]
    names = [f"{path.parts[-3]}/{path.stem}" for path in paths]
    train, test = seeded_split(len(paths), n_train, seed)
    return Horses([image for image, _ in pairs], [mask for _, mask in pairs], names, train, test)


def _number(path: Path) -> int:
    match = re.fullmatch(r"image-(\d+)", path.stem)
    if match is None:
        raise InputError(f"{path}: horses are named image-N.png with a number N.")
    return int(match[1])


def _pair(path: Path) -> tuple[np.ndarray, np.ndarray]:
    mask_path = path.parents[1] / "masks" / f"mask-{_number(path)}.png"
    if not mask_path.is_file():
        raise InputError(f"{path} has no mask: there is no {mask_path}.")
    image, mask = read_image(path), read_mask(mask_path)
    same_size(image, mask, path, mask_path)
    return image, (mask > mask.max() / 2).astype(np.int32)  # {0, 255} here, {0, 1} in other editions
