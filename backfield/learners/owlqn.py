"""OWL-QN: L-BFGS for objectives with an L1 penalty (Andrew and Gao 2007).

    F(w) = f(w) + l1 |w|_1;    g = the one of the subgradients of F that is smallest in each coordinate
    d = -H g, with coordinates that do not descend set to 0;    w' = P(w + a d), a by backtracking

H comes from the pairs of f alone. P sets to 0 what leaves the orthant of w (of -g where w is 0), so weights become
exactly 0 and stay there while |df/dw| <= l1. With ``l2`` of the estimator this is the elastic net.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from backfield.errors import InputError
from backfield.learners._line_search import Trial
from backfield.learners.base import Ending, Learner, Restored, Run, dot, norm, number, whole
from backfield.learners.lbfgs import LBFGSState, StageFunction, identity, trace_row
from backfield.training.execution import one_blas_thread
from backfield.training.protocols import HasValue, Minimisable

#: Share of the decrease that the slope promises (Armijo's condition).
_SUFFICIENT = 1e-4


@dataclass(frozen=True, repr=False)
class OWLQN(Learner, name="owlqn"):
    """L-BFGS with an L1 penalty.

    Parameters
    ----------
    l1
        Penalty on |w|, in units of the objective: CRFsuite's ``c1`` divided by the number of labelled positions.
    max_iter
        Iterations at the most.
    tol
        Stop when |subgradient| <= tol max(1, \\|w\\|), Euclidean norms.
    history
        Number of pairs kept.
    max_evaluations
        Evaluations per line search at the most.
    patience
        Iterations without a new lowest validation value after which the fit ends.
    """

    l1: float = 1e-3
    max_iter: int = 100
    tol: float = 1e-5
    history: int = 10
    max_evaluations: int = 20
    patience: int = 10

    requires: ClassVar[tuple[type, ...]] = (HasValue,)

    def __post_init__(self) -> None:
        for key, least in (("max_iter", 0), ("history", 1), ("max_evaluations", 1), ("patience", 1)):
            whole(self.name, key, getattr(self, key), least)
        number(self.name, "l1", self.l1, 0)
        number(self.name, "tol", self.tol, 0)

    @one_blas_thread()  # once: setting it for every sum takes as long as a small step
    def minimise(self, problem: Minimisable, w: np.ndarray, run: Run, restored: Restored | None) -> Ending:
        """Minimise from ``w`` or from what was restored."""
        function = StageFunction(problem, problem.n_examples, run.seed, identity)
        if restored is None:
            state = self._first(w, function)
            stop = run.record(state.w, self._row(state, function, 0.0), state, self.max_iter, fresh=True)
        else:
            state, stop = run.unpacked(LBFGSState, restored), run.verdict()
        while True:
            ending = self._ending(state, stop)
            if ending is not None:
                return ending
            trial = self._search(state, function)
            if trial is None and state.pairs:
                trial = self._search(dataclasses.replace(state, pairs=()), function)
            if trial is None:
                state = dataclasses.replace(state, failed=True)
                continue
            state = state.after(trial, self.history, identity)
            stop = run.record(state.w, self._row(state, function, trial.step), state, self.max_iter)

    def _first(self, w: np.ndarray, function: StageFunction) -> LBFGSState:
        seen = function(w)
        if not (math.isfinite(seen.value) and np.isfinite(seen.gradient).all()):
            raise InputError(f"owlqn: the objective is {seen.value} at the starting point; it must be finite there.")
        return LBFGSState(w).at(w, seen._replace(value=self._penalised(seen.value, w)), low=math.inf, low_norm=math.inf)

    def _penalised(self, value: float, w: np.ndarray) -> float:
        return float(value) + self.l1 * float(np.abs(w).sum())

    def _row(self, state: LBFGSState, function: StageFunction, step: float) -> dict[str, Any]:
        size = norm(subgradient(state.w, state.gradient, self.l1))
        return trace_row(state, function, step) | {"gradient_norm": size, "nonzero": int(np.count_nonzero(state.w))}

    def _ending(self, state: LBFGSState, stop: str) -> Ending | None:
        if stop == "callback":
            return Ending(state.w, False, f"stopped by a callback at iteration {state.iteration}", finished=False)
        if stop == "validation":
            return Ending(state.w, True, f"the validation value has not improved for {self.patience} iterations")
        size, bound = norm(subgradient(state.w, state.gradient, self.l1)), self.tol * max(1.0, norm(state.w))
        if size <= bound:
            return Ending(state.w, True, f"the subgradient norm {size:.3g} is below {bound:.3g}")
        if state.failed:
            return Ending(
                state.w, False, f"no decrease along the subgradient: rounding errors dominate; its norm is {size:.3g}"
            )
        if state.count >= self.max_iter:
            message = f"stopped after max_iter={self.max_iter} iterations; the norm is {size:.3g}"
            return Ending(state.w, False, message, distance=size / bound if bound > 0 else 0.0)
        return None

    def _search(self, state: LBFGSState, function: StageFunction) -> Trial | None:
        """Return the first point of a backtracking search with a sufficient decrease."""
        slope = subgradient(state.w, state.gradient, self.l1)
        direction = state.direction(slope, identity)
        direction[direction * slope >= 0] = 0.0
        orthant = np.where(state.w != 0, np.sign(state.w), -np.sign(slope))
        step = 1.0 if state.pairs else 1.0 / max(norm(direction), 1e-300)
        for _ in range(self.max_evaluations):
            w = state.w + step * direction
            w[np.sign(w) != orthant] = 0.0
            seen = function(w)
            seen = seen._replace(value=self._penalised(seen.value, w))
            promised = dot(slope, w - state.w)
            if promised < 0 and seen.value <= state.value + _SUFFICIENT * promised:
                return Trial(step, seen.value, promised, w, seen)
            step *= 0.5
        return None


def subgradient(w: np.ndarray, gradient: np.ndarray, l1: float) -> np.ndarray:
    """Return the subgradient of f + l1 |w|_1 that is smallest in each coordinate."""
    at_zero = np.sign(gradient) * np.maximum(np.abs(gradient) - l1, 0.0)
    return np.where(w != 0, gradient + l1 * np.sign(w), at_zero)
