"""Packed folders: examples in safetensors files that are memory-mapped one example at a time.

    FOLDER/plan.json                 written first: what is to be packed, into how many shards
    FOLDER/shard-00000.safetensors   examples first .. first + count - 1; written whole or not at all
    FOLDER/index.json                written last: names, sizes and checksums of all shards. With it the folder is complete

A shard is read through once, when the first of its examples is asked for, to see that its checksum is right. Only the
bytes of the example that is asked for are mapped, and only as long as it is in use, so a folder of any size takes the
address space of one example per thread.
"""

from __future__ import annotations

import hashlib
import json
import math
import mmap
import socket
import threading
from collections.abc import Callable
from functools import lru_cache
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from backfield.constraints import check
from backfield.constraints import path as path_rule
from backfield.data.codecs import Codec, Get, decode_labels, input_names
from backfield.data.sequences import Lazy
from backfield.errors import InputError
from backfield.limits import parse_json
from backfield.registry import get

FORMAT, VERSION = "backfield-shards", 2
INDEX, PLAN = "index.json", "plan.json"
#: Headers of shards that a reader keeps.
_HEADERS = 128
_DTYPES = {
    "F64": "<f8", "F32": "<f4", "F16": "<f2", "I64": "<i8", "I32": "<i4", "I16": "<i2", "I8": "i1",
    "U64": "<u8", "U32": "<u4", "U16": "<u2", "U8": "u1", "BOOL": "?",
}  # fmt: skip


class Shard(NamedTuple):
    """One file of a packed folder."""

    file: str
    first: int
    n_examples: int
    bytes: int
    sha256: str


class Shards:
    """A complete packed folder: ``X`` and ``y`` are lazy sequences for ``fit`` and ``predict``.

    Attributes
    ----------
    X, y : sequences of the examples and their labels; ``y`` is ``None`` if none were packed
    names : of the examples
    preprocessing : dict or None
        How the command line made the features.
    """

    def __init__(self, folder: Path, index: dict[str, Any]) -> None:
        self.folder, self.identity = folder, index["identity"]
        self.shards = [Shard(*entry) for entry in index["shards"]]
        self.names: list[str] = index["names"]
        self.preprocessing: dict[str, Any] | None = index["preprocessing"]
        self.kind: str = index["kind"]
        self.codec: Codec = get("structures", self.kind).codec
        self.X: Any = Lazy(self.input, range(len(self)))
        self.y: Any = Lazy(self.labels, range(len(self))) if index["labelled"] else None
        self._starts = np.array([shard.first for shard in self.shards])
        self._checked: set[int] = set()
        self._locks = [threading.Lock() for _ in self.shards]
        self._header = lru_cache(_HEADERS)(self._read_header)

    def __len__(self) -> int:
        return len(self.names)

    def __repr__(self) -> str:
        return f"Shards({str(self.folder)!r}: {len(self)} examples in {len(self.shards)} shards)"

    def __reduce__(self) -> Any:
        """Pickle the folder's name and identity; whoever unpickles opens it for itself."""
        return _open_same, (str(self.folder), self.identity)

    @property
    def total_bytes(self) -> int:
        """Size of all shards."""
        return sum(shard.bytes for shard in self.shards)

    def check(self, number: int) -> int:
        """Return the shard of an example, after its checksum was seen to be right once."""
        at = int(np.searchsorted(self._starts, number, side="right")) - 1
        if at not in self._checked:
            with self._locks[at]:
                if at not in self._checked:
                    self._verify(self.shards[at])
                    self._checked.add(at)
        return at

    def _verify(self, shard: Shard) -> None:
        path = self.folder / shard.file
        try:
            found = sha256_of(path)
        except OSError as error:
            raise InputError(f"the shard {path} cannot be read: {error.strerror or error}.") from error
        if found != (shard.bytes, shard.sha256):
            raise InputError(
                f"the shard {path} is damaged: its {'size' if found[0] != shard.bytes else 'checksum'} is not that of the "
                "index, and nothing is learned from it; delete it and index.json, and pack again."
            )

    def _read_header(self, at: int) -> dict[str, dict[str, Any]]:
        """Return example -> array -> (dtype, shape, first byte, last byte)."""
        shard = self.shards[at]
        try:
            return read_header(self.folder / shard.file, shard.bytes)
        except (ValueError, LookupError, TypeError, AttributeError) as error:
            raise InputError(f"the shard {self.folder / shard.file} is damaged: its header cannot be read.") from error

    def input(self, number: int, at: int) -> Any:
        """Return an entry of X."""
        return self._decode(number, lambda names, get: self.codec.decode(input_names(names), get))

    def labels(self, number: int, at: int) -> np.ndarray:
        """Return the labels of an example."""
        return self._decode(number, decode_labels)

    def _decode(self, number: int, decode: Callable[[set[str], Get], Any]) -> Any:
        at = self.check(number)
        path = self.folder / self.shards[at].file
        try:
            entries = self._header(at)[str(number - self.shards[at].first)]
            with open(path, "rb") as file:
                return decode(set(entries), lambda name: _mapped(file, *entries[name]))
        except InputError as error:
            raise InputError(f"example {number} of {path}: {error}") from error
        except (ValueError, LookupError, TypeError, AttributeError, OverflowError) as error:
            raise InputError(f"example {number} of {path} is damaged and cannot be read.") from error


def read_header(path: Path, n_bytes: int) -> dict[str, dict[str, Any]]:
    """Return example -> array -> (dtype, shape, first byte, last byte) of a shard; ValueError and such if damaged."""
    with open(path, "rb") as file:
        size = int.from_bytes(file.read(8), "little")
        if size > n_bytes - 8:
            raise ValueError("the header goes beyond the file")
        header = parse_json(file.read(size))
    out: dict[str, dict[str, Any]] = {}
    for key, entry in header.items():
        if key != "__metadata__":
            example, name = key.split(".", 1)
            first, last = (8 + size + offset for offset in entry["data_offsets"])
            dtype, shape = _DTYPES[entry["dtype"]], tuple(entry["shape"])
            whole = all(type(n) is int and n >= 0 for n in (*shape, *entry["data_offsets"]))
            if not whole or last > n_bytes or math.prod(shape) * np.dtype(dtype).itemsize != last - first:
                raise ValueError("an array goes beyond the file or has another size than its shape")
            out.setdefault(example, {})[name] = (dtype, shape, first, last)
    return out


def _mapped(file: Any, dtype: str, shape: tuple[int, ...], first: int, last: int) -> np.ndarray:
    """Return the array in some bytes of a file, read-only; unmapped when nobody holds it any more."""
    if last == first:
        return np.empty(shape, dtype)
    start = first - first % mmap.ALLOCATIONGRANULARITY
    view = mmap.mmap(file.fileno(), last - start, access=mmap.ACCESS_READ, offset=start)
    count = (last - first) // np.dtype(dtype).itemsize
    return np.frombuffer(view, dtype, count, first - start).reshape(shape)


def open_shards(folder: str | PathLike[str]) -> Shards:
    """Open a folder that ``backfield pack`` or :func:`backfield.write_shards` has written."""
    check({"folder": folder}, {"folder": (path_rule,)})
    folder = Path(folder).absolute()
    try:
        index = parse_json((folder / INDEX).read_bytes())
    except FileNotFoundError:
        raise _not_complete(folder) from None
    except (OSError, ValueError) as error:
        raise InputError(f"{folder / INDEX} cannot be read: {error}.") from error
    if not isinstance(index, dict) or index.get("format") != FORMAT:
        raise InputError(f"{folder / INDEX} is not the index of a packed folder.")
    if type(index.get("version")) is int and index["version"] > VERSION:
        raise InputError(f"{folder} was packed by a newer backfield; update to read it.")
    if not is_index(index) or index["identity"] != _expected_identity(folder, index):
        raise InputError(f"{folder / INDEX} is damaged; delete it, and run the same `backfield pack` again.")
    return _reader(folder, index["identity"]) or _remember(Shards(folder, index))


def is_index(index: dict[str, Any]) -> bool:
    """Whether an index has all that it needs, of the right types, and shards that follow each other."""
    names, shards = index.get("names"), index.get("shards")
    good = index.get("version") in (1, 2) and isinstance(index.get("kind"), str) and isinstance(index.get("identity"), str)
    good = good and isinstance(index.get("labelled"), bool) and isinstance(index.get("preprocessing", 0), dict | None)
    if not (good and isinstance(names, list) and isinstance(shards, list) and all(isinstance(n, str) for n in names)):
        return False
    first = 0
    for k, entry in enumerate(shards):
        if not isinstance(entry, list) or [type(each) for each in entry] != [str, int, int, int, str]:
            return False
        if entry[:2] != [shard_file(k), first] or entry[2] < 1 or entry[3] < 0:
            return False
        first += entry[2]
    return first == len(names) > 0


def identity_of(index: dict[str, Any], recipe: str) -> str:
    """Return the checksum of an index and its recipe; in version 1 it was that of the shards only."""
    content: Any = [shard[4] for shard in index["shards"]] + [recipe]
    if index["version"] > 1:
        content.append({key: value for key, value in index.items() if key != "identity"})
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def _expected_identity(folder: Path, index: dict[str, Any]) -> str:
    plan = read_plan(folder)
    return "" if plan is None else identity_of(index, plan["recipe"])


def read_plan(folder: Path) -> dict[str, Any] | None:
    """Return the plan of a packed folder; None where it is missing or damaged."""
    try:
        plan = parse_json((folder / PLAN).read_bytes())
    except (OSError, ValueError):
        return None
    if not isinstance(plan, dict) or not isinstance(plan.get("recipe"), str):
        return None
    sizes = [plan.get(key) for key in ("per_shard", "n_shards", "n_examples")]
    return plan if all(type(size) is int and 1 <= size < 2**40 for size in sizes) else None


def open_data(X: Any, y: Any = None) -> tuple[Any, Any]:
    """Return X and y, which a packed folder (or its name) given for X holds both."""
    if isinstance(X, str | PathLike):
        X = open_shards(X)
    return (X.X, X.y if y is None else y) if isinstance(X, Shards) else (X, y)


def is_packed(path: str | Path) -> bool:
    """Whether a path is a packed folder, complete or not."""
    return any((Path(path) / name).is_file() for name in (INDEX, PLAN))


def sha256_of(path: Path) -> tuple[int, str]:
    """Return the size and checksum of a file."""
    digest, size = hashlib.sha256(), 0
    with open(path, "rb") as file:
        while block := file.read(2**20):
            digest.update(block)
            size += len(block)
    return size, digest.hexdigest()


# One reader per folder and process: checksums are looked at once, not once per unpickled copy.
_READERS: dict[tuple[Path, str], Shards] = {}


def _reader(folder: Path, identity: str) -> Shards | None:
    return _READERS.get((folder, identity))


def _remember(shards: Shards) -> Shards:
    return _READERS.setdefault((shards.folder, shards.identity), shards)


def _open_same(folder: str, identity: str) -> Shards:
    known = _reader(Path(folder), identity)
    if known is not None:
        return known
    where = f"on {socket.gethostname()}; on all machines it must be the same folder"
    try:
        shards = open_shards(folder)
    except InputError as error:
        raise InputError(f"{str(error).rstrip('.')} ({where}).") from error
    if shards.identity != identity:
        raise InputError(f"{folder} is not the packed folder that the work began with ({where}).")
    return shards


def _not_complete(folder: Path) -> InputError:
    if not folder.is_dir():
        return InputError(f"there is no folder {folder}.")
    plan = read_plan(folder)
    if plan is None:
        return InputError(f"{folder} is not a packed folder: it has no {INDEX}; `backfield pack` makes one.")
    done = len(list(folder.glob("shard-*.safetensors")))
    return InputError(
        f"{folder} is half written: {done} of {plan['n_shards']} shards exist; run the same `backfield pack` again "
        "to continue."
    )


def shard_file(number: int) -> str:
    """Return the name of a shard."""
    return f"shard-{number:05d}.safetensors"
