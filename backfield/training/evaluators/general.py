"""Example by example: any graph, any objective, any inference; and the model without factors."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from backfield.gradients import Truncated
from backfield.graph import Potentials
from backfield.losses.base import unary_entries
from backfield.objectives import Seen, evaluate
from backfield.objectives.base import argmax_labels
from backfield.objectives.piecewise import pieces
from backfield.training.evaluators.base import Evaluator, Sum, Task
from backfield.training.examples import Example
from backfield.training.weights import WeightLayout

#: Of complex differentiation: so small that its square is nothing.
_STEP = 1e-100


@dataclass(frozen=True, eq=False)
class General(Evaluator):
    """theta(w), the objective, and its gradient back to w, one example after the other."""

    @classmethod
    def applies(cls, task: Task) -> bool:
        """Everything."""
        return True

    def chunk(self, numbers: np.ndarray, w: np.ndarray, seed: int) -> Sum:
        """Sum over some examples, in order."""
        return _over_examples(self.task, numbers, lambda example, number: self._evaluate(w, example, seed + number))

    def _evaluate(self, w: np.ndarray, example: Example, seed: int, seeds: tuple[int, ...] | None = None) -> Sum:
        task = self.task
        assert example.target is not None
        watch: list[Seen] = []
        with np.errstate(over="ignore", invalid="ignore"):  # learners that went astray say so themselves
            theta = task.layout.theta(w, example, task.dtype)
            if not (theta.is_finite if example.forbidden is None else _is_possible(theta)):
                return Sum(np.inf, np.zeros(task.n_weights), 0.0, 0)
        setting = task.setting._replace(seed=seed, seeds=seeds, watch=watch)
        value, d_theta = evaluate(task.objective, theta, example.target, setting)
        wrong, sweeps, truncated = watch[0] if watch else Seen(float("nan"))
        if not task.objective.integrable:
            wrong = float(value)
        return Sum(float(value), task.layout.vjp(example, d_theta, w), wrong, sweeps, truncated)


def _is_possible(theta: Potentials) -> bool:
    """Whether log-potentials are finite or -inf."""
    vector = theta.vector()
    return not (np.isnan(vector).any() or (vector == np.inf).any())


@dataclass(frozen=True, eq=False)
class Independent(Evaluator):
    """The model without factors: logistic regression on the rows."""

    @classmethod
    def applies(cls, task: Task) -> bool:
        """Where factors are left out."""
        return not task.coupled

    def chunk(self, numbers: np.ndarray, w: np.ndarray, seed: int) -> Sum:
        """Sum over some examples, in order."""
        return _over_examples(self.task, numbers, lambda example, number: self._evaluate(w, example))

    def _evaluate(self, w: np.ndarray, example: Example) -> Sum:
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


def _over_examples(task: Task, numbers: np.ndarray, evaluate: Callable[[Example, int], Sum]) -> Sum:
    """Return the weighted sum over the labelled ones of some examples, in order."""
    value, wrong, sweeps, truncated = 0.0, 0.0, 0, 0
    gradient = np.zeros(task.n_weights)
    for number in numbers:
        if task.labelled[number] == 0:
            continue
        example = task.examples[number]
        part = evaluate(example, int(number))
        value += example.weight * part.value
        gradient += example.weight * part.gradient
        wrong += part.wrong
        sweeps += part.sweeps
        truncated += part.truncated
    return Sum(value, gradient, wrong, sweeps, truncated)


def second_order(evaluator: Evaluator, numbers: np.ndarray, w: np.ndarray, direction: np.ndarray, seed: int) -> Sum:
    """Return the sum of values; its gradient holds gradient and second derivative along ``direction`` end to end."""
    task = evaluator.task
    total = Sum(0.0, np.zeros(2 * task.n_weights), 0.0, 0)
    for number in numbers:
        if task.labelled[number]:
            total = evaluator.add(total, _second(task, task.examples[number], w, direction, seed + int(number)))
    return total


def _second(task: Task, example: Example, w: np.ndarray, direction: np.ndarray, seed: int) -> Sum:
    assert example.target is not None
    watch: list[Seen] = []
    setting = task.setting._replace(seed=seed, watch=watch, gradient=Truncated(task.setting.memory))
    theta, change = (task.layout.theta(x, example, np.float64) for x in (w, direction))
    moved = theta.like(theta.vector() + 1j * _STEP * change.vector())
    value, d_theta = evaluate(task.objective, moved, example.target, setting)
    both = d_theta.vector()
    parts = [task.layout.vjp(example, d_theta.like(each), w) for each in (both.real.copy(), both.imag / _STEP)]
    wrong, sweeps, _ = watch[0] if watch else Seen(float("nan"))
    return Sum(example.weight * float(np.real(value)), example.weight * np.concatenate(parts), wrong, sweeps)
