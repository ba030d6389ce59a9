"""Images and volumes in NIfTI, TIFF and zarr files as examples: one file, or a folder with ``images/`` and ``masks/``."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from backfield.data.format import Data, Format, Preprocessing
from backfield.data.formats.stacks import (
    ENDINGS,
    Stack,
    by_stem,
    ending_of,
    files_in,
    possible_axes,
    read_mask,
    stem_of,
    write_stack,
)
from backfield.errors import InputError
from backfield.features import LocalFeatures

#: Features of pixels and voxels: name -> parameters of :class:`LocalFeatures` and what it is.
FEATURES: dict[str, tuple[dict[str, Any], str]] = {
    "local": ({}, "Gaussian derivatives and eigenvalues at scales of 1, 2 and 4 voxels"),
    "raw": ({"kinds": ("intensity",)}, "the numbers as they are; unsigned integers over their largest"),
}


class StackFolder(Format):
    """A folder with ``images/`` and ``masks/`` (NIfTI, TIFF, zarr, same stems), or one such file without a mask.

    Parameters
    ----------
    n_axes : int
        2: images; 3: volumes.
    """

    name: ClassVar[str] = "stacks"
    masks: ClassVar[bool] = True
    hidden: ClassVar[str] = "255"

    def __init__(self, n_axes: int) -> None:
        self.n_axes = n_axes

    @property
    def shows(self) -> str:  # type: ignore[override]
        """A report shows volumes as slices."""
        return "slices" if self.n_axes == 3 else ""

    def holds(self, path: Path) -> bool:
        """Whether a path is such a file, or a folder of them, with the right number of axes."""
        files = [path] if ending_of(path) else files_in(path)
        return bool(files) and self.n_axes in possible_axes(files[0])

    def read(self, path: Path, with_labels: bool = True, n_columns: int | None = None, lazy: bool = False) -> Data:
        """Open the files; masks are read."""
        if ending_of(path):
            if with_labels:
                raise InputError(f"{path} is a file without masks; labels come in a folder with images/ and masks/.")
            return Data(path, self, [stem_of(path)], [Stack(path, self.n_axes)], None)
        images = by_stem(files_in(path))
        names = sorted(images)
        stacks = [Stack(images[name], self.n_axes) for name in names]
        if not with_labels:
            return Data(path, self, names, stacks, None)
        masks = _masks(path, images)
        return Data(path, self, names, stacks, [read_mask(masks[stem_of(each.path)], each) for each in stacks])

    def choose(self, data: Data, features: str | None, edges: str | None) -> Preprocessing:
        """Choose local features, unless the raw numbers are asked for."""
        if edges not in (None, "constant"):
            raise InputError(
                "edges of stacks are constant; contrast is a parameter of the model, --model 'volume(contrast=True)'."
            )
        if features is not None and features not in FEATURES:
            listed = "; ".join(f"{key} ({text})" for key, (_, text) in FEATURES.items())
            raise InputError(f"there are no features {features!r} of stacks; there are: {listed}.")
        return Preprocessing(self.name, features or "local")

    def inputs(self, data: Data, preprocessing: Preprocessing) -> Any:
        """Return features that are computed window by window; scales are in units of the smallest side of a voxel."""
        if preprocessing.features not in FEATURES:
            raise InputError(f"{data.path}: the model has features {preprocessing.features!r}, which stacks do not have.")
        params, _ = FEATURES[preprocessing.features]
        return [self._maker(each, params).over(each) for each in data.inputs]

    def _maker(self, stack: Stack, params: dict[str, Any]) -> LocalFeatures:
        spacing = None if stack.spacing is None else [float(size) / min(stack.spacing) for size in stack.spacing]
        return LocalFeatures(n_axes=self.n_axes, spacing=spacing, **params)

    def place(self, data: Data, number: int, at: tuple[int, ...]) -> str:
        """Name a place of a mask."""
        return f"masks/{data.names[number]} at {at}"

    def mask_files(self, out: Path, data: Data, number: int, proba: bool) -> list[Path]:
        """Return the files for labels and probabilities: with the ending of the input."""
        given = data.inputs[number]
        ending = ending_of(given.path) if isinstance(given, Stack) else ".tif"
        if ending_of(out):
            return [out] + [out.with_name(f"{stem_of(out)}.proba{ending_of(out)}")] * proba
        return [out / f"{data.names[number]}{each}{ending}" for each in ("", ".proba")[: 1 + proba]]

    def by_parts(self, files: list[Path]) -> bool:
        """Whether the files are written tile by tile."""
        return ending_of(files[0]) == ".zarr"

    def write_masks(
        self, files: list[Path], data: Data, number: int, labels: np.ndarray, p: np.ndarray | None, colours: bool = True
    ) -> None:
        """Write labels, after their probabilities, with the geometry of the input."""
        like = data.inputs[number]
        for path, values in zip(files[::-1], [labels] if p is None else [p, labels], strict=True):
            write_stack(path, values, like)


def _masks(folder: Path, images: dict[str, Path]) -> dict[str, Path]:
    inner = folder / "masks"
    masks = by_stem([path for path in sorted(inner.iterdir()) if ending_of(path)] if inner.is_dir() else [])
    for mine, others, what in ((images, masks, "mask"), (masks, images, "image")):
        alone = sorted(set(mine) - set(others))
        if alone:
            raise InputError(f"{mine[alone[0]]} has no {what}: there is no {alone[0]} ({', '.join(ENDINGS)}) in {what}s/.")
    return masks
