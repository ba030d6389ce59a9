"""Stochastic gradient descent over mini-batches, with fresh noise in each step ([S18] Alg. 1, double SGD).

    w <- P( w + v ),   v <- momentum v - gamma_t g_t        (or Adam's step; P: projection onto allowed weights)
    gamma_t:  constant  gamma            inverse  gamma / (1 + decay t)
              lambda    1 / (lambda t)   sqrt     gamma / sqrt(1 + decay t)
              cosine    gamma (1 + cos(pi t / T)) / 2, T the number of steps of the fit

g_t is the gradient over batch t with its own seed, ridge included. lambda is the strong convexity of the ridge,
2 l2 for l2 |w|^2. Each epoch visits all examples once in an order drawn from the seed; order and seeds are functions of
(seed, epoch) and (seed, t), so any run can go on in the middle. The average is Polyak's, over the second half of the
steps. Cost per step: one evaluation of the batch and some passes over vectors of n_weights.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np

from backfield.errors import InputError
from backfield.learners._projection import Projection, check_name, projection_of
from backfield.learners.base import Ending, Learner, Restored, Run, norm, number, step_seed, whole
from backfield.training.execution import one_blas_thread
from backfield.training.protocols import Evaluation, HasExamples, Minimisable

SCHEDULES = ("constant", "inverse", "sqrt", "lambda", "cosine")
OPTIMIZERS = ("sgd", "adam")


class SGDState(NamedTuple):
    """What lasts from step to step: their number, velocity and mean square of gradients, and the average of weights."""

    t: int = 0
    velocity: np.ndarray | None = None
    square: np.ndarray | None = None
    mean: np.ndarray | None = None
    averaged: int = 0
    average_from: int = 0


@dataclass(frozen=True, repr=False)
class SGD(Learner, name="sgd"):
    """Stochastic gradient descent.

    Parameters
    ----------
    epochs
        Passes over the examples.
    batch_size
        Examples per step.
    step_size
        gamma, the factor of the gradient in the first step; unused by the schedule "lambda".
    momentum
        Share of the velocity that is kept.
    schedule
        "constant", "inverse", "sqrt", "lambda" or "cosine".
    decay
        Speed at which "inverse" and "sqrt" shorten the step, per step.
    average
        Return the average of the weights over the second half of the steps.
    optimizer
        "sgd", or "adam" with ``beta1``, ``beta2`` and ``eps``.
    l2
        Ridge strength for "lambda"; None: that of the problem.
    projection
        "supermodular": project onto weights whose models minimum cuts solve, after each step.
    patience
        Epochs without a new lowest validation value after which the fit stops.
    """

    epochs: int = 10
    batch_size: int = 1
    step_size: float = 0.1
    momentum: float = 0.0
    schedule: str = "constant"
    decay: float = 0.01
    average: bool = False
    optimizer: str = "sgd"
    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-8
    l2: float | None = None
    projection: str | None = None
    patience: int = 5

    def __post_init__(self) -> None:
        for key, least in (("epochs", 0), ("batch_size", 1), ("patience", 1)):
            whole(self.name, key, getattr(self, key), least)
        for key in ("step_size", "eps"):
            number(self.name, key, getattr(self, key), 0, open_=True)
        for key in ("momentum", "beta1", "beta2"):
            number(self.name, key, getattr(self, key), 0, 1)
        number(self.name, "decay", self.decay, 0)
        if self.l2 is not None:
            number(self.name, "l2", self.l2, 0, open_=True)
        for key, known in (("schedule", SCHEDULES), ("optimizer", OPTIMIZERS)):
            if getattr(self, key) not in known:
                raise InputError(f"sgd: {key} must be one of {', '.join(known)}; received {getattr(self, key)!r}.")
        check_name(self.name, self.projection)
        if self.optimizer == "adam" and self.momentum:
            raise InputError(f"sgd: adam has beta1 in the place of momentum; received momentum={self.momentum!r}.")

    def needs(self) -> tuple[type, ...]:
        """Return what the projection needs."""
        return (HasExamples,) if self.projection is not None else ()

    def check(self, problem: Minimisable) -> None:
        """Refuse problems that the learner cannot minimise."""
        super().check(problem)
        if self.schedule == "lambda" and not self._l2(problem) > 0:
            raise InputError("sgd: schedule='lambda' steps by 1 / (2 l2 t) and needs l2 > 0, of the problem or of sgd.")

    def rate(self, t: int, problem: Minimisable) -> float:
        """Return the length of step ``t`` (from 0)."""
        if self.schedule == "lambda":
            return 1.0 / (2.0 * self._l2(problem) * (t + 1))
        if self.schedule == "inverse":
            return self.step_size / (1.0 + self.decay * t)
        if self.schedule == "sqrt":
            return self.step_size / math.sqrt(1.0 + self.decay * t)
        if self.schedule == "cosine":
            return self.step_size * (1.0 + math.cos(math.pi * t / self._steps(problem))) / 2.0
        return self.step_size

    def step(
        self, problem: Minimisable, w: np.ndarray, state: SGDState | None, batch: np.ndarray, seed: int
    ) -> tuple[np.ndarray, SGDState]:
        """Take one step on a batch; ``answer`` then tells the weights to use.

        Parameters
        ----------
        problem
            What to minimise.
        w
            Weights (n_weights,); they are not changed.
        state
            None at first, later what the last call returned.
        batch
            Numbers of the examples.
        seed
            Seed of all steps; the noise of each is drawn from it and the number of the step.
        """
        batch = np.asarray(batch)
        if batch.size == 0:
            raise InputError("sgd received an empty mini-batch; at least one example is needed.")
        if batch.min() < 0 or batch.max() >= problem.n_examples:
            raise InputError(
                f"sgd received a mini-batch with examples {batch.min()} to {batch.max()} of {problem.n_examples}."
            )
        if self.schedule == "cosine":
            raise InputError("sgd: schedule='cosine' needs the number of steps beforehand; for single ones take 'sqrt'.")
        self.check(problem)
        project = projection_of(self.name, self.projection, problem)
        w, state, _ = self._step(problem, w, SGDState() if state is None else state, batch, seed, project)
        return w, state

    def answer(self, w: np.ndarray, state: SGDState) -> np.ndarray:
        """Return the weights to use: the average if there is one."""
        return w if state.mean is None else state.mean

    def _step(
        self, problem: Minimisable, w: np.ndarray, state: SGDState, batch: np.ndarray, seed: int, project: Projection
    ) -> tuple[np.ndarray, SGDState, Evaluation]:
        seen = problem.value_and_gradient(w, batch, step_seed(seed, state.t))
        if not np.isfinite(seen.gradient).all() or (problem.objective_info.integrable and not math.isfinite(seen.value)):
            raise InputError(f"sgd: the objective or its gradient is not finite at step {state.t + 1}; reduce step_size.")
        move, velocity, square = self._move(seen.gradient, state, self.rate(state.t, problem))
        w = project(w + move)
        t, mean, averaged = state.t + 1, state.mean, state.averaged
        if self.average and t > state.average_from:
            averaged += 1
            mean = w if mean is None else mean + (w - mean) / averaged
        return w, SGDState(t, velocity, square, mean, averaged, state.average_from), seen

    def _move(self, g: np.ndarray, state: SGDState, rate: float) -> tuple[np.ndarray, np.ndarray | None, np.ndarray | None]:
        """Return the step with the new velocity and mean square."""
        if self.optimizer == "adam":
            zero = np.zeros_like(g)
            first = self.beta1 * (zero if state.velocity is None else state.velocity) + (1 - self.beta1) * g
            second = self.beta2 * (zero if state.square is None else state.square) + (1 - self.beta2) * g * g
            unbiased = first / (1 - self.beta1 ** (state.t + 1))
            scale = np.sqrt(second / (1 - self.beta2 ** (state.t + 1))) + self.eps
            return -rate * unbiased / scale, first, second
        if not self.momentum:
            return -rate * g, None, None
        velocity = -rate * g if state.velocity is None else self.momentum * state.velocity - rate * g
        return velocity, velocity, None

    def _steps(self, problem: Minimisable) -> int:
        return self.epochs * math.ceil(problem.n_examples / self.batch_size)

    @property
    def uniform_ridge(self) -> bool:  # type: ignore[override]
        """Whether steps are those of a strongly convex function."""
        return self.schedule == "lambda"

    def _l2(self, problem: Minimisable) -> float:
        return float(problem.l2 if self.l2 is None else self.l2)

    def minimise(self, problem: Minimisable, w: np.ndarray, run: Run, restored: Restored | None) -> Ending:
        """Minimise from ``w`` or from what was restored."""
        project = projection_of(self.name, self.projection, problem)
        if restored is None:
            at = SGDProgress(project(w), SGDState(average_from=self._steps(problem) // 2))
            run.mark(at)
        else:
            at = run.unpacked(SGDProgress, restored)
        stop = run.verdict()
        while at.epoch < self.epochs and not stop:
            with one_blas_thread():  # else each step would set it again
                at = self._epoch(problem, at, run, project)
            row = self._row(problem, at)
            at = SGDProgress(at.w, at.state, epoch=at.epoch + 1)
            stop = run.record(self.answer(at.w, at.state), row, at, self.epochs)
        found = self.answer(at.w, at.state)
        if stop == "callback":
            return Ending(found, False, f"stopped by a callback after epoch {at.epoch}", finished=False)
        if stop == "validation":
            return Ending(found, True, f"the validation value has not improved for {self.patience} epochs")
        return Ending(found, True, f"ran {self.epochs} epochs")

    def _epoch(self, problem: Minimisable, at: SGDProgress, run: Run, project: Projection) -> SGDProgress:
        """Take the remaining steps of an epoch."""
        order = np.random.default_rng((run.seed, at.epoch)).permutation(problem.n_examples)
        while at.position < len(order):
            batch = order[at.position : at.position + self.batch_size]
            w, state, seen = self._step(problem, at.w, at.state, batch, run.seed, project)
            at = at.after(w, state, seen, len(batch))
            run.mark(at)
        return at

    def _row(self, problem: Minimisable, at: SGDProgress) -> dict[str, Any]:
        """Return means over the steps of the epoch; each at the weights of its step."""
        return {
            "iteration": at.epoch + 1,
            "objective": at.value / at.position,
            "gradient_norm": norm(at.gradient) / at.position,
            "error": at.errors / at.position,
            "step": self.rate(at.state.t - 1, problem),
            "sweeps": at.sweeps,
            "examples": at.position,
        }


@dataclass(frozen=True)
class SGDProgress:
    """Where a fit is: weights and state, the place in the epoch, and sums over its examples so far."""

    w: np.ndarray
    state: SGDState
    epoch: int = 0
    position: int = 0
    value: float = 0.0
    gradient: np.ndarray = field(default_factory=lambda: np.zeros(0))
    errors: float = 0.0
    sweeps: int = 0

    shapes: ClassVar[dict[str, str]] = {
        "w": "float n",
        "gradient": "float n|0",
        "velocity?": "float n",
        "square?": "float n",
        "mean?": "float n",
    }
    types: ClassVar[dict[str, type]] = {
        "epoch": int, "position": int, "value": float, "errors": float, "sweeps": int, "t": int, "averaged": int,
        "average_from": int,
    }  # fmt: skip

    def after(self, w: np.ndarray, state: SGDState, seen: Evaluation, n: int) -> SGDProgress:
        """Return where the fit is one step later."""
        gradient = n * np.asarray(seen.gradient, dtype=np.float64)
        return SGDProgress(
            w,
            state,
            self.epoch,
            self.position + n,
            self.value + n * float(seen.value),
            self.gradient + gradient if len(self.gradient) else gradient,
            self.errors + n * float(seen.errors),
            self.sweeps + int(seen.sweeps),
        )

    def pack(self) -> Restored:
        """Return arrays, and numbers for JSON."""
        arrays = {"w": self.w, "gradient": self.gradient}
        arrays |= {key: array for key in _ARRAYS if (array := getattr(self.state, key)) is not None}
        return arrays, {key: getattr(self, key) for key in _OWN} | {key: getattr(self.state, key) for key in _COUNTS}

    @classmethod
    def unpack(cls, arrays: dict[str, np.ndarray], numbers: dict[str, Any]) -> Self:
        """Return the progress that was packed."""
        parts: dict[str, Any] = {key: arrays.get(key) for key in _ARRAYS}
        state = SGDState(**parts, **{key: numbers[key] for key in _COUNTS})
        return cls(arrays["w"], state, gradient=arrays["gradient"], **{key: numbers[key] for key in _OWN})


_ARRAYS = ("velocity", "square", "mean")
_COUNTS = ("t", "averaged", "average_from")
_OWN = ("epoch", "position", "value", "errors", "sweeps")
