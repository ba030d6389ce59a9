"""Variables of any graph, which comes with each example."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from backfield.data.codecs import Codec, SampleCodec
from backfield.data.format import Format
from backfield.data.graph_files import GraphArrays, GraphLines, GraphML
from backfield.data.samples import Sample
from backfield.errors import InputError
from backfield.graph import Graph
from backfield.graph.forests import is_forest
from backfield.structures.base import BlockSize, Instance, Structure, checked_types


@dataclass(frozen=True, repr=False)
class AnyGraph(Structure, name="graph"):
    """Your own graphs, given as :class:`Sample` s; labels of variable i are 0 .. graph.labels[i] - 1."""

    unit: ClassVar[tuple[str, str]] = ("graph", "variable")
    fixed_labels: ClassVar[bool] = True
    codec: ClassVar[Codec] = SampleCodec()
    files: ClassVar[tuple[Format, ...]] = (GraphArrays(), GraphLines(), GraphML())

    def holds(self, x: Any, y: Any = None) -> bool:
        """Whether x is a sample."""
        return isinstance(x, Sample)

    def sample(self, x: Any, names: dict[str, int] | None = None) -> Instance:
        """Return the instance of a sample."""
        if not isinstance(x, Sample) or not isinstance(x.graph, Graph):
            raise InputError(f"a backfield.Sample with a Graph is needed, received {type(x).__name__}.")
        graph = x.graph
        return Instance(
            (graph.n_variables,), graph.n_factors, x.node_features, x.factor_features, x.node_types, x.factor_types,
            x.observed, x.weights, x.outputs, graph,
        )  # fmt: skip

    def graph(self, sample: Instance, n_labels: int) -> Graph:
        """Return the graph of the sample, whose variables have the labels that it says."""
        assert sample.graph is not None
        return sample.graph

    def key(self, sample: Instance) -> Hashable:
        """Return the fingerprint of the graph that the sample brings: equal ones share what is compiled for them."""
        return self.graph(sample, 0).digest

    def acyclic(self, sample: Instance) -> bool:
        """Whether the graph is a forest of pairs."""
        graph = self.graph(sample, 0)
        return is_forest(graph) if graph.is_pairwise else graph.n_factors == 0

    def n_labels(self, sample: Instance) -> int:
        """Return the largest label count of the graph."""
        graph = self.graph(sample, 0)
        return int(graph.labels.max()) if graph.n_labels is None else graph.n_labels

    def blocks(self, sample: Instance) -> tuple[dict[int, BlockSize], dict[int, BlockSize]]:
        """Return the types that occur, with the sizes of their tables."""
        graph = self.graph(sample, 0)
        nodes, factors = super().blocks(sample)
        return (
            _sized("node", nodes, sample.node_types, np.asarray(graph.labels)),
            _sized("factor", factors, sample.factor_types, _table_sizes(graph)),
        )


def _sized(kind: str, blocks: dict[int, BlockSize], types: Any, sizes: np.ndarray) -> dict[int, BlockSize]:
    types = checked_types(kind, types, len(sizes))
    out = {}
    for each, block in blocks.items():
        outputs = np.unique(sizes[types == each])
        if len(outputs) > 1:
            raise InputError(f"{kind}s of type {each} have different label counts.")
        out[each] = block._replace(n_outputs=int(outputs[0]))
    return out


def _table_sizes(graph: Graph) -> np.ndarray:
    if graph.n_labels is not None and graph.arity is not None:
        return np.broadcast_to(np.int64(graph.n_labels**graph.arity), graph.n_factors)
    return np.diff(graph.layout.table_ptr)
