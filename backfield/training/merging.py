"""Several examples as one: a disconnected graph, the rows of each block one after the other, one target.

What an objective that is ``separable`` computes of it is the sum over the examples, to rounding. Examples are merged that
have one :func:`form`; the others stay alone, as do those for which a call is no cost and a few binary images. What an
evaluator computes in one call is a :class:`Run`. It is of bounded size: it stays in the cache, and its tape is small. Runs
are kept, up to :data:`KEPT` bytes of features.
"""

from __future__ import annotations

import itertools
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from backfield.constraints import is_sparse
from backfield.data.sequences import Joined
from backfield.graph import Graph
from backfield.graph.conditioning import Evidence
from backfield.graph.labeling import Labeling
from backfield.graph.stacking import form as graph_form
from backfield.graph.stacking import stack
from backfield.objectives import Objective, Target
from backfield.objectives.base import is_complete
from backfield.structures.constraints import Forbidden
from backfield.training.examples import Example, Rows

#: Work (see :func:`work`) of a run, at the most.
MOST = 2**17
#: Work for which a call of its own is no cost.
ENOUGH = 2**14
#: Bytes of features for which a call is no cost, either: merging would copy them, and hold several in memory.
LARGE = 2**22
#: Work that is worth a chunk: threads rarely meet in the interpreter. Where there is less than enough for a few, down to
#: :data:`LEAST`.
CHUNK, FEW, LEAST = 2**17, 8, 2**13
#: Binary images of a run, at the least, where a stack has other kernels than one image, which prediction needs: compiling or
#: loading both takes longer than so many calls.
IMAGES = 16
#: What the numbers of chains count: all edges have one table, and two passes do.
CHAINS = 1 / 16
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

    def done(self, fold: bool, images: int) -> list[Run]:
        graph = self.examples[0].graph
        least = images if graph.image_shape is not None and graph.n_labels == 2 else 2
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
    images : int
        Binary images of a run, at the least.
    share : float
        What the numbers of an example count.
    """

    objective: Objective | None = None
    size: float = np.inf
    fold: bool = False
    batches: bool = False
    keep: bool = True
    images: int = IMAGES
    share: float = 1.0
    kept: dict[bytes, list[Run]] = field(default_factory=dict)
    n_bytes: int = 0

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "kept": {}, "n_bytes": 0}

    @property
    def merge(self) -> bool:
        """Whether examples are merged."""
        return self.objective is not None

    def of(self, examples: Sequence[Example], numbers: np.ndarray, labelled: np.ndarray) -> Iterable[Run]:
        """Return the runs of those of some examples that have labels."""
        key = kept_as(numbers)
        if key in self.kept:
            return self.kept[key]
        chosen = numbers[labelled[numbers] > 0]
        if not self.merge or len(chosen) < 2:
            return alone(examples, chosen)
        if span(numbers) is None:
            return self._merge(examples, chosen) if self.batches else alone(examples, chosen)
        if not self.keep:
            return self._merge(examples, chosen)
        runs = list(self._merge(examples, chosen))
        size = sum(_n_bytes(run.example) for run in runs if len(run.numbers) > 1)
        if self.n_bytes + size <= KEPT:
            self.n_bytes += size
            self.kept[key] = runs
        return runs

    def _merge(self, examples: Sequence[Example], numbers: np.ndarray) -> Iterator[Run]:
        """Yield runs as they are complete: of examples that are read when asked for, few are in memory."""
        assert self.objective is not None
        growing: dict[Any, _Growing] = {}
        for number in numbers.tolist():
            example = examples[number]
            kind, size = form(example, self.objective, self.fold), int(self.share * work(example.graph))
            if kind is None or size > ENOUGH or _n_bytes(example) > LARGE:
                yield Run(example, (number,))
                continue
            run = growing.setdefault(kind, _Growing())
            if run.size + size > MOST:
                yield from run.done(self.fold, self.images)
                run = growing[kind] = _Growing()
            run.add(number, example, size)
        for run in growing.values():
            yield from run.done(self.fold, self.images)

    def n_chunks(self, planned: int, count: int) -> int:
        """Return into how many chunks ``count`` examples are cut: none of less than is worth a call."""
        if not self.merge:
            return planned
        total = int(self.share * self.size * count)
        return max(1, min(planned, max(total // CHUNK, min(FEW, total // LEAST))))


def kept_as(numbers: np.ndarray) -> bytes:
    """Return a key of some examples; cheaper than looking whether they follow each other, at every evaluation."""
    return numbers.astype(np.int64, copy=False).tobytes()


def span(numbers: np.ndarray) -> tuple[int, int] | None:
    """Return the first and the last of consecutive numbers; None of others."""
    if len(numbers) == 0 or numbers[-1] - numbers[0] + 1 != len(numbers) or (numbers[1:] - numbers[:-1] != 1).any():
        return None
    return int(numbers[0]), int(numbers[-1])


def alone(examples: Sequence[Example], numbers: np.ndarray) -> Iterator[Run]:
    """Yield each example as a run."""
    return (Run(examples[number], (number,)) for number in numbers.tolist())


def _n_bytes(example: Example) -> int:
    rows = [rows.features for rows in (*example.unary, *example.factors) if rows is not None]
    return sum(each.data.nbytes + each.indices.nbytes if is_sparse(each) else each.nbytes for each in rows)


def form(example: Example, objective: Objective, fold: bool) -> Hashable | None:
    """Return what examples must share to be merged under an objective; None: the example stays alone.

    With ``fold`` the weight of an example becomes one of its variables, so that examples of any weights are merged.
    """
    target, graph = example.target, graph_form(example.graph)
    if target is None or graph is None or example.kernels or not objective.merges(target):
        return None
    labeling = target.labeling
    weight = None if fold else example.weight
    per_label = target.weights is not None and len(target.weights) > example.graph.n_variables
    rules = None if example.forbidden is None else example.forbidden.table.tobytes()
    kind = is_complete(target), target.observed is None, labeling.soft is None, per_label
    return graph, weight, rules, kind


def work(graph: Graph) -> int:
    """Return a measure of the work with a graph: how many numbers its potentials have; binary grids are done faster."""
    if graph.n_labels is not None and (graph.arity is not None or graph.n_factors == 0):
        numbers = graph.n_variables * graph.n_labels + graph.n_factors * int(graph.n_labels ** (graph.arity or 2))
        return numbers // 8 if graph.is_lattice and graph.n_labels == 2 else numbers
    return int(graph.layout.var_ptr[-1] + graph.layout.table_ptr[-1])


def together(examples: Sequence[Example], first: int, last: int) -> Example:
    """Return examples first .. last - 1, of one form and weight, as one."""
    if isinstance(examples, Joined):
        return examples.together(first, last)  # type: ignore[no-any-return]
    return merged([examples[number] for number in range(first, last)], fold=False)


def merged(examples: Sequence[Example], fold: bool) -> Example:
    """Return examples of one form as one; see :func:`form`."""
    graph = stack([example.graph for example in examples])
    unary = _blocks([example.unary for example in examples], _variable_moves(examples))
    factors = _blocks([example.factors for example in examples], _factor_moves(examples))
    weight = 1.0 if fold else examples[0].weight
    return Example(graph, unary, factors, _target(graph, examples, fold), weight, _forbidden(examples))


def _target(graph: Graph, examples: Sequence[Example], fold: bool) -> Target:
    targets = [example.target for example in examples if example.target is not None]
    labelings = [target.labeling for target in targets]
    mask = soft = observed = None
    if any(labeling.mask is not None for labeling in labelings):
        mask = np.concatenate([labeling.allowed for labeling in labelings])
    if labelings[0].soft is not None:
        soft = np.concatenate([labeling.soft for labeling in labelings if labeling.soft is not None])
    if targets[0].observed is not None:
        observed = Evidence(graph, np.concatenate([each.observed.allowed for each in targets if each.observed is not None]))
    labels, has_sets = np.concatenate([each.labels for each in labelings]), any(each.has_sets for each in labelings)
    counts = graph.labels if graph.n_labels is None else graph.n_labels
    return Target(Labeling(labels, mask, has_sets, soft, counts), observed, _weights(examples, fold))


def _weights(examples: Sequence[Example], fold: bool) -> np.ndarray | None:
    """Return the weights of variables (and labels), with those of the examples; None where all are one."""
    own = [
        1.0 if example.target is None or example.target.weights is None else example.target.weights for example in examples
    ]
    whole = [example.weight if fold else 1.0 for example in examples]
    if all(np.ndim(each) == 0 for each in own) and all(weight == 1.0 for weight in whole):
        return None
    sizes = [example.graph.n_variables for example in examples]
    parts = (
        np.broadcast_to(w * each, n if np.ndim(each) == 0 else np.shape(each))
        for w, each, n in zip(whole, own, sizes, strict=True)
    )
    return np.concatenate(list(parts)).astype(np.float64)


def _forbidden(examples: Sequence[Example]) -> Forbidden | None:
    if examples[0].forbidden is None:
        return None
    starts = np.cumsum([0] + [example.graph.n_variables * (example.graph.n_labels or 0) for example in examples])
    parts = [at + example.forbidden.unary for at, example in zip(starts, examples, strict=False) if example.forbidden]
    return Forbidden(np.concatenate(parts), examples[0].forbidden.table)


class _Move(NamedTuple):
    """Numbers start .. stop - 1 of an example become those from start + by on."""

    start: int
    stop: int
    by: int


def _variable_moves(examples: Sequence[Example]) -> list[list[_Move]]:
    sizes = [example.graph.n_variables for example in examples]
    starts = itertools.accumulate(sizes, initial=0)
    return [[_Move(0, size, at)] for size, at in zip(sizes, starts, strict=False)]


def _factor_moves(examples: Sequence[Example]) -> list[list[_Move]]:
    """Return the moves of the factors of each example: group by group."""
    groups = [example.graph.groups for example in examples]
    moves: list[list[_Move]] = [[] for _ in examples]
    at = 0
    for number in range(len(groups[0])):
        for mine, own in zip(moves, groups, strict=True):
            group = own[number]
            mine.append(_Move(group.start, group.stop, at - group.start))
            at += group.n_factors
    return moves


def _blocks(parts: Sequence[list[Rows | None]], moves: Sequence[list[_Move]]) -> list[Rows | None]:
    return [_rows(part, moves) for part in zip(*parts, strict=True)]


def _rows(parts: Sequence[Rows | None], moves: Sequence[list[_Move]]) -> Rows | None:
    """Return the rows of one block of all examples, in the order of their new numbers."""
    given = [(rows, own) for rows, own in zip(parts, moves, strict=True) if rows is not None]
    if not given:
        return None
    features = _stacked([rows.features for rows, _ in given])
    indices = [_moved(rows.index, own) for rows, own in given]
    slices = all(isinstance(index, slice) for index in indices)
    if slices and all(a.stop == b.start for a, b in itertools.pairwise(indices)):
        return Rows(slice(indices[0].start, indices[-1].stop), features)
    index = np.concatenate([np.arange(i.start, i.stop) if isinstance(i, slice) else i for i in indices])
    order = np.argsort(index, kind="stable")
    index, features = index[order], features[order]
    whole = len(index) and index[-1] - index[0] + 1 == len(index)
    return Rows(slice(int(index[0]), int(index[-1]) + 1) if whole else index, features)


def _moved(index: Any, moves: list[_Move]) -> Any:
    """Return the new numbers of rows: a slice where they follow each other."""
    if isinstance(index, slice):
        for move in moves:
            if move.start <= index.start and index.stop <= move.stop:
                return slice(index.start + move.by, index.stop + move.by)
        index = np.arange(index.start, index.stop)
    by = np.repeat([move.by for move in moves], [move.stop - move.start for move in moves])
    return index + by[index]


def _stacked(features: Sequence[Any]) -> Any:
    if is_sparse(features[0]):
        from scipy.sparse import vstack

        return vstack(features, format="csr")
    return np.concatenate(features)
