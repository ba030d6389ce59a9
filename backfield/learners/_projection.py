"""Weights whose models are log-supermodular (attractive), so minimum cuts solve them ([S18] §3.3).

    c_k = W_k(0,0) + W_k(1,1) - W_k(0,1) - W_k(1,0) >= 0        for every edge feature k

With edge features >= 0 the coupling of every edge, sum_k v_k c_k, is then >= 0, whatever the image. The set is a cone, and
the nearest weights in it add max(0, -c_k) / 4 to W_k(0,0) and W_k(1,1) and take it from the other two.

# Differs from [S18]: it asks that "all pairwise weights of w should remain negative", which is this for its features.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from backfield.energies.linear import Constant, Linear, Zero
from backfield.errors import InputError
from backfield.kernels.arrays import is_sparse
from backfield.learners.base import project
from backfield.training.evaluators import Task
from backfield.training.protocols import HasExamples, Minimisable
from backfield.training.weights import Block

Projection = Callable[[np.ndarray], np.ndarray]
_SIGN = np.array([1.0, -1.0, -1.0, 1.0])


def check_name(learner: str, projection: Any) -> None:
    """Refuse projections that do not exist."""
    if projection not in (None, "supermodular"):
        raise InputError(f"{learner}: projection must be None or 'supermodular', received {projection!r}.")


def projection_of(learner: str, projection: str | None, problem: Minimisable) -> Projection:
    """Return the projection that a learner asks for, followed by the problem's own where it has one."""
    if projection is None:
        return partial(project, problem)
    assert isinstance(problem, HasExamples)  # ``Learner.needs``
    blocks = _blocks(learner, problem.task)

    def supermodular(w: np.ndarray) -> np.ndarray:
        out = w.copy()
        for block in blocks:
            tables = out[block.start : block.stop].reshape(-1, 4)
            tables += np.maximum(0.0, -(tables @ _SIGN) / 4)[:, None] * _SIGN
        return project(problem, out)

    return supermodular


def _blocks(learner: str, task: Task) -> list[Block]:
    """Return the blocks of weights to project; refuse where that would not make every model supermodular."""
    where = f"{learner}: projection='supermodular'"
    blocks = task.layout.factors
    for block in blocks:
        if type(block.energy) not in (Linear, Constant, Zero):
            raise InputError(f"{where} needs linear, constant or zero energies, not {block.energy!r}.")
    for number, example in enumerate(task.examples):
        graph = example.graph
        if graph.n_factors and (graph.n_labels != 2 or graph.arity != 2):
            raise InputError(f"{where} is for two labels and factors of two variables; example {number} has others.")
        for kind, (block, rows) in enumerate(zip(blocks, example.factors, strict=True)):
            if rows is not None and type(block.energy) is Linear and rows.features.shape[1]:
                _check_features(where, rows.features, number, kind)
    return [block for block in blocks if block.stop > block.start]


def _check_features(where: str, features: Any, number: int, kind: int) -> None:
    values = features.data if is_sparse(features) else features
    if values.size and values.min() < 0:
        raise InputError(
            f"{where} needs edge features >= 0, but those of type {kind} in example {number} go down to "
            f"{values.min():.6g}; shift or split them."
        )
