"""Examples in an ``.npz`` file.

======================  ======================================================================================
``images``              stacked (n, H, W) or (n, H, W, F)
``masks``               likewise (n, H, W); integers, -1 (in unsigned ones 255) = don't care
``horizontal``,         your own edge features: likewise (n, H, W-1, D) and (n, H-1, W, D)
``vertical``
``X``, ``y``            chains, end to end: (N, F) features and (N,) labels, integers (-1 = hidden) or strings
``lengths`` or ``ptr``  lengths of the chains, or where each starts and, last, N; without them ``X`` and ``y`` are
                        stacked (n, T, F) and (n, T)
``node_features``,      graphs: see :mod:`backfield.data.formats.graphs`
``edges``, ...
``images_0``,           one array per example, where shapes differ; so for every key above but ``lengths`` and ``ptr``.
``images_1``, ...       :func:`write_npz` writes lists of arrays in this way
======================  ======================================================================================

Object arrays are pickles, and are not read. Sizes that a file declares are checked before anything is allocated
(``backfield.limits``).
"""

from __future__ import annotations

import math
import re
import struct
import zipfile
import zlib
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from backfield.atomic import replacing
from backfield.errors import InputError
from backfield.limits import check_unpacked

#: Keys that may hold one array per example: ``images_0``, ``images_1``, ...
_NUMBERED = re.compile(r"(images|masks|horizontal|vertical|X|y)_(0|[1-9][0-9]{0,8})")
#: An array, or one array per example.
Entry = np.ndarray | list[np.ndarray]


class Arrays(NamedTuple):
    """Inputs and labels of each example; ``edges`` holds (horizontal, vertical) features where the file has them."""

    kind: str  # "grid" or "chain"
    inputs: list[np.ndarray]
    labels: list[np.ndarray] | None
    edges: list[tuple[np.ndarray, np.ndarray]] | None = None


def read_npz(path: str | Path, with_labels: bool = True) -> Arrays:
    """Read the examples of an ``.npz`` file; see the table above for its keys."""
    arrays = read_arrays(path)
    if "images" in arrays:
        return _images(path, arrays, with_labels)
    if "X" in arrays:
        return _chains(path, arrays, with_labels)
    raise InputError(f"{path} needs the key 'images' (and 'masks') or 'X' (and 'y'); it has {_listed(arrays)}.")


def read_stacked(path: str | Path, with_labels: bool = True) -> Arrays:
    """Read ``X`` and ``y``: examples of any shape, stacked along the first axis or one array per example."""
    arrays = read_arrays(path)
    wanted = ("X", "y") if with_labels else ("X",)
    for key in wanted:
        if key not in arrays or _is_empty(arrays[key]):
            raise InputError(f"{path} needs the key {key!r} with at least one example; it has {_listed(arrays)}.")
    found = [[np.asarray(each) for each in arrays[key]] for key in wanted]
    if with_labels and len(found[0]) != len(found[1]):
        raise InputError(f"{path}: X holds {len(found[0])} examples, y {len(found[1])}; counts must agree.")
    return Arrays("", found[0], found[1] if with_labels else None)


def write_npz(path: str | Path, arrays: dict[str, Any]) -> None:
    """Write arrays; a list of arrays is stacked if their shapes agree, else each is written: ``images_0``, ``images_1``, ...

    Examples
    --------
    >>> write_npz("train.npz", {"images": [image, other], "masks": [mask, another]})  # doctest: +SKIP
    """
    with replacing(path) as file:
        np.savez_compressed(file, **_named(arrays))  # type: ignore[arg-type]


def base_keys(names: list[str]) -> list[str]:
    """Return the keys of a table of contents, ``images`` for ``images_0.npy``."""
    keys = [name.removesuffix(".npy") for name in names]
    matches = [_NUMBERED.fullmatch(key) for key in keys]
    return list(dict.fromkeys(key if match is None else match[1] for key, match in zip(keys, matches, strict=True)))


def _named(arrays: dict[str, Any]) -> dict[str, np.ndarray]:
    out = {}
    for key, value in arrays.items():
        if not isinstance(value, list):
            out[key] = np.asarray(value)
        elif len({np.shape(each) for each in value}) == 1:
            out[key] = np.stack(value)
        else:
            out |= {f"{key}_{k}": np.asarray(each) for k, each in enumerate(value)}
    return out


def _is_empty(entry: Entry) -> bool:
    return len(entry) == 0 if isinstance(entry, list) else entry.ndim == 0 or len(entry) == 0


def _images(path: str | Path, arrays: dict[str, Entry], with_labels: bool) -> Arrays:
    images = [x[..., None] if x.ndim == 2 else x for x in _list(path, arrays, "images", (2, 3), "(H, W) or (H, W, F)")]
    masks = None
    if with_labels:
        masks = [_hidden(mask) for mask in _list(path, arrays, "masks", (2,), "(H, W)", "biu")]
        _agree(path, "images", [x.shape[:2] for x in images], "masks", [m.shape for m in masks])
    edges = None
    if "horizontal" in arrays or "vertical" in arrays:
        both = [_list(path, arrays, key, (3,), "(H, W, D)") for key in ("horizontal", "vertical")]
        for key, found in zip(("horizontal", "vertical"), both, strict=True):
            down, right = (0, 1) if key == "horizontal" else (1, 0)
            needed = [(x.shape[0] - down, x.shape[1] - right) for x in images]
            _agree(path, f"the edges of images need {key}", needed, key, [edge.shape[:2] for edge in found])
        edges = list(zip(*both, strict=True))
    return Arrays("grid", images, masks, edges)


def _chains(path: str | Path, arrays: dict[str, Entry], with_labels: bool) -> Arrays:
    cuts = _cuts(path, arrays)
    if cuts is not None:
        arrays = arrays | {"X": _split(path, arrays, "X", cuts)}
        if with_labels and "y" in arrays:
            arrays = arrays | {"y": _split(path, arrays, "y", cuts)}
    inputs = _list(path, arrays, "X", (2,), "(T, F)")
    if not with_labels:
        return Arrays("chain", inputs, None)
    labels = _list(path, arrays, "y", (1,), "(T,)", "biuU")
    _agree(path, "X", [x.shape[:1] for x in inputs], "y", [y.shape for y in labels])
    kinds = {y.dtype.kind == "U" for y in labels}
    if len(kinds) > 1:
        raise InputError(f"{path}: labels in y are numbers in some chains and strings in others.")
    return Arrays("chain", inputs, [y if y.dtype.kind == "U" else y.astype(np.int64) for y in labels])


def _cuts(path: str | Path, arrays: dict[str, Entry]) -> np.ndarray | None:
    """Return where chains start and, last, where the last one ends; ``None`` if the file does not say."""
    for key in ("lengths", "ptr"):
        if key in arrays:
            values = np.asarray(arrays[key])
            if values.ndim != 1 or values.dtype.kind not in "iu" or len(values) == 0:
                raise InputError(f"{path}: {key} must be a row of integers, received {values.dtype} {values.shape}.")
            return np.concatenate([[0], np.cumsum(values)]) if key == "lengths" else values.astype(np.int64)
    return None


def _split(path: str | Path, arrays: dict[str, Entry], key: str, cuts: np.ndarray) -> list[np.ndarray]:
    whole = arrays[key]
    if isinstance(whole, list):
        raise InputError(f"{path}: {key} is one array per chain already; lengths or ptr cut one array into chains.")
    if whole.ndim < 1 or cuts[0] != 0 or cuts[-1] != len(whole) or (np.diff(cuts) < 1).any():
        raise InputError(
            f"{path}: lengths or ptr cut {cuts[-1]} rows into chains of at least one, but {key} has shape {whole.shape}."
        )
    return [whole[cuts[k] : cuts[k + 1]] for k in range(len(cuts) - 1)]


def _list(
    path: str | Path, arrays: dict[str, Entry], key: str, ndim: tuple[int, ...], shape: str, kinds: str = "biuf"
) -> list[np.ndarray]:
    """Return the examples' arrays under a key: checked types, dimensions, feature counts and finite numbers."""
    if key not in arrays:
        raise InputError(f"{path} has no key {key!r}; it has {_listed(arrays)}.")
    whole = arrays[key]
    if _is_empty(whole):
        raise InputError(f"{path}: {key} holds no examples.")
    out = [np.asarray(each) for each in whole]
    for k, each in enumerate(out):
        where = f"{path}: {key}[{k}]"
        if each.dtype.kind not in kinds or each.ndim not in ndim or each.size == 0:
            what = "numbers" if "f" in kinds else "integers"
            raise InputError(f"{where} must hold {what} of shape {shape}, received {each.dtype} of shape {each.shape}.")
        if each.ndim == max(ndim) > 1 and out[0].ndim == each.ndim and key != "masks" and each.shape[-1] != out[0].shape[-1]:
            raise InputError(f"{where} has {each.shape[-1]} features, {key}[0] has {out[0].shape[-1]}; counts must agree.")
        if each.ndim != out[0].ndim:
            raise InputError(f"{where} has shape {each.shape} and {key}[0] has {out[0].shape}; both need features or none.")
        if each.dtype.kind == "f" and not np.isfinite(each).all():
            at = tuple(int(i) for i in np.argwhere(~np.isfinite(each))[0])
            raise InputError(f"{where} holds {each[at]} at {at}; features must be finite.")
    return out


def _hidden(mask: np.ndarray) -> np.ndarray:
    """Return a mask with -1 for don't care."""
    values = mask.astype(np.int32)
    return np.where(values == 255, np.int32(-1), values) if mask.dtype.kind == "u" else values


def _agree(path: str | Path, one: str, shapes: list[Any], two: str, others: list[Any]) -> None:
    if len(shapes) != len(others):
        raise InputError(f"{path}: {one} holds {len(shapes)} examples, {two} {len(others)}; counts must agree.")
    for k, (a, b) in enumerate(zip(shapes, others, strict=True)):
        if a != b:
            raise InputError(f"{path}: sizes differ in example {k}: {one} {tuple(a)}, {two} {tuple(b)}.")


def _listed(arrays: dict[str, Any]) -> str:
    shown = sorted(arrays)
    return ", ".join(shown[:12]) + (", ..." if len(shown) > 12 else "") or "none"


def read_arrays(path: str | Path) -> dict[str, Entry]:
    """Return the arrays of an ``.npz`` file by name, one list where there is one per example."""
    try:
        with zipfile.ZipFile(path) as archive:
            members = archive.infolist()
            check_unpacked(path, sum(member.file_size for member in members))
            arrays = {member.filename.removesuffix(".npy"): _array(path, archive, member) for member in members}
            return _grouped(path, arrays)
    except FileNotFoundError as error:
        raise InputError(f"{path}: no such file.") from error
    except InputError:
        raise
    except _DAMAGE as error:
        raise InputError(f"{path}: cannot be read as an .npz file of arrays.") from error


#: What zipfile and numpy raise for files that are damaged, encrypted or packed in a way they do not know.
_DAMAGE = (
    zipfile.BadZipFile, zlib.error, struct.error, ValueError, EOFError, OSError, LookupError, TypeError, SyntaxError,
    RuntimeError, NotImplementedError, OverflowError, RecursionError, MemoryError,
)  # fmt: skip


def _array(path: str | Path, archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> np.ndarray:
    """Return an array of the file, whose declared size must be that of its data."""
    with archive.open(member) as file:
        version = np.lib.format.read_magic(file)
        header = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, fortran, dtype = header(file)
        if dtype.hasobject:
            raise InputError(
                f"{path}: {member.filename.removesuffix('.npy')} is an array of Python objects, which is not read: write "
                "an array per example (images_0, images_1, ...: backfield.data.formats.write_npz does), or `backfield pack`."
            )
        if min(shape, default=0) < 0 or math.prod(shape) * dtype.itemsize != member.file_size - file.tell():
            raise ValueError("the declared shape is not that of the data")
        data = bytearray()
        while block := file.read(2**20):
            data += block
    return np.frombuffer(data, dtype).reshape(shape, order="F" if fortran else "C") if data else np.empty(shape, dtype)


def _grouped(path: str | Path, arrays: dict[str, np.ndarray]) -> dict[str, Entry]:
    """Join ``images_0``, ``images_1``, ... into lists."""
    matches = {key: match for key in arrays if (match := _NUMBERED.fullmatch(key))}
    out: dict[str, Entry] = {key: array for key, array in arrays.items() if key not in matches}
    for key in {match[1]: None for match in matches.values()}:
        count = sum(match[1] == key for match in matches.values())
        missing = [k for k in range(count) if f"{key}_{k}" not in arrays]
        if missing or key in out:
            raise InputError(f"{path}: it needs {key}, or {key}_0 .. {key}_{count - 1}; it has {_listed(arrays)}.")
        out[key] = [arrays[f"{key}_{k}"] for k in range(count)]
    return out
