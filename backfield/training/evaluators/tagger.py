"""Taggers: the likelihood of labelled chains, on rows that a cache holds.

The same numbers as the general evaluator, several times faster: chains are cut into blocks of a few thousand positions,
whose rows are prepared once (``Energy.prepared``). Of a few dense features a block is one call of the kernel of chains,
which multiplies features by weights itself; of others, scores, likelihood and gradient are a few calls, on arrays that are
used again. None of them holds the GIL. Blocks in which potentials leave the range that these are safe for go to the general
evaluator.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from backfield.data.sequences import Joined
from backfield.energies.base import PreparedRows
from backfield.energies.linear_rows import LinearRows
from backfield.inference.base import ExactInference
from backfield.inference.exact.tied_chains import Likelihood, chain_likelihood, linear_chain_likelihood, padded
from backfield.objectives import SurrogateLikelihood
from backfield.objectives.base import is_complete
from backfield.training.evaluators.general import General, Sum, Task
from backfield.training.examples import Example
from backfield.training.merging import Run, kept_as, span, together
from backfield.training.weights import Block

#: Positions of a block: their scores fit in a cache.
_POSITIONS = 4000
#: Slopes and biases that fit in the first cache, beside the rows that they meet; of more, BLAS makes the faster product.
_FEW = 2**12


class _Chains(NamedTuple):
    """Some chains end to end: where each starts, and where the last ends; the longest; labels."""

    ptr: np.ndarray
    longest: int
    labels: np.ndarray


@dataclass(frozen=True, eq=False)
class _Block:
    """Some chains whose scores are written before the kernel reads them."""

    run: Run
    chains: _Chains
    seen: np.ndarray  # (L, L) how often labels follow each other
    rows: PreparedRows
    forbidden: np.ndarray | None = None  # flat entries of padded scores
    table: np.ndarray | None = None  # (L, L) booleans: transitions that are forbidden

    def add(self, w: np.ndarray, table: np.ndarray, d_w: np.ndarray, spare: list[np.ndarray]) -> Likelihood | None:
        """Return the likelihood, and add its gradient; None: potentials are too large for it."""
        room = _take(spare, len(self.rows), padded(len(table)))
        scores = room[: len(self.rows)]
        bias = self.rows.scores(w, scores)
        if self.table is not None:
            scores.reshape(-1)[self.forbidden] = -np.inf
            table = np.where(self.table, -np.inf, table)
        found = chain_likelihood(scores, bias, *self.chains, table, self.table is not None)
        if found is not None:
            self.rows.add_vjp(scores, d_w)
        spare.append(room)
        return found


@dataclass(frozen=True, eq=False)
class _LinearBlock(_Block):
    """Some chains whose scores the kernel makes, of a few dense features."""

    rows: LinearRows

    def add(self, w: np.ndarray, table: np.ndarray, d_w: np.ndarray, spare: list[np.ndarray]) -> Likelihood | None:
        """Return the likelihood, and add its gradient; None: potentials are too large for it."""
        weights = self.rows.matrix(w)
        d_weights = np.empty_like(weights)
        found = linear_chain_likelihood(self.rows.features, weights, d_weights, *self.chains, table)
        if found is not None:
            d_w += self.rows.own(d_weights).reshape(-1)
        return found


def _take(spare: list[np.ndarray], n_rows: int, width: int) -> np.ndarray:
    """Return an array for scores that nobody uses."""
    try:
        room = spare.pop()
    except IndexError:
        room = None
    return np.empty((max(n_rows, _POSITIONS), width)) if room is None or len(room) < n_rows else room


@dataclass(frozen=True, eq=False)
class Tagger(General):
    """Blocks are prepared once and kept, as are arrays of scores: one for each thread."""

    kept: dict[bytes, list[_Block]] = field(default_factory=dict)
    spare: list[np.ndarray] = field(default_factory=list)

    @classmethod
    def applies(cls, task: Task) -> bool:
        """Of chains: where all labels are known, weights are of features and labels, and inference is exact."""
        layout, setting = task.layout, task.setting
        exact = isinstance(setting.inference, ExactInference) and setting.gradient is None
        likelihood = isinstance(task.objective, SurrogateLikelihood) and task.objective.clamped is None
        if not (exact and likelihood and task.dtype == np.float64 and task.in_memory):
            return False
        if len(layout.unary) != 1 or len(layout.factors) != 1 or layout.unary[0].n_outputs >= 2**16:
            return False
        if _tables(layout.factors[0], np.zeros(layout.n_weights)) is None:
            return False
        examples = [task.examples.whole] if isinstance(task.examples, Joined) else task.examples
        return _prepared(layout.unary[0], examples[0], 0) is not None and all(map(_is_labelled, examples))

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "kept": {}, "spare": []}

    def chunk(self, numbers: np.ndarray, w: np.ndarray, seed: int) -> Sum:
        """Sum over some chains; batches at random are not worth blocks."""
        blocks = self._blocks(numbers)
        if blocks is None:
            return super().chunk(numbers, w, seed)
        (unary,), (pairs,) = self.task.layout.unary, self.task.layout.factors
        table = _tables(pairs, w)
        assert table is not None
        table = table.reshape(unary.n_outputs, -1)
        value, wrong, gradient = 0.0, 0.0, np.zeros(self.task.n_weights)
        own, d_own = w[unary.start : unary.stop], gradient[unary.start : unary.stop]
        for block in blocks:
            found: Likelihood | Sum | None = block.add(own, table, d_own, self.spare)
            if isinstance(found, Likelihood):
                gradient[pairs.start : pairs.stop] += pairs.energy.tables_vjp(found.pairs - block.seen)
            else:
                found = self._careful(block.run, w, seed)
                gradient += found.gradient
            value, wrong = value + found.value, wrong + found.wrong
        return Sum(value, gradient, wrong, 0)

    def every(self, numbers: np.ndarray) -> Any:
        """Return some examples, as blocks."""
        blocks = self._blocks(numbers)
        return super().every(numbers) if blocks is None else (block.run.example for block in blocks)

    def _blocks(self, numbers: np.ndarray) -> list[_Block] | None:
        """Return the blocks of consecutive examples; None of others."""
        key = kept_as(numbers)
        if key not in self.kept:
            where = span(numbers)
            if where is None:
                return None
            self.kept[key] = [self._block(*each) for each in _cuts(self.task.labelled, where[0], where[1] + 1)]
        return self.kept[key]

    def _block(self, first: int, last: int) -> _Block:
        unary = self.task.layout.unary[0]
        count, example = unary.n_outputs, together(self.task.examples, first, last)
        ptr, labels = np.append(0, np.cumsum(self.task.labelled[first:last])), _labels(example)
        ptr.flags.writeable = False
        rows = _prepared(unary, example)
        assert rows is not None
        later = np.ones(len(labels), dtype=bool)
        later[ptr[:-1]] = False
        at = np.flatnonzero(later)
        seen = np.bincount(labels[at - 1] * count + labels[at], minlength=count * count).astype(np.float64)
        chains = _Chains(ptr, int(self.task.labelled[first:last].max()), labels)
        known = Run(example, tuple(range(first, last))), chains, seen.reshape(count, count)
        if example.forbidden is not None:
            position, label = np.divmod(example.forbidden.unary, count)
            table = example.forbidden.table.reshape(count, count)
            return _Block(*known, rows, position * padded(count) + label, table)
        if isinstance(rows, LinearRows) and rows.n_entries <= _FEW:
            return _LinearBlock(*known, rows.in_one_piece())
        return _Block(*known, rows)


def _cuts(lengths: np.ndarray, first: int, last: int) -> list[tuple[int, int]]:
    """Cut chains first .. last - 1 into runs of about equal length."""
    ends = np.cumsum(lengths[first:last])
    parts = max(1, round(int(ends[-1]) / _POSITIONS))
    at = np.flatnonzero(np.diff((ends - 1) * parts // int(ends[-1]))) + first + 1
    edges = [first, *at.tolist(), last]
    return list(itertools.pairwise(edges))


def _prepared(block: Block, example: Example, count: int | None = None) -> PreparedRows | None:
    """Return the rows of an example, or the first ones; None where the energy prepares none."""
    rows = example.unary[0]
    assert rows is not None
    features = rows.features[:count]
    found: PreparedRows | None = block.energy.prepared(features, block.n_outputs, block.intercept, padded(block.n_outputs))
    return found


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
