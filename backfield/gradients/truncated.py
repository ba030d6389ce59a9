"""Truncated back-propagation ([D13] §7, [S11] App. A): the exact derivative of what the sweeps computed.

The state before every sweep is kept and the sweeps are undone one by one. Where all states would not fit into
``memory`` bytes, every k-th is kept and the others are computed again: the same gradient, at most twice the sweeps
(a little more where even a k-th does not fit).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from backfield.errors import InputError
from backfield.gradients.base import Gradient, LossFunction, Outcome
from backfield.graph import Potentials
from backfield.inference.base import Adjoint, Engine, IterativeInference, Progress


@dataclass(frozen=True, repr=False)
class Truncated(Gradient, name="truncated"):
    """Exact derivative at any number of sweeps; ``memory`` bounds the bytes kept for the way back."""

    memory: int = 2**30

    separable: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if not (isinstance(self.memory, int) and self.memory > 0):
            raise InputError(f"truncated: memory must be a positive number of bytes, received {self.memory!r}.")

    def through_iterations(
        self, method: IterativeInference, theta: Potentials, loss: LossFunction, cliques: bool
    ) -> Outcome:
        """Return the loss at ``theta`` and its derivative."""
        engine = method.bind(theta)
        tape = Tape(engine, method, self.memory)
        mu = engine.marginals(tape.last, factors=cliques)
        value, d_mu = loss(mu)
        d_theta = engine.adjoint()
        d_state = np.zeros_like(tape.last)
        engine.marginals_vjp(tape.last, d_mu, d_state, d_theta)
        tape.unwind(d_state, d_theta)
        return Outcome(value, d_theta.potentials(theta.graph), mu, tape.n_iter, tape.converged)


def log_partition_and_gradient(
    method: IterativeInference, theta: Potentials, memory: int = Truncated.memory
) -> tuple[Any, Potentials, Potentials]:
    """Return the truncated log Z, theta·mu + H(mu) ([D13] §7.3), its exact derivative, and mu.

    # Differs from [D13]: the text prints a minus before H; eq. (13) has a plus.
    """
    engine = method.bind(theta)
    tape = Tape(engine, method, memory)
    mu = engine.marginals(tape.last)
    value = engine.value(tape.last, mu)
    d_theta = engine.adjoint()
    d_state = np.zeros_like(tape.last)
    engine.value_vjp(tape.last, mu, d_state, d_theta)
    tape.unwind(d_state, d_theta)
    return value, d_theta.potentials(theta.graph), mu


class Tape:
    """The states of a run: ``all`` of them where they fit and their number is known, else every ``spacing``-th."""

    all: np.ndarray | None = None

    def __init__(self, engine: Engine, method: IterativeInference, memory: int) -> None:
        self.engine = engine
        state = engine.init()
        self.capacity = max(4, memory // max(1, state.nbytes))
        self.spacing = 1
        self.n_iter = 0
        self.converged = False
        if method.tol is None and method.n_iter <= self.capacity // 2:
            self.all = np.empty((method.n_iter + 1, *state.shape), state.dtype)
            self.all[0] = state
            engine.record(self.all, 0)
            self.n_iter, self.last = method.n_iter, self.all[-1]
            return
        self.kept = [state.copy()]
        residual = np.inf
        progress = Progress(engine, state, method.tol) if method.tol is not None else None
        for t in range(method.n_iter):
            engine.sweep(state, t)
            self.n_iter = t + 1
            if progress is not None:
                residual = progress.step(state)
                if residual < progress.tol:
                    break
            self._keep(state)
        self.last = state
        self.converged = method.tol is not None and residual < method.tol

    def _keep(self, state: np.ndarray) -> None:
        if self.n_iter % self.spacing:
            return
        self.kept.append(state.copy())
        if len(self.kept) > self.capacity // 2:
            self.kept = self.kept[::2]
            self.spacing *= 2

    def unwind(self, d_state: np.ndarray, d_theta: Adjoint) -> None:
        """Undo all sweeps, replacing the adjoint of the last state by that of the first."""
        if self.all is not None:
            return self.engine.unwind(self.all, 0, d_state, d_theta)
        after = self.last
        stop = self.n_iter
        for number in range((self.n_iter - 1) // self.spacing, -1, -1):
            start = number * self.spacing
            before = self.kept[number]
            self._segment(start, stop, before, after, d_state, d_theta)
            after, stop = before, start

    def _segment(
        self, start: int, stop: int, before: np.ndarray, after: np.ndarray, d_state: np.ndarray, d_theta: Adjoint
    ) -> None:
        """Undo sweeps start .. stop - 1, given the states before the first and after the last of them."""
        if stop - start == 1:
            return self.engine.sweep_vjp(before, after, start, d_state, d_theta)
        if stop - start > max(2, self.capacity // 2):
            middle = (start + stop) // 2
            state = before.copy()
            self.engine.sweeps(state, start, middle)
            self._segment(middle, stop, state, after, d_state, d_theta)
            self._segment(start, middle, before, state, d_state, d_theta)
            return
        states = np.empty((stop - start + 1, *before.shape), before.dtype)
        states[0] = before
        self.engine.record(states[:-1], start)
        states[-1] = after
        self.engine.unwind(states, start, d_state, d_theta)
