"""Stochastic meta-descent ([S11] §4.2; Schraudolph 1999; Vishwanathan et al. 2006): a gain for each weight.

    eta_t   = eta_t-1 · max( 1/2, 1 - mu g_t · v_t )          (all products of vectors elementwise)
    w_t+1   = w_t - eta_t · g_t
    v_t+1   = lambda v_t - eta_t · ( g_t + lambda H_t v_t )

from eta_-1 = eta0 and v_0 = 0. v is the derivative of w with respect to log eta, decayed by lambda; H v is exact, by complex
differentiation of the gradient (:meth:`Problem.hessian_vector`). Cost per step: one evaluation in complex arithmetic.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np

from backfield.errors import InputError
from backfield.learners.base import Ending, Learner, Restored, Run, norm, number, project, step_seed, whole
from backfield.training.protocols import Evaluation, HasHessianVector


@dataclass(frozen=True, repr=False)
class SMD(Learner, name="smd"):
    """Stochastic meta-descent.

    Parameters
    ----------
    epochs
        Passes over the examples.
    batch_size
        Examples per step; 0: all.
    eta0
        First gain of every weight.
    mu
        How fast the gains change; 0 is gradient descent.
    lambda_
        How much of the past the gains look at, in [0, 1].
    patience
        Epochs without a new lowest validation value after which the fit stops.
    """

    epochs: int = 25
    batch_size: int = 0
    eta0: float = 0.1
    mu: float = 0.05
    lambda_: float = 0.99
    patience: int = 5

    requires: ClassVar[tuple[type, ...]] = (HasHessianVector,)

    def __post_init__(self) -> None:
        for key, least in (("epochs", 0), ("batch_size", 0), ("patience", 1)):
            whole(self.name, key, getattr(self, key), least)
        number(self.name, "eta0", self.eta0, 0, open_=True)
        number(self.name, "mu", self.mu, 0)
        number(self.name, "lambda_", self.lambda_, 0, np.nextafter(1, 2))

    def minimise(self, problem: Any, w: np.ndarray, run: Run, restored: Restored | None) -> Ending:
        """Minimise from ``w`` or from what was restored."""
        if restored is None:
            at = SMDState(project(problem, w), np.full(len(w), self.eta0), np.zeros(len(w)))
            run.mark(at)
        else:
            at = run.unpacked(SMDState, restored)
        stop = run.verdict()
        while at.epoch < self.epochs and not stop:
            at, row = self._epoch(problem, at, run.seed)
            stop = run.record(at.w, row, at, self.epochs)
        if stop == "callback":
            return Ending(at.w, False, f"stopped by a callback after epoch {at.epoch}", finished=False)
        if stop == "validation":
            return Ending(at.w, True, f"the validation value has not improved for {self.patience} epochs")
        return Ending(at.w, True, f"ran {self.epochs} epochs")

    def _epoch(self, problem: Any, at: SMDState, seed: int) -> tuple[SMDState, dict[str, Any]]:
        count = problem.n_examples
        size = self.batch_size or count
        order = np.arange(count) if size >= count else np.random.default_rng((seed, at.epoch)).permutation(count)
        sums = np.zeros(3)
        gradient = np.zeros(len(at.w))
        sweeps = 0
        for first in range(0, count, size):
            batch = order[first : first + size]
            at, seen = self._step(problem, at, batch, seed)
            sums += len(batch) * np.array([seen.value, seen.errors, 1.0])
            gradient += len(batch) * np.asarray(seen.gradient)
            sweeps += int(seen.sweeps)
        row = {
            "iteration": at.epoch + 1,
            "objective": float(sums[0] / count),
            "gradient_norm": norm(gradient) / count,
            "error": float(sums[1] / count),
            "step": float(at.eta.mean()),
            "sweeps": sweeps,
            "examples": count,
        }
        return dataclasses.replace(at, epoch=at.epoch + 1), row

    def _step(self, problem: Any, at: SMDState, batch: np.ndarray, seed: int) -> tuple[SMDState, Evaluation]:
        seen, curved = problem.hessian_vector(at.w, at.v, batch, step_seed(seed, at.t))
        g = np.asarray(seen.gradient, dtype=np.float64)
        if not (np.isfinite(seen.value) and np.isfinite(g).all() and np.isfinite(curved).all()):
            raise InputError(f"smd: the objective is not finite at step {at.t + 1}; reduce eta0 or mu.")
        eta = at.eta * np.maximum(0.5, 1 - self.mu * g * at.v)
        v = self.lambda_ * at.v - eta * (g + self.lambda_ * curved)
        return dataclasses.replace(at, w=project(problem, at.w - eta * g), eta=eta, v=v, t=at.t + 1), seen


@dataclass(frozen=True)
class SMDState:
    """Weights, gains, and the derivative of weights with respect to log gains."""

    w: np.ndarray
    eta: np.ndarray
    v: np.ndarray
    t: int = 0
    epoch: int = 0

    shapes: ClassVar[dict[str, str]] = {"w": "float n", "eta": "float n", "v": "float n"}
    types: ClassVar[dict[str, type]] = {"t": int, "epoch": int}

    def pack(self) -> Restored:
        """Return arrays, and numbers for JSON."""
        return {"w": self.w, "eta": self.eta, "v": self.v}, {"t": self.t, "epoch": self.epoch}

    @classmethod
    def unpack(cls, arrays: dict[str, np.ndarray], numbers: dict[str, Any]) -> Self:
        """Return the state that was packed."""
        return cls(arrays["w"], arrays["eta"], arrays["v"], numbers["t"], numbers["epoch"])
