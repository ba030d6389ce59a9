"""Models of CRFsuite (``lCRF``, first-order chains): read and written without CRFsuite.

A file has a header, the features (kind, source, target, weight), two dictionaries of strings (labels, attributes) and for
each label and attribute the numbers of its features. The weight of an attribute and a label adds to the score of the label
where the attribute occurs; that of two labels to the score of their transition; what is absent weighs 0.

Files come from strangers: each offset and count is checked against the size of the file before it is used, and the
number of labels is limited, as the table of transitions has its square.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

import numpy as np

from backfield.data.formats._cqdb import format_strings, read_strings
from backfield.errors import InputError

MAGIC = b"lCRF"
#: More labels would need gigabytes for their transitions.
MAX_LABELS = 4096
_HEADER = struct.Struct("<4sI4s9I")
_CHUNK = struct.Struct("<4s2I")
_FEATURE = np.dtype([("kind", "<u4"), ("source", "<u4"), ("target", "<u4"), ("weight", "<f8")])


@dataclass(frozen=True, eq=False)
class CrfsuiteModel:
    """The content of a file.

    Parameters
    ----------
    labels, attributes : list of str
    ptr : (number of attributes + 1,) int64
        Attribute ``a`` has weights with the labels ``targets[ptr[a]:ptr[a + 1]]``.
    targets : int32
    weights : float64
    transitions : (L, L) float64
        Of the earlier and the later label.
    """

    labels: list[str]
    attributes: list[str]
    ptr: np.ndarray
    targets: np.ndarray
    weights: np.ndarray
    transitions: np.ndarray


def read_crfsuite(data: bytes) -> CrfsuiteModel:
    """Return the model in the bytes of a file; an :class:`InputError` tells what is wrong with it."""
    if len(data) < _HEADER.size or data[:4] != MAGIC:
        raise InputError("not a model of CRFsuite")
    _, size, kind, version, _, n_labels, n_attributes, *offsets = _HEADER.unpack_from(data)
    if kind != b"FOMC" or version != 100:
        raise InputError(
            f"a CRFsuite model of type {kind!r}, version {version}; only first-order chains, version 100, are read"
        )
    if size > len(data):
        raise InputError(f"the file is truncated: {len(data)} of {size} bytes")
    data = data[:size]
    if not 1 <= n_labels <= MAX_LABELS or n_attributes > size:
        raise InputError(
            f"{n_labels} labels and {n_attributes} attributes in {size} bytes; at most {MAX_LABELS} labels are read"
        )
    features = _features(data, offsets[0], n_labels)
    labels = read_strings(data, offsets[1], n_labels, "labels")
    attributes = read_strings(data, offsets[2], n_attributes, "attributes")
    edges, edge_ptr = _references(data, offsets[3], b"LFRF", n_labels, len(features))
    states, ptr = _references(data, offsets[4], b"AFRF", n_attributes, len(features))
    transitions = np.zeros((n_labels, n_labels))
    transitions[np.repeat(np.arange(n_labels), np.diff(edge_ptr)), features["target"][edges]] = features["weight"][edges]
    targets = features["target"][states].astype(np.int32)
    return CrfsuiteModel(labels, attributes, ptr, targets, features["weight"][states].astype(np.float64), transitions)


def _features(data: bytes, start: int, n_labels: int) -> np.ndarray:
    count = _chunk(data, start, b"FEAT")
    if count * _FEATURE.itemsize > len(data) - start - _CHUNK.size:
        raise InputError(f"there is no room for {count} features")
    features = np.frombuffer(data, _FEATURE, count, start + _CHUNK.size)
    if count and features["target"].max() >= n_labels:
        raise InputError(f"a feature of the label {features['target'].max()}; there are {n_labels}")
    if not np.isfinite(features["weight"]).all():
        raise InputError("a weight is not a finite number")
    return features


def _references(data: bytes, start: int, name: bytes, count: int, n_features: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the features of all owners, one owner after the other, and where those of each start."""
    if _chunk(data, start, name) < count or 4 * count > len(data) - start - _CHUNK.size:
        raise InputError(f"there is no room for {count} lists of features")
    places = np.frombuffer(data, "<u4", count, start + _CHUNK.size).astype(np.int64)
    words = np.frombuffer(data, "<u4", len(data) // 4).astype(np.int64)
    if count and (places.max() > len(data) - 4 or (places % 4).any()):
        raise InputError("a list of features lies outside of the file")
    sizes = words[places // 4]
    ptr = np.concatenate([[0], np.cumsum(sizes)])
    # No two lists overlap in a sound file, so all together are no longer than the file.
    if ptr[-1] > len(words) or (places // 4 + 1 + sizes > len(words)).any():
        raise InputError("the lists of features are longer than the file")
    numbers = words[np.arange(ptr[-1]) + np.repeat(places // 4 + 1 - ptr[:-1], sizes)]
    if len(numbers) and numbers.max() >= n_features:
        raise InputError(f"a list names the feature {numbers.max()}; there are {n_features}")
    return numbers, ptr


def _chunk(data: bytes, start: int, name: bytes) -> int:
    """Return the number of items of a chunk."""
    if start > len(data) - _CHUNK.size or data[start : start + 4] != name:
        raise InputError(f"the part {name.decode()} is missing")
    count: int = _CHUNK.unpack_from(data, start)[2]
    return count


def format_crfsuite(model: CrfsuiteModel) -> bytes:
    """Return the bytes of a file; weights that are 0 and attributes without others are left out, as CRFsuite does."""
    owners = np.repeat(np.arange(len(model.attributes)), np.diff(model.ptr))
    states = np.flatnonzero(model.weights)
    used, sources = np.unique(owners[states], return_inverse=True)
    first, second = np.nonzero(model.transitions)
    features = np.zeros(len(states) + len(first), _FEATURE)
    features["kind"][len(states) :] = 1
    features["source"] = np.concatenate([sources, first])
    features["target"] = np.concatenate([model.targets[states], second])
    features["weight"] = np.concatenate([model.weights[states], model.transitions[first, second]])
    parts = [
        _CHUNK.pack(b"FEAT", _CHUNK.size + features.nbytes, len(features)) + features.tobytes(),
        format_strings(model.labels),
        format_strings([model.attributes[number] for number in used]),
    ]
    starts = _HEADER.size + np.cumsum([0, *map(len, parts)])
    parts[-1] += b"\0" * (-int(starts[-1]) % 4)
    edges = _lists(b"LFRF", _padded(starts[-1]), first, len(model.labels), len(states), spare=2)
    lists = _lists(b"AFRF", _padded(starts[-1]) + len(edges), sources, len(used), 0)
    offsets = [*starts[:3].tolist(), _padded(starts[-1]), _padded(starts[-1]) + len(edges)]
    total = offsets[-1] + len(lists)
    if total >= 2**32:
        raise InputError(f"the model needs {total} bytes; a file of CRFsuite has at most 4 GB")
    header = _HEADER.pack(MAGIC, total, b"FOMC", 100, 0, len(model.labels), len(used), *offsets)
    return b"".join([header, *parts, edges, lists])


def _padded(size: int) -> int:
    return int(size) + -int(size) % 4


def _lists(name: bytes, start: int, owners: np.ndarray, count: int, shift: int, spare: int = 0) -> bytes:
    """Return the chunk that lists the features shift, shift + 1, ... of sorted owners; ``spare`` owners have no list."""
    sizes = np.bincount(owners, minlength=count)
    ptr = np.concatenate([[0], np.cumsum(sizes)]) + np.arange(count + 1)
    words = np.zeros(int(ptr[-1]), "<u4")
    words[ptr[:-1]] = sizes
    filled = np.ones(len(words), dtype=bool)
    filled[ptr[:-1]] = False
    words[filled] = shift + np.arange(len(owners))
    first = start + _CHUNK.size + 4 * (count + spare)
    places = np.concatenate([first + 4 * ptr[:-1], np.zeros(spare, np.int64)]).astype("<u4")
    return _CHUNK.pack(name, _CHUNK.size + places.nbytes + words.nbytes, count + spare) + places.tobytes() + words.tobytes()
