"""Taggers: the likelihood of labelled chains with sparse features, on rows that a cache holds.

The same numbers as the general evaluator, several times faster: chains are cut into blocks of a few thousand positions,
whose weights are copied together (:mod:`backfield.energies.compact_rows`); scores, likelihood and gradient of a block are
three kernels. Blocks in which potentials leave the range that these are safe for go to the general evaluator.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from backfield.energies.compact_rows import CompactRows
from backfield.energies.observed_linear import BoundLinear
from backfield.inference.base import ExactInference
from backfield.inference.exact.chain_likelihood import chain_likelihood, padded
from backfield.objectives import SurrogateLikelihood
from backfield.objectives.base import is_complete
from backfield.training.evaluators.general import General, Sum, Task
from backfield.training.examples import Example
from backfield.training.merging import merged
from backfield.training.weights import Block

#: Positions of a block: their scores fit in a cache.
_POSITIONS = 4000


class _Block(NamedTuple):
    """Some chains end to end."""

    numbers: np.ndarray
    rows: CompactRows
    ptr: np.ndarray
    labels: np.ndarray
    seen: np.ndarray  # (L, L) how often labels follow each other
    forbidden: np.ndarray  # flat entries of padded scores
    table: np.ndarray | None  # (L, L) booleans: transitions that are forbidden


@dataclass(frozen=True, eq=False)
class Tagger(General):
    """Blocks are compacted once and kept."""

    kept: dict[tuple[int, int, int], list[_Block]] = field(default_factory=dict)

    @classmethod
    def applies(cls, task: Task) -> bool:
        """Of chains: where all labels are known, weights are of pairs of features and labels, and inference is exact."""
        layout, setting = task.layout, task.setting
        linear = len(layout.unary) == 1 and isinstance(layout.unary[0].energy, BoundLinear) and len(layout.factors) == 1
        exact = isinstance(setting.inference, ExactInference) and setting.gradient is None
        likelihood = isinstance(task.objective, SurrogateLikelihood) and task.objective.clamped is None
        if not (linear and exact and likelihood and task.dtype == np.float64 and task.in_memory):
            return False
        one_table = _tables(layout.factors[0], np.zeros(layout.n_weights)) is not None
        return one_table and layout.unary[0].n_outputs < 2**16 and all(_is_labelled(example) for example in task.examples)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "kept": {}}

    def chunk(self, numbers: np.ndarray, w: np.ndarray, seed: int) -> Sum:
        """Sum over some chains; batches at random are not worth blocks."""
        numbers = numbers[self.task.labelled[numbers] > 0]
        if len(numbers) == 0 or not np.array_equal(numbers, np.arange(numbers[0], numbers[0] + len(numbers))):
            return super().chunk(numbers, w, seed)
        total = Sum(0.0, np.zeros(self.task.n_weights), 0.0, 0)
        for block in self._blocks(numbers):
            total = self._add(block, w, seed, total)
        return total

    def _add(self, block: _Block, w: np.ndarray, seed: int, total: Sum) -> Sum:
        """Add a block; the gradient in place."""
        (unary,), (pairs,) = self.task.layout.unary, self.task.layout.factors
        count = unary.n_outputs
        scores = block.rows.scores(w[unary.start : unary.stop])
        scores.reshape(-1)[block.forbidden] = -np.inf
        table = _tables(pairs, w)
        assert table is not None
        table = table.reshape(count, count)
        if block.table is not None:
            table = np.where(block.table, -np.inf, table)
        found = chain_likelihood(scores, block.ptr, block.labels, table, block.table is not None)
        if found is None:
            return self.add(total, super().chunk(block.numbers, w, seed))
        block.rows.add_vjp(scores, total.gradient[unary.start : unary.stop])
        total.gradient[pairs.start : pairs.stop] += pairs.energy.tables_vjp(found.pairs - block.seen)
        return total._replace(value=total.value + found.value, wrong=total.wrong + found.wrong)

    def _blocks(self, numbers: np.ndarray) -> list[_Block]:
        key = (int(numbers[0]), int(numbers[-1]), len(numbers))
        if key not in self.kept:
            lengths = self.task.labelled[numbers]
            cuts = np.flatnonzero(np.diff(np.cumsum(lengths) // _POSITIONS)) + 1
            self.kept[key] = [self._block(part) for part in np.split(numbers, cuts)]
        return self.kept[key]

    def _block(self, numbers: np.ndarray) -> _Block:
        unary = self.task.layout.unary[0]
        count, energy = unary.n_outputs, unary.energy
        lengths, example = (
            self.task.labelled[numbers],
            merged([self.task.examples[number] for number in numbers], fold=False),
        )
        ptr, labels = np.append(0, np.cumsum(lengths)), _labels(example)
        rows = CompactRows.of(_features(example), energy.ptr, energy.labels, count, padded(count))
        later = np.ones(len(labels), dtype=bool)
        later[ptr[:-1]] = False
        at = np.flatnonzero(later)
        seen = np.bincount(labels[at - 1] * count + labels[at], minlength=count * count).reshape(count, count)
        if example.forbidden is None:
            return _Block(numbers, rows, ptr, labels, seen, np.empty(0, dtype=np.int64), None)
        position, label = np.divmod(example.forbidden.unary, count)
        table = example.forbidden.table.reshape(count, count)
        return _Block(numbers, rows, ptr, labels, seen, position * padded(count) + label, table)


def _tables(block: Block, w: np.ndarray) -> np.ndarray | None:
    """Return the table that all factors of a block share; None where there is none."""
    if block.n_features:
        return None
    found = block.energy.tables(w[block.start : block.stop], np.empty((0, 0)), block.n_outputs, block.intercept)
    return None if found is None or found.scales is not None or len(found.tables) != 1 else found.tables[0]


def _is_labelled(example: Example) -> bool:
    """Whether all labels are known, and count as those of any other example."""
    target = example.target
    return target is not None and is_complete(target) and target.weights is None and example.weight == 1.0


def _labels(example: Example) -> np.ndarray:
    assert example.target is not None
    return np.ascontiguousarray(example.target.labeling.labels, dtype=np.int64)


def _features(example: Example) -> Any:
    rows = example.unary[0]
    assert rows is not None
    return rows.features
