"""What one pass over the training examples learns before there are weights: types, widths, labels that occur.

A survey of some examples and one of the next ones add up, so that the pass is cut into chunks like any other.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from backfield.data.labels import is_known
from backfield.data.sequences import is_lazy
from backfield.errors import InputError
from backfield.estimators._located import located
from backfield.structures import BlockSize, Instance, Structure
from backfield.training.execution import sum_over_chunks
from backfield.training.execution.cluster import active

#: Type -> {what it needs weights for: first example that has it}; one entry each, if all is well.
Types = dict[int, dict[BlockSize, int]]


@dataclass
class Survey:
    """What was seen in some examples."""

    nodes: Types = field(default_factory=dict)
    factors: Types = field(default_factory=dict)
    #: Labels that occur, sorted, hidden ones included; empty where all examples have masks.
    seen: list[np.ndarray] = field(default_factory=list)
    #: Labelled variables of each example.
    labelled: list[int] = field(default_factory=list)
    #: The largest label count of a variable, where X fixes it.
    largest: int = 0

    @classmethod
    def of(cls, structure: Structure, pair: tuple[Instance, np.ndarray], number: int) -> Survey:
        """Survey one example."""
        sample, labels = pair
        with located(number):
            nodes, factors = ({each: {block: number} for each, block in found.items()} for found in structure.blocks(sample))
        seen = np.unique(labels) if labels.ndim == 1 else labels[:0]
        largest = structure.n_labels(sample) if structure.fixed_labels else 0
        return cls(nodes, factors, [seen], [_n_labelled(sample, labels)], largest)

    def __add__(self, other: Survey) -> Survey:
        for mine, theirs in ((self.nodes, other.nodes), (self.factors, other.factors)):
            for each, variants in theirs.items():
                mine[each] = variants | mine.get(each, {})  # of one variant, the earlier example
        self.labelled += other.labelled
        self.largest = max(self.largest, other.largest)
        self.seen = _merged(self.seen + other.seen)
        return self

    def types(self, kind: str) -> list[BlockSize]:
        """Return what each type of node or factor needs weights for, in the order of the types."""
        found = self.nodes if kind == "node" else self.factors
        for each, variants in sorted(found.items()):
            if len(variants) > 1:
                before, now = sorted(variants, key=lambda variant: variants[variant])[:2]
                here = f"example {variants[now]}: {kind}s of type {each} have {_words(now)}"
                raise InputError(f"{here}; earlier ones have {_words(before)}.")
        count = max(found, default=-1) + 1
        if kind == "node" and sorted(found) != list(range(count)):
            raise InputError(f"{kind} types must be numbered 0 .. {count - 1} without gaps, got {sorted(found)}.")
        first = [next(iter(found[each])) if each in found else None for each in range(count)]
        return [block if block is not None else _absent(first) for block in first]


@dataclass
class Surveyor:
    """Surveys examples by their numbers."""

    structure: Structure
    pairs: Sequence[tuple[Instance, np.ndarray]]

    def survey(self, n_jobs: int) -> Survey:
        """Go through the examples once: on the workers of a cluster where they are lazy, else in threads."""
        cluster = active()
        if cluster is not None and is_lazy(self.pairs):
            return cluster.share(self, np.ones(len(self.pairs))).sum(None)

        def part(first: int, last: int) -> Survey:
            return self.chunk(np.arange(first, last))

        return sum_over_chunks(part, len(self.pairs), n_jobs, operator.add)

    def chunk(self, numbers: np.ndarray) -> Survey:
        """Survey some examples."""
        return sum((Survey.of(self.structure, self.pairs[k], int(k)) for k in numbers), Survey())

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


def _absent(blocks: list[BlockSize | None]) -> BlockSize:
    """Return the block of a type that does not occur: without features and, where X says how many, without outputs."""
    other = next(block for block in blocks if block is not None)
    return BlockSize(0, other.arity, None if other.n_outputs is None else 0)


def _words(block: BlockSize) -> str:
    return f"{block.n_features} features" + ("" if block.n_outputs is None else f" and {block.n_outputs} outputs")


def _n_labelled(sample: Instance, labels: np.ndarray) -> int:
    """Return the number of variables about which something is known."""
    if labels.ndim == 1:
        return int(is_known(labels).sum())
    graph: Any = sample.graph
    same = graph is None or graph.n_labels is not None
    return int((labels.sum(axis=1) < (labels.shape[1] if same else graph.labels)).sum())
