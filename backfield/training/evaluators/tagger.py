"""Taggers: the likelihood of labelled chains, on rows that a cache holds.

The same numbers as the general evaluator, several times faster: chains are cut into blocks of a few thousand positions,
whose rows are prepared once (``Energy.prepared``). Of a few dense features several chunks are one call of the kernel of
chains, which multiplies features by weights itself; of others, scores, likelihood and gradient are a few calls, on arrays
that are used again. None of them holds the GIL. Blocks in which potentials leave the range that these are safe for go to the
general evaluator.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from backfield.data.sequences import Joined
from backfield.energies.base import PreparedRows
from backfield.energies.linear_rows import LinearRows
from backfield.inference.base import ExactInference
from backfield.inference.exact.tied_chains import Likelihood, chain_likelihood, linear_chain_likelihoods, padded
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
#: Chunks of one call at the most: every block has its own gradient until it is added.
_TOGETHER = 16


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


class _Arrays(NamedTuple):
    """A few dense features of chains end to end, and the chains."""

    rows: LinearRows
    chains: _Chains


class _LinearBlock(NamedTuple):
    """Some chains whose scores the kernel makes, of a few dense features: those from ``first`` to ``last`` - 1 of arrays."""

    run: Run
    seen: np.ndarray
    arrays: _Arrays
    first: int
    last: int


class _Computed(NamedTuple):
    """A block whose likelihood and gradient are known."""

    run: Run
    seen: np.ndarray
    found: Likelihood | None
    d_own: np.ndarray

    def add(self, w: np.ndarray, table: np.ndarray, d_w: np.ndarray, spare: list[np.ndarray]) -> Likelihood | None:
        """Return the likelihood, and add its gradient; None: potentials are too large for it."""
        if self.found is not None:
            d_w += self.d_own.reshape(-1)
        return self.found


def _compute(blocks: Sequence[_LinearBlock], w: np.ndarray, table: np.ndarray) -> Iterator[_Computed]:
    """Yield blocks with their likelihoods; those that lie in the same arrays are one call."""
    for _, some in itertools.groupby(blocks, key=lambda block: id(block.arrays)):
        same = list(some)
        rows, chains = same[0].arrays
        weights = rows.matrix(w)
        d_weights = np.empty((len(same), *weights.shape))
        cuts = np.array([(block.first, block.last) for block in same])
        likelihoods = linear_chain_likelihoods(rows.features, weights, d_weights, cuts, *chains, table)
        for block, found, d_matrix in zip(same, likelihoods, d_weights, strict=True):
            yield _Computed(block.run, block.seen, found, rows.own(d_matrix))


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

    kept: dict[bytes, list[_Block | _LinearBlock]] = field(default_factory=dict)
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
        return {"task": self.task, "runs": self.runs, "kept": {}, "spare": []}

    def chunk(self, numbers: np.ndarray, w: np.ndarray, seed: int) -> Sum:
        """Sum over some chains; batches at random are not worth blocks."""
        blocks = self._blocks(numbers)
        if blocks is None:
            return super().chunk(numbers, w, seed)
        return next(self._sums([blocks], w, seed))

    def chunks(self, parts: Sequence[np.ndarray], w: np.ndarray, seed: int) -> Iterator[Sum]:
        """Yield the sums over several chunks, some in one call."""
        for first in range(0, len(parts), _TOGETHER):
            some = parts[first : first + _TOGETHER]
            blocks = [self._blocks(numbers) for numbers in some]
            if any(each is None for each in blocks):
                yield from super().chunks(some, w, seed)
            else:
                yield from self._sums([each for each in blocks if each is not None], w, seed)

    def _sums(self, chunks: list[list[_Block | _LinearBlock]], w: np.ndarray, seed: int) -> Iterator[Sum]:
        (unary,), (pairs,) = self.task.layout.unary, self.task.layout.factors
        table, own = _tables(pairs, w), w[unary.start : unary.stop]
        assert table is not None
        table = table.reshape(unary.n_outputs, -1)
        computed = _compute([each for each in itertools.chain(*chunks) if isinstance(each, _LinearBlock)], own, table)
        for blocks in chunks:
            value, wrong, gradient = 0.0, 0.0, np.zeros(self.task.n_weights)
            for each in blocks:
                block = next(computed) if isinstance(each, _LinearBlock) else each
                found: Likelihood | Sum | None = block.add(own, table, gradient[unary.start : unary.stop], self.spare)
                if isinstance(found, Likelihood):
                    gradient[pairs.start : pairs.stop] += pairs.energy.tables_vjp(found.pairs - block.seen)
                else:
                    found = self._careful(block.run, w, seed)
                    gradient += found.gradient
                value, wrong = value + found.value, wrong + found.wrong
            yield Sum(value, gradient, wrong, 0)

    def every(self, numbers: np.ndarray) -> Any:
        """Return some examples, as blocks."""
        blocks = self._blocks(numbers)
        return super().every(numbers) if blocks is None else (block.run.example for block in blocks)

    def _blocks(self, numbers: np.ndarray) -> list[_Block | _LinearBlock] | None:
        """Return the blocks of consecutive examples; None of others."""
        key = kept_as(numbers)
        if key not in self.kept:
            where = span(numbers)
            if where is None:
                return None
            self.kept[key] = [self._block(*each) for each in _cuts(self.task.labelled, where[0], where[1] + 1)]
        return self.kept[key]

    def _block(self, first: int, last: int) -> _Block | _LinearBlock:
        unary = self.task.layout.unary[0]
        count, example = unary.n_outputs, together(self.task.examples, first, last)
        ptr, labels = _starts(self.task.labelled[first:last]), _labels(example)
        rows = _prepared(unary, example)
        assert rows is not None
        later = np.ones(len(labels), dtype=bool)
        later[ptr[:-1]] = False
        at = np.flatnonzero(later)
        seen = np.bincount(labels[at - 1] * count + labels[at], minlength=count * count).astype(np.float64)
        seen, run = seen.reshape(count, count), Run(example, tuple(range(first, last)))
        chains = _Chains(ptr, int(self.task.labelled[first:last].max()), labels)
        if example.forbidden is not None:
            position, label = np.divmod(example.forbidden.unary, count)
            table = example.forbidden.table.reshape(count, count)
            return _Block(run, chains, seen, rows, position * padded(count) + label, table)
        if not (isinstance(rows, LinearRows) and rows.n_entries <= _FEW):
            return _Block(run, chains, seen, rows)
        if isinstance(self.task.examples, Joined):
            return _LinearBlock(run, seen, self._whole, first, last)
        return _LinearBlock(run, seen, _Arrays(rows.in_one_piece(), chains), 0, last - first)

    @cached_property
    def _whole(self) -> _Arrays:
        """All chains, of examples that lie end to end."""
        assert isinstance(self.task.examples, Joined)
        example, lengths = self.task.examples.whole, self.task.labelled
        rows = _prepared(self.task.layout.unary[0], example)
        assert isinstance(rows, LinearRows)
        return _Arrays(rows.in_one_piece(), _Chains(_starts(lengths), int(lengths.max()), _labels(example)))


def _starts(lengths: np.ndarray) -> np.ndarray:
    """Return where chains start, and where the last one ends."""
    ptr = np.append(0, np.cumsum(lengths))
    ptr.flags.writeable = False
    return ptr


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
