"""Gradient ascent with a fixed step, for directions that are the gradient of nothing ([K05] §5, §7).

    w <- w - step_size g(w)

With the piecewise constant directions of ``saddle_point`` and ``maximum_marginal`` w does not converge but goes round in
limit cycles, small or large. A loop is closed where w comes back: some w_s, ``patience`` or more iterations ago, is nearer
than ``closeness`` times the farthest that w has been from the present one since. (Of shorter loops several make one, so
a zigzag that drifts is none.) The fit ends after ``cycles`` loops without fewer training errors, or where the direction
vanishes. What it returns is ``keep``:

    fewest   the parameters with the fewest training errors (with the lowest objective, where nothing is decoded)
    votes    the mean of all parameters, each with as many votes as it has training labels right (the voted perceptron)
    last     the last ones

Directions that are drawn (``contrastive_divergence``) have fresh noise in each iteration, by the seed and its number.
The trace holds errors and truncated couplings of each iteration, and w and g themselves where they are few ([K05] Fig. 1).
Cost per iteration: one evaluation, and a pass over the last ``window`` parameters.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

import numpy as np

from backfield.constraints import check_choice
from backfield.errors import InputError
from backfield.learners._projection import Projection, check_name, projection_of
from backfield.learners.base import Ending, Learner, Restored, Run, norm, number, step_seed, whole
from backfield.training.execution import one_blas_thread
from backfield.training.protocols import Evaluation, HasExamples, Minimisable

KEEP = ("fewest", "votes", "last")
#: The trace holds w and g themselves up to so many weights.
_FEW = 100


@dataclass(frozen=True, repr=False)
class Ascent(Learner, name="ascent"):
    """Fixed steps along a direction, until it vanishes or w runs in circles.

    Parameters
    ----------
    max_iter
        Steps at the most.
    step_size
        Factor of the direction, which is a mean over labelled variables.
    keep
        "fewest", "votes" or "last".
    tol
        Stop when |direction| <= tol.
    cycles
        Closed loops without fewer errors after which the fit stops; 0: never.
    closeness
        How near w must come to an earlier one, as a share of the size of the loop.
    patience
        Iterations of a loop at the least; with validation, rows without a new lowest value after which the fit stops.
    window
        Parameters among which a loop is looked for.
    projection
        "supermodular": after each step to the nearest weights whose models minimum cuts solve. None: as they come.
    """

    max_iter: int = 500
    step_size: float = 0.5
    keep: str = "fewest"
    tol: float = 1e-4
    cycles: int = 2
    closeness: float = 0.1
    patience: int = 30
    window: int = 200
    projection: str | None = None

    def __post_init__(self) -> None:
        for key, least in (("max_iter", 0), ("cycles", 0), ("patience", 1), ("window", 2)):
            whole(self.name, key, getattr(self, key), least)
        number(self.name, "step_size", self.step_size, 0, open_=True)
        number(self.name, "closeness", self.closeness, 0, 1, open_=True)
        number(self.name, "tol", self.tol, 0)
        check_choice("keep", self.keep, KEEP, self.name)
        check_name(self.name, self.projection)

    def needs(self) -> tuple[type, ...]:
        """Return what the projection needs."""
        return (HasExamples,) if self.projection is not None else ()

    @one_blas_thread()  # once: setting it for every sum takes as long as a small step
    def minimise(self, problem: Minimisable, w: np.ndarray, run: Run, restored: Restored | None) -> Ending:
        """Minimise from ``w`` or from what was restored."""
        project = projection_of(self.name, self.projection, problem)
        state = AscentState(project(w)) if restored is None else run.unpacked(AscentState, restored)
        if restored is None:
            run.mark(state)
        while True:
            seen = problem.value_and_gradient(state.w, None, step_seed(run.seed, state.iteration))
            if not np.isfinite(seen.gradient).all():
                raise InputError(f"ascent: the direction is not finite at iteration {state.iteration}; reduce step_size.")
            after = self._judged(state, seen, problem)
            row = _row(after, seen, 0.0 if state.iteration == 0 else self.step_size, problem)
            stop = run.record(self._answer(after), row, self._moved(after, seen, project), self.max_iter)
            ending = self._ending(after, seen, stop)
            if ending is not None:
                return ending
            state = self._moved(after, seen, project)

    def _moved(self, state: AscentState, seen: Evaluation, project: Projection) -> AscentState:
        w = project(state.w - self.step_size * np.asarray(seen.gradient, dtype=np.float64))
        return dataclasses.replace(state, w=w, iteration=state.iteration + 1)

    def _judged(self, state: AscentState, seen: Evaluation, problem: Minimisable) -> AscentState:
        """Return the state with the present parameters judged: fewest errors, votes, loops."""
        score = _score(seen, problem)
        if score < state.score:
            state = dataclasses.replace(state, best=state.w, score=score, loops=0)
        vote = 1.0 - float(seen.errors) if math.isfinite(seen.errors) else 1.0
        total = state.votes + vote
        mean = state.w if state.mean is None else state.mean + (state.w - state.mean) * (vote / max(total, 1e-300))
        path = np.concatenate([state.path.reshape(-1, len(state.w)), state.w[None]])[-self.window :]
        loops = state.loops
        if _is_closed(path, self.closeness, self.patience):
            path, loops = path[-1:], loops + 1
        return dataclasses.replace(state, mean=mean, votes=total, path=path, loops=loops)

    def _answer(self, state: AscentState) -> np.ndarray:
        if self.keep == "votes" and state.mean is not None:
            return state.mean
        return state.best if self.keep == "fewest" and state.best is not None else state.w

    def _ending(self, state: AscentState, seen: Evaluation, stop: str) -> Ending | None:
        found, at = self._answer(state), state.iteration
        if stop == "callback":
            return Ending(found, False, f"stopped by a callback at iteration {at}", finished=False)
        if stop == "validation":
            return Ending(found, True, f"the validation value has not improved for {self.patience} iterations")
        size = norm(np.asarray(seen.gradient, dtype=np.float64))
        if size <= self.tol:
            return Ending(found, True, f"the direction has vanished: its norm {size:.3g} is below {self.tol:g}")
        if self.cycles and state.loops >= self.cycles:
            return Ending(found, True, f"a limit cycle: {state.loops} loops without fewer errors, at iteration {at}")
        if at >= self.max_iter:
            message = f"stopped after max_iter={self.max_iter} iterations; the norm is {size:.3g}"
            return Ending(found, False, message, distance=size / self.tol if self.tol > 0 else 0.0)
        return None


@dataclass(frozen=True)
class AscentState:
    """The present parameters and the best ones, votes, and the path since the last closed loop."""

    w: np.ndarray
    iteration: int = 0
    best: np.ndarray | None = None
    score: float = math.inf
    mean: np.ndarray | None = None
    votes: float = 0.0
    path: np.ndarray = field(default_factory=lambda: np.zeros((0, 0)))
    loops: int = 0

    shapes: ClassVar[dict[str, str]] = {"w": "float n", "best?": "float n", "mean?": "float n", "path": "float k n|0"}
    types: ClassVar[dict[str, type]] = {"iteration": int, "score": float, "votes": float, "loops": int}

    def pack(self) -> Restored:
        """Return arrays, and numbers for JSON."""
        arrays = {key: array for key in _ARRAYS if (array := getattr(self, key)) is not None}
        return arrays, {key: getattr(self, key) for key in self.types}

    @classmethod
    def unpack(cls, arrays: dict[str, np.ndarray], numbers: dict[str, Any]) -> Self:
        """Return the state that was packed."""
        known: dict[str, Any] = {key: arrays[key] for key in _ARRAYS if key in arrays}
        return cls(**known, **{key: numbers[key] for key in cls.types})


_ARRAYS = ("w", "best", "mean", "path")


def _score(seen: Evaluation, problem: Minimisable) -> float:
    """Return what the fewest errors are counted by: errors, the objective where nothing is decoded, else nothing."""
    if math.isfinite(seen.errors):
        return float(seen.errors)
    return float(seen.value) if problem.objective_info.integrable and math.isfinite(seen.value) else math.inf


def _is_closed(path: np.ndarray, closeness: float, least: int) -> bool:
    """Return whether the last point has come back to one ``least`` or more steps ago, after having been farther away."""
    if len(path) <= max(2, least):
        return False
    distance = np.sqrt(((path[:-1] - path[-1]) ** 2).sum(axis=1))
    farthest = np.maximum.accumulate(distance[::-1])[::-1]  # since each point
    old = len(path) - max(2, least)
    return bool(((distance[:old] <= closeness * farthest[1 : old + 1]) & (farthest[1 : old + 1] > 0)).any())


def _row(state: AscentState, seen: Evaluation, step: float, problem: Minimisable) -> dict[str, Any]:
    gradient = np.asarray(seen.gradient, dtype=np.float64)
    row = {
        "iteration": state.iteration,
        "objective": float(seen.value),
        "gradient_norm": norm(gradient),
        "error": float(seen.errors),
        "step": step,
        "sweeps": int(seen.sweeps),
        "examples": problem.n_examples,
        "truncated": int(seen.truncated),
        "loops": state.loops,
    }
    if len(gradient) <= _FEW:
        row |= {"w": state.w.tolist(), "gradient": gradient.tolist()}
    return row
