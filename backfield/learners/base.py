"""What a learner is: it moves w, and sees nothing of a problem but value and gradient.

Conventions
-----------
``problem``     the function to minimise: see :class:`Problem`
``trace``       one row per iteration: ``iteration, objective, gradient_norm, error, step, sweeps, seconds, examples`` and,
                with a validation problem, ``validation``; ``seconds`` is the time since the start, over all resumed runs,
                ``sweeps`` that of the row alone; row 0 is the starting point where the learner evaluates it
``state``       all that a learner needs to go on, immutable; checkpoints hold it, so that a resumed run does the very
                arithmetic that an unbroken one would
random numbers  a function of the seed and the number of the step, so that there is no generator to save
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from os import PathLike
from typing import Any, ClassVar

import numpy as np

from backfield.errors import InputError
from backfield.learners._problem import Problem
from backfield.learners._run import Callback, Fit, Outcome, Restored, Row, Run
from backfield.registry import Component


class Learner(Component):
    """A way to minimise a problem."""

    room: ClassVar[str] = "learners"
    #: Follows the value of the objective, not its gradient alone.
    needs_value: ClassVar[bool] = False
    #: Starts from a point of its own, whatever ``w`` it is given.
    own_start: ClassVar[bool] = False
    #: Rows without a new lowest validation value after which a fit stops.
    patience: int

    def fit(
        self,
        problem: Problem,
        w: np.ndarray,
        *,
        callbacks: Sequence[Callback] = (),
        checkpoint: str | PathLike[str] | None = None,
        resume: bool = False,
        seed: int = 0,
        validation: Problem | None = None,
        progress: Callable[[Row], Any] | None = None,
        checkpoint_seconds: float = 30.0,
        checkpoint_iterations: int = 10,
    ) -> Fit:
        """Minimise ``problem`` from ``w``.

        Parameters
        ----------
        problem
            What to minimise.
        w
            Starting point (n_weights,); a resumed fit goes on from its own.
        callbacks
            Called with (iteration, w, row) after each row of the trace; one that returns True stops the fit.
        checkpoint
            File to write at the start, then every ``checkpoint_seconds`` or ``checkpoint_iterations``, whichever comes
            first, at the end, and when the fit is interrupted. If the first write fails, InputError; later ones warn, and
            the fit goes on.
        resume
            Go on from ``checkpoint``. If there is no such file, the fit starts anew and its message says so.
        seed
            Seed of everything random.
        validation
            Problem to watch for early stopping, by its value (by its error rate if it has no value): the fit stops after
            ``patience`` rows without a new lowest one and returns the weights of the lowest.
        progress
            Called with each row and ``total``, the number of iterations planned.
        """
        self.check(problem)
        run = Run(repr(self), self.patience, problem, seed, validation, tuple(callbacks), progress)
        start = _start(problem, w)
        restored = run.open(checkpoint, resume, checkpoint_seconds, checkpoint_iterations)
        if run.done is not None:
            assert restored is not None
            self._reopen(problem, run, restored)
            return run.done
        try:
            outcome = self._minimise(problem, start, run, restored)
        except BaseException:  # Ctrl-C above all
            run.save_late()
            raise
        return run.close(outcome)

    def check(self, problem: Problem) -> None:
        """Refuse problems that the learner cannot minimise."""
        if self.needs_value and not problem.objective_info.integrable:
            raise InputError(
                f"{self.name} needs an objective with a value; {problem.objective_info.name} has a gradient but no "
                "objective: use sgd or ascent"
            )
        if problem.n_examples < 1:
            raise InputError(f"{self.name} got a problem without examples; at least one is needed.")

    def _minimise(self, problem: Problem, w: np.ndarray, run: Run, restored: Restored | None) -> Outcome:
        """Minimise from ``w`` or from what was restored."""
        raise NotImplementedError

    def _reopen(self, problem: Problem, run: Run, restored: Restored) -> None:
        """Bring back what a finished fit found beside the weights."""


def _start(problem: Problem, w: np.ndarray) -> np.ndarray:
    start = np.array(w, dtype=np.float64)
    if start.shape != (problem.n_weights,):
        raise InputError(f"the starting point w has shape {start.shape}; the problem has {problem.n_weights} weights.")
    if not np.isfinite(start).all():
        raise InputError(f"the starting point w has {int((~np.isfinite(start)).sum())} entries that are not finite.")
    return start


def whole(learner: str, key: str, value: Any, least: int) -> None:
    """Refuse a parameter that is not a whole number >= ``least``."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
        raise InputError(f"{learner}: {key} must be a whole number >= {least}, got {value!r}.")


def number(learner: str, key: str, value: Any, least: float, below: float = math.inf, *, open_: bool = False) -> None:
    """Refuse a parameter that is not a number in [least, below), or (least, below) if ``open_``."""
    good = isinstance(value, int | float | np.number) and not isinstance(value, bool)
    if not good or not (least < value if open_ else least <= value) or not value < below:
        bound = f"{'>' if open_ else '>='} {least:g}" + (f" and < {below:g}" if below < math.inf else "")
        raise InputError(f"{learner}: {key} must be a number {bound}, got {value!r}.")
