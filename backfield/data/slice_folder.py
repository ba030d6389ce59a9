"""Volumes for models of images: every slice is an example, and predictions of a volume are one file again."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from backfield.data.format import Data, Format, Preprocessing
from backfield.data.pixels import choose_pixels, pixel_inputs
from backfield.data.sequences import Lazy
from backfield.data.slices import SlicedPrediction, Slices
from backfield.data.stack_folder import StackFolder


class SliceFolder(Format):
    """A folder of volumes, or one file, as :class:`StackFolder` reads them, slice by slice.

    Parameters
    ----------
    volumes : Data, optional
        What was read.
    """

    name: ClassVar[str] = "slices"
    unit: ClassVar[tuple[str, str] | None] = ("slice", "pixel")
    shows: ClassVar[str] = "pictures"
    masks: ClassVar[bool] = True
    hidden: ClassVar[str] = "255"

    def __init__(self, volumes: Data | None = None) -> None:
        self._volumes = volumes
        self._slices = [] if volumes is None else [Slices(stack) for stack in volumes.inputs]
        self._places = [(v, k) for v, slices in enumerate(self._slices) for k in range(len(slices))]
        self._begun: tuple[int, SlicedPrediction] | None = None  # the volume whose predictions come

    def holds(self, path: Path) -> bool:
        """Whether a path is a volume, or a folder of them."""
        return StackFolder(3).holds(path)

    def read(self, path: Path, with_labels: bool = True, n_columns: int | None = None, lazy: bool = False) -> Data:
        """Open the files."""
        volumes = StackFolder(3).read(path, with_labels)
        form = SliceFolder(volumes)
        names = [f"{volumes.names[v]}[{k}]" for v, k in form._places]
        pictures = Lazy(_picture, [form._slices[v] for v, _ in form._places], [k for _, k in form._places])
        labels = None
        if volumes.labels is not None:
            labels = [form._slices[v].from_file(volumes.labels[v][form._slices[v].window(k)]) for v, k in form._places]
        return Data(path, form, names, pictures if lazy else list(pictures), labels)

    def choose(self, data: Data, features: str | None, edges: str | None) -> Preprocessing:
        """Choose colours, unless others are asked for."""
        return choose_pixels(data, features, edges, "rgb")

    def inputs(self, data: Data, preprocessing: Preprocessing) -> Any:
        """Return slices with features."""
        return pixel_inputs(data, preprocessing)

    def place(self, data: Data, number: int, at: tuple[int, ...]) -> str:
        """Name a pixel of a mask."""
        return f"masks/{data.names[number]}, row {at[0]}, column {at[1]}"

    def mask_files(self, out: Path, data: Data, number: int, proba: bool) -> list[Path]:
        """Return the files of the volume that a slice is of."""
        assert self._volumes is not None
        return StackFolder(3).mask_files(out, self._volumes, self._places[number][0], proba)

    def write_masks(
        self, files: list[Path], data: Data, number: int, labels: np.ndarray, p: np.ndarray | None, colours: bool = True
    ) -> None:
        """Keep a slice; write a volume when its last slice comes."""
        volume, k = self._places[number]
        if self._begun is None or self._begun[0] != volume:
            self._begun = volume, SlicedPrediction(self._slices[volume], files)
        self._begun[1].put(k, labels, p)


def _picture(slices: Slices, k: int, number: int) -> np.ndarray:
    return slices[k]
