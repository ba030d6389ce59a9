"""What keeps a dense field from being worse than its unary terms: both are compared on examples it has not learned from.

Four fifths of the examples are learned from first, and the rest compared; then all are learned from, from where this
ended, with the bandwidths that were found. With fewer than five examples, or where some are given as ``validation``, all are
learned from at once. Where the field has more errors, on the examples held out or at the end on all, it is left with the
weights of its unary terms alone, and kernels that couple nothing. ``guard=False`` compares nothing.

Mean field is too sure of itself, so a loss of probabilities keeps kernels weaker than labels alone would have them.
``guard="labels"`` tries stronger ones, too, and keeps the strength with the fewest errors on the examples held out.

The lattice jumps a little where a point changes its simplex, and a line search may end there. So bandwidths are learned
between two fits in which they stay where they are.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from backfield.inference.conditioned import beliefs_given
from backfield.training.evaluators import Task
from backfield.training.problem import Problem
from backfield.training.weights import WeightLayout

#: Of so many examples one is held out.
_FOLD = 5
#: How strongly kernels may enter, beside not at all, by the parameter ``guard``.
STRENGTHS: dict[str | bool, tuple[float, ...]] = {
    "labels": (1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 16.0),
    "auto": (1.0,),
    True: (1.0,),
    False: (),
}


@dataclass
class Guard:
    """Compares the errors of a field with those of its unary terms alone, whose weights are ``alone``."""

    problem: Problem
    layout: WeightLayout
    alone: np.ndarray
    validation: Problem | None = None
    strengths: tuple[float, ...] = (1.0,)
    strength: float = field(default=1.0, init=False)
    errors: tuple[float, float] | None = field(default=None, init=False)

    def learn(self, learner: Any, w: np.ndarray, seed: int) -> np.ndarray:
        """Learn from some of the examples, compare on the others, and return where to go on from."""
        task = self.problem.task
        held = np.flatnonzero(task.labelled)[_FOLD - 1 :: _FOLD]
        if learner.own_start:
            return w
        part = self.problem
        if self.strengths and self.validation is None and len(held):
            rest = np.setdiff1d(np.arange(len(task.labelled)), held)
            part = self.problem.over([task.examples[k] for k in rest], task.labelled[rest].tolist())
            part.distribute(self.problem.cluster)
        w = learner.fit(part.with_fixed_scales(), w, seed=seed).w
        if self.layout.scale_weights.any():
            w = learner.fit(part, w, seed=seed).w
        if part is not self.problem:
            self.errors = self._strongest(self.problem, held, w)
        return w

    def choose(self, w: np.ndarray) -> tuple[np.ndarray, str]:
        """Return the weights to keep, and what was found."""
        if not self.strengths:
            return w, ""
        seen = {}
        if self.validation is not None:
            seen["validation"] = self._strongest(self.validation, None, w)
        w = self.layout.strengthened(w, self.strength)
        if self.validation is None:
            known = self._known(self.problem, None)
            seen["training"] = (
                self._errors(self.problem, None, w) / known,
                self._errors(self.problem, None, self.alone) / known,
            )
            seen |= {} if self.errors is None else {"held-out": self.errors}
        words = [f"{name} error {100 * a:.2f} % with kernels, {100 * b:.2f} % without" for name, (a, b) in seen.items()]
        found = f"; {'; '.join(words)}" + (f"; kernels {self.strength:g} times as strong" if self.strength != 1 else "")
        worse = any(field > unary for field, unary in seen.values())
        return (self.alone, f"{found}: kernels are off") if worse else (w, found)

    @property
    def numbers(self) -> dict[str, Any]:
        """What the first row of the trace says."""
        return {"held_out": {"kernels": self.strength}} if self.strengths else {}

    def _strongest(self, problem: Problem, numbers: np.ndarray | None, w: np.ndarray) -> tuple[float, float]:
        """Set the strength with the fewest errors; return its share of errors, and that of the unary terms alone."""
        errors = [self._errors(problem, numbers, self.layout.strengthened(w, each)) for each in self.strengths]
        self.strength = self.strengths[int(np.argmin(errors))]
        known = self._known(problem, numbers)
        return min(errors) / known, self._errors(problem, numbers, self.alone) / known

    def _known(self, problem: Problem, numbers: np.ndarray | None) -> int:
        labelled = problem.task.labelled
        return max(1, int(labelled.sum() if numbers is None else labelled[numbers].sum()))

    def _errors(self, problem: Problem, numbers: np.ndarray | None, w: np.ndarray) -> int:
        return sum(problem.collect(count_wrong, numbers, w))


def count_wrong(task: Task, number: int, w: np.ndarray) -> int:
    """Return how many labels of an example are not the likeliest."""
    example, method = task.examples[number], task.setting.inference
    if example.target is None or method is None:
        return 0
    theta = task.layout.theta(w, example, task.dtype)
    theta = theta.with_kernels([kernel for kernel in theta.kernels if kernel.matrix.any()])
    q = beliefs_given(method, theta, example.target.observed).reshape(example.graph.n_variables, -1)
    labels = example.target.labeling.labels
    return int(((labels >= 0) & (q.argmax(axis=1) != labels)).sum())
