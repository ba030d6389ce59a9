"""Contracts of learners: they move w to where a problem is small."""

from __future__ import annotations

import functools
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from backfield.errors import InputError
from backfield.testing.contract import GENERAL, Contract, check, close, refuses, require


def check_learner(part: Any) -> None:
    """Raise AssertionError unless a learner keeps to the contracts of its room.

    Parameters
    ----------
    part : Learner, class or str
        A learner of plain problems (value and gradient), its class, or its spec.
    """
    check("learners", part, CONTRACTS)


class Evaluated(NamedTuple):
    """Value and gradient at some w."""

    value: float
    gradient: np.ndarray
    errors: float = float("nan")
    sweeps: int = 1
    truncated: int = 0


class Objective(NamedTuple):
    """What is minimised."""

    name: str = "logistic regression"
    integrable: bool = True
    smooth: bool = True


class Regression:
    """Logistic regression with a ridge term: each row is an example, which labels it or the opposite."""

    l2 = 1e-2

    def __init__(self, integrable: bool = True) -> None:
        rng = np.random.default_rng(0)
        self.x = rng.normal(size=(60, 8)) * np.logspace(0, -1, 8)
        self.y = np.sign(self.x @ np.ones(8) + rng.logistic(size=60))
        self.n_examples, self.n_weights = self.x.shape
        self.objective_info = Objective(integrable=integrable)

    def fingerprint(self) -> dict[str, str]:
        """Say that all problems of this class are one."""
        return {}

    def value_and_gradient(self, w: np.ndarray, batch: np.ndarray | None = None, seed: int = 0) -> Evaluated:
        """Return value and gradient over all rows or a batch."""
        x, y = (self.x, self.y) if batch is None else (self.x[batch], self.y[batch])
        margin = y * (x @ w)
        gradient = -(x.T @ (y / (1 + np.exp(margin)))) / len(y) + 2 * self.l2 * w
        value = np.logaddexp(0, -margin).mean() + self.l2 * w @ w
        return Evaluated(float(value), gradient, float((margin <= 0).mean()))


def _fit(learner: Any, problem: Regression | None = None, **options: Any) -> Any:
    problem = Regression() if problem is None else problem
    return learner.fit(problem, np.zeros(problem.n_weights), **options)


def descent(learner: Any) -> None:
    """A fit returns finite weights at which the problem is smaller than at the start, and a trace of its rows."""
    problem = Regression()
    fit = _fit(learner)
    require(np.shape(fit.w) == (problem.n_weights,) and np.isfinite(fit.w).all(), f"weights {fit.w!r}")
    before, after = (problem.value_and_gradient(w).value for w in (np.zeros(problem.n_weights), fit.w))
    require(after < before, f"a value of {after:.6g}, which was {before:.6g} at the start")
    require(len(fit.trace) > 0, "an empty trace")
    for row in fit.trace:
        for key in ("iteration", "objective", "gradient_norm", "error", "step", "sweeps", "seconds", "examples"):
            require(key in row, f"a row of the trace without {key!r}")


def repeats(learner: Any) -> None:
    """The same seed gives the same weights, and the starting point is left as it was."""
    problem = Regression()
    start = np.full(problem.n_weights, 0.1)
    first, second = (learner.fit(problem, start, seed=3).w for _ in range(2))
    close(first, second, 0.0, "weights of two fits")
    close(start, np.full(problem.n_weights, 0.1), 0.0, "the starting point before and after")


class _Stop(Exception):
    pass


def _stop(iteration: int, w: np.ndarray, row: Any) -> None:
    if iteration >= 2:
        raise _Stop


def resumed(learner: Any) -> None:
    """A fit that is interrupted and resumed from its checkpoint ends at the very weights of an unbroken one."""
    problem = Regression()
    whole = _fit(learner, problem, seed=1)
    with tempfile.TemporaryDirectory() as folder:
        options = {"checkpoint": Path(folder) / "fit.checkpoint", "seed": 1, "checkpoint_iterations": 1}
        try:
            _fit(learner, problem, callbacks=[_stop], **options)
        except _Stop:
            close(
                _fit(learner, problem, resume=True, **options).w, whole.w, 0.0, "weights after a resumed and an unbroken fit"
            )


def callbacks(learner: Any) -> None:
    """Callbacks get (iteration, w, row) after each row, and one that returns True stops the fit."""
    seen: list[int] = []

    def watch(iteration: int, w: np.ndarray, row: Any) -> bool:
        seen.append(iteration)
        require(np.isfinite(w).all(), "weights that are not finite")
        return len(seen) >= 2

    fit = _fit(learner, callbacks=[watch])
    require(seen == sorted(seen) and 1 <= len(seen) <= 2, f"callbacks at iterations {seen}")
    require(np.isfinite(fit.w).all(), "weights that are not finite")


def bad_starts(learner: Any) -> None:
    """A starting point of another size, or that is not finite, is refused by InputError."""
    if learner.own_start:
        return
    problem = Regression()
    refuses("a starting point of another size", functools.partial(learner.fit, problem, np.zeros(3)))
    refuses("a starting point of NaN", functools.partial(learner.fit, problem, np.full(problem.n_weights, np.nan)))


def gradients_without_values(learner: Any) -> None:
    """A direction that is the gradient of no value is followed, or refused by InputError before the fit."""
    problem = Regression(integrable=False)
    try:
        learner.check(problem)
    except InputError:
        refuses("an objective without a value", functools.partial(learner.fit, problem, np.zeros(problem.n_weights)))
        return
    fit = learner.fit(problem, np.zeros(problem.n_weights))
    require(np.isfinite(fit.w).all(), "weights that are not finite")


#: What must hold for every learner, in the order in which it is checked.
CONTRACTS: tuple[Contract, ...] = (
    *GENERAL,
    descent,
    repeats,
    resumed,
    callbacks,
    bad_starts,
    gradients_without_values,
)
