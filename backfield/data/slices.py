"""A volume as pictures: its slices, 8 bits per channel, and predictions that are put back slice by slice.

Bytes are taken as they are. Other numbers are scaled so that 0.1 % of some slices, spread over the volume, are darker than
black and as many brighter than white: scanners count from anywhere to anywhere.
"""

from __future__ import annotations

import tempfile
from functools import cached_property
from pathlib import Path

import numpy as np

from backfield.data.formats.stacks import Stack, write_stack
from backfield.errors import InputError

#: Share of numbers beyond black, and beyond white.
_BEYOND = 0.001
#: Slices from which black and white are found, and the most numbers of each.
_LOOKED_AT, _NUMBERS = 9, 100_000


class Slices:
    """The slices of a volume, as pictures (H, W, 3) uint8.

    Parameters
    ----------
    stack : of three axes, with 1, 3 or 4 channels
    """

    def __init__(self, stack: Stack) -> None:
        self.stack = stack
        self.extent = stack.shape[: stack.n_axes]
        count, height, width = (self.extent[axis] for axis in stack.order)
        self._count, self.shape = count, (height, width)
        channels = stack.shape[stack.n_axes :]
        if channels not in ((), (1,), (3,), (4,)):
            raise InputError(f"{stack.path}: pictures have 1, 3 or 4 channels, and these slices {channels[0]}.")

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, number: int) -> np.ndarray:
        values = self._numbers(number)
        if values.dtype != np.uint8:
            black, white = self.levels
            scaled = (values.astype(np.float32) - black) * np.float32(255 / (white - black))
            values = np.clip(np.nan_to_num(np.rint(scaled)), 0, 255).astype(np.uint8)
        values = values if values.ndim == 3 else values[..., None]
        return np.repeat(values, 3, axis=2) if values.shape[2] == 1 else values[..., :3]

    @cached_property
    def levels(self) -> tuple[float, float]:
        """Numbers that are black and white."""
        chosen = np.unique(np.linspace(0, len(self) - 1, _LOOKED_AT).astype(int))
        slices = [self._numbers(int(number)).astype(np.float32).reshape(-1) for number in chosen]
        seen = np.concatenate([values[:: -(-values.size // _NUMBERS)] for values in slices])
        seen = seen[np.isfinite(seen)]
        black, white = np.quantile(seen, [_BEYOND, 1 - _BEYOND]).tolist() if seen.size else (0.0, 1.0)
        return black, white if white > black else black + 1.0

    def window(self, number: int) -> tuple[slice, ...]:
        """Return where a slice is in the array of the file."""
        window = [slice(0, n) for n in self.extent]
        window[self.stack.order[0]] = slice(number, number + 1)
        return tuple(window)

    def to_file(self, values: np.ndarray) -> np.ndarray:
        """Return a picture (H, W, ...) as a window of the array of the file."""
        return values[None].transpose([*np.argsort(self.stack.order), *range(3, values.ndim + 1)])

    def from_file(self, window: np.ndarray) -> np.ndarray:
        """Return a window of the array of the file as a picture."""
        return window.transpose([*self.stack.order, *range(3, window.ndim)])[0]

    def _numbers(self, number: int) -> np.ndarray:
        return self.from_file(self.stack[self.window(number)])


class SlicedPrediction:
    """A prediction of a volume that comes slice by slice, and is written when the last one is there.

    Until then it lies in files without names, which end with the process.

    Parameters
    ----------
    slices : of the volume
    files : of the labels and, where there are two, of the probabilities
    """

    def __init__(self, slices: Slices, files: list[Path]) -> None:
        self.slices, self.files = slices, files
        self._arrays: list[np.ndarray] = []

    def put(self, number: int, labels: np.ndarray, p: np.ndarray | None = None) -> None:
        """Take the labels (H, W) of a slice and, where they are wanted, the probabilities (H, W, classes)."""
        values = [labels.astype(np.int32), *([] if p is None else [p.astype(np.float32)])]
        if not self._arrays:
            self._arrays = [self._room(each) for each in values]
        for array, each in zip(self._arrays, values, strict=True):
            array[self.slices.window(number)] = self.slices.to_file(each)
        if number == len(self.slices) - 1:
            for path, array in list(zip(self.files, self._arrays, strict=True))[::-1]:
                write_stack(path, array, self.slices.stack)

    def _room(self, values: np.ndarray) -> np.ndarray:
        with tempfile.TemporaryFile(dir=self.files[0].parent) as file:
            return np.memmap(file, values.dtype, "w+", shape=(*self.slices.extent, *values.shape[2:]))
