"""Staged training ([S11] §7): learners one after another, each on a loss of its own, from where the last one stopped.

Some iterations along the likelihood, which is smooth, then the loss itself::

    stages(['lbfgs(max_iter=3)', 'lbfgs'], losses=['surrogate_likelihood', None])

or a hybrid loss whose share goes 0, 1/2, 1, each to convergence::

    stages(['lbfgs', 'lbfgs', 'lbfgs'], losses=['mse', "hybrid(first='f_measure', second='mse', share=0.5)", None])

None is the loss of the problem. :class:`Restarts` begins at several random points and keeps the best.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from backfield._component import get
from backfield.errors import InputError
from backfield.learners._base import Learner, number, whole
from backfield.learners._problem import Problem
from backfield.learners._run import Callback, Fit, Row
from backfield.objectives import get_objective


@dataclass(frozen=True, repr=False)
class Stages(Learner, name="stages"):
    """Learners in turn, each with a loss of its own.

    Parameters
    ----------
    learners
        Specs, one per stage.
    losses
        Specs of losses or objectives, one per stage; None in the place of one, or of all: the loss of the problem.
    """

    learners: Any = ("lbfgs",)
    losses: Any = None

    def __post_init__(self) -> None:
        if not isinstance(self.learners, list | tuple) or not self.learners:
            raise InputError(f"stages takes a list of specs of learners, got {self.learners!r}.")
        if self.losses is not None and not isinstance(self.losses, list | tuple):
            raise InputError(f"stages: losses must be a list of specs or None, got {self.losses!r}.")
        if self.losses is not None and len(self.losses) != len(self.learners):
            raise InputError(f"stages: there are {len(self.learners)} learners and {len(self.losses)} losses.")
        for spec in self.learners:
            part = get("learners", spec)
            if part.own_start:
                raise InputError(f"stages goes on from weights, and {part.name} starts from its own.")
        for loss in self._losses():
            if loss is not None:
                get_objective(loss)
        if self._losses()[-1] is not None:
            _check_last(get_objective(self._losses()[-1]))

    def _losses(self) -> list[Any]:
        return list(self.losses) if self.losses is not None else [None] * len(self.learners)

    def check(self, problem: Problem) -> None:
        """Refuse problems that the stages cannot minimise."""
        for part, each in self._stages(problem):
            part.check(each)
        _check_last(self._stages(problem)[-1][1].objective_info)

    def _stages(self, problem: Any) -> list[tuple[Learner, Any]]:
        if any(self._losses()) and not hasattr(problem, "minimising"):
            raise InputError("stages with losses of their own need a problem over examples.")
        problems = [problem if loss is None else problem.minimising(get_objective(loss)) for loss in self._losses()]
        return [(get("learners", spec), each) for spec, each in zip(self.learners, problems, strict=True)]

    def fit(  # type: ignore[override]
        self,
        problem: Problem,
        w: np.ndarray,
        *,
        callbacks: Sequence[Callback] = (),
        checkpoint: Any = None,
        seed: int = 0,
        progress: Callable[[Row], Any] | None = None,
        **options: Any,
    ) -> Fit:
        """Minimise stage by stage; each but the last has a checkpoint of its own beside the given one."""
        self.check(problem)
        stages = self._stages(problem)
        trace: list[Row] = []
        found = Fit(np.array(w, dtype=np.float64), [], True, "")
        for k, (part, each) in enumerate(stages):
            path = checkpoint if checkpoint is None or k == len(stages) - 1 else f"{checkpoint}.stage{k + 1}"
            marks = {"stage": k + 1}
            found, rows = _nested(part, each, found.w, marks, len(trace), callbacks, path, seed, progress, options)
            trace += rows
            if found.message.startswith("stopped by a callback"):
                break
        return Fit(found.w, trace, found.converged, f"stage {trace[-1]['stage'] if trace else 1}: {found.message}")


def _check_last(info: Any) -> None:
    if not (info.integrable and getattr(info, "smooth", True)):
        raise InputError(
            f"stages must end in a loss that can be differentiated, which {info.name} cannot; put it before the last stage."
        )


@dataclass(frozen=True, repr=False)
class Restarts(Learner, name="restarts"):
    """The best of several fits from random weights.

    Parameters
    ----------
    learner
        Spec of the learner.
    n
        Number of starts.
    scale
        Standard deviation of the starting weights.
    """

    learner: str = "lbfgs"
    n: int = 5
    scale: float = 1.0

    own_start = True

    def __post_init__(self) -> None:
        whole(self.name, "n", self.n, 1)
        number(self.name, "scale", self.scale, 0)
        if get("learners", self.learner).own_start:
            raise InputError(f"restarts gives random weights to a learner, and {self.learner!r} starts from its own.")

    def check(self, problem: Problem) -> None:
        """Refuse what the learner refuses."""
        get("learners", self.learner).check(problem)

    def fit(  # type: ignore[override]
        self,
        problem: Problem,
        w: np.ndarray,
        *,
        callbacks: Sequence[Callback] = (),
        checkpoint: Any = None,
        seed: int = 0,
        progress: Callable[[Row], Any] | None = None,
        **options: Any,
    ) -> Fit:
        """Fit from each start; keep the lowest value (the fewest errors, where there is none)."""
        self.check(problem)
        trace: list[Row] = []
        best, lowest, chosen = Fit(np.array(w, dtype=np.float64), [], False, "no start was finite"), np.inf, 0
        for k in range(self.n):
            start = self.scale * np.random.default_rng((seed, k)).normal(size=problem.n_weights)
            path = None if checkpoint is None else f"{checkpoint}.start{k + 1}"
            part = get("learners", self.learner)
            found, rows = _nested(
                part, problem, start, {"start": k + 1}, len(trace), callbacks, path, seed, progress, options
            )
            trace += rows
            seen = problem.value_and_gradient(found.w, None, seed)
            value = float(seen.value if problem.objective_info.integrable else seen.errors)
            if value < lowest:
                best, lowest, chosen = found, value, k + 1
            if found.message.startswith("stopped by a callback"):
                break
        return Fit(best.w, trace, best.converged, f"start {chosen} of {self.n}: {best.message}")


def _nested(
    part: Learner,
    problem: Any,
    w: np.ndarray,
    marks: dict[str, int],
    before: int,
    callbacks: Sequence[Callback],
    checkpoint: Any,
    seed: int,
    progress: Callable[[Row], Any] | None,
    options: dict[str, Any],
) -> tuple[Fit, list[Row]]:
    """Fit a part of a larger fit; its rows are marked and counted on from those ``before``."""

    def marked(row: Row) -> Row:
        return {**row, **marks, "iteration": row["iteration"] + before}

    def wrapped(callback: Callback) -> Callback:
        return lambda iteration, weights, row: callback(iteration + before, weights, marked(row))

    found = part.fit(
        problem,
        w,
        callbacks=[wrapped(callback) for callback in callbacks],
        checkpoint=checkpoint,
        seed=seed,
        progress=None if progress is None else lambda row: progress(marked(row)),
        **options,
    )
    return found, [marked(row) for row in found.trace]
