"""Weights whose models are log-supermodular (attractive), so that minimum cuts solve them ([S18] §3.3).

    c_k = W_k(0,0) + W_k(1,1) - W_k(0,1) - W_k(1,0) >= 0        for every edge feature k

With edge features >= 0 the coupling of every edge, sum_k v_k c_k, is then >= 0, whatever the image. The set is a cone, and
the nearest weights in it add max(0, -c_k) / 4 to W_k(0,0) and W_k(1,1) and take it from the other two.

# Differs from [S18]: it asks that "all pairwise weights of w should remain negative", which is this for its features.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from backfield.energies.linear import Constant, Linear, Zero
from backfield.errors import InputError
from backfield.training.problem import Block

Projection = Callable[[np.ndarray], np.ndarray]
_SIGN = np.array([1.0, -1.0, -1.0, 1.0])


def check_name(learner: str, projection: Any) -> None:
    """Refuse projections that do not exist."""
    if projection not in (None, "supermodular"):
        raise InputError(f"{learner}: projection must be None or 'supermodular', got {projection!r}.")


def projection_of(learner: str, projection: str | None, problem: Any) -> Projection:
    """Return the projection that a learner asks for, followed by the problem's own where it has one."""
    own = getattr(problem, "projection", None)
    if projection is None:
        return (lambda w: w) if own is None else (lambda w: np.asarray(own(w), dtype=np.float64))
    blocks = _blocks(learner, problem)

    def project(w: np.ndarray) -> np.ndarray:
        out = w.copy()
        for block in blocks:
            tables = out[block.start : block.stop].reshape(-1, 4)
            tables += np.maximum(0.0, -(tables @ _SIGN) / 4)[:, None] * _SIGN
        return out if own is None else np.asarray(own(out), dtype=np.float64)

    return project


def _blocks(learner: str, problem: Any) -> list[Block]:
    """Return the blocks of weights to project; refuse where that would not make every model supermodular."""
    where = f"{learner}: projection='supermodular'"
    if not hasattr(problem, "layout"):
        raise InputError(f"{where} needs a problem over graphs; this one says nothing of edges.")
    blocks = problem.layout.factors
    for block in blocks:
        if type(block.energy) not in (Linear, Constant, Zero):
            raise InputError(f"{where} needs linear, constant or zero energies, not {block.energy!r}.")
    for number, example in enumerate(problem.examples):
        graph = example.graph
        if graph.n_factors and (graph.n_labels != 2 or graph.arity != 2):
            raise InputError(f"{where} is for two labels and factors of two variables; example {number} has others.")
        for kind, (block, rows) in enumerate(zip(blocks, example.factors, strict=True)):
            if rows is not None and type(block.energy) is Linear and rows.features.shape[1]:
                _check_features(where, rows.features, number, kind)
    return [block for block in blocks if block.stop > block.start]


def _check_features(where: str, features: Any, number: int, kind: int) -> None:
    values = features.data if hasattr(features, "indptr") else features
    if values.size and values.min() < 0:
        raise InputError(
            f"{where} needs edge features >= 0, but those of type {kind} in example {number} go down to "
            f"{values.min():.6g}; shift or split them."
        )
