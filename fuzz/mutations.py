"""Mutations of bytes and of values."""

from __future__ import annotations

import json
import re
from typing import Any

import numpy as np

#: Values that parsers stumble over.
ODD_VALUES: list[Any] = [
    None, True, False, 0, -1, 1, 2, 2**31, 2**63 - 1, 2**64, -(2**63), 1e308, -1e308, 5e-324, float("nan"), float("inf"), "",
    "x", "\x00", "../../etc/passwd", [], [[]], {}, {"a": 1}, [1, [2, [3]]], "9" * 400,
]  # fmt: skip


def mutate_bytes(rng: np.random.Generator, data: bytes) -> bytes:
    """Return ``data`` with one to four small mutations."""
    out = bytearray(data)
    for _ in range(int(rng.integers(1, 5))):
        _BYTE_MUTATIONS[int(rng.integers(len(_BYTE_MUTATIONS)))](rng, out)
    return bytes(out)


def _flip(rng: np.random.Generator, out: bytearray) -> None:
    if out:
        out[int(rng.integers(len(out)))] ^= 1 << int(rng.integers(8))


def _overwrite(rng: np.random.Generator, out: bytearray) -> None:
    if out:
        at, count = int(rng.integers(len(out))), int(rng.integers(1, 9))
        out[at : at + count] = rng.choice([b"\x00", b"\xff", b"\x7f"]) * len(out[at : at + count])


def _truncate(rng: np.random.Generator, out: bytearray) -> None:
    del out[int(rng.integers(len(out) + 1)) :]


def _delete(rng: np.random.Generator, out: bytearray) -> None:
    at = int(rng.integers(len(out) + 1))
    del out[at : at + int(rng.integers(1, 64))]


def _duplicate(rng: np.random.Generator, out: bytearray) -> None:
    at = int(rng.integers(len(out) + 1))
    piece = out[at : at + int(rng.integers(1, 256))]
    out[at:at] = piece


def _insert(rng: np.random.Generator, out: bytearray) -> None:
    at = int(rng.integers(len(out) + 1))
    out[at:at] = rng.bytes(int(rng.integers(1, 16)))


def _digits(rng: np.random.Generator, out: bytearray) -> None:
    """Put a large or negative number in the place of a number of a text."""
    places = [k for k, byte in enumerate(out) if 48 <= byte <= 57]
    if places:
        at = int(rng.choice(places))
        out[at : at + 1] = rng.choice([b"-1", b"99999999999", b"0", b"1e400", b"nan", b"-0", b"4294967296"])


_BYTE_MUTATIONS = [_flip, _flip, _overwrite, _truncate, _delete, _duplicate, _insert, _digits]


#: Words that readers of texts stumble over.
ODD_WORDS = [b"-1", b"0", b"1", b"1e400", b"nan", b"inf", b"-inf", b"99999999999", b"x", b"{", b"}", b"(", b")", b"|", b";",
             b'"', b"/*", b"//", b"<", b"</X>", b"&a;", b"\\", b"\x00", b"\xff", b"\n\n", b"%x[9999999999,0]"]  # fmt: skip


def mutate_tokens(rng: np.random.Generator, data: bytes) -> bytes:
    """Return a text with one to four words replaced, removed, doubled or moved."""
    words = re.split(rb"(\s+)", data)
    for _ in range(int(rng.integers(1, 5))):
        at, other = (2 * int(rng.integers((len(words) + 1) // 2)) for _ in range(2))
        action = int(rng.integers(5))
        if action <= 1:
            words[at] = ODD_WORDS[int(rng.integers(len(ODD_WORDS)))]
        elif action == 2:
            words[at] = b""
        elif action == 3:
            words[at] = words[at] * int(rng.choice([2, 1000]))
        else:
            words[at], words[other] = words[other], words[at]
    return b"".join(words)


def mutate_json(rng: np.random.Generator, value: Any) -> Any:
    """Return a copy of a JSON value with one place replaced, removed or nested deeply."""
    value = json.loads(json.dumps(value))
    places = list(_places(value))
    if not places:
        return ODD_VALUES[int(rng.integers(len(ODD_VALUES)))]
    owner, key = places[int(rng.integers(len(places)))]
    action = rng.random()
    if action < 0.15:
        del owner[key]
    elif action < 0.2:
        owner[key] = json.loads("[" * 200 + "]" * 200)
    else:
        owner[key] = ODD_VALUES[int(rng.integers(len(ODD_VALUES)))]
    return value


def _places(value: Any) -> Any:
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, each in list(items):
        yield value, key
        yield from _places(each)


def mutate_array(rng: np.random.Generator, array: np.ndarray) -> np.ndarray:
    """Return an array with odd numbers, another shape or another type."""
    out = np.array(array)
    action = int(rng.integers(6))
    if action <= 2 and out.size:
        odd = [-1, 0, 2**30, -(2**30), 2**62] if out.dtype.kind in "iu" else [np.nan, np.inf, -np.inf, 1e300, 0]
        where = rng.integers(out.size, size=1 if action else max(1, out.size // 3))
        with np.errstate(all="ignore"):
            out.reshape(-1)[where] = np.array(odd[int(rng.integers(len(odd)))]).astype(out.dtype)
        return out
    if action == 3 and out.ndim:
        return out[: len(out) // 2]
    if action == 4:
        return np.concatenate([out.reshape(-1), out.reshape(-1)])
    return out.astype(rng.choice(["float32", "int8", "bool", "uint64", "complex128"]))
