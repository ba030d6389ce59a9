"""Checkpoint files: arrays in safetensors, all else as JSON in its header, replaced as a whole or not at all.

    read: format, version and checksum first, then the content; nothing in the file is run

Written by ``backfield.atomic``. Cost: one copy of the arrays in memory.
"""

from __future__ import annotations

import json
import zlib
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


def _checksum(arrays: dict[str, np.ndarray], text: str) -> str:
    value = zlib.crc32(text.encode())
    for name in sorted(arrays):
        value = zlib.crc32(name.encode(), value)
        value = zlib.crc32(arrays[name].tobytes(), value)
    return f"{value:08x}"
