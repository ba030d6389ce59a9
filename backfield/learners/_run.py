"""One fit: its trace, clock, callbacks, early stopping and checkpoints; what all learners share."""

from __future__ import annotations

import json
import math
import time
import warnings
import zlib
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np

from backfield.atomic import probe
from backfield.errors import InputError
from backfield.learners._checkpoint import read_checkpoint, write_checkpoint
from backfield.learners._vectors import norm, project
from backfield.training.protocols import Minimisable

Row = dict[str, Any]
#: Called with (iteration, w, row); True stops the fit.
Callback = Callable[[int, np.ndarray, Row], Any]
#: Arrays and numbers of a state.
Restored = tuple[dict[str, np.ndarray], dict[str, Any]]


@dataclass(frozen=True)
class Fit:
    """What a learner found: the weights, how it got there, and why it stopped."""

    w: np.ndarray
    trace: list[Row]
    converged: bool
    message: str


class Ending(NamedTuple):
    """Why a learner stopped. ``finished`` is False if resuming should go on from here."""

    w: np.ndarray
    converged: bool
    message: str
    finished: bool = True


class Resumable(Protocol):
    """All that a learner needs to go on."""

    def pack(self) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """Return arrays, and numbers for JSON."""


class Best(NamedTuple):
    """The lowest validation value so far, its weights, and the number of rows since."""

    value: float = math.inf
    w: np.ndarray | None = None
    waited: int = 0


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
        self._began = time.perf_counter()
        self._saved_once = False
        self._saved_at = self._began
        self._saved_rows = 0

    def open(self, checkpoint: str | PathLike[str] | None, resume: bool, seconds: float, iterations: int) -> Restored | None:
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
        watched = "" if self.validation is None else json.dumps(self.validation.fingerprint())
        self.identity |= self.problem.fingerprint() | {"validation": f"{zlib.crc32(watched.encode()):08x}"}
        if not resume:
            return None
        if not self._path.exists():
            self._note = f"no checkpoint at {self._path}: started anew; "
            return None
        return self._restore(self._path)

    def _restore(self, path: Path) -> Restored:
        arrays, content = read_checkpoint(path)
        theirs = content.get("identity", {})
        for key in {**self.identity, **theirs}:
            if theirs.get(key) != self.identity.get(key):
                raise InputError(
                    f"the checkpoint {path} has {key} {theirs.get(key)!r} and this fit has {self.identity.get(key)!r}; they "
                    "cannot be joined: resume with what the fit began with, or start it again without resume."
                )
        self.trace = content["trace"]
        self.best = Best(content["best"], arrays.get("validated"), content["waited"])
        self._began -= content["seconds"]
        self._saved_once, self._saved_rows = True, len(self.trace)
        if content["outcome"] is not None:
            self.done = Fit(arrays["result"], self.trace, *content["outcome"])
        return arrays, content["state"]

    def record(self, w: np.ndarray, row: Row, state: Resumable, total: int, *, fresh: bool = False) -> str:
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
            warnings.warn(f"{failed} The fit goes on; the last checkpoint is kept.", stacklevel=2)
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
            "seconds": time.perf_counter() - self._began,
            "outcome": [ending.converged, ending.message] if ending is not None else None,
        }

    def close(self, ending: Ending) -> Fit:
        """Write the last checkpoint and return what was found."""
        if self.best.w is not None and ending.finished:
            ending = ending._replace(w=self.best.w)
        ending = _inside(self.problem, ending)
        self.save(ending if ending.finished else None)
        return Fit(ending.w.copy(), self.trace, ending.converged, self._note + ending.message)

    def _unwritable(self, error: OSError) -> InputError:
        return InputError(f"the checkpoint {self._path} cannot be written: {error.strerror or error}.")


def _inside(problem: Minimisable, ending: Ending) -> Ending:
    """Project the weights at the end, and say so if that moved them: not all learners know constraints."""
    w = project(problem, ending.w)
    moved = norm(w - ending.w)
    if moved <= 1e-12 * norm(w):
        return ending
    note = f"; the weights were outside the constraints: their projection moved them by {moved:.3g}"
    return ending._replace(w=w, converged=False, message=ending.message + note)
