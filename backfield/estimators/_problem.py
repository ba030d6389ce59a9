"""From examples to the problem that a learner sees, and to the weights to start from: the one place that builds them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from backfield.api import make_setting
from backfield.errors import InputError
from backfield.estimators._settings import Settings
from backfield.estimators._spec_params import part_of
from backfield.learners import Learner
from backfield.objectives import get_objective
from backfield.training.examples import Example
from backfield.training.execution import N_CHUNKS
from backfield.training.execution.cluster import active
from backfield.training.problem import Problem
from backfield.training.weights import WeightLayout


def make_problem(
    settings: Settings, examples: Sequence[Example], layout: WeightLayout, labelled: list[int], n_chunks: int = N_CHUNKS
) -> Problem:
    """Return the objective over the examples."""
    problem = Problem(
        examples, layout, settings.objective, settings.setting, l2=settings.params["l2"], dtype=settings.dtype,
        n_jobs=settings.n_jobs, labelled=labelled, n_chunks=n_chunks, chains=settings.structure.chains,
    )  # fmt: skip
    problem.distribute(active())
    return problem


def start_weights(
    settings: Settings, examples: Sequence[Example], layout: WeightLayout, labelled: list[int], n_chunks: int = N_CHUNKS
) -> np.ndarray:
    """Return the weights to start from."""
    w, start = layout.start(), settings.params["start"]
    if not isinstance(start, str):
        given = np.asarray(start, dtype=np.float64)
        if given.shape != w.shape or not np.isfinite(given).all():
            raise InputError(f"start must be {len(w)} finite weights, as weights_ of such a model; got {given.shape}.")
        return given.copy()
    if start not in ("independent", "zero", "random"):
        raise InputError(f"start must be 'independent', 'zero', 'random' or weights, got {start!r}.")
    if settings.learner.own_start or w.any():  # a network starts from what it is
        return w
    if start == "random":
        return np.random.default_rng(settings.seed).normal(size=len(w))
    if start == "independent" and any(block.stop > block.start for block in layout.factors):
        return _independent(settings, examples, layout, labelled, n_chunks)
    return w


def _independent(
    settings: Settings, examples: Sequence[Example], layout: WeightLayout, labelled: list[int], n_chunks: int
) -> np.ndarray:
    """Return weights of the model without factors, from which all papers start."""
    objective = get_objective("univariate_logistic")
    problem = Problem(
        examples, layout, objective, make_setting(objective, "exact", None), l2=settings.params["l2"],
        dtype=settings.dtype, n_jobs=settings.n_jobs, labelled=labelled, n_chunks=n_chunks, coupled=False,
    )  # fmt: skip
    problem.distribute(active())
    learner: Learner = part_of("learner", "lbfgs(max_iter=50)")  # type: ignore[assignment]
    return learner.fit(problem, np.zeros(layout.n_weights), seed=settings.seed).w
