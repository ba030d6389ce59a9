"""Chains of a chunk end to end: one example whose edges share one table, and one call of the objective.

The same numbers as the general evaluator, several times faster: no table per edge is written, and scores of a chunk are one
product. Applies to chains in memory and objectives that are sums over variables and support such a tied group.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from backfield.graph.chains import stack, tied_order_two
from backfield.graph.labeling import Labeling
from backfield.kernels.arrays import is_sparse
from backfield.objectives import Target
from backfield.objectives.base import is_complete
from backfield.structures.constraints import Forbidden
from backfield.training.evaluators.general import General, Sum, Task
from backfield.training.examples import Example, Rows


@dataclass(frozen=True, eq=False)
class Stacked(General):
    """Chunks are stacked once and kept."""

    kept: dict[tuple[int, int, int], Example] = field(default_factory=dict)

    chains: ClassVar[bool] = True

    @classmethod
    def applies(cls, task: Task) -> bool:
        """Where the objective takes one table for all edges as it is, and all examples count the same."""
        layout = task.layout
        alike = len(layout.unary) == 1 and not layout.unary[0].energy.whole and len(layout.factors) <= 2
        if not (task.in_memory and alike and task.examples) or task.objective.per_example:
            return False
        longest = max(task.examples, key=lambda example: example.graph.n_variables)
        theta = layout.theta(layout.start(), longest, task.dtype)
        tied = (theta.shared or tied_order_two(theta)) is not None and task.objective.supports(theta, task.setting)
        return tied and all(is_stackable(example, task.objective.needs_inference) for example in task.examples)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "kept": {}}

    def chunk(self, numbers: np.ndarray, w: np.ndarray, seed: int) -> Sum:
        """Sum over some chains at once."""
        numbers = numbers[self.task.labelled[numbers] > 0]
        if len(numbers) == 0:
            return Sum(0.0, np.zeros(self.task.n_weights), 0.0, 0)
        seeds = tuple(seed + int(number) for number in numbers)
        return self._evaluate(w, self._stack(numbers), seed, seeds)

    def n_chunks(self, planned: int, count: int) -> int:
        """Return fewer chunks: one of a single chain would cost as much as eight."""
        return max(1, min(super().n_chunks(planned, count), count // 8))

    def _stack(self, numbers: np.ndarray) -> Example:
        key = (int(numbers[0]), int(numbers[-1]), len(numbers))
        if key not in self.kept:
            stack = stacked([self.task.examples[number] for number in numbers])
            if not np.array_equal(numbers, np.arange(key[0], key[1] + 1)):  # a random batch
                return stack
            self.kept[key] = stack
        return self.kept[key]


def is_stackable(example: Example, hidden: bool) -> bool:
    """Whether an example counts as any other and nothing is conditioned on; labels may be ``hidden``, or all are known."""
    target = example.target
    if target is None or target.observed is not None or target.weights is not None or example.weight != 1.0:
        return False
    return target.labeling.soft is None and (hidden or is_complete(target))


def stacked(examples: list[Example]) -> Example:
    """Return chains as one example."""
    graph = stack([example.graph for example in examples])
    labelings = [example.target.labeling for example in examples if example.target is not None]
    labels = np.concatenate([labeling.labels for labeling in labelings])
    mask = None
    if any(labeling.mask is not None for labeling in labelings):
        mask = np.concatenate([labeling.allowed for labeling in labelings])
    has_sets = any(labeling.has_sets for labeling in labelings)
    labeling = Labeling(labels, mask, has_sets, counts=graph.n_labels or graph.labels)
    unary = _joined([example.unary[0] for example in examples], 0)
    factors, start = [], 0
    for number in range(len(examples[0].factors)):
        rows = _joined([example.factors[number] for example in examples], start)
        factors.append(rows)
        start = start if rows is None else rows.index.stop
    return Example(graph, [unary], factors, Target(labeling), forbidden=_joined_forbidden(examples))


def _joined_forbidden(examples: list[Example]) -> Forbidden | None:
    first = examples[0].forbidden
    if first is None:
        return None
    starts = np.cumsum([0] + [example.graph.n_variables * (example.graph.n_labels or 0) for example in examples])
    parts = [at + example.forbidden.unary for at, example in zip(starts, examples, strict=False) if example.forbidden]
    return Forbidden(np.concatenate(parts), first.table)


def _joined(parts: list[Rows | None], start: int) -> Rows | None:
    """Return the rows of one block of all examples, from ``start`` on."""
    features = [rows.features for rows in parts if rows is not None]
    if not features:
        return None
    if is_sparse(features[0]):
        from scipy.sparse import vstack

        joined = vstack(features, format="csr")
    else:
        joined = np.concatenate(features)
    return Rows(slice(start, start + joined.shape[0]), joined)
