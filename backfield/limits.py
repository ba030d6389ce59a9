"""Limits on what a file may make this process allocate, checked before anything is allocated; and JSON from files.

A file says how large its content is (the shape of an array, the pixels of an image) before the content comes. What it says
is compared with the bytes that are there and with :func:`max_bytes`.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from backfield.errors import InputError

#: Environment variable that raises (or lowers) the limit.
VARIABLE = "BACKFIELD_MAX_BYTES"
#: Bytes that one file may unpack to, where it is not larger itself.
DEFAULT = 2**30


def max_bytes() -> int:
    """Return the limit: ``$BACKFIELD_MAX_BYTES``, else 1 GiB."""
    text = os.environ.get(VARIABLE, "").strip()
    if not text:
        return DEFAULT
    if not text.isdecimal() or int(text) == 0:
        raise InputError(f"{VARIABLE} must be an integer of bytes, received {text!r}.")
    return int(text)


def check_unpacked(path: str | Path, declared: int) -> None:
    """Refuse a file that declares more bytes than it has itself and more than the limit."""
    limit = max(max_bytes(), os.path.getsize(path))
    if declared > limit:
        raise InputError(
            f"{path} declares {declared} bytes, more than the limit of {limit}; set {VARIABLE} to read it anyway."
        )


def parse_json(text: str | bytes) -> Any:
    """Return the value of a JSON text; what is no JSON, or nested too deeply, raises ValueError."""
    try:
        return json.loads(text)
    except RecursionError as error:
        raise ValueError("JSON that is nested too deeply") from error
