"""Checkpoint files: arrays in safetensors, all else as JSON in its header, replaced as a whole or not at all.

    read: format, version and checksum first, then the content; nothing in the file is run
    use:  types and sizes of a state are checked (``check_state``) before a learner goes on from it

Written by ``backfield.atomic``. Cost: one copy of the arrays in memory.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from backfield.atomic import write_bytes
from backfield.errors import InputError

FORMAT = "backfield-checkpoint"
VERSION = "2"


def write_checkpoint(path: Path, arrays: dict[str, np.ndarray], content: dict[str, Any]) -> None:
    """Write arrays and JSON content; raises OSError and leaves the old file if that fails."""
    arrays = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    text = json.dumps(content)
    header = {"format": FORMAT, "version": VERSION, "checksum": _checksum(arrays, text), "content": text}
    write_bytes(path, save(arrays, metadata=header))


def read_checkpoint(path: Path) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Return arrays and content; a file that is damaged or something else raises InputError."""
    try:
        with safe_open(str(path), framework="numpy") as file:
            header = file.metadata() or {}
            if header.get("format") != FORMAT:
                raise InputError(f"{path} is not a checkpoint of backfield.")
            if header.get("version") != VERSION:
                raise InputError(
                    f"{path} is a checkpoint of version {header.get('version')}; this backfield reads {VERSION}."
                )
            names = list(file.keys())
            arrays = {name: np.array(file.get_tensor(name)) for name in names}
        content = json.loads(header["content"])
    except (SafetensorError, KeyError, TypeError, ValueError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"{path} is damaged or not a checkpoint of backfield: it cannot be read.") from error
    except OSError as error:
        raise InputError(f"the checkpoint {path} cannot be read: {error.strerror or error}.") from error
    if header.get("checksum") != _checksum(arrays, header["content"]):
        raise InputError(f"the checkpoint {path} is damaged: its checksum is wrong.")
    return arrays, content


def check_state(
    arrays: dict[str, np.ndarray], numbers: Any, shapes: Mapping[str, str], types: Mapping[str, type], sizes: dict[str, int]
) -> None:
    """Refuse (ValueError) a state whose arrays or numbers are missing, or of other types or sizes.

    A shape is a type and sizes, ``"float k n"``: letters stand for one size each, those of ``sizes`` for a known one,
    ``n|0`` for it or nothing. ``float`` is finite, ``real`` any number. A name with ``?`` may be missing.
    """
    known = dict(sizes)
    for name, shape in shapes.items():
        array = arrays.get(name.removesuffix("?"))
        if array is None and name.endswith("?"):
            continue
        if array is None or not _has_shape(array, *shape.split(), known=known):
            raise ValueError(f"its array {name.removesuffix('?')} is not {shape}")
    for name, kind in types.items():
        value = numbers[name]
        whole = isinstance(value, int) and not isinstance(value, bool)
        good = {bool: isinstance(value, bool), int: whole and value >= 0, float: whole or isinstance(value, float)}
        if not good[kind]:
            raise ValueError(f"its number {name} is {value!r:.40}")


def _has_shape(array: np.ndarray, kind: str, *axes: str, known: dict[str, int]) -> bool:
    if array.ndim != len(axes) or array.dtype.kind not in ("iu" if kind == "int" else "f"):
        return False
    if kind == "float" and not np.isfinite(array).all():
        return False
    for size, axis in zip(array.shape, axes, strict=True):
        letter, _, other = axis.partition("|")
        if known.setdefault(letter, size) != size and other != str(size):
            return False
    return True


def _checksum(arrays: dict[str, np.ndarray], text: str) -> str:
    value = zlib.crc32(text.encode())
    for name in sorted(arrays):
        value = zlib.crc32(name.encode(), value)
        value = zlib.crc32(arrays[name].tobytes(), value)
    return f"{value:08x}"
