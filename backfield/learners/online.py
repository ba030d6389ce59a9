"""One example at a time, without step sizes: the averaged perceptron and passive-aggressive learning.

    g = f(y*) - f(labels), y* the labeling that violates the margin of an example most, l its loss there
    perceptron            w <- w - g                     (Collins 2002), with max_margin(scale=0): y* is the MAP labeling
    passive_aggressive    w <- w - min(c, l / |g|^2) g   (Crammer et al. 2006, PA-I with the max-loss labeling)

The answer is the average of w over all steps, kept as w - u / t with u the sum of t times the moves: a step costs what g has
entries. Both need a margin loss (``HasOracle``) and have no penalty: l2 = 0.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np

from backfield.errors import InputError
from backfield.learners.base import Ending, Learner, Restored, Run, norm, number, whole
from backfield.training.margin import Plane
from backfield.training.protocols import HasExamples, HasOracle


@dataclass(frozen=True)
class OnlineState:
    """Weights, the sum of t times the moves, and the numbers of steps and epochs."""

    w: np.ndarray
    moved: np.ndarray
    t: int = 0
    epoch: int = 0

    shapes: ClassVar[dict[str, str]] = {"w": "float n", "moved": "float n"}
    types: ClassVar[dict[str, type]] = {"t": int, "epoch": int}

    def pack(self) -> Restored:
        """Return arrays, and numbers for JSON."""
        return {"w": self.w, "moved": self.moved}, {"t": self.t, "epoch": self.epoch}

    @classmethod
    def unpack(cls, arrays: dict[str, np.ndarray], numbers: dict[str, Any]) -> Self:
        """Return the state that was packed."""
        return cls(arrays["w"], arrays["moved"], numbers["t"], numbers["epoch"])


@dataclass(frozen=True, repr=False)
class Online(Learner):
    """What both share."""

    epochs: int = 10
    average: bool = True
    tol: float = 0.0
    patience: int = 5

    requires: ClassVar[tuple[type, ...]] = (HasOracle, HasExamples)

    def __post_init__(self) -> None:
        for key, least in (("epochs", 0), ("patience", 1)):
            whole(self.name, key, getattr(self, key), least)
        number(self.name, "tol", self.tol, 0)
        if not isinstance(self.average, bool):
            raise InputError(f"{self.name}: average must be True or False, received {self.average!r}.")

    def check(self, problem: Any) -> None:
        """Refuse problems without planes, and those with a penalty."""
        super().check(problem)
        if problem.l2 > 0:
            raise InputError(f"{self.name} has no penalty on weights; set l2=0 (it is {problem.l2:g}).")

    def step(self, loss: float, square: float) -> float:
        """Return how far to move along -g, of the loss of an example and |g|^2 > 0."""
        raise NotImplementedError

    def minimise(self, problem: Any, w: np.ndarray, run: Run, restored: Restored | None) -> Ending:
        """Go through the examples ``epochs`` times, in an order drawn from the seed."""
        at = OnlineState(w.copy(), np.zeros_like(w)) if restored is None else run.unpacked(OnlineState, restored)
        run.mark(at)
        stop, share = run.verdict(), 1.0
        while at.epoch < self.epochs and not stop and share > self.tol:
            at, row = self._epoch(problem, at, run.seed)
            share = row["error"]
            stop = run.record(self._answer(at), row, at, self.epochs)
        if stop == "callback":
            return Ending(self._answer(at), False, f"stopped by a callback after epoch {at.epoch}", finished=False)
        if stop == "validation":
            return Ending(self._answer(at), True, f"the validation value has not improved for {self.patience} epochs")
        return Ending(
            self._answer(at), share <= self.tol, f"ran {at.epoch} epochs; {100 * share:.3g} % of the examples moved w"
        )

    def _answer(self, at: OnlineState) -> np.ndarray:
        return at.w - at.moved / at.t if self.average and at.t else at.w

    def _epoch(self, problem: Any, at: OnlineState, seed: int) -> tuple[OnlineState, dict[str, Any]]:
        w, moved, t, total, steps = at.w.copy(), at.moved.copy(), at.t, 0.0, 0
        for number_ in np.random.default_rng((seed, at.epoch)).permutation(problem.n_examples):
            ((plane, _),) = problem.planes(w, np.array([number_]))
            loss, length = self._move(plane, float(problem.size), w, moved, t)
            total, steps, t = total + loss, steps + (length > 0), t + 1
        row = {
            "iteration": at.epoch + 1,
            "objective": total / problem.size,
            "gradient_norm": norm(w - at.w),
            "error": steps / problem.n_examples,
            "step": 1.0,
            "sweeps": 0,
            "examples": problem.n_examples,
        }
        return OnlineState(w, moved, t, at.epoch + 1), row

    def _move(self, plane: Plane, size: float, w: np.ndarray, moved: np.ndarray, t: int) -> tuple[float, float]:
        """Move the weights in place; return the loss of the example and the length of the step."""
        loss, g = size * plane.at(w), size * plane.values
        square = float(np.einsum("i,i", g, g))
        length = self.step(loss, square) if square > 0 else 0.0
        if length > 0:
            where: Any = slice(None) if plane.places is None else plane.places
            w[where] -= length * g
            moved[where] -= t * length * g
        return loss, length


@dataclass(frozen=True, repr=False)
class Perceptron(Online, name="perceptron"):
    """The averaged perceptron.

    Parameters
    ----------
    epochs
        Passes over the examples.
    average
        Return the average of the weights over all steps; else the last ones.
    tol
        Stop after an epoch in which at most this share of the examples moved w.
    patience
        Epochs without a new lowest validation value after which the fit stops.
    """

    def step(self, loss: float, square: float) -> float:
        """Return 1."""
        return 1.0


@dataclass(frozen=True, repr=False)
class PassiveAggressive(Online, name="passive_aggressive"):
    """Passive-aggressive learning: the smallest move after which an example has no loss, of length c |g| at the most.

    Parameters
    ----------
    c
        Aggressiveness.
    epochs, average, tol, patience
        As of ``perceptron``.
    """

    c: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        number(self.name, "c", self.c, 0, open_=True)

    def step(self, loss: float, square: float) -> float:
        """Return min(c, loss / |g|^2)."""
        return min(self.c, loss / square)
