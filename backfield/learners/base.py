"""What a learner is: it moves w, and asks of a problem only what it declares.

Conventions
-----------
``problem``     the function to minimise: see :mod:`backfield.training.protocols`
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
from typing import Any, ClassVar, NamedTuple, Protocol, runtime_checkable

import numpy as np

from backfield.errors import InputError
from backfield.learners._run import Callback, Ending, Fit, Restored, Row, Run
from backfield.objectives import MaxMargin
from backfield.registry import Component
from backfield.training.protocols import HasExamples, HasGram, HasHessianVector, HasOracle, HasValue, Minimisable


class Need(NamedTuple):
    """What a learner can need of a problem: when its objective gives it, and what to say where it does not."""

    holds: Callable[[Any], bool]
    refusal: str


#: Of every capability that a learner can require. A problem has it if it has the protocol and its objective allows it.
NEEDS: dict[type, Need] = {
    HasValue: Need(
        lambda info: info.integrable,
        "{learner} needs an objective with a value; {objective} has a gradient but no objective: use sgd or ascent",
    ),
    HasHessianVector: Need(
        lambda info: info.integrable and info.smooth,
        "{learner} needs second derivatives, which {objective} does not have; use sgd or ascent.",
    ),
    HasGram: Need(
        lambda info: True,
        "{learner} needs the second moments of features, which {objective} does not have; use lbfgs or sgd.",
    ),
    HasOracle: Need(
        lambda info: isinstance(info, MaxMargin),
        "{learner} minimises max_margin, not {objective}; use lbfgs or sgd for others.",
    ),
    HasExamples: Need(
        lambda info: True,
        "{learner} needs a problem over labelled graphs, and {objective} says nothing of edges; use plain lbfgs or sgd.",
    ),
}


class Learner(Component):
    """A way to minimise a problem."""

    room: ClassVar[str] = "learners"
    #: Capabilities of :mod:`backfield.training.protocols` that a problem must have.
    requires: ClassVar[tuple[type, ...]] = ()
    #: Starts from a point of its own, whatever ``w`` it is given.
    own_start: ClassVar[bool] = False
    #: Fits functions through oracles, which estimators hand it for energies.
    uses_oracles: ClassVar[bool] = False
    #: Rows without a new lowest validation value after which a fit stops.
    patience: int

    def fit(
        self,
        problem: Minimisable,
        w: np.ndarray,
        *,
        callbacks: Sequence[Callback] = (),
        checkpoint: str | PathLike[str] | None = None,
        resume: bool = False,
        seed: int = 0,
        validation: Minimisable | None = None,
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
            ending = self._minimise(problem, start, run, restored)
        except BaseException:  # Ctrl-C above all
            run.save_late()
            raise
        return run.close(ending)

    def check(self, problem: Minimisable) -> None:
        """Refuse problems that lack what the learner needs."""
        for need in self.needs():
            if not isinstance(problem, need) or not NEEDS[need].holds(problem.objective_info):
                raise InputError(NEEDS[need].refusal.format(learner=repr(self), objective=problem.objective_info.name))
        if problem.n_examples < 1:
            raise InputError(f"{self.name} got a problem without examples; at least one is needed.")

    def needs(self) -> tuple[type, ...]:
        """Return the capabilities that the learner requires with its parameters."""
        return self.requires

    def _minimise(self, problem: Minimisable, w: np.ndarray, run: Run, restored: Restored | None) -> Ending:
        """Minimise from ``w`` or from what was restored."""
        raise NotImplementedError

    def _reopen(self, problem: Minimisable, run: Run, restored: Restored) -> None:
        """Bring back what a finished fit found beside the weights."""


@runtime_checkable
class Incremental(Protocol):
    """A learner that can take single steps (``partial_fit``)."""

    def step(self, problem: Any, w: np.ndarray, state: Any, batch: np.ndarray, seed: int) -> tuple[np.ndarray, Any]:
        """Take one step on a batch; ``state`` is None at first, later what the last call returned."""

    def answer(self, w: np.ndarray, state: Any) -> np.ndarray:
        """Return the weights to use."""


def _start(problem: Minimisable, w: np.ndarray) -> np.ndarray:
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
