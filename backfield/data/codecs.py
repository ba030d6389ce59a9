"""An example as named arrays and back: what a shard holds of it.

The names tell what kind of entry it was. Text (tokens as dicts, labels that are strings) is JSON in UTF-8, so
reading runs no code.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from backfield.data.label_sets import LabelSets, has_sets
from backfield.data.samples import GridSample, Sample
from backfield.errors import InputError
from backfield.graph import Graph
from backfield.indices import checked_csr
from backfield.limits import parse_json

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix

Arrays = dict[str, np.ndarray]
Get = Callable[[str], np.ndarray]

_SAMPLE = ("node_features", "factor_features", "node_types", "factor_types", "observed", "weights", "outputs")
_GRID = ("features", "horizontal", "vertical")
_LABELS = ("labels", "label_texts", "label_sets")


class Codec(Protocol):
    """How an entry of X becomes arrays, and arrays an entry of X."""

    def encode(self, x: Any) -> Arrays:
        """Return the named arrays of an entry; the names in ``_LABELS`` are taken."""

    def decode(self, names: set[str], get: Get) -> Any:
        """Return the entry whose arrays have these names; ``get`` reads an array."""


class ArrayCodec:
    """Arrays of numbers and CSR matrices."""

    def encode(self, x: Any) -> Arrays:
        """Return the array, or the parts of the matrix."""
        return encode_csr("features", x) if hasattr(x, "tocsr") else {"features": numbers(x)}

    def decode(self, names: set[str], get: Get) -> Any:
        """Return the array or the matrix."""
        return decode_csr("features", get) if "features.indptr" in names else get("features")


class GridCodec(ArrayCodec):
    """Images, with or without edge features."""

    def encode(self, x: Any) -> Arrays:
        """Return the arrays of an image."""
        return {key: numbers(getattr(x, key)) for key in _GRID} if isinstance(x, GridSample) else super().encode(x)

    def decode(self, names: set[str], get: Get) -> Any:
        """Return an image."""
        return GridSample(*map(get, _GRID)) if "horizontal" in names else super().decode(names, get)


class TokenCodec(ArrayCodec):
    """Sequences: arrays, CSR matrices, or lists of named features."""

    def encode(self, x: Any) -> Arrays:
        """Return the arrays of a sequence."""
        return {"dicts": encode_text(x)} if is_tokens(x) else super().encode(x)

    def decode(self, names: set[str], get: Get) -> Any:
        """Return a sequence."""
        return parse_json(bytes(get("dicts"))) if "dicts" in names else super().decode(names, get)


class SampleCodec:
    """Graphs with features."""

    def encode(self, x: Any) -> Arrays:
        """Return the arrays of a sample and of its graph."""
        graph = x.graph
        if not isinstance(graph, Graph):
            raise InputError(f"a backfield.Sample with a Graph is needed, received {type(graph).__name__}.")
        out: Arrays = {"graph_labels": np.asarray(graph.labels)}
        if graph.lattice is not None:
            out["graph_shape"] = np.asarray(graph.shape, dtype=np.int64)
            if graph.image_shape is None:
                out["graph_offsets"] = np.asarray(graph.offsets, dtype=np.int64)
        else:
            out |= {"graph_scope": np.asarray(graph.layout.scope), "graph_scope_ptr": np.asarray(graph.layout.scope_ptr)}
        for key in _SAMPLE:
            value = getattr(x, key)
            if hasattr(value, "tocsr"):
                out |= encode_csr(key, value)
            elif value is not None:
                out[key] = numbers(value)
        return out

    def decode(self, names: set[str], get: Get) -> Sample:
        """Return a sample."""
        labels = np.array(get("graph_labels"))
        if "graph_shape" in names:
            graph = _grid(get("graph_shape"), get("graph_offsets") if "graph_offsets" in names else None, labels)
        else:
            graph = Graph.from_scopes(labels, get("graph_scope_ptr"), get("graph_scope"))
        values = {key: get(key) for key in _SAMPLE if key in names}
        values |= {key: decode_csr(key, get) for key in _SAMPLE if f"{key}.indptr" in names}
        return Sample(graph, values.pop("node_features"), **values)


def _grid(shape: np.ndarray, offsets: np.ndarray | None, labels: np.ndarray) -> Graph:
    """Return the grid that the arrays of a file describe; label counts are compared before anything is built."""
    sizes = [int(n) for n in shape.ravel()]
    if min(sizes, default=0) < 1 or labels.shape != (math.prod(sizes),):
        raise InputError(f"a grid of {' x '.join(map(str, sizes))} has not {labels.shape} label counts.")
    same = bool((labels == labels[0]).all())
    return Graph.grid(sizes, int(labels[0]) if same else labels, offsets=offsets)


def is_tokens(x: Any) -> bool:
    """Whether an entry of X is a list of {feature: value} dicts, or of lists of names of features."""
    if not isinstance(x, list) or not x:
        return False
    first = next((position for position in x if not isinstance(position, list | tuple | set) or position), None)
    return first is None or isinstance(first, dict | set) or (isinstance(first, list | tuple) and isinstance(first[0], str))


def encode_labels(y: Any) -> Arrays:
    """Return the arrays of the labels of an example."""
    if has_sets(y):
        sets = LabelSets.of(y)
        return {"label_sets": encode_text([each.tolist() or None for each in np.split(sets.members, sets.ptr[1:-1])])}
    labels = np.asarray(y)
    if labels.dtype.kind == "U":
        return {"label_texts": encode_text(labels.tolist())}
    if labels.dtype.kind not in "biu":
        raise InputError(f"labels must be integers, strings or masks, received {labels.dtype}.")
    return {"labels": labels if labels.dtype == bool else labels.astype(np.int32)}


def decode_labels(names: set[str], get: Get) -> Any:
    """Return the labels of an example: an array, or a list of sets and None."""
    if "label_sets" in names:
        found = parse_json(bytes(get("label_sets")))
        return [None if each is None else frozenset(each) for each in found]
    return np.array(parse_json(bytes(get("label_texts")))) if "label_texts" in names else get("labels")


def input_names(names: set[str]) -> set[str]:
    """Return the names of the arrays that hold the entry of X."""
    return {name for name in names if name not in _LABELS}


def encode_csr(key: str, matrix: Any) -> Arrays:
    """Return the parts of a sparse matrix."""
    matrix = matrix.tocsr()
    arrays = {"data": matrix.data, "indices": matrix.indices, "indptr": matrix.indptr, "shape": np.array(matrix.shape)}
    return {f"{key}.{name}": np.asarray(array) for name, array in arrays.items()}


def decode_csr(key: str, get: Get) -> csr_matrix:
    """Return a sparse matrix from its parts."""
    parts = tuple(get(f"{key}.{name}") for name in ("data", "indices", "indptr"))
    from scipy.sparse import csr_matrix

    matrix = csr_matrix(parts, shape=tuple(int(n) for n in get(f"{key}.shape")), copy=False)
    return checked_csr(matrix, f"{key} of the example")


def numbers(value: Any) -> np.ndarray:
    """Return an array of numbers; others cannot be packed."""
    array = np.asarray(value)
    if array.dtype.kind not in "biuf" or array.dtype.itemsize > 8:
        raise InputError(f"only arrays of numbers can be packed, received dtype {array.dtype}.")
    return array


def encode_text(value: Any) -> np.ndarray:
    """Return JSON as bytes."""
    return np.frombuffer(json.dumps(value).encode(), dtype=np.uint8)
