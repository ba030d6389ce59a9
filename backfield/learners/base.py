"""What a learner is: it moves w, and asks of a problem only what it declares. And what all learners share: one fit.

Conventions
-----------
``problem``     the function to minimise: see :mod:`backfield.training.protocols`
``trace``       one row per iteration: ``iteration, objective, gradient_norm, error, step, sweeps, seconds, examples`` and,
                with a validation problem, ``validation``; ``seconds`` is the time since the start, over all resumed runs,
                ``sweeps`` that of the row alone; row 0 is the starting point where the learner evaluates it
``state``       all that a learner needs to go on, immutable; checkpoints hold it, so a resumed run does the very
                arithmetic that an unbroken one would
random numbers  a function of the seed and the number of the step, so there is no generator to save
"""

from __future__ import annotations

import json
import math
import time
import warnings
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Protocol, Self, TypeVar, runtime_checkable

import numpy as np

from backfield.atomic import probe
from backfield.errors import InputError
from backfield.file_kinds import CHECKPOINT
from backfield.kernels.compiling import clock
from backfield.learners._checkpoint import check_state, read_checkpoint, write_checkpoint
from backfield.objectives import MaxMargin
from backfield.registry import Component
from backfield.training.protocols import (
    HasExamples,
    HasGram,
    HasHessianVector,
    HasOracle,
    HasProjection,
    HasValue,
    Minimisable,
)

Row = dict[str, Any]
#: Called with (iteration, w, row); True stops the fit.
Callback = Callable[[int, np.ndarray, Row], Any]
#: Arrays and numbers of a state.
Restored = tuple[dict[str, np.ndarray], dict[str, Any]]


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
        "{learner} needs a problem over labelled graphs, and {objective} has no edges; use plain lbfgs or sgd.",
    ),
}


class Learner(Component):
    """A way to minimise a problem."""

    room: ClassVar[str] = "learners"
    #: Capabilities of :mod:`backfield.training.protocols` that a problem must have.
    requires: ClassVar[tuple[type, ...]] = ()
    #: Chooses its own starting point and ignores the ``w`` it is given.
    own_start: ClassVar[bool] = False
    #: Fits functions through oracles, which estimators hand it for energies.
    uses_oracles: ClassVar[bool] = False
    #: Its arithmetic needs the same ridge on all weights.
    uniform_ridge: ClassVar[bool] = False
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
            Go on from ``checkpoint``. Without such a file the fit starts from scratch and its message says so.
        seed
            Random seed.
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
            with run.restoring():
                self.reopen(problem, run, restored)
            return run.done
        try:
            ending = self.minimise(problem, start, run, restored)
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
            raise InputError(f"{self.name} received a problem without examples; at least one is needed.")

    def needs(self) -> tuple[type, ...]:
        """Return the capabilities that the learner requires with its parameters."""
        return self.requires

    def minimise(self, problem: Minimisable, w: np.ndarray, run: Run, restored: Restored | None) -> Ending:
        """Minimise from ``w`` or from what was restored: what a learner implements.

        It records a row of the trace with ``run.record`` after each iteration, and returns why it stopped.
        """
        raise NotImplementedError

    def reopen(self, problem: Minimisable, run: Run, restored: Restored) -> None:
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
    """Refuse a parameter that is not an integer >= ``least``."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
        raise InputError(f"{learner}: {key} must be an integer >= {least}, received {value!r}.")


def number(learner: str, key: str, value: Any, least: float, below: float = math.inf, *, open_: bool = False) -> None:
    """Refuse a parameter that is not a number in [least, below), or (least, below) if ``open_``."""
    good = isinstance(value, int | float | np.number) and not isinstance(value, bool)
    if not good or not (least < value if open_ else least <= value) or not value < below:
        bound = f"{'>' if open_ else '>='} {least:g}" + (f" and < {below:g}" if below < math.inf else "")
        raise InputError(f"{learner}: {key} must be a number {bound}, received {value!r}.")


@dataclass(frozen=True)
class Fit:
    """What a learner found: the weights, how it got there, and why it stopped."""

    w: np.ndarray
    trace: list[Row]
    converged: bool
    message: str
    distance: float = 0.0  # the gradient over the tolerance, where iterations were used up


class Ending(NamedTuple):
    """Why a learner stopped. ``finished`` is False if resuming should go on from here."""

    w: np.ndarray
    converged: bool
    message: str
    finished: bool = True
    distance: float = 0.0  # how many times the gradient is as large as the tolerance, where iterations were used up


class Resumable(Protocol):
    """All that a learner needs to go on."""

    def pack(self) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """Return arrays, and numbers for JSON."""


class Declared(Resumable, Protocol):
    """A state that says what it packs: types and sizes of arrays (n weights, m examples), types of numbers."""

    shapes: ClassVar[dict[str, str]]
    types: ClassVar[dict[str, type]]

    @classmethod
    def unpack(cls, arrays: dict[str, np.ndarray], numbers: dict[str, Any]) -> Self:
        """Return the state that was packed."""


State = TypeVar("State", bound=Declared)


class Best(NamedTuple):
    """The lowest validation value so far, its weights, and the number of rows since."""

    value: float = math.inf
    w: np.ndarray | None = None
    waited: int = 0


#: The rest of a checkpoint.
_RESULTS = {"validated?": "float n", "result?": "float n"}
_CONTENT: dict[str, type] = {"best": float, "waited": int, "seconds": float}


def _checked_row(row: Any) -> Row:
    if not isinstance(row, dict) or not isinstance(row["iteration"], int) or not isinstance(row["seconds"], float):
        raise ValueError("a row of its trace is none")
    return row


class Run:
    """One fit: its trace, clock, callbacks, validation and checkpoints."""

    def __init__(
        self,
        spec: str,
        patience: int,
        problem: Minimisable,
        seed: int,
        validation: Minimisable | None,
        callbacks: tuple[Callback, ...],
        progress: Callable[[Row], Any] | None,
    ) -> None:
        self.problem, self.seed, self.validation, self.patience = problem, int(seed), validation, patience
        self.callbacks, self.progress = callbacks, progress
        self.trace: list[Row] = []
        self.best = Best()
        self.done: Fit | None = None
        self.identity: dict[str, Any] = {
            "spec": spec,
            "objective": str(problem.objective_info.name),
            "n_weights": int(problem.n_weights),
            "n_examples": int(problem.n_examples),
            "seed": self.seed,
        }
        self._path: Path | None = None
        self._note = ""
        self._latest: tuple[int, Resumable, Best] | None = None
        self._began = clock()
        self._saved_once = False
        self._saved_at = time.perf_counter()
        self._saved_rows = 0

    def open(self, checkpoint: str | PathLike[str] | None, resume: bool, seconds: float, iterations: int) -> Restored | None:
        """Make sure that checkpoints can be written; return the state to go on from, if there is one."""
        if checkpoint is None:
            if resume:
                raise InputError("resume=True needs checkpoint=, the file to go on from.")
            return None
        self._path, self._seconds, self._iterations = Path(checkpoint), seconds, iterations
        try:
            probe(self._path, CHECKPOINT)
        except OSError as error:
            raise self._unwritable(error) from error
        watched = "" if self.validation is None else json.dumps(self.validation.fingerprint())
        self.identity |= self.problem.fingerprint() | {"validation": f"{zlib.crc32(watched.encode()):08x}"}
        if not resume:
            return None
        if not self._path.exists():
            self._note = f"no checkpoint at {self._path}: started from scratch; "
            return None
        return self._restore(self._path)

    def _restore(self, path: Path) -> Restored:
        arrays, content = read_checkpoint(path)
        theirs = content.get("identity", {})
        for key in {**self.identity, **theirs}:
            if theirs.get(key) != self.identity.get(key):
                raise InputError(
                    f"the checkpoint {path} has {key} {theirs.get(key)!r} and this fit has {self.identity.get(key)!r}; they "
                    "do not match: resume with the original settings, or start over without resume."
                )
        with self.restoring():
            check_state(arrays, content, _RESULTS, _CONTENT, self.sizes)
            self.trace = [_checked_row(row) for row in content["trace"]]
            self.best = Best(content["best"], arrays.get("validated"), content["waited"])
            self._began -= content["seconds"]
            self._saved_once, self._saved_rows = True, len(self.trace)
            if content["outcome"] is not None:
                converged, message = content["outcome"]
                self.done = Fit(arrays["result"], self.trace, bool(converged), str(message))
            return arrays, dict(content["state"])

    @property
    def sizes(self) -> dict[str, int]:
        """What the letters of shapes stand for."""
        return {"n": int(self.problem.n_weights), "m": int(self.problem.n_examples)}

    @contextmanager
    def restoring(self) -> Iterator[None]:
        """Say that the checkpoint is no good where its content does not go with this fit."""
        try:
            yield
        except InputError as error:
            raise InputError(f"the checkpoint {self._path} cannot be resumed: {error}") from error
        except (LookupError, TypeError, ValueError, ArithmeticError, AttributeError) as error:
            why = " ".join(str(error).split())[:100]
            raise InputError(f"the checkpoint {self._path} is damaged: it holds no state of this fit ({why}).") from error

    def unpacked(self, kind: type[State], restored: Restored) -> State:
        """Return the state to go on from."""
        with self.restoring():
            check_state(*restored, kind.shapes, kind.types, self.sizes)
            return kind.unpack(*restored)

    def record(self, w: np.ndarray, row: Row, state: Resumable, total: int, *, fresh: bool = False) -> str:
        """Add a row to the trace; return "callback" or "validation" if that stops the fit, else "".

        ``fresh`` resets the patience: the objective has changed.
        """
        best = self._watch(w, row, fresh)
        row = {**row, "seconds": clock() - self._began}
        self.trace.append(row)
        self._latest = (len(self.trace), state, best)  # one assignment: an interruption sees all of it or nothing
        self.best = best
        if self.progress is not None:
            self.progress({**row, "total": total})
        seen = w.view()
        seen.flags.writeable = False
        answers = [callback(row["iteration"], seen, row) for callback in self.callbacks]
        self.save_if_due()
        return "callback" if any(isinstance(x, bool | np.bool_) and x for x in answers) else self.verdict()

    def verdict(self) -> str:
        """Return "validation" if patience is at its end, else ""."""
        return "validation" if self.validation is not None and self.best.waited >= self.patience else ""

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

    def mark(self, state: Resumable) -> None:
        """Remember a state between two rows; write it if it is time."""
        self._latest = (len(self.trace), state, self.best)
        self.save_if_due()

    def save_if_due(self) -> None:
        """Write a checkpoint if it is the first, or if the last one is too old."""
        if self._path is None:
            return
        rows = len(self.trace) - self._saved_rows
        if not self._saved_once or rows >= self._iterations or time.perf_counter() - self._saved_at >= self._seconds:
            self.save()

    def save(self, ending: Ending | None = None) -> None:
        """Write a checkpoint. The first failure raises InputError; later ones warn."""
        if self._path is None or self._latest is None:
            return
        try:
            write_checkpoint(self._path, *self._content(ending))
        except OSError as error:
            failed = self._unwritable(error)
            if not self._saved_once:
                self._path = None
                raise failed from error
            warnings.warn(f"{failed} The fit continues; the last checkpoint is kept and can be resumed.", stacklevel=2)
        self._saved_once = True
        self._saved_at = time.perf_counter()
        self._saved_rows = len(self.trace)

    def save_late(self) -> None:
        """Write a checkpoint while an error is on its way up, which must not be hidden by another."""
        self._saved_once = True
        with suppress(Exception):  # a state on lost machines cannot be fetched; the last checkpoint is kept
            self.save()

    def _content(self, ending: Ending | None) -> Restored:
        assert self._latest is not None
        n_rows, state, best = self._latest
        arrays, numbers = state.pack()
        if best.w is not None:
            arrays["validated"] = best.w  # not "best": states have arrays of that name
        if ending is not None:
            arrays["result"] = ending.w
        return arrays, {
            "identity": self.identity,
            "state": numbers,
            "trace": self.trace[:n_rows],
            "best": best.value,
            "waited": best.waited,
            "seconds": clock() - self._began,
            "outcome": [ending.converged, ending.message] if ending is not None else None,
        }

    def close(self, ending: Ending) -> Fit:
        """Write the last checkpoint and return what was found."""
        if self.best.w is not None and ending.finished:
            ending = ending._replace(w=self.best.w)
        ending = _inside(self.problem, ending)
        self.save(ending if ending.finished else None)
        return Fit(ending.w.copy(), self.trace, ending.converged, self._note + ending.message, ending.distance)

    def _unwritable(self, error: OSError) -> InputError:
        what = f"the checkpoint {self._path} cannot be written: {error.strerror or error}"
        return InputError(f"{what}; make room there, or choose another place.")


def _inside(problem: Minimisable, ending: Ending) -> Ending:
    """Project the weights at the end, and say so if that moved them: not all learners know constraints."""
    w = project(problem, ending.w)
    moved = norm(w - ending.w)
    if moved <= 1e-12 * norm(w):
        return ending
    note = f"; the weights were outside the constraints: their projection moved them by {moved:.3g}"
    return ending._replace(w=w, converged=False, message=ending.message + note)


def dot(a: np.ndarray, b: np.ndarray) -> float:
    """Return a·b; learners run with ``one_blas_thread``, so the bits do not depend on the number of threads.

    ``np.vdot`` is ``np.dot`` without a warning where the sum is not finite: who uses it looks. To silence the other takes
    longer than a product of short vectors.
    """
    return float(np.vdot(a, b))


def norm(a: np.ndarray) -> float:
    """Return the Euclidean norm, as exactly."""
    return math.sqrt(dot(a, a))


def project(problem: Minimisable, w: np.ndarray) -> np.ndarray:
    """Return the nearest weights that the problem allows."""
    return np.asarray(problem.projection(w), dtype=np.float64) if isinstance(problem, HasProjection) else w


def step_seed(seed: int, t: int) -> int:
    """Return the seed of step ``t``: reproducible, and another one for each step and seed."""
    # 62 bits: an example may add its number and still fit into an int64.
    return int(np.random.SeedSequence((seed, t)).generate_state(1, np.uint64)[0] >> np.uint64(2))
