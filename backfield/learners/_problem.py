"""What a learner sees of a problem: w -> value and gradient, to be minimised; and sums over weights."""

from __future__ import annotations

import math
from typing import Any, Protocol

import numpy as np


class Evaluation(Protocol):
    """Value and gradient at some w, and what was seen on the way."""

    @property
    def value(self) -> float: ...
    @property
    def gradient(self) -> np.ndarray: ...
    @property
    def errors(self) -> float: ...
    @property
    def sweeps(self) -> int: ...


class Problem(Protocol):
    """A function of w to minimise; the mean over examples, or over a batch of them, plus the ridge term.

    Four more attributes are used where they exist: ``projection(w)`` onto the weights that are allowed, ``l2`` (the value
    holds l2 |w|^2), ``preconditioner()``, which returns v -> H0 v for a rough inverse H0 of the second derivative, and
    ``fingerprint``, a text that tells two problems apart when a fit is resumed.
    """

    @property
    def n_weights(self) -> int: ...
    @property
    def n_examples(self) -> int: ...
    @property
    def objective_info(self) -> Any:
        """What is minimised: ``name``, and ``integrable`` if the gradient is that of the value."""

    def value_and_gradient(self, w: np.ndarray, batch: np.ndarray | None = None, seed: int = 0) -> Evaluation: ...


def project(problem: Problem, w: np.ndarray) -> np.ndarray:
    """Return the nearest weights that the problem allows."""
    projection = getattr(problem, "projection", None)
    return w if projection is None else np.asarray(projection(w), dtype=np.float64)


def dot(a: np.ndarray, b: np.ndarray) -> float:
    """Return a·b, the same bits whatever number of threads BLAS has."""
    return float(np.einsum("i,i", a, b))


def norm(a: np.ndarray) -> float:
    """Return the Euclidean norm, the same bits whatever number of threads BLAS has."""
    return math.sqrt(dot(a, a))
