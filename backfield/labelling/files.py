"""The files of a session: pictures, and volumes, every slice of which is one; with their labels and predictions.

A picture is a file with one slice. ``masks/STEM.png`` holds its labels, those of a volume lie in chunks (``chunks.py``);
255 = not painted. A map is written whole or not at all, and before the stroke that changed it is acknowledged.
"""

from __future__ import annotations

import glob
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np

from backfield.atomic import replacing
from backfield.data.formats import write_mask
from backfield.data.formats.stacks import Stack, ending_of, possible_axes, stem_of
from backfield.data.slices import SlicedPrediction, Slices
from backfield.datasets import read_image, read_mask
from backfield.errors import InputError
from backfield.labelling.chunks import ChunkedLabels
from backfield.labelling.labels import check_classes
from backfield.labelling.strokes import HIDDEN

#: Takes the number of a slice and its marginals (H, W, labels), one slice after the other.
Predict = Callable[[int, np.ndarray], None]


class Paintable(Protocol):
    """A file with slices of one size that can be painted on."""

    name: str
    path: Path
    mask: Path
    shape: tuple[int, int]

    def __len__(self) -> int: ...

    def pixels(self, number: int) -> np.ndarray:
        """Return a slice, (H, W, 3) uint8."""

    def written(self) -> list[int]:
        """Return the slices whose labels are on disk; nobody has painted on others."""

    def labels(self, number: int) -> np.ndarray:
        """Return the labels of a slice, (H, W) uint8 with 255 = not painted."""

    def write(self, number: int, labels: np.ndarray) -> None:
        """Put the labels of a slice in the place of those on disk."""

    def whole(self, maps: list[np.ndarray]) -> np.ndarray:
        """Return the maps of all slices as one array, with the axes of the file."""

    def predictions(self, out: Path) -> Predict:
        """Return what writes masks and probabilities into a folder, as ``backfield predict`` does."""


@dataclass(frozen=True)
class Slice:
    """One slice of a file."""

    file: Paintable
    number: int

    @property
    def name(self) -> str:
        """What people call it."""
        return self.file.name if len(self.file) == 1 else f"{self.file.name}[{self.number}]"

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""
        return self.file.shape

    @property
    def mask(self) -> Path:
        """Where the labels are."""
        return self.file.mask

    def pixels(self) -> np.ndarray:
        """Return the picture, (H, W, 3) uint8."""
        return self.file.pixels(self.number)

    def labels(self) -> np.ndarray:
        """Return the labels, (H, W) uint8 with 255 = not painted."""
        return self.file.labels(self.number)

    def write(self, labels: np.ndarray) -> None:
        """Put the labels in the place of those on disk."""
        self.file.write(self.number, labels)


class PictureFile:
    """A PNG or JPEG; one without a map of labels gets an empty one."""

    def __init__(self, path: Path, masks: Path) -> None:
        self.name, self.path, self.mask = path.stem, path, masks / f"{path.stem}.png"
        width, height = _size(path)
        self.shape = height, width
        for left in masks.glob(f".{glob.escape(self.mask.name)}.????????"):  # of a process that was killed
            left.unlink(missing_ok=True)
        if not self.mask.exists():
            self.write(0, np.full(self.shape, HIDDEN, np.uint8))

    def __len__(self) -> int:
        return 1

    def pixels(self, number: int) -> np.ndarray:
        """Return the image, (H, W, 3) uint8."""
        image = read_image(self.path)
        if image.shape[:2] != self.shape:
            raise InputError(f"{self.path} has changed its size since the session began; start it again.")
        return image

    def written(self) -> list[int]:
        """Return the only slice."""
        return [0]

    def labels(self, number: int) -> np.ndarray:
        """Return the labels, (H, W) uint8 with 255 = not painted."""
        values = read_mask(self.mask)
        if values.shape != self.shape:
            raise InputError(f"{self.mask} is {values.shape[1]}x{values.shape[0]} pixels but {self.path} is not.")
        check_classes(self.mask, values[values != HIDDEN])
        return values.astype(np.uint8)

    def write(self, number: int, labels: np.ndarray) -> None:
        """Put the labels in the place of the file."""
        from PIL import Image

        with replacing(self.mask) as file:
            Image.fromarray(labels).save(file, format="PNG", compress_level=1)

    def whole(self, maps: list[np.ndarray]) -> np.ndarray:
        """Return the only map."""
        return maps[0]

    def predictions(self, out: Path) -> Predict:
        """Return what writes a PNG and an array."""

        def write(number: int, p: np.ndarray) -> None:
            with replacing(out / f"{self.name}.npy") as file:
                np.save(file, p)
            write_mask(out / f"{self.name}.png", p.argmax(axis=2))

        return write


class VolumeFile:
    """A volume in a TIFF, NIfTI or zarr file."""

    def __init__(self, path: Path, masks: Path) -> None:
        if possible_axes(path)[:1] != (3,):
            raise InputError(f"{path} is no volume; it needs three axes. Pictures are labelled as PNG or JPEG files.")
        self.name, self.path = stem_of(path), path
        self._slices = Slices(Stack(path, 3))
        self.shape = self._slices.shape
        self._labels = ChunkedLabels(masks, self._slices)
        self.mask = self._labels.path

    def __len__(self) -> int:
        return len(self._slices)

    def pixels(self, number: int) -> np.ndarray:
        """Return a slice, (H, W, 3) uint8."""
        return self._slices[number]

    def written(self) -> list[int]:
        """Return the slices that have a chunk."""
        return self._labels.written()

    def labels(self, number: int) -> np.ndarray:
        """Return the labels of a slice, (H, W) uint8 with 255 = not painted."""
        values = self._labels.read(number)
        check_classes(self.mask, values[values != HIDDEN])
        return values

    def write(self, number: int, labels: np.ndarray) -> None:
        """Put the labels of a slice in the place of its chunk."""
        self._labels.write(number, labels)

    def whole(self, maps: list[np.ndarray]) -> np.ndarray:
        """Return the maps as an array like the volume."""
        return np.concatenate([self._slices.to_file(each) for each in maps], axis=self._slices.stack.order[0])

    def predictions(self, out: Path) -> Predict:
        """Return what writes two volumes in the format of this one, when the last slice is there."""
        files = [out / f"{self.name}{each}{ending_of(self.path)}" for each in ("", ".proba")]
        prediction = SlicedPrediction(self._slices, files)

        def write(number: int, p: np.ndarray) -> None:
            if number == len(self) - 1:
                for file in files:
                    if file.is_dir():  # a zarr array of an earlier export
                        shutil.rmtree(file)
            prediction.put(number, p.argmax(axis=2), p)

        return write


def _size(path: Path) -> tuple[int, int]:
    """Return width and height from the header of an image; what is none is refused."""
    from PIL import Image, UnidentifiedImageError

    try:
        with Image.open(path, formats=("PNG", "JPEG")) as picture:
            return picture.size
    except (UnidentifiedImageError, OSError, ValueError, SyntaxError) as error:
        raise InputError(f"{path}: cannot be read as an image.") from error
