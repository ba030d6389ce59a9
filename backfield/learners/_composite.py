"""Learners made of learners: a fit of several parts with one trace."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from backfield.learners.base import Callback, Fit, Learner, Row
from backfield.training.protocols import Minimisable


class Parts:
    """Runs the parts of a fit: their rows are marked and counted through, all have one seed and the same options."""

    def __init__(
        self,
        callbacks: Sequence[Callback],
        checkpoint: Any,
        seed: int,
        progress: Callable[[Row], Any] | None,
        options: dict[str, Any],
    ) -> None:
        self.callbacks, self.checkpoint, self.seed, self.progress, self.options = (
            callbacks, checkpoint, seed, progress, options,
        )  # fmt: skip
        self.trace: list[Row] = []

    def fit(self, learner: Learner, problem: Any, w: np.ndarray, marks: dict[str, int], suffix: str = "") -> Fit:
        """Fit a part whose rows get ``marks`` and whose checkpoint is the given one, or beside it with a ``suffix``."""
        before, progress = len(self.trace), self.progress

        def marked(row: Row) -> Row:
            return {**row, **marks, "iteration": row["iteration"] + before}

        def wrapped(callback: Callback) -> Callback:
            return lambda iteration, weights, row: callback(iteration + before, weights, marked(row))

        found = learner.fit(
            problem,
            w,
            callbacks=[wrapped(callback) for callback in self.callbacks],
            checkpoint=None if self.checkpoint is None else f"{self.checkpoint}{suffix}",
            seed=self.seed,
            progress=None if progress is None else lambda row: progress(marked(row)),
            **self.options,
        )
        self.trace += [marked(row) for row in found.trace]
        return found


class Composite(Learner):
    """Base of learners whose fit is made of fits of other learners."""

    def fit(  # type: ignore[override]
        self,
        problem: Minimisable,
        w: np.ndarray,
        *,
        callbacks: Sequence[Callback] = (),
        checkpoint: Any = None,
        seed: int = 0,
        progress: Callable[[Row], Any] | None = None,
        **options: Any,
    ) -> Fit:
        """Minimise ``problem`` from ``w``, as :meth:`Learner.fit` does."""
        self.check(problem)
        return self._compose(problem, np.array(w, dtype=np.float64), Parts(callbacks, checkpoint, seed, progress, options))

    def _compose(self, problem: Any, w: np.ndarray, parts: Parts) -> Fit:
        """Fit the parts."""
        raise NotImplementedError


def stopped(fit: Fit) -> bool:
    """Whether a callback has stopped a part."""
    return fit.message.startswith("stopped by a callback")
