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
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Protocol

import numpy as np

from backfield._component import Component
from backfield.errors import InputError
from backfield.learners._checkpoint import probe, read_checkpoint, write_checkpoint

Row = dict[str, Any]
#: Called with (iteration, w, row); True stops the fit.
Callback = Callable[[int, np.ndarray, Row], Any]


class Evaluation(Protocol):
    """Value and gradient at some w, and what was seen on the way."""

    @property
    def value(self) -> float: ...  # noqa: D102
    @property
    def gradient(self) -> np.ndarray: ...  # noqa: D102
    @property
    def errors(self) -> float: ...  # noqa: D102
    @property
    def sweeps(self) -> int: ...  # noqa: D102


class Problem(Protocol):
    """A function of w to minimise; the mean over examples, or over a batch of them, plus the ridge term.

    Three more attributes are used where they exist: ``projection(w)`` onto the weights that are allowed, ``l2`` (the value
    holds l2 |w|^2), and ``fingerprint``, a text that tells two problems apart when a fit is resumed.
    """

    @property
    def n_weights(self) -> int: ...  # noqa: D102
    @property
    def n_examples(self) -> int: ...  # noqa: D102
    @property
    def objective_info(self) -> Any:
        """What is minimised: ``name``, and ``integrable`` if the gradient is that of the value."""

    def value_and_gradient(self, w: np.ndarray, batch: np.ndarray | None = None, seed: int = 0) -> Evaluation: ...  # noqa: D102


@dataclass(frozen=True)
class Fit:
    """What a learner found: the weights, how it got there, and why it stopped."""

    w: np.ndarray
    trace: list[Row]
    converged: bool
    message: str


class Outcome(NamedTuple):
    """Why a learner stopped. ``finished`` is False if resuming should go on from here."""

    w: np.ndarray
    converged: bool
    message: str
    finished: bool = True


class State(Protocol):
    """All that a learner needs to go on."""

    def pack(self) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """Return arrays, and numbers for JSON."""


class Best(NamedTuple):
    """The lowest validation value so far, its weights, and the number of rows since."""

    value: float = math.inf
    w: np.ndarray | None = None
    waited: int = 0


class Learner(Component):
    """A way to minimise a problem."""

    room: ClassVar[str] = "learners"
    #: Follows the value of the objective, not its gradient alone.
    needs_value: ClassVar[bool] = False
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
            File to write every ``checkpoint_seconds`` or ``checkpoint_iterations``, whichever comes first, at the end, and
            when the fit is interrupted. If the first write fails, InputError; later ones warn, and the fit goes on.
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
        run = Run(self, problem, seed, validation, tuple(callbacks), progress)
        start = _start(problem, w)
        restored = run.open(checkpoint, resume, checkpoint_seconds, checkpoint_iterations)
        if run.done is not None:
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


#: Arrays and numbers of a state.
Restored = tuple[dict[str, np.ndarray], dict[str, Any]]


class Run:
    """One fit: its trace, clock, callbacks, validation and checkpoints."""

    def __init__(
        self,
        learner: Learner,
        problem: Problem,
        seed: int,
        validation: Problem | None,
        callbacks: tuple[Callback, ...],
        progress: Callable[[Row], Any] | None,
    ) -> None:
        self.learner, self.seed, self.validation = learner, seed, validation
        self.callbacks, self.progress = callbacks, progress
        self.trace: list[Row] = []
        self.best = Best()
        self.done: Fit | None = None
        self.identity = {
            "spec": repr(learner),
            "objective": str(problem.objective_info.name),
            "n_weights": int(problem.n_weights),
            "n_examples": int(problem.n_examples),
            "seed": seed,
            "fingerprint": str(getattr(problem, "fingerprint", "")),
        }
        self._path: Path | None = None
        self._note = ""
        self._latest: tuple[int, State, Best] | None = None
        self._began = time.perf_counter()
        self._saved_once = False
        self._saved_at = self._began
        self._saved_rows = 0

    def open(
        self, checkpoint: str | PathLike[str] | None, resume: bool, seconds: float, iterations: int
    ) -> Restored | None:
        """Make sure that checkpoints can be written; return the state to go on from, if there is one."""
        if checkpoint is None:
            if resume:
                raise InputError("resume=True needs checkpoint=, the file to go on from.")
            return None
        self._path, self._seconds, self._iterations = Path(checkpoint), seconds, iterations
        try:
            probe(self._path)
        except OSError as error:
            raise self._unwritable(error) from error
        if not resume:
            return None
        if not self._path.exists():
            self._note = f"no checkpoint at {self._path}: started anew; "
            return None
        return self._restore(self._path)

    def _restore(self, path: Path) -> Restored:
        arrays, content = read_checkpoint(path)
        for key, ours in self.identity.items():
            theirs = content.get("identity", {}).get(key)
            if theirs != ours:
                raise InputError(f"the checkpoint {path} has {key} {theirs!r} and this fit has {ours!r}; they cannot be joined.")
        self.trace = content["trace"]
        self.best = Best(content["best"], arrays.get("best"), content["waited"])
        self._began -= content["seconds"]
        self._saved_once, self._saved_rows = True, len(self.trace)
        if content["outcome"] is not None:
            self.done = Fit(arrays["result"], self.trace, *content["outcome"])
        return arrays, content["state"]

    def record(self, w: np.ndarray, row: Row, state: State, total: int, *, fresh: bool = False) -> str:
        """Add a row to the trace; return "callback" or "validation" if that stops the fit, else "".

        ``fresh`` starts the patience anew: what is minimised has changed.
        """
        best = self._watch(w, row, fresh)
        row = {**row, "seconds": time.perf_counter() - self._began}
        self.trace.append(row)
        self._latest = (len(self.trace), state, best)  # one assignment: an interruption sees all of it or nothing
        self.best = best
        if self.progress is not None:
            self.progress({**row, "total": total})
        seen = w.view()
        seen.flags.writeable = False
        stops = [callback(row["iteration"], seen, row) is True for callback in self.callbacks]
        if self._path is not None and len(self.trace) - self._saved_rows >= self._iterations:
            self.save()
        self.save_if_due()
        if any(stops):
            return "callback"
        return "validation" if self.validation is not None and best.waited >= self.learner.patience else ""

    def _watch(self, w: np.ndarray, row: Row, fresh: bool) -> Best:
        if self.validation is None:
            return self.best
        seen = self.validation.value_and_gradient(w, None, self.seed)
        value = float(seen.value if self.validation.objective_info.integrable else seen.errors)
        if math.isnan(value):
            raise InputError("early stopping needs a validation problem with a value or an error rate; both are nan.")
        row["validation"] = value
        if value < self.best.value:
            return Best(value, w.copy(), 0)
        return self.best._replace(waited=0 if fresh else self.best.waited + 1)

    def mark(self, state: State) -> None:
        """Remember a state between two rows; write it if it is time."""
        self._latest = (len(self.trace), state, self.best)
        self.save_if_due()

    def save_if_due(self) -> None:
        """Write a checkpoint if the last one is older than ``checkpoint_seconds``."""
        if self._path is not None and time.perf_counter() - self._saved_at >= self._seconds:
            self.save()

    def save(self, outcome: Outcome | None = None) -> None:
        """Write a checkpoint. The first failure raises InputError; later ones warn."""
        if self._path is None or self._latest is None:
            return
        try:
            write_checkpoint(self._path, *self._content(outcome))
        except OSError as error:
            failed = self._unwritable(error)
            if not self._saved_once:
                self._path = None
                raise failed from error
            warnings.warn(f"{failed} The fit goes on; the last checkpoint is kept.", stacklevel=2)
        self._saved_once = True
        self._saved_at = time.perf_counter()
        self._saved_rows = len(self.trace)

    def save_late(self) -> None:
        """Write a checkpoint while an error is on its way up, which must not be hidden by another."""
        self._saved_once = True
        self.save()

    def _content(self, outcome: Outcome | None) -> Restored:
        assert self._latest is not None
        n_rows, state, best = self._latest
        arrays, numbers = state.pack()
        if best.w is not None:
            arrays["best"] = best.w
        if outcome is not None:
            arrays["result"] = outcome.w
        return arrays, {
            "identity": self.identity,
            "state": numbers,
            "trace": self.trace[:n_rows],
            "best": best.value,
            "waited": best.waited,
            "seconds": time.perf_counter() - self._began,
            "outcome": [outcome.converged, outcome.message] if outcome is not None else None,
        }

    def close(self, outcome: Outcome) -> Fit:
        """Write the last checkpoint and return what was found."""
        if self.best.w is not None and outcome.finished:
            outcome = outcome._replace(w=self.best.w)
        self.save(outcome if outcome.finished else None)
        return Fit(outcome.w.copy(), self.trace, outcome.converged, self._note + outcome.message)

    def _unwritable(self, error: OSError) -> InputError:
        return InputError(f"the checkpoint {self._path} cannot be written: {error.strerror or error}.")


def _start(problem: Problem, w: np.ndarray) -> np.ndarray:
    start = np.array(w, dtype=np.float64)
    if start.shape != (problem.n_weights,):
        raise InputError(f"the starting point w has shape {start.shape}; the problem has {problem.n_weights} weights.")
    if not np.isfinite(start).all():
        raise InputError(f"the starting point w has {int((~np.isfinite(start)).sum())} entries that are not finite.")
    return start


def dot(a: np.ndarray, b: np.ndarray) -> float:
    """Return a·b, the same bits whatever number of threads BLAS has."""
    return float(np.einsum("i,i", a, b))


def norm(a: np.ndarray) -> float:
    """Return the Euclidean norm, the same bits whatever number of threads BLAS has."""
    return math.sqrt(dot(a, a))


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
