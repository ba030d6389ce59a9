"""What a learner may ask of a problem, as declared protocols.

Every problem is :class:`Minimisable`. What only some have are separate capabilities (``Has...``); a learner lists those
it needs in ``Learner.requires``, and the check before the fit, written once, refuses a problem that lacks one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np

from backfield.objectives import Objective
from backfield.training.evaluators.general import Task
from backfield.training.examples import Example
from backfield.training.margin import Plane


class Evaluation(NamedTuple):
    """Value and gradient at some w, and what was seen on the way."""

    value: float
    gradient: np.ndarray
    errors: float  # share of wrong labels, where the objective decodes; nan elsewhere
    sweeps: int
    truncated: int = 0  # couplings that cuts truncated


class ObjectiveInfo(Protocol):
    """What is minimised."""

    @property
    def name(self) -> str:
        """Its name."""

    @property
    def integrable(self) -> bool:
        """Whether the gradient is that of the value."""

    @property
    def smooth(self) -> bool:
        """Whether it can be differentiated twice."""


@runtime_checkable
class Minimisable(Protocol):
    """A function of w to minimise: the mean over examples, or over a batch of them, plus the penalty."""

    @property
    def n_weights(self) -> int:
        """Number of parameters."""

    @property
    def n_examples(self) -> int:
        """Number of examples."""

    @property
    def objective_info(self) -> ObjectiveInfo:
        """What is minimised."""

    @property
    def l2(self) -> float:
        """The value holds l2 |w|^2 at least; 0 without a penalty."""

    def value_and_gradient(self, w: np.ndarray, batch: np.ndarray | None = None, seed: int = 0) -> Evaluation:
        """Return value and gradient, over all examples or a batch."""

    def fingerprint(self) -> dict[str, str]:
        """Return a text for each thing that must be the same when a fit is resumed, by name."""


@runtime_checkable
class HasValue(Protocol):
    """The gradient is that of the value, which falls along it: line searches need that."""

    def value_and_gradient(self, w: np.ndarray, batch: np.ndarray | None = None, seed: int = 0) -> Evaluation:
        """Return value and gradient, over all examples or a batch."""


@runtime_checkable
class HasProjection(Protocol):
    """Weights are constrained to a set."""

    def projection(self, w: np.ndarray) -> np.ndarray:
        """Return the nearest weights that are allowed."""


@runtime_checkable
class HasHessianVector(Protocol):
    """There are second derivatives."""

    def hessian_vector(
        self, w: np.ndarray, direction: np.ndarray, batch: np.ndarray | None = None, seed: int = 0
    ) -> tuple[Evaluation, np.ndarray]:
        """Return value and gradient, and the second derivative along ``direction``."""


class Gram(NamedTuple):
    """X'X of the features of ``w[start:stop]``, which holds ``n_outputs`` weights per feature."""

    start: int
    stop: int
    n_outputs: int
    matrix: np.ndarray | None  # None where it is not known or too large
    l2: Any  # the ridge: one number, or one per feature


@runtime_checkable
class HasGram(Protocol):
    """Weights multiply features whose second moments are known."""

    @property
    def size(self) -> int:
        """What sums over all examples are divided by."""

    def grams(self) -> list[Gram]:
        """Return the second moments of each block of weights, over all examples."""


@runtime_checkable
class HasOracle(Protocol):
    """The objective is a sum over examples of max_y g(y)·w + loss(y), and a solver finds the y."""

    def planes(self, w: np.ndarray, batch: np.ndarray) -> list[tuple[Plane, bool]]:
        """Return g and loss of the labeling that violates the margin of each example most, and whether it is the maximum."""

    def heights(self, w: np.ndarray) -> list[tuple[float, bool]]:
        """Return the values of these planes at w, of all examples."""


@runtime_checkable
class HasExamples(Protocol):
    """A problem over labelled graphs."""

    @property
    def task(self) -> Task:
        """Examples, layout, objective and setting."""

    @property
    def size(self) -> int:
        """What sums over all examples are divided by."""

    def value_and_gradient(self, w: np.ndarray, batch: np.ndarray | None = None, seed: int = 0) -> Evaluation:
        """Return value and gradient, over all examples or a batch."""

    def distribute(self, cluster: Any) -> None:
        """Let the workers of a cluster compute sums over examples from now on; None: threads here."""

    def collect(self, function: Callable[..., Any], batch: Any, *arguments: Any) -> list[Any]:
        """Return ``function(task, number, *arguments)`` of all examples or a batch, in order."""

    def minimising(self, objective: Objective) -> HasExamples:
        """Return the problem of another objective over the same examples."""

    def over(self, examples: Sequence[Example], labelled: Sequence[int], ridge: float = 1.0) -> HasExamples:
        """Return the same objective over other examples."""
