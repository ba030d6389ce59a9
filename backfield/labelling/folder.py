"""The folder of a session: images, their maps of labels, and the lock that keeps a second server away.

``masks/STEM.png`` holds the labels of an image, 255 = not painted: the folder is a training folder of ``backfield fit``.
A map is written whole or not at all, and before the stroke that changed it is acknowledged.
"""

from __future__ import annotations

import glob
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from backfield.atomic import replacing
from backfield.data.formats.images import image_files
from backfield.datasets import read_image, read_mask
from backfield.errors import InputError
from backfield.labelling.labels import MOST
from backfield.labelling.strokes import HIDDEN

LOCK = ".backfield-label.lock"


@dataclass(frozen=True)
class ImageFile:
    """An image on disk and the map of its labels."""

    name: str
    path: Path
    mask: Path
    width: int
    height: int

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""
        return self.height, self.width

    def pixels(self) -> np.ndarray:
        """Return the image, (H, W, 3) uint8."""
        image = read_image(self.path)
        if image.shape[:2] != self.shape:
            raise InputError(f"{self.path} has changed its size since the session began; start it again.")
        return image

    def labels(self) -> np.ndarray:
        """Return the labels, (H, W) uint8 with 255 = not painted."""
        if not self.mask.exists():
            return np.full(self.shape, HIDDEN, np.uint8)
        values = read_mask(self.mask)
        if values.shape != self.shape:
            raise InputError(f"{self.mask} is {values.shape[1]}x{values.shape[0]} pixels but {self.path} is not.")
        known = values[values != HIDDEN]
        if known.size and not 0 <= int(known.min()) <= int(known.max()) < MOST:
            raise InputError(f"{self.mask} holds class {known.max()}; a session has at most {MOST} labels.")
        return values.astype(np.uint8)

    def write(self, labels: np.ndarray) -> None:
        """Put the labels in the place of the file."""
        from PIL import Image

        with replacing(self.mask) as file:
            Image.fromarray(labels).save(file, format="PNG", compress_level=1)


def open_folder(folder: Path) -> list[ImageFile]:
    """Return the images of a folder (in ``images/`` or in itself); those without a map of labels get an empty one."""
    found = image_files(folder / "images" if (folder / "images").is_dir() else folder)
    masks = folder / "masks"
    masks.mkdir(exist_ok=True)
    images = []
    for name in sorted(found):
        width, height = _size(found[name])
        images.append(ImageFile(name, found[name], masks / f"{name}.png", width, height))
        _sweep(masks, name)
        if not images[-1].mask.exists():
            images[-1].write(np.full((height, width), HIDDEN, np.uint8))
    return images


def lock(folder: Path) -> Any:
    """Return an open file that no other server of this folder has; refused where one runs."""
    if not folder.is_dir():
        raise InputError(f"{folder} is not a folder; backfield label needs a folder of PNG or JPEG images.")
    file = open(folder / LOCK, "a")  # noqa: SIM115
    try:
        import fcntl

        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except ImportError:  # no such locks on this system
        pass
    except OSError as error:
        file.close()
        raise InputError(f"another backfield label runs on {folder}; two would overwrite each other's strokes.") from error
    return file


def _sweep(masks: Path, name: str) -> None:
    """Delete what a killed process left of a map that it was writing."""
    for path in masks.glob(f".{glob.escape(name)}.png.????????"):
        path.unlink(missing_ok=True)


def _size(path: Path) -> tuple[int, int]:
    """Return width and height from the header of an image; what is none is refused."""
    from PIL import Image, UnidentifiedImageError

    try:
        with Image.open(path, formats=("PNG", "JPEG")) as picture:
            return picture.size
    except (UnidentifiedImageError, OSError, ValueError, SyntaxError) as error:
        raise InputError(f"{path}: cannot be read as an image.") from error
