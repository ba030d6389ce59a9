"""Graphs with features and labels in files: ``.npz``, JSON lines, GraphML.

``.npz``: ``node_features`` (N, F) of all graphs end to end, ``node_lengths`` (nodes of each graph), ``edges`` (E, 2) with
nodes counted from 0 in each graph, ``edge_lengths`` (edges of each graph), and, if there are such, ``edge_features`` (E, D),
``labels`` (N,) with -1 = hidden. Without lengths the file holds one graph.

JSON lines (``.jsonl``), one graph in each: ``{"nodes": [[0.1, 2.0], ...], "edges": [[0, 1], ...], "edge_features": [[...]],
"labels": [0, 1, -1, ...], "name": "a"}``; nodes and edges are needed.

GraphML: numbers among the attributes of nodes and edges are features, in the order of their names; the attribute ``label``
of a node is its class (a node without it is hidden).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple
from xml.parsers import expat

import numpy as np

from backfield.data.formats._text import read_bytes
from backfield.data.formats.npz import read_arrays
from backfield.errors import InputError
from backfield.limits import parse_json

_NUMBERS = ("int", "long", "float", "double", "boolean")


class GraphRecord(NamedTuple):
    """One graph of a file: (n, F) and (E, D) features, (E, 2) ends of edges, (n,) labels."""

    features: np.ndarray
    edges: np.ndarray
    edge_features: np.ndarray | None
    labels: np.ndarray | None
    name: str


def read_graph_npz(path: str | Path) -> list[GraphRecord]:
    """Read the graphs of an ``.npz`` file."""
    arrays = read_arrays(path)
    nodes, edges = _array(path, arrays, "node_features", 2), _array(path, arrays, "edges", 2, "iu")
    cuts = _cuts(path, arrays, "node_lengths", len(nodes)), _cuts(path, arrays, "edge_lengths", len(edges))
    if len(cuts[0]) != len(cuts[1]):
        raise InputError(f"{path}: node_lengths are of {len(cuts[0]) - 1} graphs, edge_lengths of {len(cuts[1]) - 1}.")
    extra = {key: _array(path, arrays, key, n, kinds) if key in arrays else None for key, n, kinds in _EXTRA}
    for key, rows in (("edge_features", len(edges)), ("labels", len(nodes))):
        found = extra[key]
        if found is not None and len(found) != rows:
            raise InputError(f"{path}: {key} has {len(found)} rows; {rows} are needed.")
    out = []
    for k in range(len(cuts[0]) - 1):
        (a, b), (c, d) = cuts[0][k : k + 2], cuts[1][k : k + 2]
        parts = [None if array is None else array[s] for array, s in _slices(extra, slice(a, b), slice(c, d))]
        out.append(_record(f"{path}: graph {k}", nodes[a:b], edges[c:d], parts[0], parts[1], f"graph {k}"))
    return out


_EXTRA: tuple[tuple[str, int, str], ...] = (("edge_features", 2, "biuf"), ("labels", 1, "iu"))


def _slices(extra: dict[str, Any], nodes: slice, edges: slice) -> list[tuple[Any, slice]]:
    return [(extra["edge_features"], edges), (extra["labels"], nodes)]


def read_graph_lines(path: str | Path) -> list[GraphRecord]:
    """Read the graphs of a file of JSON lines."""
    out = []
    for number, line in enumerate(read_bytes(path).split(b"\n"), start=1):
        if not line.strip():
            continue
        where = f"{path}, line {number}"
        try:
            content = parse_json(line)
        except ValueError as error:
            raise InputError(f"{where}: invalid JSON ({error}).") from error
        if not isinstance(content, dict) or not {"nodes", "edges"} <= set(content):
            raise InputError(f"{where}: a graph is an object with nodes and edges.")
        nodes, edges, links, labels = (_numbers(where, content, k) for k in ("nodes", "edges", "edge_features", "labels"))
        out.append(_record(where, nodes, edges, links, labels, str(content.get("name", f"line {number}"))))
    if not out:
        raise InputError(f"{path} holds no graphs.")
    return out


def are_graph_lines(path: Path) -> bool:
    """Whether the first line of a file names nodes; sentences are JSON lines, too."""
    try:
        with path.open("rb") as file:
            return b'"nodes"' in file.readline(2**24)
    except OSError:
        return False


def read_graphml(path: str | Path) -> list[GraphRecord]:
    """Read the graphs of a GraphML file."""
    graphs = _GraphML(path).read(read_bytes(path))
    if not graphs:
        raise InputError(f"{path} holds no graph.")
    return [_of_graphml(f"{path}: graph {number}", graph, number) for number, graph in enumerate(graphs)]


# ---- checks ----


def _record(where: str, nodes: Any, edges: Any, edge_features: Any, labels: Any, name: str) -> GraphRecord:
    """Return a graph whose parts go together."""
    if nodes is None or nodes.ndim != 2 or nodes.dtype.kind not in "biuf" or 0 in nodes.shape:
        raise InputError(f"{where}: nodes must be numbers of shape (n, F), received {_words(nodes)}.")
    edges = np.empty((0, 2), dtype=np.int64) if edges is None or edges.size == 0 else edges
    if edges.ndim != 2 or edges.shape[1] != 2 or edges.dtype.kind not in "iu":
        raise InputError(f"{where}: edges must be integers of shape (E, 2), received {_words(edges)}.")
    if len(edges) and not 0 <= int(edges.min()) <= int(edges.max()) < len(nodes):
        raise InputError(f"{where}: edges join nodes 0 .. {len(nodes) - 1}, received {edges.min()} .. {edges.max()}.")
    if (edges[:, 0] == edges[:, 1]).any():
        raise InputError(f"{where}: an edge joins node {edges[edges[:, 0] == edges[:, 1]][0, 0]} to itself.")
    if edge_features is not None and (edge_features.ndim != 2 or len(edge_features) != len(edges)):
        raise InputError(f"{where}: edge_features must have shape ({len(edges)}, D), received {_words(edge_features)}.")
    if labels is not None and (labels.shape != (len(nodes),) or labels.dtype.kind not in "iu"):
        raise InputError(f"{where}: labels must be {len(nodes)} integers, received {_words(labels)}.")
    for key, array in (("nodes", nodes), ("edge_features", edge_features)):
        if array is not None and not np.isfinite(array).all():
            row, column = (int(k) for k in np.argwhere(~np.isfinite(array))[0])
            raise InputError(f"{where}: {key} hold {array[row, column]} in row {row}, column {column}; they must be finite.")
    return GraphRecord(
        nodes, edges.astype(np.int64), edge_features, None if labels is None else labels.astype(np.int64), name
    )


def _words(array: Any) -> str:
    return "nothing" if array is None else f"{array.dtype} of shape {array.shape}"


def _numbers(where: str, content: dict[str, Any], key: str) -> np.ndarray | None:
    if content.get(key) is None:
        return None
    try:
        array = np.array(content[key])
    except ValueError as error:
        raise InputError(f"{where}: {key} must be a rectangular list of numbers.") from error
    if array.size and array.dtype.kind not in "biuf":
        raise InputError(f"{where}: {key} must hold numbers, received {array.dtype}.")
    return array


def _array(path: str | Path, arrays: dict[str, Any], key: str, ndim: int, kinds: str = "biuf") -> np.ndarray:
    if key not in arrays:
        raise InputError(f"{path} needs the key {key!r}; it has {', '.join(sorted(arrays))}.")
    array = np.asarray(arrays[key])
    if array.ndim != ndim or array.dtype.kind not in kinds:
        raise InputError(f"{path}: {key} must have {ndim} axes of numbers, received {_words(array)}.")
    return array


def _cuts(path: str | Path, arrays: dict[str, Any], key: str, total: int) -> np.ndarray:
    lengths = _array(path, arrays, key, 1, "iu") if key in arrays else np.array([total])
    if len(lengths) == 0 or int(lengths.min()) < 0 or int(lengths.sum()) != total:
        raise InputError(f"{path}: {key} must be counts that add up to {total}, received a sum of {int(lengths.sum())}.")
    return np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)


# ---- GraphML ----


@dataclass
class _Item:
    """A node or an edge with its data by key."""

    ends: tuple[str, ...]
    data: dict[str, str] = field(default_factory=dict)


@dataclass
class _Graph:
    keys: dict[str, tuple[str, str, str]]  # id -> (node or edge, name, type)
    nodes: list[_Item] = field(default_factory=list)
    edges: list[_Item] = field(default_factory=list)


class _GraphML:
    """Collects graphs while expat reads."""

    def __init__(self, path: str | Path) -> None:
        self.path, self.keys = path, {}  # type: str | Path, dict[str, tuple[str, str, str]]
        self.graphs: list[_Graph] = []
        self.item: _Item | None = None
        self.key, self.text = "", ""
        self.parser = expat.ParserCreate(namespace_separator=" ")
        self.parser.StartElementHandler, self.parser.EndElementHandler = self._start, self._end
        self.parser.CharacterDataHandler, self.parser.EntityDeclHandler = self._characters, self._entity
        self.parser.buffer_text = True

    def read(self, content: bytes) -> list[_Graph]:
        try:
            self.parser.Parse(content, True)
        except expat.ExpatError as error:
            raise InputError(f"{self.path}, line {error.lineno}: malformed XML.") from error
        return self.graphs

    def _entity(self, name: str, *_: object) -> None:
        raise InputError(f"{self.path}: the entity {name[:20]!r} is declared; a graph needs none.")

    def _start(self, tag: str, given: dict[str, str]) -> None:
        tag = tag.split(" ")[-1]
        if tag == "key":
            self.keys[given.get("id", "")] = (
                given.get("for", "all"),
                given.get("attr.name", ""),
                given.get("attr.type", ""),
            )
        elif tag == "graph":
            self.graphs.append(_Graph(self.keys))
        elif tag in ("node", "edge") and self.graphs:
            ends = (given.get("id", ""),) if tag == "node" else (given.get("source", ""), given.get("target", ""))
            self.item = _Item(ends)
            (self.graphs[-1].nodes if tag == "node" else self.graphs[-1].edges).append(self.item)
        elif tag == "data":
            self.key, self.text = given.get("key", ""), ""

    def _characters(self, text: str) -> None:
        self.text += text

    def _end(self, tag: str) -> None:
        tag = tag.split(" ")[-1]
        if tag == "data" and self.item is not None:
            self.item.data[self.key] = self.text.strip()
        elif tag in ("node", "edge"):
            self.item = None


def _of_graphml(where: str, graph: _Graph, number: int) -> GraphRecord:
    place = {node.ends[0]: k for k, node in enumerate(graph.nodes)}
    if len(place) != len(graph.nodes):
        raise InputError(f"{where}: two nodes have the same id.")
    strange = [end for edge in graph.edges for end in edge.ends if end not in place]
    if strange:
        raise InputError(f"{where}: an edge ends at {strange[0]!r}, which is not a node.")
    edges = np.array([[place[end] for end in edge.ends] for edge in graph.edges], dtype=np.int64).reshape(-1, 2)
    nodes = _columns(where, graph, "node", graph.nodes)
    links = _columns(where, graph, "edge", graph.edges)
    if nodes is None:
        raise InputError(f"{where}: no node attribute is declared as a number.")
    return _record(where, nodes, edges, links if graph.edges else None, _labels(where, graph), f"graph {number}")


def _columns(where: str, graph: _Graph, kind: str, items: Sequence[_Item]) -> np.ndarray | None:
    """Return the numbers of nodes or edges, a column per attribute."""
    numbers = {key: name for key, (of, name, type_) in graph.keys.items() if of in (kind, "all") and type_ in _NUMBERS}
    keys = sorted((key for key, name in numbers.items() if name != "label"), key=lambda key: (numbers[key], key))
    if not keys:
        return None
    out = np.empty((len(items), len(keys)))
    for row, item in enumerate(items):
        for column, key in enumerate(keys):
            out[row, column] = _number(f"{where}: {kind} {row}, attribute {graph.keys[key][1]!r}", item.data.get(key))
    return out


def _labels(where: str, graph: _Graph) -> np.ndarray | None:
    key = next((key for key, (of, name, _) in graph.keys.items() if of in ("node", "all") and name == "label"), None)
    if key is None:
        return None
    values = [_number(f"{where}: node {k}, label", item.data.get(key, "-1")) for k, item in enumerate(graph.nodes)]
    if any(value != int(value) for value in values):
        raise InputError(f"{where}: labels must be integers.")
    return np.array(values, dtype=np.int64)


def _number(where: str, text: str | None) -> float:
    if text is None:
        raise InputError(f"{where} is missing.")
    try:
        value = {"true": 1.0, "false": 0.0}.get(text.lower())
        return float(text) if value is None else value
    except ValueError:
        raise InputError(f"{where} is {text[:40]!r}, not a number.") from None
