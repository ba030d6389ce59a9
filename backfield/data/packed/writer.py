"""Write a packed folder (see ``backfield.data.packed.reader``): in parallel, restartable, one shard in memory per process.

A restarted pack keeps the shards whose header names the same plan: an interruption, a crash or a full disk costs the shards
that were being written.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save

from backfield.atomic import write_bytes
from backfield.data.codecs import Arrays, Codec, encode_labels
from backfield.data.packed.reader import (
    FORMAT,
    INDEX,
    PLAN,
    VERSION,
    Shards,
    identity_of,
    open_shards,
    read_plan,
    sha256_of,
    shard_file,
)
from backfield.data.sequences import checked_sequence, part, select
from backfield.errors import InputError
from backfield.limits import parse_json
from backfield.registry import get
from backfield.registry import names as parts

#: Bytes of a shard, about: what a process of ``pack`` has in memory.
SHARD_BYTES = 2**26


def write_shards(
    folder: str | Path,
    X: Sequence[Any],
    y: Sequence[Any] | None = None,
    *,
    structure: str | None = None,
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
        Created if needed. An unfinished pack of the same examples is resumed.
    X, y
        Sequences of what an estimator takes, lazy ones above all; ``y=None`` packs no labels.
    structure
        The form of the examples: ``grid``, ``chain``, ``graph``, ...; by default the one that holds the first of them.
    names
        Of the examples; by default their numbers.
    preprocessing
        What the index keeps about how features were made.
    source
        A text that tells these examples from others when an unfinished pack goes on; its finished shards are then kept as
        they are. Without it, they are compared with the examples, which are all asked for again.
    shard_bytes
        Approximate size of a shard.
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
        raise InputError(f"received {len(X)} examples but {len(y)} labelings.")
    folder = Path(folder).absolute()
    names = [str(k) for k in range(len(X))] if names is None else [str(name) for name in names]
    x, labels = X[0], None if y is None else y[0]
    form = get("structures", structure) if structure is not None else _structure_of(x, labels)
    head = [source, names, preprocessing, y is not None]
    plan = _plan(encode(form.codec, x, labels, 0), head, len(X), shard_bytes)
    _agree(folder, plan)
    _write_all(folder, plan, form.codec, X, y, n_jobs, progress, trusted=source != "")
    _write_index(folder, plan, names, preprocessing, repr(form), y is not None)
    return open_shards(folder)


def _structure_of(x: Any, y: Any) -> Any:
    """Return the structure that holds an example."""
    for name in parts("structures"):
        structure = get("structures", name)
        if structure.holds(x, y):
            return structure
    raise InputError(f"no structure holds examples such as {type(x).__name__}; say which it is: structure=...")


def encode(codec: Codec, x: Any, y: Any, number: int) -> Arrays:
    """Return the arrays of an example and its labels."""
    try:
        return codec.encode(x) | ({} if y is None else encode_labels(y))
    except InputError as error:
        raise InputError(f"example {number}: {error}") from error


def _plan(first: Arrays, head: list[Any], count: int, shard_bytes: int) -> dict[str, Any]:
    """Decide how many examples go into a shard, by the size of the first."""
    size = sum(array.nbytes for array in first.values())
    per_shard = max(1, min(count, shard_bytes // max(1, size)))
    recipe = hashlib.sha256(json.dumps([*head, count, per_shard]).encode()).hexdigest()
    shards = -(-count // per_shard)
    return {"format": FORMAT, "recipe": recipe, "per_shard": per_shard, "n_shards": shards, "n_examples": count}


def _agree(folder: Path, plan: dict[str, Any]) -> None:
    """Write the plan, or see that the folder's plan is the same."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if (folder / PLAN).exists():
            theirs = read_plan(folder)
            if theirs is None:
                raise InputError(f"{folder / PLAN} is damaged; delete the folder, or choose another one.")
            if theirs["recipe"] != plan["recipe"]:
                raise InputError(f"{folder} is a pack of other data or other features; choose another one or delete it.")
        elif any(folder.iterdir()):
            raise InputError(f"{folder} is not empty and not a packed folder; choose another one.")
        else:
            write_bytes(folder / PLAN, json.dumps(plan).encode())
    except OSError as error:
        raise InputError(f"cannot pack into {folder}: {error.strerror or error}.") from error


def _write_all(
    folder: Path, plan: dict[str, Any], codec: Codec, X: Any, y: Any, n_jobs: int, progress: Any, trusted: bool
) -> None:
    count, total = plan["per_shard"], plan["n_examples"]
    jobs = [(folder / shard_file(k), k * count, min((k + 1) * count, total)) for k in range(plan["n_shards"])]
    waiting = [job for job in jobs if not (trusted and _is_done(job[0], plan["recipe"]))]
    done = total - sum(last - first for _, first, last in waiting)
    if progress is not None:
        progress(done, total)
    for size in _results(plan["recipe"], codec, X, y, waiting, n_jobs):
        done += size
        if progress is not None:
            progress(done, total)


def _results(recipe: str, codec: Codec, X: Any, y: Any, jobs: list[tuple[Path, int, int]], n_jobs: int) -> Iterator[int]:
    alone = n_jobs == 1 or len(jobs) <= 1
    cut = _entries if alone else part  # another process gets what it needs, where the sequence has slices
    tasks = (
        (path, recipe, codec, cut(X, first, last), None if y is None else cut(y, first, last), first)
        for path, first, last in jobs
    )
    if alone:
        yield from (write_shard(*task) for task in tasks)
        return
    from joblib import Parallel, delayed

    run = delayed(write_shard)
    yield from Parallel(n_jobs, return_as="generator_unordered", pre_dispatch="n_jobs")(run(*task) for task in tasks)


def _entries(values: Any, first: int, last: int) -> Any:
    return select(values, range(first, last))


def write_shard(path: Path, recipe: str, codec: Codec, X: Any, y: Any, first: int) -> int:
    """Write examples to a shard, of which the first has the number ``first``, and return how many there are."""
    tensors: dict[str, np.ndarray] = {}
    for k in range(len(X)):
        arrays = encode(codec, X[k], None if y is None else y[k], first + k)
        _check_finite(arrays, first + k)
        tensors |= {f"{k}.{name}": np.ascontiguousarray(array) for name, array in arrays.items()}
    data = save(tensors, metadata={"backfield": recipe})
    if _is_done(path, recipe):
        _check_same(path, data)
        return len(X)
    try:
        write_bytes(path, data)
    except OSError as error:
        text = f"{error.strerror or error}; finished shards are kept; run the same command to continue"
        raise OSError(error.errno, text, str(path)) from error
    return len(X)


def _check_finite(arrays: dict[str, np.ndarray], number: int) -> None:
    for name, array in arrays.items():
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            raise InputError(f"example {number}: {name} hold NaN or infinity.")


def _check_same(path: Path, data: bytes) -> None:
    """Refuse to go on with a shard that holds other examples."""
    if sha256_of(path) != (len(data), hashlib.sha256(data).hexdigest()):
        raise InputError(f"{path} holds other examples of the same names; choose another folder or delete this one.")


def _is_done(path: Path, recipe: str) -> bool:
    """Whether a shard of this plan is there; files are moved to their place when they are whole."""
    try:
        with open(path, "rb") as file:
            size = int.from_bytes(file.read(8), "little")
            if size > path.stat().st_size:
                return False
            return bool(parse_json(file.read(size))["__metadata__"]["backfield"] == recipe)
    except (OSError, ValueError, LookupError, TypeError):
        return False


def _write_index(
    folder: Path, plan: dict[str, Any], names: list[str], preprocessing: Any, structure: str, labelled: bool
) -> None:
    count = plan["per_shard"]
    shards = []
    for k in range(plan["n_shards"]):
        size, digest = sha256_of(folder / shard_file(k))
        shards.append([shard_file(k), k * count, min(count, plan["n_examples"] - k * count), size, digest])
    index = {
        "format": FORMAT,
        "version": VERSION,
        "kind": structure,
        "labelled": labelled,
        "preprocessing": preprocessing,
        "names": names,
        "shards": shards,
    }
    index["identity"] = identity_of(index, plan["recipe"])
    try:
        write_bytes(folder / INDEX, json.dumps(index).encode())
    except OSError as error:
        raise OSError(error.errno, f"{error.strerror}; the shards are kept", str(folder / INDEX)) from error
