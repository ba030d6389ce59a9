"""The function that a fit would minimise, taken from an estimator by a learner that learns nothing.

It uses public names only, so it works in any version of the library.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from backfield.learners import Learner


class Captured(Exception):
    """Ends the fit and carries its problem and starting point."""

    def __init__(self, problem: Any, start: np.ndarray) -> None:
        super().__init__("the fit was ended to take its problem")
        self.problem, self.start = problem, start


@dataclass(frozen=True, repr=False)
class Probe(Learner, name="probe"):
    """Ends the fit before its first evaluation."""

    def fit(self, problem: Any, w: np.ndarray, **options: Any) -> Any:
        """Raise :class:`Captured`."""
        raise Captured(problem, w)


def problem_of(crf: Any, X: Any, y: Any) -> Any:
    """Return the problem of ``crf.fit(X, y)``: ``value_and_gradient(w)``, ``n_weights``."""
    try:
        crf.set_params(learner=Probe(), start="zero").fit(X, y)
    except Captured as captured:
        return captured.problem
    raise AssertionError("fit has not called its learner")
