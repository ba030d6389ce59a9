"""Write a packed folder (see :mod:`backfield.estimators.shards`): in parallel, restartable, one shard in memory per process.

A restarted pack keeps the shards whose header names the same plan: an interruption, a crash or a full disk costs the shards
that were being written.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import secrets
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save

from backfield.errors import InputError
from backfield.estimators._lazy import checked_sequence
from backfield.estimators._shard_codec import encode_input, encode_labels
from backfield.estimators.samples import GridSample, Sample
from backfield.estimators.shards import FORMAT, INDEX, PLAN, VERSION, Shards, open_shards, sha256_of, shard_file

#: Bytes of a shard, about: what a process of ``pack`` has in memory.
SHARD_BYTES = 2**26


def write_shards(
    folder: str | Path,
    X: Sequence[Any],
    y: Sequence[Any] | None = None,
    *,
    names: Sequence[str] | None = None,
    preprocessing: dict[str, Any] | None = None,
    source: str = "",
    shard_bytes: int = SHARD_BYTES,
    n_jobs: int = 1,
    progress: Callable[[int, int], Any] | None = None,
) -> Shards:
    """Write examples to a packed folder and open it.

    Parameters
    ----------
    folder
        Made if it is not there. If it holds an unfinished pack of the same examples, that goes on.
    X, y
        Sequences of what an estimator takes, lazy ones above all; ``y=None`` packs no labels.
    names
        Of the examples; by default their numbers.
    preprocessing
        What the index keeps about how features were made.
    source
        A text that tells these examples from others when an unfinished pack goes on.
    shard_bytes
        About how large a shard is.
    n_jobs
        Processes.
    progress
        Called with (examples done, all examples).
    """
    X = checked_sequence(X, "X")
    y = None if y is None else checked_sequence(y, "y")
    if len(X) == 0:
        raise InputError("there are no examples to pack.")
    if y is not None and len(y) != len(X):
        raise InputError(f"got {len(X)} examples but {len(y)} labelings.")
    folder = Path(folder).absolute()
    names = [str(k) for k in range(len(X))] if names is None else [str(name) for name in names]
    plan = _plan(X, y, names, preprocessing, source, shard_bytes)
    plan = _agree(folder, plan)
    _write_all(folder, plan, X, y, n_jobs, progress)
    _write_index(folder, plan, names, preprocessing, X, y)
    return open_shards(folder)


def _plan(X: Any, y: Any, names: list[str], preprocessing: Any, source: str, shard_bytes: int) -> dict[str, Any]:
    """Decide how many examples go into a shard, by the size of the first."""
    first = encode_input(X[0], 0) | ({} if y is None else encode_labels(y[0], 0))
    size = sum(array.nbytes for array in first.values())
    per_shard = max(1, min(len(X), shard_bytes // max(1, size)))
    told = json.dumps([source, names, preprocessing, y is not None, len(X), per_shard])
    return {
        "format": FORMAT,
        "recipe": hashlib.sha256(told.encode()).hexdigest(),
        "per_shard": per_shard,
        "n_shards": -(-len(X) // per_shard),
    }


def _agree(folder: Path, plan: dict[str, Any]) -> dict[str, Any]:
    """Write the plan, or see that the folder's plan is the same."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if (folder / PLAN).exists():
            theirs = json.loads((folder / PLAN).read_text())
            if theirs.get("recipe") != plan["recipe"]:
                raise InputError(f"{folder} is a pack of other data or other features; choose another one or delete it.")
        elif any(folder.iterdir()):
            raise InputError(f"{folder} is not empty and not a packed folder; choose another one.")
        else:
            _replace(folder / PLAN, json.dumps(plan).encode())
    except OSError as error:
        raise InputError(f"cannot pack into {folder}: {error.strerror or error}.") from error
    return plan


def _write_all(folder: Path, plan: dict[str, Any], X: Any, y: Any, n_jobs: int, progress: Any) -> None:
    count, total = plan["per_shard"], len(X)
    jobs = [(k, k * count, min((k + 1) * count, total)) for k in range(plan["n_shards"])]
    waiting = [job for job in jobs if not _is_done(folder / shard_file(job[0]), plan)]
    done = total - sum(last - first for _, first, last in waiting)
    if progress is not None:
        progress(done, total)
    if not waiting:
        return
    for size in _results(folder, plan, X, y, waiting, n_jobs):
        done += size
        if progress is not None:
            progress(done, total)


def _results(folder: Path, plan: dict[str, Any], X: Any, y: Any, jobs: list[Any], n_jobs: int) -> Any:
    if n_jobs == 1 or len(jobs) == 1:
        for k, first, last in jobs:
            yield write_shard(folder / shard_file(k), plan["recipe"], X, y, first, last)
        return
    from joblib import Parallel, delayed

    tasks = (
        delayed(write_shard)(
            folder / shard_file(k), plan["recipe"], _cut(X, first, last), _cut(y, first, last), first, last, first
        )
        for k, first, last in jobs
    )
    yield from Parallel(n_jobs, return_as="generator_unordered", pre_dispatch="n_jobs")(tasks)


def _cut(values: Any, first: int, last: int) -> Any:
    """Return the entries that a process needs; what cannot be cut goes whole, and is asked by its own numbers."""
    if values is None:
        return None
    try:
        part = values[first:last]
    except (TypeError, ValueError, KeyError, IndexError):
        return _Shifted(values, first)
    return part if len(part) == last - first else _Shifted(values, first)


class _Shifted:
    """A sequence whose entry 0 is entry ``first`` of another."""

    def __init__(self, values: Any, first: int) -> None:
        self.values, self.first = values, first

    def __getitem__(self, k: int) -> Any:
        return self.values[self.first + k]


def write_shard(path: Path, recipe: str, X: Any, y: Any, first: int, last: int, offset: int = 0) -> int:
    """Write examples ``first .. last - 1``, which are entries ``first - offset ..`` of X, and return their number."""
    tensors: dict[str, np.ndarray] = {}
    for number in range(first, last):
        arrays = encode_input(X[number - offset], number)
        if y is not None:
            arrays |= encode_labels(y[number - offset], number)
        _check_finite(arrays, number)
        tensors |= {f"{number - first}.{name}": np.ascontiguousarray(array) for name, array in arrays.items()}
    try:
        _replace(path, save(tensors, metadata={"backfield": recipe}))
    except OSError as error:
        text = f"{error.strerror or error}; finished shards are kept, and the same command goes on from there"
        raise OSError(error.errno, text, str(path)) from error
    return last - first


def _check_finite(arrays: dict[str, np.ndarray], number: int) -> None:
    for name, array in arrays.items():
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            raise InputError(f"example {number}: {name} hold NaN or infinity.")


def _is_done(path: Path, plan: dict[str, Any]) -> bool:
    """Whether a shard of this plan is there; files are moved to their place when they are whole."""
    try:
        with open(path, "rb") as file:
            size = int.from_bytes(file.read(8), "little")
            return json.loads(file.read(size))["__metadata__"]["backfield"] == plan["recipe"]
    except (OSError, ValueError, KeyError, MemoryError):
        return False


def _write_index(folder: Path, plan: dict[str, Any], names: list[str], preprocessing: Any, X: Any, y: Any) -> None:
    count = plan["per_shard"]
    shards = []
    for k in range(plan["n_shards"]):
        first = k * count
        size, digest = sha256_of(folder / shard_file(k))
        shards.append([shard_file(k), first, min(count, len(X) - first), size, digest])
    text = json.dumps([shard[4] for shard in shards] + [plan["recipe"]])
    index = {
        "format": FORMAT,
        "version": VERSION,
        "identity": hashlib.sha256(text.encode()).hexdigest(),
        "kind": _kind(X[0], None if y is None else y[0]),
        "labelled": y is not None,
        "preprocessing": preprocessing,
        "names": names,
        "shards": shards,
    }
    try:
        _replace(folder / INDEX, json.dumps(index).encode())
    except OSError as error:
        raise OSError(error.errno, f"{error.strerror}; the shards are kept", str(folder / INDEX)) from error


def _kind(x: Any, y: Any) -> str:
    if isinstance(x, Sample):
        return "graph"
    mask = y is not None and np.ndim(y) == 2 and np.asarray(y).dtype != bool
    return "grid" if isinstance(x, GridSample) or np.ndim(x) == 3 or mask else "chain"


def _replace(path: Path, data: bytes) -> None:
    """Write a file whole or not at all."""
    part = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        with open(part, "xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, path)
    finally:
        with contextlib.suppress(OSError):
            part.unlink()
