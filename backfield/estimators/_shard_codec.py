"""An example as arrays and back: what a shard holds of it.

One entry of X and its labels become a few named arrays; their names say what kind of entry it was. Texts (tokens as dicts,
labels that are strings) are JSON in UTF-8, so that reading runs no code.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.sparse import csr_matrix

from backfield.errors import InputError
from backfield.estimators.samples import GridSample, Sample
from backfield.graph import Graph

Arrays = dict[str, np.ndarray]
_SAMPLE = ("node_features", "factor_features", "node_types", "factor_types", "observed", "weights", "outputs")


def encode_input(x: Any, number: int) -> Arrays:
    """Return the arrays of an entry of X."""
    if isinstance(x, GridSample):
        return {key: _numbers(getattr(x, key), number) for key in ("features", "horizontal", "vertical")}
    if isinstance(x, Sample):
        return _encode_sample(x, number)
    if hasattr(x, "tocsr"):
        return _encode_csr("features", x)
    if isinstance(x, list) and x and isinstance(x[0], dict):
        return {"dicts": _text(x)}
    return {"features": _numbers(x, number)}


def encode_labels(y: Any, number: int) -> Arrays:
    """Return the arrays of the labels of an example."""
    labels = np.asarray(y)
    if labels.dtype.kind == "U":
        return {"label_texts": _text(labels.tolist())}
    if labels.dtype.kind not in "biu":
        raise InputError(f"example {number}: labels must be whole numbers, texts or masks, got {labels.dtype}.")
    return {"labels": labels if labels.dtype == bool else labels.astype(np.int32)}


def input_names(names: set[str]) -> set[str]:
    """Return the names of the arrays that hold the entry of X."""
    return {name for name in names if name not in ("labels", "label_texts")}


def decode_input(names: set[str], get: Callable[[str], np.ndarray]) -> Any:
    """Return the entry of X; ``get`` reads an array."""
    if "dicts" in names:
        return json.loads(bytes(get("dicts")))
    if "graph_labels" in names:
        return _decode_sample(names, get)
    if "features.indptr" in names:
        return _decode_csr("features", get)
    if "horizontal" in names:
        return GridSample(get("features"), get("horizontal"), get("vertical"))
    return get("features")


def decode_labels(names: set[str], get: Callable[[str], np.ndarray]) -> np.ndarray:
    """Return the labels of an example."""
    return np.array(json.loads(bytes(get("label_texts")))) if "label_texts" in names else get("labels")


def _encode_sample(sample: Sample, number: int) -> Arrays:
    graph = sample.graph
    if not isinstance(graph, Graph):
        raise InputError(f"example {number} must be a backfield.Sample with a Graph, got {type(graph).__name__}.")
    out: Arrays = {"graph_labels": np.asarray(graph.labels)}
    if graph.shape is not None:
        out["graph_shape"] = np.asarray(graph.shape, dtype=np.int64)
    else:
        out |= {"graph_scope": np.asarray(graph.layout.scope), "graph_scope_ptr": np.asarray(graph.layout.scope_ptr)}
    for key in _SAMPLE:
        value = getattr(sample, key)
        if hasattr(value, "tocsr"):
            out |= _encode_csr(key, value)
        elif value is not None:
            out[key] = _numbers(value, number)
    return out


def _decode_sample(names: set[str], get: Callable[[str], np.ndarray]) -> Sample:
    labels = np.array(get("graph_labels"))
    if "graph_shape" in names:
        rows, columns = (int(n) for n in get("graph_shape"))
        graph = Graph.grid(rows, columns, labels=int(labels[0]))
    else:
        graph = Graph._from_arrays(labels, np.array(get("graph_scope_ptr")), np.array(get("graph_scope")))
    values = {key: get(key) for key in _SAMPLE if key in names}
    values |= {key: _decode_csr(key, get) for key in _SAMPLE if f"{key}.indptr" in names}
    return Sample(graph, values.pop("node_features"), **values)


def _encode_csr(key: str, matrix: Any) -> Arrays:
    matrix = matrix.tocsr()
    arrays = {"data": matrix.data, "indices": matrix.indices, "indptr": matrix.indptr, "shape": np.array(matrix.shape)}
    return {f"{key}.{name}": np.asarray(array) for name, array in arrays.items()}


def _decode_csr(key: str, get: Callable[[str], np.ndarray]) -> csr_matrix:
    parts = tuple(get(f"{key}.{name}") for name in ("data", "indices", "indptr"))
    return csr_matrix(parts, shape=tuple(int(n) for n in get(f"{key}.shape")), copy=False)


def _numbers(value: Any, number: int) -> np.ndarray:
    array = np.asarray(value)
    if array.dtype.kind not in "biuf" or array.dtype.itemsize > 8:
        raise InputError(f"example {number}: only arrays of numbers can be packed, got dtype {array.dtype}.")
    return array


def _text(value: Any) -> np.ndarray:
    return np.frombuffer(json.dumps(value).encode(), dtype=np.uint8)
