"""Limited-memory BFGS (Nocedal 1980; Nocedal and Wright, Numerical Optimization, Alg. 7.4 and 7.5).

    d = -H g,  H from the last pairs s = w' - w, y = g' - g by the two-loop recursion;  w' = w + a d, a by strong Wolfe

H starts from the last pair's scale times a metric of the features (:func:`feature_metric`), or the identity
(``precondition=False``).
A bad direction (no descent, or a line search without a decrease) restarts the history at a fresh gradient, as in
[D13] §8.4; a second failure in a row ends the fit. The doubling schedule is that of [D13] §8.4: ``max_iter`` iterations on
a few examples, then twice the examples and half the iterations, until all are in. Cost per iteration: about one evaluation
and 8 ``history`` passes over vectors of n_weights; memory 2 ``history`` of them.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np

from backfield.errors import InputError
from backfield.learners._line_search import Trial, wolfe_search
from backfield.learners.base import Ending, Learner, Restored, Run, dot, norm, number, whole
from backfield.training.execution import one_blas_thread
from backfield.training.protocols import Evaluation, HasGram, HasValue, Minimisable

#: v -> H0 v
Metric = Callable[[np.ndarray], np.ndarray]
#: Share of each feature's curvature that is added to it, so features that say the same have a solution without a ridge.
_REDUNDANT = 1e-8
#: Iterations without a new lowest value or gradient norm after which rounding errors dominate.
_STALLED = 20
#: Pairs with less curvature than this times |s| |y| are not kept.
_CURVATURE = 1e-10


@dataclass(frozen=True, repr=False)
class LBFGS(Learner, name="lbfgs"):
    """L-BFGS with a strong Wolfe line search.

    Parameters
    ----------
    max_iter
        Iterations at the most (of the first stage, with doubling).
    tol
        Stop when |gradient| <= tol max(1, \\|w\\|), Euclidean norms, and the next step promises to lower the value by
        at most a share ``tol``: weights of small features are large, and so is \\|w\\|, while their gradient is small.
    gtol
        Stop when |gradient| <= gtol instead.
    history
        Number of pairs kept.
    max_evaluations
        Evaluations per line search at the most.
    noise
        Relative error of the objective's value; smaller increases count as none where the slope says so.
    patience
        Iterations without a new lowest validation value after which a stage ends.
    doubling_first
        Examples of the first stage of the doubling schedule; 0: all examples from the start.
    precondition
        Measure weights by the second moments of their features (:func:`feature_metric`): a half to a third of the
        iterations where features are correlated or have different scales, for one pass over them before the first.
    """

    max_iter: int = 100
    tol: float = 1e-5
    gtol: float | None = None
    history: int = 10
    max_evaluations: int = 20
    noise: float = 1e-6
    patience: int = 10
    doubling_first: int = 0
    precondition: bool = True

    requires: ClassVar[tuple[type, ...]] = (HasValue,)

    def __post_init__(self) -> None:
        for key, least in (("max_iter", 0), ("history", 1), ("max_evaluations", 1), ("patience", 1), ("doubling_first", 0)):
            whole(self.name, key, getattr(self, key), least)
        number(self.name, "tol", self.tol, 0)
        number(self.name, "noise", self.noise, 0)
        if self.gtol is not None:
            number(self.name, "gtol", self.gtol, 0)
        if not isinstance(self.precondition, bool):
            raise InputError(f"{self.name}: precondition must be True or False, received {self.precondition!r}.")

    def stages(self, n_examples: int) -> list[tuple[int, int]]:
        """Return (examples, iterations) of each stage of the doubling schedule."""
        if not 0 < self.doubling_first < n_examples:
            return [(n_examples, self.max_iter)]
        n_stages = math.ceil(math.log2(n_examples / self.doubling_first)) + 1
        return [
            (min(self.doubling_first << k, n_examples), max(self.max_iter >> k, min(self.max_iter, 1)))
            for k in range(n_stages)
        ]

    @one_blas_thread()  # once: setting it for every sum takes as long as a small step
    def minimise(self, problem: Minimisable, w: np.ndarray, run: Run, restored: Restored | None) -> Ending:
        """Minimise from ``w`` or from what was restored."""
        stages = self.stages(problem.n_examples)
        metric = feature_metric(problem) if self.precondition else identity
        functions = [StageFunction(problem, n, run.seed, metric) for n, _ in stages]
        total = sum(limit for _, limit in stages)
        if restored is None:
            state, stop = self._enter(LBFGSState(w), functions[0], run, total)
        else:
            state, stop = run.unpacked(LBFGSState, restored), run.verdict()
            with run.restoring():
                functions[state.stage]
        while True:
            function, last = functions[state.stage], state.stage == len(stages) - 1
            ending = self._ending(state, function, stages[state.stage][1], stop)
            if ending is None:
                state, stop = self._advance(state, function, run, total)
            elif last or not ending.finished:
                return ending
            else:
                following = dataclasses.replace(state, stage=state.stage + 1, count=0, failed=False)
                state, stop = self._enter(following, functions[following.stage], run, total)

    def _ending(self, state: LBFGSState, function: StageFunction, limit: int, stop: str) -> Ending | None:
        """Return why the stage ends, if it does."""
        if stop == "callback":
            return Ending(state.w, False, f"stopped by a callback at iteration {state.iteration}", finished=False)
        if stop == "validation":
            return Ending(state.w, True, f"the validation value has not improved for {self.patience} iterations")
        size = norm(state.gradient)
        bound = self.tol * max(1.0, norm(state.w)) if self.gtol is None else self.gtol
        if size <= bound and (self.gtol is not None or not self._promising(state, function)):
            return Ending(state.w, True, f"the gradient norm {size:.3g} is below {bound:.3g}")
        if state.failed:
            why = "no decrease along the direction, and none along the gradient after a restart"
            return Ending(
                state.w, False, f"{why}: rounding errors dominate, or the gradient is wrong; its norm is {size:.3g}"
            )
        if state.stalled >= _STALLED:
            why = f"neither the objective nor the gradient has decreased for {_STALLED} iterations"
            return Ending(state.w, False, f"{why}: rounding errors dominate; the gradient norm is {size:.3g}")
        if state.count >= limit:
            message = f"stopped after max_iter={limit} iterations; the gradient norm is {size:.3g}"
            return Ending(state.w, False, message, distance=size / bound if bound > 0 else 0.0)
        return None

    def _promising(self, state: LBFGSState, function: StageFunction) -> bool:
        """Whether the quadratic model of the next step promises a noticeably lower value."""
        direction = state.direction(state.gradient, function.metric)
        return -0.5 * dot(direction, state.gradient) > self.tol * max(abs(state.value), self.tol)

    def _enter(self, state: LBFGSState, function: StageFunction, run: Run, total: int) -> tuple[LBFGSState, str]:
        """Evaluate the starting point of a stage. Pairs are kept: they are curvature of nearly the same function."""
        seen = function(state.w)
        if not (math.isfinite(seen.value) and np.isfinite(seen.gradient).all()):
            raise InputError(f"lbfgs: the objective is {seen.value} at the starting point; it must be finite there.")
        state = state.at(state.w, seen, low=seen.value, low_norm=math.inf, stalled=0)
        return state, run.record(state.w, trace_row(state, function, 0.0), state, total, fresh=True)

    def _advance(self, state: LBFGSState, function: StageFunction, run: Run, total: int) -> tuple[LBFGSState, str]:
        """Take one step, after a restart if need be."""
        trial = self._search(state, function)
        restarted = trial is None
        if trial is None:
            seen = function(state.w)  # inference may be noisy, or have been a little unlucky
            if not state.pairs and np.array_equal(seen.gradient, state.gradient):
                return dataclasses.replace(state, failed=True), ""
            state = state.at(state.w, seen, pairs=())
            trial = self._search(state, function)
        if trial is None:
            return dataclasses.replace(state, failed=True), ""
        state = state.after(trial, self.history, function.metric)
        row = trace_row(state, function, trial.step) | {"restarted": restarted}
        return state, run.record(state.w, row, state, total)

    def _search(self, state: LBFGSState, function: StageFunction) -> Trial | None:
        direction = state.direction(state.gradient, function.metric)
        start = Trial(0.0, state.value, dot(direction, state.gradient), state.w, None)
        if not start.slope < 0 or not math.isfinite(start.slope):
            return None
        # Without a history the length of the step is a guess: 1, as in scipy, or what the last pair said before a restart.
        step = 1.0 if state.pairs else state.scale or 1.0 / norm(direction)

        def evaluate(step: float) -> Trial:
            w = state.w + step * direction
            seen = function(w)
            slope = dot(seen.gradient, direction) if math.isfinite(seen.value) else math.nan
            return Trial(step, seen.value, slope, w, seen)

        return wolfe_search(evaluate, start, step, self.max_evaluations, self.noise)


class _Pair(NamedTuple):
    s: np.ndarray
    y: np.ndarray
    rho: float  # 1 / s·y


@dataclass(frozen=True)
class LBFGSState:
    """Weights, value and gradient there, the pairs of the last steps, and where the schedule is."""

    w: np.ndarray
    value: float = math.nan
    gradient: np.ndarray = field(default_factory=lambda: np.zeros(0))
    errors: float = math.nan
    pairs: tuple[_Pair, ...] = ()
    scale: float = 0.0  # s·y / y·M y of the last pair, M the metric
    iteration: int = 0
    stage: int = 0
    count: int = 0  # iterations in this stage
    low: float = math.inf
    low_norm: float = math.inf
    stalled: int = 0
    failed: bool = False

    shapes: ClassVar[dict[str, str]] = {"w": "float n", "gradient": "float n", "s?": "float k n", "y?": "float k n"}
    types: ClassVar[dict[str, type]] = {
        "value": float, "errors": float, "scale": float, "iteration": int, "stage": int, "count": int, "low": float,
        "low_norm": float, "stalled": int, "failed": bool,
    }  # fmt: skip

    def at(self, w: np.ndarray, seen: Evaluation, **changes: Any) -> LBFGSState:
        """Return the state at another evaluation."""
        gradient = np.asarray(seen.gradient, dtype=np.float64)
        return dataclasses.replace(
            self, w=w, value=float(seen.value), gradient=gradient, errors=float(seen.errors), **changes
        )

    def after(self, trial: Trial, history: int, metric: Metric) -> LBFGSState:
        """Return the state after a step, with its pair."""
        value, gradient = float(trial.evaluation.value), np.asarray(trial.evaluation.gradient, dtype=np.float64)
        size = norm(gradient)
        better = value < self.low or size < self.low_norm
        pairs, scale = self._updated(trial.w - self.w, gradient - self.gradient, history, metric)
        return self.at(
            trial.w,
            trial.evaluation,
            iteration=self.iteration + 1,
            count=self.count + 1,
            pairs=pairs,
            scale=scale,
            low=min(self.low, value),
            low_norm=min(self.low_norm, size),
            stalled=0 if better else self.stalled + 1,
        )

    def direction(self, gradient: np.ndarray, metric: Metric) -> np.ndarray:
        """Return -H g by the two-loop recursion."""
        q = -gradient
        if not self.pairs:
            return metric(q)
        scaled = np.empty_like(q)
        alphas = []
        for s, y, rho in reversed(self.pairs):
            alphas.append(rho * dot(s, q))
            q -= np.multiply(y, alphas[-1], out=scaled)
        q = metric(q)
        q *= self.scale
        for (s, y, rho), alpha in zip(self.pairs, reversed(alphas), strict=True):
            q += np.multiply(s, alpha - rho * dot(y, q), out=scaled)
        return q

    def _updated(self, s: np.ndarray, y: np.ndarray, history: int, metric: Metric) -> tuple[tuple[_Pair, ...], float]:
        curvature = dot(s, y)
        if not curvature > _CURVATURE * norm(s) * norm(y):
            return self.pairs, self.scale
        return (*self.pairs, _Pair(s, y, 1.0 / curvature))[-history:], curvature / dot(y, metric(y))

    def pack(self) -> Restored:
        """Return arrays, and numbers for JSON."""
        arrays = {"w": self.w, "gradient": self.gradient}
        if self.pairs:
            arrays["s"] = np.stack([pair.s for pair in self.pairs])
            arrays["y"] = np.stack([pair.y for pair in self.pairs])
        return arrays, {key: getattr(self, key) for key in self.types}

    @classmethod
    def unpack(cls, arrays: dict[str, np.ndarray], numbers: dict[str, Any]) -> Self:
        """Return the state that was packed."""
        pairs = [_Pair(s, y, 1.0 / dot(s, y)) for s, y in zip(arrays.get("s", ()), arrays.get("y", ()), strict=True)]
        return cls(
            w=arrays["w"], gradient=arrays["gradient"], pairs=tuple(pairs), **{key: numbers[key] for key in cls.types}
        )


class StageFunction:
    """The objective over the examples of a stage, with a tally of the evaluations since the last row."""

    def __init__(self, problem: Minimisable, n_examples: int, seed: int, metric: Metric) -> None:
        self.problem, self.n_examples, self.seed, self.metric = problem, n_examples, seed, metric
        self.batch = None
        if n_examples < problem.n_examples:
            # The first so many of one order, so each stage contains the one before.
            self.batch = np.sort(np.random.default_rng(seed).permutation(problem.n_examples)[:n_examples])
        self.evaluations, self.sweeps = 0, 0

    def __call__(self, w: np.ndarray) -> Evaluation:
        """Evaluate."""
        seen = self.problem.value_and_gradient(w, self.batch, self.seed)
        self.evaluations += 1
        self.sweeps += int(seen.sweeps)
        return seen

    def tally(self) -> dict[str, int]:
        """Return what was counted since the last call."""
        counts = {"sweeps": self.sweeps, "evaluations": self.evaluations}
        self.evaluations, self.sweeps = 0, 0
        return counts


def trace_row(state: LBFGSState, function: StageFunction, step: float) -> dict[str, Any]:
    """Return the row of an iteration."""
    return {
        "iteration": state.iteration,
        "objective": state.value,
        "gradient_norm": norm(state.gradient),
        "error": state.errors,
        "step": step,
        "examples": function.n_examples,
        **function.tally(),
    }


def identity(v: np.ndarray) -> np.ndarray:
    """Return v: the metric of weights that are measured by themselves."""
    return v


def feature_metric(problem: Minimisable) -> Metric:
    """Return v -> H0 v, the curvature that features alone give: a metric in which few iterations go a long way.

        H0 = (p (1 - p) X'X / n + 2 l2)^-1 for each block of the layout and each of its K outputs,  p = 1 / K

    This is the inverse second derivative of logistic regression at w = 0, without its terms between outputs: X are the rows
    of a block over all examples, n is what the objective is divided by. Cost: one pass over the features and F^3 / 3 for
    each block; an application costs F^2 K. Where one block has no X'X (networks, features by the thousand, squares that
    overflow) all weights keep their own metric: blocks of different metrics would not go together. (The diagonal of X'X
    alone does not help taggers.)
    """
    if not isinstance(problem, HasGram):
        return identity
    solvers = []
    for start, stop, n_outputs, gram, l2 in problem.grams():
        if gram is None or not np.isfinite(gram).all():
            return identity
        p = 1 / n_outputs
        solvers.append((start, stop, len(gram), _solver((p * (1 - p) / problem.size) * gram, 2 * l2)))

    def apply(v: np.ndarray) -> np.ndarray:
        out = np.empty_like(v)
        for start, stop, n_rows, solve in solvers:
            out[start:stop] = solve(v[start:stop].reshape(n_rows, -1)).reshape(-1)
        return out

    return apply


def _solver(curvature: np.ndarray, ridge: Any) -> Metric:
    """Return the solver of (curvature + ridge) x = v, in units of each feature's curvature: scales do not matter.

    It is L^-T L^-1 of the Cholesky factor L, which stays positive definite, in two products of small matrices.
    """
    from scipy.linalg import cholesky, solve_triangular

    matrix = curvature + ridge * np.eye(len(curvature))  # one number, or one per feature
    scale = np.sqrt(np.diagonal(matrix))[:, None]
    scale[scale == 0] = 1.0  # a feature that is always 0
    identity = np.eye(len(matrix))
    factor = cholesky(matrix / (scale * scale.T) + _REDUNDANT * identity, lower=True)
    whitening = solve_triangular(factor, identity, lower=True) / scale.T
    return lambda v: np.dot(whitening.T, np.dot(whitening, v))
