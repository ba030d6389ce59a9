"""What an evaluator computes in one call: examples of a chunk that are merged (``training.merging``), or one alone.

Examples are merged where the objective says that it is ``separable``: then the numbers are those of one call for each, to
rounding. A run is of bounded size: it stays in the cache, and its tape is small. Examples for which a call is no cost stay
alone, and so do a few binary images. Runs are kept, up to :data:`KEPT` bytes of features.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from backfield.constraints import is_sparse
from backfield.objectives import Objective
from backfield.training.examples import Example
from backfield.training.merging import form, merged, work

#: Work (see ``merging``) of a run, at the most.
MOST = 2**17
#: Work for which a call of its own is no cost.
ENOUGH = 2**14
#: Work that is worth a chunk; where there is less than enough for a few, down to :data:`LEAST`.
CHUNK, FEW, LEAST = 2**16, 8, 2**13
#: Binary images of a run, at the least: a stack has other kernels than one image, which prediction needs, and compiling or
#: loading both takes longer than so many calls.
IMAGES = 16
#: Bytes of merged features.
KEPT = 2**29


class Run(NamedTuple):
    """One example, or several merged into one, and their numbers."""

    example: Example
    numbers: tuple[int, ...]


@dataclass(eq=False)
class _Growing:
    """A run that is not complete."""

    numbers: list[int] = field(default_factory=list)
    examples: list[Example] = field(default_factory=list)
    size: int = 0

    def add(self, number: int, example: Example, size: int) -> None:
        self.numbers.append(number)
        self.examples.append(example)
        self.size += size

    def done(self, fold: bool) -> list[Run]:
        graph = self.examples[0].graph
        least = IMAGES if graph.image_shape is not None and graph.n_labels == 2 else 2
        if len(self.examples) < least:
            return [Run(example, (number,)) for number, example in zip(self.numbers, self.examples, strict=True)]
        return [Run(merged(self.examples, fold), tuple(self.numbers))]


@dataclass(eq=False)
class Runs:
    """Cuts chunks into runs.

    Parameters
    ----------
    objective : Objective, optional
        Under which examples are merged; None: each stays alone.
    size : float
        Mean work of an example.
    fold : bool
        Whether weights of examples become weights of their variables.
    batches : bool
        Whether batches drawn at random are merged, too: where that costs less than it saves.
    keep : bool
        Whether runs are kept: of examples that are in memory.
    """

    objective: Objective | None = None
    size: float = np.inf
    fold: bool = False
    batches: bool = False
    keep: bool = True
    kept: dict[tuple[int, int], list[Run]] = field(default_factory=dict)
    n_bytes: int = 0

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "kept": {}, "n_bytes": 0}

    @property
    def merge(self) -> bool:
        """Whether examples are merged."""
        return self.objective is not None

    def of(self, examples: Sequence[Example], numbers: np.ndarray, labelled: np.ndarray) -> Iterable[Run]:
        """Return the runs of those of some examples that have labels."""
        chosen = numbers[labelled[numbers] > 0]
        if not self.merge or len(chosen) < 2:
            return alone(examples, chosen)
        first, last = int(numbers[0]), int(numbers[-1])
        if last - first + 1 != len(numbers) or (np.diff(numbers) != 1).any():
            return self._merge(examples, chosen) if self.batches else alone(examples, chosen)
        if (first, last) not in self.kept:
            if not self.keep:
                return self._merge(examples, chosen)
            runs = list(self._merge(examples, chosen))
            size = sum(_n_bytes(run.example) for run in runs if len(run.numbers) > 1)
            if self.n_bytes + size > KEPT:
                return runs
            self.n_bytes += size
            self.kept[first, last] = runs
        return self.kept[first, last]

    def _merge(self, examples: Sequence[Example], numbers: np.ndarray) -> Iterator[Run]:
        """Yield runs as they are complete: of examples that are read when asked for, few are in memory."""
        assert self.objective is not None
        growing: dict[Any, _Growing] = {}
        for number in numbers.tolist():
            example = examples[number]
            kind, size = form(example, self.objective, self.fold), work(example.graph)
            if kind is None or size > ENOUGH:
                yield Run(example, (number,))
                continue
            run = growing.setdefault(kind, _Growing())
            if run.size + size > MOST:
                yield from run.done(self.fold)
                run = growing[kind] = _Growing()
            run.add(number, example, size)
        for run in growing.values():
            yield from run.done(self.fold)

    def n_chunks(self, planned: int, count: int) -> int:
        """Return into how many chunks ``count`` examples are cut: none of less than is worth a call."""
        if not self.merge:
            return planned
        total = int(self.size * count)
        return max(1, min(planned, max(total // CHUNK, min(FEW, total // LEAST))))


def alone(examples: Sequence[Example], numbers: np.ndarray) -> Iterator[Run]:
    """Yield each example as a run."""
    return (Run(examples[number], (number,)) for number in numbers.tolist())


def _n_bytes(example: Example) -> int:
    rows = [rows.features for rows in (*example.unary, *example.factors) if rows is not None]
    return sum(each.data.nbytes + each.indices.nbytes if is_sparse(each) else each.nbytes for each in rows)
