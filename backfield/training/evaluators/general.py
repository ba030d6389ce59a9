"""What an evaluator is, w -> the sum of values and gradients over a chunk of the examples of a task; and the two that are.

A chunk is few calls: its examples are merged into runs (``training.merging``) where the objective is ``separable``. An
evaluator is sent to the workers of a cluster with its task, without the examples that are in memory here.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar, NamedTuple

import numpy as np

from backfield.data.sequences import Joined
from backfield.errors import InputError
from backfield.gradients import Truncated
from backfield.graph import Graph, Potentials, Tied
from backfield.losses.base import unary_entries
from backfield.objectives import Objective, Seen, Setting, evaluate
from backfield.objectives.base import argmax_labels, pieces
from backfield.registry import get
from backfield.training.examples import Example
from backfield.training.merging import CHAINS, IMAGES, Run, Runs, alone, work
from backfield.training.weights import WeightLayout

#: Of complex differentiation: so small that its square is nothing.
_STEP = 1e-100


class Sum(NamedTuple):
    """Value and gradient over some examples, and what was seen on the way."""

    value: float
    gradient: np.ndarray
    wrong: float  # wrong labels; nan where nothing is decoded
    sweeps: int
    truncated: int = 0  # couplings that cuts truncated


@dataclass(frozen=True, eq=False)
class Task:
    """What is evaluated: an objective of theta(w), over examples."""

    examples: Sequence[Example]
    layout: WeightLayout
    objective: Objective
    setting: Setting
    dtype: np.dtype
    labelled: np.ndarray  # (n_examples,) variables of each example about which something is known
    #: Every graph is a path 0 - 1 - ... - n-1, whose edges have one table.
    chains: bool = False
    #: False: the same examples without factors, the model from which all papers start.
    coupled: bool = True

    @property
    def n_weights(self) -> int:
        """Number of parameters."""
        return self.layout.n_weights

    @property
    def in_memory(self) -> bool:
        """Whether the examples are in memory here; others are asked for one at a time."""
        return isinstance(self.examples, list | Joined)

    @cached_property
    def n_bytes(self) -> int:
        """Bytes of the largest arrays that an evaluation makes and frees: a gradient, or the tables of an example."""
        widest = max((block.n_outputs for block in self.layout.blocks), default=1)
        return max(8 * self.n_weights, int(self.labelled.max(initial=0)) * widest * self.dtype.itemsize)

    @cached_property
    def ties_binary_chains(self) -> bool:
        """Whether the objective runs on one table for all edges of a chain; else a table each is cheaper for two labels."""
        group = Tied(np.array([[[0.0, 1.0], [2.0, 4.0]]]), None, True, 1, 1)
        return self.objective.supports(Potentials.from_groups(Graph([2, 2], [(0, 1)]), np.zeros(4), [group]), self.setting)

    def size(self, labelled: np.ndarray) -> int:
        """Return what sums over examples are divided by: labelled variables, or examples where each has one number."""
        return max(1, int((labelled > 0).sum() if self.objective.per_example else labelled.sum()))


@dataclass(frozen=True, eq=False)
class Evaluator:
    """Computes the sum of values and gradients over a chunk, run by run."""

    task: Task
    runs: Runs = field(default_factory=Runs)

    #: What a task must declare: whether factors are part of the model.
    coupled: ClassVar[bool] = True

    @classmethod
    def of(cls, task: Task) -> Evaluator:
        """Return the evaluator of a task, which merges examples where that gives the same numbers."""
        whole = any(block.energy.whole for block in task.layout.blocks)
        if len(task.labelled) < 2 or whole:
            return cls(task)
        largest = task.examples[int(np.argmax(task.labelled))]  # one look: others may be in files
        if not cls.separable(task, largest):
            return cls(task)
        size = task.labelled.mean() * work(largest.graph) / largest.graph.n_variables
        fold = cls.coupled and task.objective.weighted
        method = task.setting.inference
        images = 2 if method is None or method.stacks_images else IMAGES
        share = CHAINS if task.chains else 1.0
        return cls(task, Runs(task.objective, size, fold, task.chains or not cls.coupled, task.in_memory, images, share))

    @classmethod
    def separable(cls, task: Task, example: Example) -> bool:
        """Whether the value of several examples, such as this, as one is the sum of theirs."""
        raise NotImplementedError

    def evaluate(self, run: Run, w: np.ndarray, seed: int) -> Sum:
        """Return value and gradient of a run, without the weight of its example."""
        raise NotImplementedError

    def chunk(self, numbers: np.ndarray, w: np.ndarray, seed: int) -> Sum:
        """Return the weighted sum over the labelled ones of some examples."""
        value, wrong, sweeps, truncated = 0.0, 0.0, 0, 0
        gradient = np.zeros(self.task.n_weights)
        for run in self.labelled(numbers):
            part, weight = self._careful(run, w, seed), run.example.weight
            value += weight * part.value
            gradient += part.gradient if weight == 1.0 else weight * part.gradient
            wrong += part.wrong
            sweeps += part.sweeps * len(run.numbers)
            truncated += part.truncated
        return Sum(value, gradient, wrong, sweeps, truncated)

    def chunks(self, parts: Sequence[np.ndarray], w: np.ndarray, seed: int) -> Iterator[Sum]:
        """Yield the weighted sums over several chunks."""
        return (self.chunk(numbers, w, seed) for numbers in parts)

    def labelled(self, numbers: np.ndarray) -> Iterable[Run]:
        """Return the runs of the labelled ones of some examples."""
        return self.runs.of(self.task.examples, numbers, self.task.labelled)

    def every(self, numbers: np.ndarray) -> Iterable[Example]:
        """Return some examples, the labelled ones as runs: for sums over rows, which need no labels."""
        rest = alone(self.task.examples, numbers[self.task.labelled[numbers] == 0])
        return (run.example for run in itertools.chain(self.labelled(numbers), rest))

    def _careful(self, run: Run, w: np.ndarray, seed: int) -> Sum:
        """Evaluate a run; where it is refused, one by one: errors name the variables of an example."""
        try:
            return self.evaluate(run, w, seed)
        except InputError:
            if len(run.numbers) > 1:
                for each in alone(self.task.examples, np.array(run.numbers)):
                    self.evaluate(each, w, seed)
            raise

    def n_chunks(self, planned: int, count: int) -> int:
        """Return into how many chunks ``count`` examples are cut."""
        # Every chunk has its own gradient; with very many weights, writing those would cost more than the examples.
        return self.runs.n_chunks(planned if self.task.n_weights < 2**16 else max(1, planned // 8), count)

    def shell(self) -> Evaluator:
        """Return the evaluator without examples that are in memory here, to be sent to workers."""
        return self._over([]) if self.task.in_memory else self

    def with_blocks(self, blocks: dict[int, tuple[int, list[Example]]]) -> Evaluator:
        """Return the evaluator with the examples of some blocks, on a worker."""
        return self._over({first + k: each for first, examples in blocks.values() for k, each in enumerate(examples)})

    def _over(self, examples: Any) -> Evaluator:
        return dataclasses.replace(self, task=dataclasses.replace(self.task, examples=examples))

    @staticmethod
    def add(a: Sum, b: Sum) -> Sum:
        """Return the sum of two sums, in the place of the first."""
        np.add(a.gradient, b.gradient, out=a.gradient)
        return Sum(a.value + b.value, a.gradient, a.wrong + b.wrong, a.sweeps + b.sweeps, a.truncated + b.truncated)


@dataclass(frozen=True, eq=False)
class General(Evaluator):
    """theta(w), the objective, and its gradient back to w."""

    @classmethod
    def separable(cls, task: Task, example: Example) -> bool:
        """Whether the objective says so."""
        theta = task.layout.theta(task.layout.start(), example, task.dtype)
        return not theta.kernels and task.objective.separable(theta, task.setting)

    def evaluate(self, run: Run, w: np.ndarray, seed: int) -> Sum:
        """Return value and gradient of a run."""
        task, example = self.task, run.example
        assert example.target is not None
        watch: list[Seen] = []
        with np.errstate(over="ignore", invalid="ignore"):  # learners that went astray say so themselves
            tie = example.graph.lattice is not None or task.ties_binary_chains
            theta = task.layout.theta(w, example, task.dtype, tie)
            theta.known_finite = theta.is_finite
            if not (theta.known_finite if example.forbidden is None else _is_possible(theta)):
                return Sum(np.inf, np.zeros(task.n_weights), 0.0, 0)
        value, d_theta = evaluate(task.objective, theta, example.target, _setting(task, run, seed, watch))
        wrong, sweeps, truncated = watch[0] if watch else Seen(float("nan"))
        if not task.objective.integrable:
            wrong = float(value)
        return Sum(float(value), task.layout.vjp(example, d_theta, w), wrong, sweeps, truncated)


def _setting(task: Task, run: Run, seed: int, watch: list[Seen]) -> Setting:
    """Return the setting of a run: a seed for each of its examples."""
    seeds = tuple(seed + number for number in run.numbers)
    return task.setting._replace(seed=seeds[0], seeds=seeds if len(seeds) > 1 else None, watch=watch)


def _is_possible(theta: Potentials) -> bool:
    """Whether log-potentials are finite or -inf."""
    vector = theta.vector()
    return not (np.isnan(vector).any() or (vector == np.inf).any())


@dataclass(frozen=True, eq=False)
class Independent(Evaluator):
    """The model without factors: logistic regression on the rows."""

    coupled: ClassVar[bool] = False

    @classmethod
    def separable(cls, task: Task, example: Example) -> bool:
        """Always: it is a sum over rows."""
        return True

    def evaluate(self, run: Run, w: np.ndarray, seed: int) -> Sum:
        """Return value and gradient of a run."""
        example = run.example
        assert example.target is not None
        layout, labels, graph = self.task.layout, example.target.labeling.labels, example.graph
        theta = layout.theta(w, Example(graph, example.unary, [None] * len(layout.factors)), self.task.dtype)
        known, entries = unary_entries(graph, labels)
        count = graph.n_labels  # a grid's own layout is many times its labels, and not needed here
        ptr = graph.layout.var_ptr if count is None else np.arange(0, graph.n_variables * count + 1, count)
        value, d_unary = pieces(theta.unary_flat, ptr, known, entries, np.ones(len(known)))
        wrong = float((argmax_labels(theta)[known] != labels[known]).sum())
        d_theta = Potentials.from_flat(graph, d_unary, theta.factors_flat)
        unary = WeightLayout(layout.unary, [], layout.n_weights)
        return Sum(float(value), unary.vjp(Example(graph, example.unary, []), d_theta, w), wrong, 0)


def second_order(evaluator: Evaluator, numbers: np.ndarray, w: np.ndarray, direction: np.ndarray, seed: int) -> Sum:
    """Return the sum of values; its gradient holds gradient and second derivative along ``direction`` end to end."""
    total = Sum(0.0, np.zeros(2 * evaluator.task.n_weights), 0.0, 0)
    for run in evaluator.labelled(numbers):
        total = evaluator.add(total, _second(evaluator.task, run, w, direction, seed))
    return total


def _second(task: Task, run: Run, w: np.ndarray, direction: np.ndarray, seed: int) -> Sum:
    example = run.example
    assert example.target is not None
    watch: list[Seen] = []
    setting = _setting(task, run, seed, watch)._replace(gradient=Truncated(task.setting.memory))
    if not task.coupled:  # messages that nobody sends
        setting = setting._replace(inference=get("inference", "tree_reweighted(n_iter=0)"))
    theta, change = (task.layout.theta(x, example, np.float64) for x in (w, direction))
    moved = theta.like(theta.vector() + 1j * _STEP * change.vector())
    value, d_theta = evaluate(task.objective, moved, example.target, setting)
    both = d_theta.vector()
    parts = [task.layout.vjp(example, d_theta.like(each), w) for each in (both.real.copy(), both.imag / _STEP)]
    wrong, sweeps, _ = watch[0] if watch else Seen(float("nan"))
    sweeps *= len(run.numbers)
    return Sum(example.weight * float(np.real(value)), example.weight * np.concatenate(parts), wrong, sweeps)
