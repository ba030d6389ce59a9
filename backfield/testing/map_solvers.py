"""Contracts of MAP solvers: theta -> the labels that maximise theta·f(labels)."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import numpy as np

from backfield.api import find_map
from backfield.errors import InputError
from backfield.graph import Potentials
from backfield.map_solvers.base import MapResult
from backfield.testing.contract import GENERAL, Contract, check, close, refuses, require
from backfield.testing.models import best_score, forbid, models


def check_map_solver(part: Any) -> None:
    """Raise AssertionError unless a MAP solver keeps to the contracts of its room.

    Parameters
    ----------
    part : MapSolver, class or str
        A solver, its class, or its spec. Where it raises InputError for a kind of graph, simpler kinds are tried.
    """
    check("map_solvers", part, CONTRACTS)


def accepted(solver: Any, n: int, scale: float = 1.0) -> Iterator[tuple[np.random.Generator, Potentials]]:
    """Yield models that the solver takes."""
    return models(lambda theta: find_map(theta, solver), n, scale)


def require_result(theta: Potentials, run: Any, exact: bool) -> None:
    """Raise AssertionError unless a result is one, and the best one where it says so."""
    require(isinstance(run, MapResult), f"a {type(run).__name__}")
    require(
        run.labels.shape == (theta.graph.n_variables,) and run.labels.dtype.kind in "iu", "labels that are not (n,) ints"
    )
    require(((run.labels >= 0) & (run.labels < theta.graph.labels)).all(), f"labels {run.labels} for {theta.graph.labels}")
    score, best = theta.score(run.labels), best_score(theta)
    require(run.value == score or abs(run.value - score) <= 1e-9 * max(1, abs(score)),
            f"the value {run.value} for labels of value {score}")  # fmt: skip
    if run.optimal or exact:
        close(run.value, best, 1e-9 * max(1, abs(best)), "the value of labels said to be the best and the best value")
    require(isinstance(run.optimal, bool), f"optimal={run.optimal!r}")


def results(solver: Any) -> None:
    """The value is that of the labels; where a result says ``optimal``, or the solver ``exact``, none is better."""
    for scale in (1.0, 1e4):
        for _, theta in accepted(solver, 25, scale):
            require_result(theta, find_map(theta, solver), solver.exact)


def forbidden_labels(solver: Any) -> None:
    """Potentials of -inf are legal; a solver that cannot take them says so by InputError."""
    for rng, plain in accepted(solver, 25):
        theta = forbid(plain, rng, 0.2)
        if theta is None:
            continue
        try:
            run = find_map(theta, solver)
        except InputError:
            require(not solver.exact, "a possible model is refused by an exact solver")
            continue
        require_result(theta, run, solver.exact)


def impossible(solver: Any) -> None:
    """An exact solver refuses a model of which no configuration is possible."""
    if solver.exact:
        for _, theta in accepted(solver, 3):
            values = theta.vector()
            values[: theta.graph.labels[0]] = -np.inf
            refuses("an impossible model", functools.partial(find_map, theta.like(values), solver))


def repeats(solver: Any) -> None:
    """The same theta gives the same labels and is left as it was; float32 is taken."""
    for _, theta in accepted(solver, 6):
        before = theta.vector()
        first, second = find_map(theta, solver), find_map(theta, solver)
        require((first.labels == second.labels).all(), "other labels for the same theta")
        require((theta.vector() == before).all(), "another theta after the call")
        low = theta.astype(np.float32)
        require_result(low, find_map(low, solver, dtype="float32"), False)


#: What must hold for every solver, in the order in which it is checked.
CONTRACTS: tuple[Contract, ...] = (*GENERAL, results, forbidden_labels, impossible, repeats)
