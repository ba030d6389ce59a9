"""Where predictions of any size go: an array in memory, one that the user has made, or a file written part by part."""

from __future__ import annotations

import os
import secrets
import shutil
from pathlib import Path
from typing import Any

import numpy as np

from backfield.atomic import check_output, is_special
from backfield.data.windows import Window, shape_of
from backfield.errors import InputError
from backfield.file_kinds import ARRAY


class Output:
    """An array that is written window by window.

    Parameters
    ----------
    out : None, path, or array
        A new array in memory; an ``.npy`` or ``.zarr`` to be made, which has its name when it is complete; or anything that
        takes ``out[window] = values`` (numpy, memory map, zarr).
    shape : tuple of int
        Of the leading axes; what is written may have more.
    chunk : tuple of int
        Of these axes, in a ``.zarr``.
    """

    def __init__(self, out: Any, shape: tuple[int, ...], chunk: tuple[int, ...]) -> None:
        self.shape, self.chunk = shape, chunk
        self.path = Path(out) if isinstance(out, str | os.PathLike) else None
        self.array: Any = None if self.path is not None else out
        self._temporary: Path | None = None
        self._checked = False
        if self.path is not None:
            self.path = self._checked_path(self.path)

    def write(self, window: Window, values: np.ndarray) -> None:
        """Write a window."""
        shape = (*self.shape, *values.shape[len(self.shape) :])
        if self.array is None:
            self.array = self._make(shape, values.dtype)
        if not self._checked:
            found = shape_of(self.array, "out")
            if found != shape:
                raise InputError(f"out has shape {found}; these predictions need {shape}.")
            self._checked = True
        self.array[window] = values

    def close(self) -> Any:
        """Return the array, complete; a file has its name from now on."""
        if self._temporary is None:
            return self.array
        assert self.path is not None
        if self.path.suffix == ".npy":
            self.array.flush()
            self.array = None
            os.replace(self._temporary, self.path)
            return np.load(self.path, mmap_mode="r")
        os.rename(self._temporary, self.path)
        return _zarr().open_array(str(self.path), mode="r")

    def discard(self) -> None:
        """Leave nothing behind of a file that is not complete."""
        if self._temporary is not None:
            self.array = None
            if self._temporary.is_dir():
                shutil.rmtree(self._temporary, ignore_errors=True)
            else:
                self._temporary.unlink(missing_ok=True)

    def _checked_path(self, path: Path) -> Path:
        """Return the file that a path leads to."""
        target = check_output(path, ARRAY if path.suffix == ".npy" else None)
        if path.suffix not in (".npy", ".zarr"):
            raise InputError(f"predictions are written by parts to an .npy or a .zarr, received {path}.")
        if path.suffix == ".zarr":
            _zarr()
            if target.exists():
                raise InputError(f"{path} exists; choose another place for the predictions, or remove it.")
        if not target.parent.is_dir():
            raise InputError(f"{path}: there is no folder {target.parent}.")
        if target.suffix != path.suffix or is_special(target):
            raise InputError(f"{path} leads to {target}, which is no {path.suffix}; choose another place.")
        return target

    def _make(self, shape: tuple[int, ...], dtype: np.dtype) -> Any:
        if self.path is None:
            return np.empty(shape, dtype)
        self._temporary = self.path.with_name(f".{self.path.stem}.{secrets.token_hex(4)}{self.path.suffix}")
        if self.path.suffix == ".npy":
            return np.lib.format.open_memmap(self._temporary, "w+", dtype, shape)
        chunks = tuple(min(n, c) for n, c in zip(self.shape, self.chunk, strict=True)) + shape[len(self.shape) :]
        return _zarr().open_array(str(self._temporary), mode="w", shape=shape, chunks=chunks, dtype=dtype)


def _zarr() -> Any:
    try:
        import zarr
    except ImportError as error:
        raise InputError("zarr arrays need the package zarr: pip install 'backfield[volumes]'.") from error
    return zarr
