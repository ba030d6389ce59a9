"""What one pass over the training examples learns before there are weights: types, widths, labels that occur.

A survey of some examples and one of the next ones add up, so that the pass is cut into chunks like any other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from backfield.errors import InputError
from backfield.estimators.samples import Sample, n_columns

#: Type -> {(number of features, number of outputs): first example that has them}; one entry each, if all is well.
Types = dict[int, dict[tuple[int, int], int]]


@dataclass
class Survey:
    """What was seen in some examples."""

    nodes: Types = field(default_factory=dict)
    factors: Types = field(default_factory=dict)
    #: Labels that occur, sorted, hidden ones included; empty where all examples have masks.
    seen: list[np.ndarray] = field(default_factory=list)
    #: Labelled variables of each example.
    labelled: list[int] = field(default_factory=list)
    #: The largest label count of a variable.
    largest: int = 0

    @classmethod
    def of(cls, sample: Sample, labels: np.ndarray, number: int) -> Survey:
        """Survey one example."""
        graph = sample.graph
        if len(labels) != graph.n_variables:
            raise InputError(
                f"example {number} has {graph.n_variables} variables but {len(labels)} labels; sizes must agree."
            )
        seen = np.unique(labels) if labels.ndim == 1 else labels[:0]
        nodes, factors = (_types(sample, kind, number) for kind in ("node", "factor"))
        largest = int(graph.labels.max()) if graph.n_labels is None else graph.n_labels
        return cls(nodes, factors, [seen], [_n_labelled(graph, labels)], largest)

    def __add__(self, other: Survey) -> Survey:
        for mine, theirs in ((self.nodes, other.nodes), (self.factors, other.factors)):
            for each, variants in theirs.items():
                mine[each] = variants | mine.get(each, {})  # of one variant, the earlier example
        self.labelled += other.labelled
        self.largest = max(self.largest, other.largest)
        self.seen = _merged(self.seen + other.seen)
        return self

    def types(self, kind: str) -> list[tuple[int, int, int]]:
        """Return (type, number of features, number of outputs) for each type of node or factor."""
        found = self.nodes if kind == "node" else self.factors
        for each, variants in sorted(found.items()):
            if len(variants) > 1:
                before, now = sorted(variants, key=lambda variant: variants[variant])[:2]
                raise InputError(
                    f"example {variants[now]}: {kind}s of type {each} have {now[0]} features and {now[1]} outputs; "
                    f"earlier ones have {before[0]} and {before[1]}."
                )
        count = max(found, default=-1) + 1
        if kind == "node" and sorted(found) != list(range(count)):
            raise InputError(f"{kind} types must be numbered 0 .. {count - 1} without gaps, got {sorted(found)}.")
        return [(each, *next(iter(found.get(each, {(0, 0): 0})))) for each in range(count)]


@dataclass
class Surveyor:
    """Surveys examples by their numbers."""

    samples: Sequence[Sample]
    labels: Sequence[np.ndarray]

    def chunk(self, numbers: np.ndarray) -> Survey:
        """Survey some examples."""
        return sum((Survey.of(self.samples[k], self.labels[k], int(k)) for k in numbers), Survey())

    @staticmethod
    def add(a: Survey, b: Survey) -> Survey:
        """Join two surveys."""
        return a + b


def _merged(seen: list[np.ndarray]) -> list[np.ndarray]:
    """Return all labels that occur in one array, and the widest mask in another."""
    flat = [each for each in seen if each.ndim == 1]
    masks = [each for each in seen if each.ndim == 2]
    widest = sorted(masks, key=lambda mask: mask.shape[1])[-1:]
    return ([np.unique(np.concatenate(flat))] if flat else []) + widest


def _types(sample: Sample, kind: str, number: int) -> Types:
    graph = sample.graph
    rows = graph.n_variables if kind == "node" else graph.n_factors
    features = sample.node_features if kind == "node" else sample.factor_features
    kinds = sample.node_types if kind == "node" else sample.factor_types
    kinds = np.zeros(rows, dtype=np.int64) if kinds is None else np.asarray(kinds)
    if kinds.shape != (rows,) or kinds.dtype.kind not in "iu" or (rows and kinds.min() < 0):
        raise InputError(f"example {number}: {kind}_types must be {rows} integers >= 0.")
    where = f"example {number}" if kind == "node" else f"example {number}, factors"
    width = 0 if features is None else n_columns(features, rows, where)
    sizes = np.asarray(graph.labels if kind == "node" else _table_sizes(graph))
    found: Types = {}
    for each in np.unique(kinds):
        outputs = np.unique(sizes[kinds == each])
        if len(outputs) > 1:
            raise InputError(f"example {number}: {kind}s of type {each} have different label counts.")
        found[int(each)] = {(width, int(outputs[0])): number}
    return found


def _table_sizes(graph: Any) -> np.ndarray:
    if graph.n_labels is not None and graph.arity is not None:
        return np.broadcast_to(np.int64(graph.n_labels**graph.arity), graph.n_factors)
    return np.diff(graph.layout.table_ptr)


def _n_labelled(graph: Any, labels: np.ndarray) -> int:
    """Return the number of variables about which something is known."""
    if labels.ndim == 1:
        return int((labels != ("" if labels.dtype.kind == "U" else -1)).sum())
    # Graphs of one label count may still hold a placeholder for it.
    return int((labels.sum(axis=1) < (graph.labels if graph.n_labels is None else labels.shape[1])).sum())
