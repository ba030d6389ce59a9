"""Formats of files that hold graphs, for the command line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from backfield.atomic import write_text
from backfield.data.format import Data, Format, Preprocessing
from backfield.data.formats.graphs import are_graph_lines, read_graph_lines, read_graph_npz, read_graphml
from backfield.data.formats.npz import write_npz
from backfield.data.kinds import npz_keys
from backfield.data.samples import Sample
from backfield.errors import InputError
from backfield.graph import Graph

#: Features of nodes: name -> what it is.
FEATURES = {"raw": "the numbers as they are", "neighbours": "these, and their means over the neighbours"}


class GraphFile(Format):
    """A file of graphs; a subclass says which, and how it is read."""

    reader: ClassVar[Any]  # path -> graphs
    name: ClassVar[str] = "graphs"
    endings: ClassVar[tuple[str, ...]] = ()

    def holds(self, path: Path) -> bool:
        """Whether the name of a file ends as such files do."""
        return path.is_file() and path.suffix.lower() in self.endings

    def read(self, path: Path, with_labels: bool = True, n_columns: int | None = None, lazy: bool = False) -> Data:
        """Read the graphs."""
        records = type(self).reader(path)
        labels = None
        if with_labels:
            missing = next((each.name for each in records if each.labels is None), None)
            if missing is not None:
                raise InputError(f"{path}: {missing} has no labels.")
            labels = [each.labels for each in records if each.labels is not None]
        return Data(path, self, [each.name for each in records], records, labels)

    def choose(self, data: Data, features: str | None, edges: str | None) -> Preprocessing:
        """Take the numbers as they are, unless others are asked for; classes are those that occur."""
        if edges is not None:
            raise InputError("edges of graphs have the features that the file gives them; --edges is for images.")
        if features is not None and features not in FEATURES:
            listed = "; ".join(f"{key} ({text})" for key, text in FEATURES.items())
            raise InputError(f"there are no features {features!r} of nodes; there are: {listed}.")
        count = None if data.labels is None else max(2, 1 + max(int(each.max()) for each in data.labels))
        return Preprocessing(self.name, features or "raw", n_labels=count)

    def inputs(self, data: Data, preprocessing: Preprocessing) -> list[Sample]:
        """Return samples; their variables have as many labels as were seen in training."""
        from backfield.data.neighbours import neighbour_means

        out = []
        for record in data.inputs:
            graph = Graph.from_edges(record.edges, n_variables=len(record.features), labels=preprocessing.n_labels or 2)
            features = record.features
            if preprocessing.features == "neighbours":
                features = neighbour_means(graph, features)
            out.append(Sample(graph, features, record.edge_features))
        return out

    def write(self, path: Path, data: Data, labels: list[Any], probabilities: list[Any] | None) -> str:
        """Write predictions as JSON lines: names, labels, probabilities."""
        lines = []
        for k, name in enumerate(data.names):
            row = {"name": name, "labels": np.asarray(labels[k]).tolist()}
            lines.append(json.dumps(row | ({} if probabilities is None else {"probabilities": probabilities[k].tolist()})))
        write_text(path, "\n".join(lines) + "\n")
        return f"{path} with name, labels{', probabilities' * (probabilities is not None)}"


class GraphArrays(GraphFile):
    """An ``.npz`` file with ``node_features`` and ``edges``."""

    reader = staticmethod(read_graph_npz)

    def holds(self, path: Path) -> bool:
        """Whether the file has the keys."""
        return path.suffix.lower() == ".npz" and {"node_features", "edges"} <= set(npz_keys(path))

    def write(self, path: Path, data: Data, labels: list[Any], probabilities: list[Any] | None) -> str:
        """Write labels end to end, as they are read back."""
        arrays = {"labels": np.concatenate(labels), "node_lengths": np.array([len(each) for each in labels])}
        if probabilities is not None:
            arrays["probabilities"] = np.concatenate(probabilities)
        write_npz(path, arrays)
        return f"{path} with {', '.join(arrays)}"


class GraphLines(GraphFile):
    """A file of JSON lines."""

    reader = staticmethod(read_graph_lines)
    endings: ClassVar[tuple[str, ...]] = (".jsonl", ".ndjson")

    def holds(self, path: Path) -> bool:
        """Whether lines are graphs, by the first of them."""
        return super().holds(path) and are_graph_lines(path)


class GraphML(GraphFile):
    """A GraphML file."""

    reader = staticmethod(read_graphml)
    endings: ClassVar[tuple[str, ...]] = (".graphml",)
