"""The spine: w -> (value, gradient) as a sum over chunks of examples, plus the penalty.

    value(w) = sum_examples weight · objective(theta(w), labels) / (number of labelled variables) + l2 |w|^2

(for losses that are one number per example, such as f_measure: / the number of examples),
where l2 may be one number for the weights of variables and another for those of factors.

A :class:`Problem` *has* an evaluator, which computes the sum over a chunk, and has the sums of chunks added by threads or by
the workers of a cluster. Learners see it through the protocols of :mod:`backfield.training.protocols`.
"""

from __future__ import annotations

import copy
import dataclasses
import functools
import math
import operator
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from backfield.errors import InputError
from backfield.gradients import Truncated
from backfield.objectives import Objective, Setting
from backfield.training.evaluators import Evaluator, General, Independent, Tagger, Task
from backfield.training.evaluators.general import second_order
from backfield.training.examples import Example
from backfield.training.execution.cluster import Cluster, Shared
from backfield.training.execution.threads import N_CHUNKS, chunk_bounds, keep_freed_memory, sum_over_runs
from backfield.training.fingerprint import example_digests, summary
from backfield.training.margin import Plane, worst_height, worst_plane
from backfield.training.protocols import Evaluation, Gram
from backfield.training.weights import INTERCEPT, Ridge, Spread, WeightLayout, is_auto


def choose(task: Task) -> Evaluator:
    """Return the evaluator of a task."""
    if not task.coupled:
        return Independent.of(task)
    return (Tagger if task.chains and Tagger.applies(task) else General).of(task)


class Problem:
    """An objective over examples, as a function of w.

    ``chains`` and ``coupled`` are declarations about the examples: see :class:`Task`. ``l2`` is as in
    :class:`backfield.GridCRF`; without ``units`` an "auto" ridge is the same for all weights.
    """

    def __init__(
        self,
        examples: Sequence[Example],
        layout: WeightLayout,
        objective: Objective,
        setting: Setting,
        *,
        l2: Any = 0.0,
        units: bool = True,
        dtype: Any = np.float64,
        n_jobs: int = 1,
        labelled: Sequence[int] | None = None,
        n_chunks: int = N_CHUNKS,
        chains: bool = False,
        coupled: bool = True,
    ) -> None:
        counts = [n_labelled(example) for example in examples] if labelled is None else labelled
        task = Task(
            examples, layout, objective, _for_a_thread(setting, n_jobs), np.dtype(dtype), np.array(counts, dtype=np.int64),
            chains=chains, coupled=coupled,
        )  # fmt: skip
        if task.labelled.sum() == 0:
            raise InputError("there is nothing to learn from: all labels are hidden (-1).")
        self.evaluator = choose(task)
        self._l2, self._units, self._penalty = l2, units, None if is_auto(l2) else Ridge.of(layout, l2)
        self.n_jobs = n_jobs
        self.n_chunks = n_chunks
        self.cluster: Cluster | None = None
        self._shared: Shared | None = None
        self._fingerprint: dict[str, str] | None = None

    @property
    def task(self) -> Task:
        """What is evaluated."""
        return self.evaluator.task

    @property
    def n_weights(self) -> int:
        """Number of parameters."""
        return self.task.n_weights

    @property
    def n_examples(self) -> int:
        """Number of examples."""
        return len(self.task.labelled)

    @property
    def objective_info(self) -> Objective:
        """What is minimised."""
        return self.task.objective

    @property
    def size(self) -> int:
        """What sums over all examples are divided by: their labelled variables, or their number."""
        return self.task.size(self.task.labelled)

    @property
    def penalty(self) -> Ridge:
        """The ridge; what is chosen from the data is chosen when it is first asked for."""
        if self._penalty is None:
            units = self._feature_units() if self._units else None
            self._penalty = Ridge.of(self.task.layout, self._l2, 0.5 / self.size, units)
        return self._penalty

    @penalty.setter
    def penalty(self, penalty: Ridge) -> None:
        self._penalty = penalty

    def _feature_units(self) -> np.ndarray:
        """Return what each weight multiplies, as the standard deviations of features over all examples say."""
        layout = self.task.layout
        spreads = self._fold(_spreads, _add_parts, None)
        units = np.ones(layout.n_weights)
        for number, (block, spread) in enumerate(zip(layout.blocks, spreads, strict=True)):
            constant = INTERCEPT if number < len(layout.unary) else 1.0
            columns = np.ones(block.n_features) if spread is None else spread.units()
            found = block.energy.in_units(columns, constant, block.n_outputs, block.intercept)
            if found is not None:
                units[block.start : block.stop] = found
        return units

    @property
    def l2(self) -> float:
        """The value holds l2 |w|^2 at least."""
        return self.penalty.least

    # ---- what learners ask ----

    def value_and_gradient(self, w: np.ndarray, batch: np.ndarray | None = None, seed: int = 0) -> Evaluation:
        """Return the regularised mean loss per labelled variable, over all examples or a batch, and its gradient."""
        labelled = self.task.labelled if batch is None else self.task.labelled[batch]
        count = self.task.size(labelled)
        total = self._fold(_chunks, self.evaluator.add, batch, w, seed)
        shrunk = self.penalty.r * w
        value = float(total.value / count) + _dot(w, shrunk)
        gradient = total.gradient / count
        gradient += 2 * shrunk
        if not (math.isfinite(value) and np.isfinite(gradient).all()):
            value = math.inf  # a learner takes it for too long a step
        errors = total.wrong if math.isnan(total.wrong) else total.wrong / max(1, int(labelled.sum()))
        return Evaluation(value, gradient, errors, total.sweeps, total.truncated)

    def hessian_vector(
        self, w: np.ndarray, direction: np.ndarray, batch: np.ndarray | None = None, seed: int = 0
    ) -> tuple[Evaluation, np.ndarray]:
        """Return value and gradient, and the second derivative along ``direction``, over all examples or a batch.

        One evaluation at theta(w) + i h theta(direction) in complex arithmetic: exact, see ``api.hessian_vector``.
        """
        info = self.objective_info
        if not (info.smooth and info.integrable):
            raise InputError(f"{info.name} has no second derivative; use a loss on marginals or a likelihood.")
        if not all(block.energy.linear for block in self.task.layout.blocks):
            raise InputError("second derivatives need energies that are linear in the weights.")
        labelled = self.task.labelled if batch is None else self.task.labelled[batch]
        total = self._fold(_second_order, self.evaluator.add, batch, w, direction, seed)
        gradient, product = np.split(total.gradient / self.task.size(labelled), 2)
        shrunk, ridge = self.penalty.r * w, self.penalty.r
        value = total.value / self.task.size(labelled) + _dot(w, shrunk)
        errors = total.wrong / max(1, int(labelled.sum()))
        return Evaluation(value, gradient + 2 * shrunk, errors, total.sweeps), product + 2 * ridge * direction

    def grams(self) -> list[Gram]:
        """Return X'X of each block of weights that has some; None for all where an energy has none, whatever its rows."""
        own = [block for block in self.task.layout.blocks if block.stop > block.start]
        none = any(block.energy.gram(np.empty((0, block.n_features)), block.intercept) is None for block in own)
        matrices = [None] * len(self.task.layout.blocks) if none else self._fold(_grams, _add_parts, None)
        ridge = self.penalty.each()
        return [
            Gram(block.start, block.stop, block.n_outputs, matrix, _ridge_of_rows(ridge[block.start : block.stop], matrix))
            for block, matrix in zip(self.task.layout.blocks, matrices, strict=True)
            if block.stop > block.start
        ]

    def fingerprint(self) -> dict[str, str]:
        """Return a text for each thing that must be the same when a fit is resumed, by name."""
        if self._fingerprint is None:
            self._fingerprint = summary(self.task, self.penalty, self.n_chunks, self.collect(example_digests, None))
        return self._fingerprint

    def planes(self, w: np.ndarray, batch: np.ndarray) -> list[tuple[Plane, bool]]:
        """Return the plane of the worst labeling of each example of a batch, and whether it is the maximum."""
        return self.collect(worst_plane, batch, w)

    def heights(self, w: np.ndarray) -> list[tuple[float, bool]]:
        """Return the values at w of these planes, of all examples."""
        return self.collect(worst_height, None, w)

    def collect(self, function: Callable[..., Any], batch: Any, *arguments: Any) -> list[Any]:
        """Return ``function(task, number, *arguments)`` of all examples or a batch, in order."""
        found: list[Any] = self._fold(_each, operator.add, batch, function, *arguments)
        return found

    # ---- other problems ----

    def over(self, examples: Sequence[Example], labelled: Sequence[int], ridge: float = 1.0) -> Problem:
        """Return the same objective over other examples with so many labelled variables, with l2 times ``ridge``."""
        other = self._with(dataclasses.replace(self.task, examples=examples, labelled=np.array(labelled, dtype=np.int64)))
        other.penalty = self.penalty.times(ridge)
        return other

    def with_fixed_scales(self) -> Problem:
        """Return the same problem, in which the bandwidths of kernels stay where they are: smooth, and cheaper."""
        layout = self.task.layout
        other = self._with(dataclasses.replace(self.task, layout=layout.with_fixed_scales()))
        other.penalty = self.penalty.without(layout.scale_weights)
        return other

    def minimising(self, objective: Objective) -> Problem:
        """Return the problem of another objective over the same examples, through the same inference."""
        setting = self.task.setting
        gradient = setting.gradient if objective.needs_inference and not objective.own_gradient else None
        task = dataclasses.replace(self.task, objective=objective, setting=setting._replace(gradient=gradient))
        objective.check(task.setting)
        other = self._with(task)
        if self._shared is not None:
            other._shared = self._shared.instead(other.evaluator.shell())
        return other

    def with_penalty(self, penalty: Ridge) -> Problem:
        """Return the same problem, on the same runs of examples, with another ridge."""
        other = copy.copy(self)
        other.penalty, other._fingerprint = penalty, None
        return other

    def _with(self, task: Task) -> Problem:
        """Return the problem of another task."""
        other = copy.copy(self)
        other.evaluator, other._shared, other._fingerprint = choose(task), None, None
        return other

    # ---- who computes the sums ----

    def _fold(self, function: Callable[..., Any], add: Callable[..., Any], batch: Any, *arguments: Any) -> Any:
        """Return the tree sum of what ``function(evaluator, numbers of each of some chunks, *arguments)`` yields.

        The sum is over all examples or a batch.
        Threads or workers compute the same bytes; these find both callables by name: they are those of a module.
        """
        n_chunks = self.evaluator.n_chunks(self.n_chunks, self.n_examples if batch is None else len(batch))
        if self.shared is not None:
            return self.shared.fold(function, add, batch, *arguments, n_chunks=n_chunks)
        keep_freed_memory(self.task.n_bytes)
        chosen = np.arange(self.n_examples) if batch is None else np.asarray(batch)

        def evaluate(bounds: list[tuple[int, int]]) -> Any:
            return function(self.evaluator, [chosen[first:last] for first, last in bounds], *arguments)

        return sum_over_runs(evaluate, chunk_bounds(len(chosen), n_chunks), self.n_jobs, add)

    def distribute(self, cluster: Cluster | None) -> None:
        """Let the workers of a cluster compute sums over examples from now on; None: threads here."""
        self.cluster, self._shared = cluster, None

    @property
    def shared(self) -> Shared | None:
        """What the workers hold of the problem; sent to them when it is first asked for."""
        if self.cluster is not None and self._shared is None:
            blocks = None
            if self.task.in_memory:  # every worker gets the examples that it computes
                blocks = [(first, self.task.examples[first:last]) for first, last in chunk_bounds(self.n_examples)]
            self._shared = self.cluster.share(self.evaluator.shell(), np.maximum(self.task.labelled, 1), blocks)
        return self._shared


def _dot(a: np.ndarray, b: np.ndarray) -> float:
    """Return a·b without the threads of BLAS: waiting for them costs more than a sum over weights."""
    return float(np.einsum("i,i", a, b))


def _for_a_thread(setting: Setting, n_jobs: int) -> Setting:
    """Return the setting of one thread: the memory budget is one of the process, and every thread gets its share."""
    given = setting.gradient
    whole = given.memory if isinstance(given, Truncated) else setting.memory
    share = max(1, whole // max(1, n_jobs))
    return setting._replace(gradient=Truncated(share) if isinstance(given, Truncated) else given, memory=share)


def n_labelled(example: Example) -> int:
    """Return the number of variables of an example about which something is known."""
    return 0 if example.target is None else example.target.n_labelled(example.graph)


def _chunks(evaluator: Evaluator, parts: Sequence[np.ndarray], w: np.ndarray, seed: int) -> Iterator[Any]:
    return evaluator.chunks(parts, w, seed)


def _one_by_one(function: Callable[..., Any]) -> Callable[..., Iterator[Any]]:
    """Return a function of a chunk as one of several."""

    @functools.wraps(function)
    def each(evaluator: Evaluator, parts: Sequence[np.ndarray], *arguments: Any) -> Iterator[Any]:
        return (function(evaluator, numbers, *arguments) for numbers in parts)

    return each


@_one_by_one
def _second_order(evaluator: Evaluator, numbers: np.ndarray, *arguments: Any) -> Any:
    return second_order(evaluator, numbers, *arguments)


@_one_by_one
def _each(evaluator: Evaluator, numbers: np.ndarray, function: Callable[..., Any], *arguments: Any) -> list[Any]:
    return [function(evaluator.task, int(number), *arguments) for number in numbers]


@_one_by_one
def _grams(evaluator: Evaluator, numbers: np.ndarray) -> list[np.ndarray | None]:
    """Return X'X of each block over some examples."""
    blocks = evaluator.task.layout.blocks
    total: list[np.ndarray | None] = [None] * len(blocks)
    for example in evaluator.every(numbers):
        rows = zip(blocks, [*example.unary, *example.factors, *example.kernels], strict=True)
        total = _add_parts(total, [part and block.energy.gram(part.features, block.intercept) for block, part in rows])
    return total


def _add_parts(a: list[Any], b: list[Any]) -> list[Any]:
    """Return the sums of each block."""
    with np.errstate(over="ignore", invalid="ignore"):  # of infinite ones: who uses them looks whether they are finite
        return [y if x is None else x if y is None else x + y for x, y in zip(a, b, strict=True)]


@_one_by_one
def _spreads(evaluator: Evaluator, numbers: np.ndarray) -> list[Spread | None]:
    """Return the spread of the features of each block over some examples, where weights are measured by it."""
    blocks = evaluator.task.layout.blocks
    total: list[Spread | None] = [None] * len(blocks)
    asked = [block.energy.in_units(np.ones(block.n_features), 1.0, block.n_outputs, block.intercept) for block in blocks]
    for example in evaluator.every(numbers):
        rows = zip(asked, [*example.unary, *example.factors, *example.kernels], strict=True)
        found = [
            None if units is None or part is None or 0 in part.features.shape else Spread.of(part.features)
            for units, part in rows
        ]
        total = _add_parts(total, found)
    return total


def _ridge_of_rows(ridge: np.ndarray, matrix: np.ndarray | None) -> Any:
    """Return the ridge of each feature, one number where it is the same for all."""
    if matrix is None or (ridge == ridge[0]).all():
        return float(ridge[0])
    return ridge.reshape(len(matrix), -1)[:, 0]
