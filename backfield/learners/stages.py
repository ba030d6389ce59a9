"""Staged training ([S11] §7): learners one after another, each on its own loss, from where the previous one stopped.

Some iterations along the likelihood, which is smooth, then the loss itself::

    stages(['lbfgs(max_iter=3)', 'lbfgs'], losses=['surrogate_likelihood', None])

or a hybrid loss whose share goes 0, 1/2, 1, each to convergence::

    stages(['lbfgs', 'lbfgs', 'lbfgs'], losses=['mse', "hybrid(first='f_measure', second='mse', share=0.5)", None])

None is the loss of the problem. :class:`Restarts` begins at several random points and keeps the best.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from backfield.errors import InputError
from backfield.learners._composite import Composite, Parts, stopped
from backfield.learners.base import Fit, Learner, number, whole
from backfield.objectives import get_objective
from backfield.registry import get
from backfield.training.protocols import HasExamples, Minimisable


@dataclass(frozen=True, repr=False)
class Stages(Composite, name="stages"):
    """Learners in turn, each with its own loss.

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
            raise InputError(f"stages takes a list of specs of learners, received {self.learners!r}.")
        if self.losses is not None and not isinstance(self.losses, list | tuple):
            raise InputError(f"stages: losses must be a list of specs or None, received {self.losses!r}.")
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

    def needs(self) -> tuple[type, ...]:
        """Return what the stages' own losses need."""
        return (HasExamples,) if any(self._losses()) else ()

    def check(self, problem: Minimisable) -> None:
        """Refuse problems that the stages cannot minimise."""
        super().check(problem)
        for part, each in self._stages(problem):
            part.check(each)
        _check_last(self._stages(problem)[-1][1].objective_info)

    def _stages(self, problem: Any) -> list[tuple[Learner, Any]]:
        problems = [problem if loss is None else problem.minimising(get_objective(loss)) for loss in self._losses()]
        return [(get("learners", spec), each) for spec, each in zip(self.learners, problems, strict=True)]

    def _compose(self, problem: Any, w: np.ndarray, parts: Parts) -> Fit:
        """Minimise stage by stage; each but the last has its own checkpoint beside the given one."""
        stages = self._stages(problem)
        found = Fit(w, [], True, "")
        for k, (part, each) in enumerate(stages, 1):
            found = parts.fit(part, each, found.w, {"stage": k}, f".stage{k}" if k < len(stages) else "")
            if stopped(found):
                break
        last = parts.trace[-1]["stage"] if parts.trace else 1
        return Fit(found.w, parts.trace, found.converged, f"stage {last}: {found.message}")


def _check_last(info: Any) -> None:
    if not (info.integrable and info.smooth):
        raise InputError(
            f"stages must end in a loss that can be differentiated, which {info.name} cannot; put it before the last stage."
        )


@dataclass(frozen=True, repr=False)
class Restarts(Composite, name="restarts"):
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

    def check(self, problem: Minimisable) -> None:
        """Refuse what the learner refuses."""
        get("learners", self.learner).check(problem)

    def _compose(self, problem: Any, w: np.ndarray, parts: Parts) -> Fit:
        """Fit from each start; keep the lowest value (the fewest errors, where there is none)."""
        best, lowest, chosen = Fit(w, [], False, "no start was finite"), np.inf, 0
        for k in range(1, self.n + 1):
            start = self.scale * np.random.default_rng((parts.seed, k - 1)).normal(size=problem.n_weights)
            found = parts.fit(get("learners", self.learner), problem, start, {"start": k}, f".start{k}")
            seen = problem.value_and_gradient(found.w, None, parts.seed)
            value = float(seen.value if problem.objective_info.integrable else seen.errors)
            if value < lowest:
                best, lowest, chosen = found, value, k
            if stopped(found):
                break
        return Fit(best.w, parts.trace, best.converged, f"start {chosen} of {self.n}: {best.message}")
