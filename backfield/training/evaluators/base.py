"""What an evaluator is: w -> the sum of values and gradients over a chunk of the examples of a task.

An evaluator declares by ``applies(task)`` where it computes what :class:`~backfield.training.evaluators.general.General`
does. It is sent to the workers of a cluster with its task, without the examples that are in memory here.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from backfield.objectives import Objective, Setting
from backfield.training.examples import Example
from backfield.training.weights import WeightLayout


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
        return isinstance(self.examples, list)

    @cached_property
    def n_bytes(self) -> int:
        """Bytes of the largest arrays that an evaluation makes and frees: a gradient, or the tables of an example."""
        widest = max((block.n_outputs for block in self.layout.blocks), default=1)
        return max(8 * self.n_weights, int(self.labelled.max(initial=0)) * widest * self.dtype.itemsize)

    def size(self, labelled: np.ndarray) -> int:
        """Return what sums over examples are divided by: labelled variables, or examples where each has one number."""
        return max(1, int((labelled > 0).sum() if self.objective.per_example else labelled.sum()))


@dataclass(frozen=True, eq=False)
class Evaluator:
    """Computes the sum of values and gradients over a chunk."""

    task: Task

    @classmethod
    def applies(cls, task: Task) -> bool:
        """Whether the evaluator computes the objective of the task."""
        raise NotImplementedError

    def chunk(self, numbers: np.ndarray, w: np.ndarray, seed: int) -> Sum:
        """Return the sum over some examples, in order."""
        raise NotImplementedError

    def n_chunks(self, planned: int, count: int) -> int:
        """Return into how many chunks ``count`` examples are cut."""
        # Every chunk has a gradient of its own; with very many weights, writing those would cost more than the examples.
        return planned if self.task.n_weights < 2**16 else max(1, planned // 8)

    def shell(self) -> Evaluator:
        """Return the evaluator without examples that are in memory here, to be sent to workers."""
        return self._over([]) if self.task.in_memory else self

    def with_blocks(self, blocks: dict[int, tuple[int, list[Example]]]) -> Evaluator:
        """Return the evaluator with the examples of some blocks, on a worker."""
        return self._over({first + k: each for first, some in blocks.values() for k, each in enumerate(some)})

    def _over(self, examples: Any) -> Evaluator:
        return dataclasses.replace(self, task=dataclasses.replace(self.task, examples=examples))

    @staticmethod
    def add(a: Sum, b: Sum) -> Sum:
        """Return the sum of two sums, in the place of the first."""
        np.add(a.gradient, b.gradient, out=a.gradient)
        return Sum(a.value + b.value, a.gradient, a.wrong + b.wrong, a.sweeps + b.sweeps, a.truncated + b.truncated)
