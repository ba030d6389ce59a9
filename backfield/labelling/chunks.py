"""Labels of a volume on disk: a zarr array with one chunk per slice, so a stroke writes one slice and not the volume.

``masks/STEM.zarr`` is what ``backfield fit`` reads as the labels of ``images/STEM.tif`` (or NIfTI, or zarr) at any moment.
A chunk is a file, which is replaced whole or not at all; one that is missing holds 255. Labels that were there in another
format are copied once, and the old file is kept as ``masks/STEM.tif.before``.
"""

from __future__ import annotations

import glob
import json
import os
import re
import secrets
import shutil
import zlib
from pathlib import Path

import numpy as np

from backfield.atomic import replacing, sync_folder, write_text
from backfield.data.formats.stacks import by_stem, ending_of, read_mask, stem_of
from backfield.data.slices import Slices
from backfield.errors import InputError
from backfield.labelling.labels import check_classes
from backfield.labelling.strokes import HIDDEN
from backfield.limits import parse_json

_HEADER = ".zarray"
#: Names of files that were not finished (see ``backfield.atomic``).
_LEFT = re.compile(r"\..+\.[0-9a-f]{8}")


class ChunkedLabels:
    """Maps of labels (H, W) uint8 of the slices of a volume.

    Parameters
    ----------
    folder : with the masks of a session
    slices : of the volume
    """

    def __init__(self, folder: Path, slices: Slices) -> None:
        stem = stem_of(slices.stack.path)
        self.slices, self.path = slices, folder / f"{stem}.zarr"
        self._extent = [1 if axis == slices.stack.order[0] else n for axis, n in enumerate(slices.extent)]
        given = by_stem([path for path in sorted(folder.iterdir()) if ending_of(path) and stem_of(path) == stem]).get(stem)
        self._sweep(given)
        if given is None or (self.path.is_dir() and not self._files()):
            self._begin(self.path)
        elif not self._is_ours():
            self._copy(given)

    def written(self) -> list[int]:
        """Return the slices that have a file."""
        return [number for number in range(len(self.slices)) if (self.path / self._chunk(number)).exists()]

    def read(self, number: int) -> np.ndarray:
        """Return the map of a slice; one that nobody has painted takes no memory."""
        file = self.path / self._chunk(number)
        if not file.exists():
            return np.broadcast_to(np.uint8(HIDDEN), self.slices.shape)
        size = self.slices.shape[0] * self.slices.shape[1]
        try:
            data = zlib.decompressobj().decompress(file.read_bytes(), size + 1)
        except zlib.error:
            data = b""
        if len(data) != size:
            raise InputError(f"{file}: cannot be read as the labels of a slice; the file is damaged.")
        return self.slices.from_file(np.frombuffer(data, np.uint8).reshape(self._extent))

    def write(self, number: int, labels: np.ndarray) -> None:
        """Put the map of a slice in the place of its file."""
        self._write(self.path, number, labels)

    def _write(self, folder: Path, number: int, labels: np.ndarray) -> None:
        with replacing(folder / self._chunk(number)) as file:
            file.write(zlib.compress(self.slices.to_file(labels).tobytes(), 1))

    def _chunk(self, number: int) -> str:
        return ".".join(str(number if axis == self.slices.stack.order[0] else 0) for axis in range(3))

    @property
    def _header(self) -> dict[str, object]:
        return {
            "zarr_format": 2,
            "shape": list(self.slices.extent),
            "chunks": self._extent,
            "dtype": "|u1",
            "compressor": {"id": "zlib", "level": 1},
            "fill_value": HIDDEN,
            "order": "C",
            "filters": None,
        }

    def _is_ours(self) -> bool:
        file = self.path / _HEADER
        try:
            return file.is_file() and parse_json(file.read_bytes()) == self._header
        except ValueError:
            return False

    def _begin(self, folder: Path) -> None:
        folder.mkdir(exist_ok=True)
        write_text(folder / _HEADER, json.dumps(self._header))
        sync_folder(folder.parent)

    def _copy(self, given: Path) -> None:
        """Take over the labels of another file."""
        labels = read_mask(given, self.slices.stack)
        check_classes(given, labels[labels >= 0])
        values = np.where(labels < 0, HIDDEN, labels).astype(np.uint8)
        made = self.path.with_name(f".{self.path.name}.{secrets.token_hex(4)}")
        self._begin(made)
        for number in range(len(self.slices)):
            painted = self.slices.from_file(values[self.slices.window(number)])
            if (painted != HIDDEN).any():
                self._write(made, number, painted)
        os.rename(given, _before(given))
        os.rename(made, self.path)
        sync_folder(self.path.parent)

    def _sweep(self, given: Path | None) -> None:
        """Delete what a killed process left of files that it was writing; a copy that only lacked its name gets it."""
        for made in self.path.parent.glob(f".{glob.escape(self.path.name)}.????????"):
            if given is None and not self.path.exists():
                os.rename(made, self.path)
            else:
                shutil.rmtree(made, ignore_errors=True)
        for file in self._files():
            if _LEFT.fullmatch(file.name):
                file.unlink(missing_ok=True)

    def _files(self) -> list[Path]:
        return list(self.path.iterdir()) if self.path.is_dir() else []


def _before(path: Path) -> Path:
    """Return the name under which a file of labels is kept that was copied."""
    name = path.with_name(f"{path.name}.before")
    return name if not name.exists() else path.with_name(f"{path.name}.before.{secrets.token_hex(4)}")
