"""Weights whose models are log-supermodular (attractive), so minimum cuts solve them ([S18] §3.3).

    c_k = W_k(0,0) + W_k(1,1) - W_k(0,1) - W_k(1,0) >= 0        for every edge feature k

With edge features >= 0 the coupling of every edge, sum_k v_k c_k, is then >= 0, whatever the image. The set is a cone, and
the nearest weights in it add max(0, -c_k) / 4 to W_k(0,0) and W_k(1,1) and take it from the other two.

Labels coded -1 and +1 have one weight per feature, and the coupling of an edge is v·x ([K05] §2). There v may be < 0 for
a feature such as contrast as long as v·x >= 0 for every x between the least and the greatest features of the training
edges: the cone of the corners of that box.

# Differs from [S18]: it asks that "all pairwise weights of w should remain negative", which is this for its features.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from itertools import product
from typing import Any

import numpy as np

from backfield.constraints import is_sparse
from backfield.energies.linear import Constant, Linear, Zero
from backfield.energies.plus_minus import PlusMinus
from backfield.errors import InputError
from backfield.learners.base import project
from backfield.training.evaluators import Task
from backfield.training.protocols import HasExamples, Minimisable
from backfield.training.weights import Block

Projection = Callable[[np.ndarray], np.ndarray]
_SIGN = np.array([1.0, -1.0, -1.0, 1.0])
#: Features of labels coded -1 and +1: a box of so many sides has 1024 corners.
_MOST_SIDES = 10
#: How far inside of the cone weights are put, as a share of the largest.
_MARGIN = 1e-6


def check_name(learner: str, projection: Any) -> None:
    """Refuse projections that do not exist."""
    if projection not in (None, "supermodular"):
        raise InputError(f"{learner}: projection must be None or 'supermodular', received {projection!r}.")


def projection_of(learner: str, projection: str | None, problem: Minimisable) -> Projection:
    """Return the projection that a learner asks for, followed by the problem's own where it has one."""
    if projection is None:
        return partial(project, problem)
    assert isinstance(problem, HasExamples)  # ``Learner.needs``
    steps = _steps(learner, problem.task)

    def supermodular(w: np.ndarray) -> np.ndarray:
        out = w.copy()
        for block, step in steps:
            out[block.start : block.stop] = step(out[block.start : block.stop])
        return project(problem, out)

    return supermodular


def _attractive_tables(w: np.ndarray) -> np.ndarray:
    """Return the nearest tables of couplings >= 0, one per feature."""
    tables = w.reshape(-1, 4)
    return (tables + np.maximum(0.0, -(tables @ _SIGN) / 4)[:, None] * _SIGN).ravel()


def _into_cone(corners: np.ndarray, w: np.ndarray) -> np.ndarray:
    """Return the nearest weights whose couplings are >= 0 at every corner, also after rounding to single precision."""
    lack = _MARGIN * np.abs(w).max(initial=0.0) - corners @ w
    if (lack <= 0).all():
        return w
    from scipy.optimize import nnls

    # Least distance programming: min |u| with corners u >= lack, by non-negative least squares (Lawson and Hanson, ch. 23).
    system = np.vstack([corners.T, lack])
    target = np.zeros(len(system))
    target[-1] = 1.0
    residual = system @ nnls(system, target)[0] - target
    found = w - residual[:-1] / min(residual[-1], -np.finfo(float).tiny)
    return found if (corners @ found >= 0).all() else np.zeros_like(w)  # where no coupling but zero is >= 0 everywhere


def _steps(learner: str, task: Task) -> list[tuple[Block, Projection]]:
    """Return the blocks of weights to project and how; refuse where that would not make every model supermodular."""
    where = f"{learner}: projection='supermodular'"
    blocks = task.layout.factors
    for block in blocks:
        if type(block.energy) not in (Linear, Constant, Zero, PlusMinus):
            raise InputError(f"{where} needs linear, constant, zero or plus_minus energies, not {block.energy!r}.")
    for number, example in enumerate(task.examples):
        graph = example.graph
        if graph.n_factors and (graph.n_labels != 2 or graph.arity != 2):
            raise InputError(f"{where} is for two labels and factors of two variables; example {number} has others.")
        for kind, (block, rows) in enumerate(zip(blocks, example.factors, strict=True)):
            if rows is not None and type(block.energy) is Linear and rows.features.shape[1]:
                _check_features(where, rows.features, number, kind)
    return [
        (block, partial(_into_cone, _corners(where, block, kind, task)) if _is_coded(block) else _attractive_tables)
        for kind, block in enumerate(blocks)
        if block.stop > block.start
    ]


def _is_coded(block: Block) -> bool:
    return type(block.energy) is PlusMinus


def _corners(where: str, block: Block, kind: int, task: Task) -> np.ndarray:
    """Return the corners of the box that holds the features of all training edges, with the constant of the energy."""
    found = [rows.features for example in task.examples if (rows := example.factors[kind]) is not None]
    columns = found[0].shape[1] if found else 0
    if columns > _MOST_SIDES:
        raise InputError(f"{where} takes at most {_MOST_SIDES} features of coded labels, received {columns}.")
    sides: list[Iterable[float]] = [
        {float(min(f[:, k].min() for f in found)), float(max(f[:, k].max() for f in found))} for k in range(columns)
    ]
    if block.stop - block.start > columns:
        sides.append((1.0,))
    return np.array(list(product(*(sorted(side) for side in sides))), dtype=np.float64)


def _check_features(where: str, features: Any, number: int, kind: int) -> None:
    values = features.data if is_sparse(features) else features
    if values.size and values.min() < 0:
        raise InputError(
            f"{where} needs edge features >= 0, but those of type {kind} in example {number} go down to "
            f"{values.min():.6g}; shift or split them."
        )
