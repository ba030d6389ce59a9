"""Planes of structured SVMs: for each example, the labeling that violates its margin most.

    s_n max_y [ Delta_n(y) + w·(Psi_n(y) - Psi_n(y_n)) ],     s_n = weight_n / labelled variables

The plane of a labeling y is w -> g·w + loss, g = s_n (Psi_n(y) - Psi_n(y_n)), loss = s_n Delta_n(y).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from backfield.errors import InputError
from backfield.graph import Potentials
from backfield.graph.labeling import one_hot
from backfield.objectives.max_margin import MaxMargin, complete_labels
from backfield.training.evaluators.general import Task


class Plane(NamedTuple):
    """The linear function w -> g·w + loss; ``places`` are those of the entries of g, None if all are stored."""

    places: np.ndarray | None
    values: np.ndarray
    loss: float

    @classmethod
    def of(cls, g: np.ndarray, loss: float) -> Plane:
        """Return a plane in the smaller of its two forms."""
        index = np.flatnonzero(g)
        if 2 * len(index) < len(g):  # an entry and its place take 12 bytes
            return cls(index.astype(np.int32), g[index], loss)
        return cls(None, g, loss)

    @classmethod
    def zero(cls) -> Plane:
        """Return the plane of the true labels."""
        return cls(np.empty(0, dtype=np.int32), np.empty(0), 0.0)

    def at(self, w: np.ndarray) -> float:
        """Return the value at w, the same bits whatever number of threads BLAS has."""
        return float(np.einsum("i,i", self.values, w if self.places is None else w[self.places])) + self.loss

    def dense(self, n: int) -> np.ndarray:
        """Return g (n,), not to be changed."""
        if self.places is None:
            return self.values
        out = np.zeros(n)
        out[self.places] = self.values
        return out


def worst_plane(task: Task, number: int, w: np.ndarray) -> tuple[Plane, bool]:
    """Return the plane of the labeling that violates the margin of an example most, and whether it is the maximum."""
    example = task.examples[number]
    scale = example.weight / float(task.labelled.sum())
    if task.labelled[number] == 0 or scale == 0.0:
        return Plane.zero(), True
    assert example.target is not None and isinstance(task.objective, MaxMargin)
    theta = task.layout.theta(w, example, task.dtype)
    truth = complete_labels(theta, example.target)
    if truth is None:
        raise InputError(
            f"frank_wolfe needs all labels of an example or none, but some of example {number} are hidden, which makes the "
            "margin loss not convex: fill them in by self_training(learner='frank_wolfe'), or use sgd."
        )
    found = task.objective.most_violating(theta, example.target)
    difference = [a - b for a, b in zip(*(one_hot(example.graph, y) for y in (found.labels, truth)), strict=True)]
    g = task.layout.vjp(example, Potentials.from_flat(example.graph, *difference))
    return Plane.of(scale * g, scale * found.loss), found.optimal


def worst_height(task: Task, number: int, w: np.ndarray) -> tuple[float, bool]:
    """Return the loss of an example at w, and whether it is the true maximum."""
    plane, optimal = worst_plane(task, number, w)
    return plane.at(w), optimal
