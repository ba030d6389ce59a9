"""Block-coordinate Frank-Wolfe for structured SVMs: the S-SVM + BCFW of [S18].

Lacoste-Julien et al. 2013, with gap sampling and a cache of oracle answers (Osokin et al. 2016, "Minding the gaps").

    primal   P(w) = sum_n s_n max_y [ Delta_n(y) + w·(Psi_n(y) - Psi_n(y_n)) ] + l2 |w|^2,      s_n = weight_n / labelled
    dual     D    = sum_n loss_n - l2 |w|^2,    w = -1/(2 l2) sum_n g_n

Each example n has a plane (g_n, loss_n), an average of planes of labelings. A step asks the MAP oracle for the labeling that
violates the margin most under w and moves plane n towards its plane by the best share (line search in closed form), so
the dual never falls. gap_n, the height of that plane over the present one at w, is what example n adds to the duality gap
P(w) - D, the stopping rule: the objective is within it of its minimum. That holds if the oracle is exact.

*Gap sampling* draws examples in proportion to their last known gaps; *caching* first looks among the last planes of the
example, and asks the oracle only if none of them has gap >= max(1/4 gap_n, 1/100 of the mean gap).

With a projection P onto a cone the dual is the same with w = P(-1/(2 l2) sum g_n); P does not lengthen distances, so the
step of the line search, still safe, is no longer the longest.

*Batches* ask the oracle for several examples at the same w, by threads or by the workers of a cluster, and then take their
steps one after the other: each line search is made at the w of its turn, so the dual still never falls, and the gap at
the end is that of all examples at one w. Planes of a batch are a little older than those of single steps.

Cost per step: one MAP problem and some passes over n_weights. Memory: one plane per example and up to ``cache`` more,
sparse where labels differ from the truth in few features.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, ClassVar, Self

import numpy as np

from backfield.constraints import check_choice
from backfield.errors import InputError
from backfield.indices import are_indices, are_pointers
from backfield.learners._projection import Projection, check_name, projection_of
from backfield.learners.base import Ending, Learner, Restored, Run, dot, number, whole
from backfield.training.execution import one_blas_thread
from backfield.training.margin import Plane
from backfield.training.protocols import HasExamples, HasOracle

SAMPLINGS = ("gap", "uniform")
#: Shares of the example's own gap and of the mean gap that a cached plane must have (Osokin et al. 2016).
_OWN_SHARE, _MEAN_SHARE = 0.25, 0.01


@dataclass(frozen=True, repr=False)
class FrankWolfe(Learner, name="frank_wolfe"):
    """Block-coordinate Frank-Wolfe; minimises ``max_margin``, always from w = 0.

    Parameters
    ----------
    epochs
        Largest number of epochs, each of as many steps as there are examples.
    tol
        Stop when the duality gap is below: the objective is then within ``tol`` of its minimum (exact oracles only).
    sampling
        "gap": examples in proportion to their gaps; "uniform": a random order in each epoch.
    batch_size
        Examples for which the oracle is asked at once, whatever the number of threads and workers, so the result is
        the same for any. 1: each step sees the w of the last one, and only checks use threads and workers.
    cache
        Oracle answers kept per example; 0: none. Pays where a MAP problem costs more than some products of n_weights.
    check_every
        Epochs between evaluations of all gaps, which cost a MAP problem per example; in between, the trace repeats the
        last objective, and gaps are the last known.
    average
        Return the average of w over the steps, the k-th in proportion to k; the gap is then that of the average.
    projection
        "supermodular": keep models such that minimum cuts solve them.
    patience
        Epochs without a new lowest validation value after which the fit stops.
    """

    epochs: int = 100
    tol: float = 1e-3
    sampling: str = "gap"
    batch_size: int = 1
    cache: int = 0
    check_every: int = 5
    average: bool = False
    projection: str | None = None
    patience: int = 5

    requires: ClassVar[tuple[type, ...]] = (HasOracle,)
    own_start: ClassVar[bool] = True
    uniform_ridge: ClassVar[bool] = True

    def __post_init__(self) -> None:
        for key, least in (("epochs", 0), ("batch_size", 1), ("cache", 0), ("check_every", 1), ("patience", 1)):
            whole(self.name, key, getattr(self, key), least)
        number(self.name, "tol", self.tol, 0)
        check_choice("sampling", self.sampling, SAMPLINGS, self.name)
        check_name(self.name, self.projection)

    def needs(self) -> tuple[type, ...]:
        """Return the oracle, and what the projection needs."""
        return (*self.requires, HasExamples) if self.projection is not None else self.requires

    def check(self, problem: Any) -> None:
        """Refuse problems that are not structured SVMs."""
        super().check(problem)
        if not problem.l2 > 0:
            raise InputError(f"frank_wolfe needs l2 > 0, received {problem.l2!r}: without it there is no dual.")

    @one_blas_thread()  # once: setting it for every sum takes as long as a small step
    def minimise(self, problem: Any, w: np.ndarray, run: Run, restored: Restored | None) -> Ending:
        """Minimise from ``w`` or from what was restored."""
        dual = _Dual(self, problem, projection_of(self.name, self.projection, problem))
        at = DualState.start(problem) if restored is None else run.unpacked(DualState, restored)
        if restored is None:
            run.mark(at)
        stop, closed = run.verdict(), False
        while at.epoch < self.epochs and not stop and not closed:
            at, row = dual.epoch(at, run.seed)
            closed = bool(row["checked"] and row["gap"] <= self.tol)
            stop = run.record(dual.answer(at), row, at, self.epochs)
        found = dual.answer(at)
        if stop == "callback":
            return Ending(found, False, f"stopped by a callback after epoch {at.epoch}", finished=False)
        return Ending(found, *self._verdict(at, stop, closed))

    def _verdict(self, at: DualState, stop: str, closed: bool) -> tuple[bool, str]:
        doubt = "" if at.exact else "; the MAP solver is not exact on these models, so the gap is no certificate"
        if closed:
            within = "the objective is within it of its minimum" if at.exact else "as far as the solver can tell"
            return at.exact, f"the duality gap {at.gap:.3g} is below tol={self.tol:g}: {within}{doubt}"
        if stop == "validation":
            return True, f"the validation value has not improved for {self.patience} epochs{doubt}"
        return False, f"ran {self.epochs} epochs; the duality gap is {at.gap:.3g}{doubt}"


@dataclass(frozen=True)
class DualState:
    """Where a fit is. Planes are never changed in place, so a copy of the lists is a copy of the state."""

    sum: np.ndarray  # -1/(2 l2) sum of all g_n; w is its projection
    loss: float  # sum of all loss_n
    planes: list[Plane]
    cached: list[tuple[Plane, ...]]  # newest first
    gaps: np.ndarray  # (n_examples,) last known gaps
    mean: np.ndarray
    steps: int = 0
    epoch: int = 0
    primal: float = np.inf  # value of the answer at the last check
    gap: float = np.inf
    exact: bool = True  # every answer of the oracle was optimal

    shapes: ClassVar[dict[str, str]] = {
        "sum": "float n", "mean": "float n", "gaps": "real m", "planes_ptr": "int p", "planes_index": "int q",
        "planes_values": "float q", "planes_loss": "float m", "cached_ptr": "int r", "cached_index": "int s",
        "cached_values": "float s", "cached_loss": "float t", "cached_count": "int m",
    }  # fmt: skip
    types: ClassVar[dict[str, type]] = {
        "loss": float,
        "steps": int,
        "epoch": int,
        "primal": float,
        "gap": float,
        "exact": bool,
    }

    @classmethod
    def start(cls, problem: Any) -> DualState:
        """All planes at the true labels: w = 0."""
        n, zero = problem.n_examples, np.zeros(problem.n_weights)
        return cls(zero, 0.0, [Plane.zero()] * n, [()] * n, np.full(n, np.inf), zero)

    def pack(self) -> Restored:
        """Return arrays, and numbers for JSON."""
        n = len(self.sum)
        arrays = {"sum": self.sum, "gaps": self.gaps, "mean": self.mean}
        arrays |= _pack(self.planes, "planes", n)
        arrays |= _pack([each for group in self.cached for each in group], "cached", n)
        arrays["cached_count"] = np.array([len(group) for group in self.cached])
        return arrays, {key: getattr(self, key) for key in self.types}

    @classmethod
    def unpack(cls, arrays: dict[str, np.ndarray], numbers: dict[str, Any]) -> Self:
        """Return the progress that was packed."""
        n = len(arrays["sum"])
        flat, bounds = _unpack(arrays, "cached", n), np.cumsum([0, *arrays["cached_count"]])
        if not are_pointers(bounds, len(flat)):
            raise ValueError("its cached planes are not those of its examples")
        cached = [tuple(flat[a:b]) for a, b in pairwise(bounds)]
        parts: dict[str, Any] = {key: arrays[key] for key in ("sum", "gaps", "mean")}
        return cls(planes=_unpack(arrays, "planes", n), cached=cached, **parts, **{key: numbers[key] for key in cls.types})


def _pack(planes: list[Plane], name: str, n: int) -> dict[str, np.ndarray]:
    """Return planes as arrays."""
    index = [np.arange(n, dtype=np.int32) if each.places is None else each.places for each in planes]
    return {
        f"{name}_ptr": np.cumsum([0] + [len(each) for each in index]),
        f"{name}_index": np.concatenate([np.empty(0, np.int32), *index]),
        f"{name}_values": np.concatenate([np.empty(0), *(each.values for each in planes)]),
        f"{name}_loss": np.array([each.loss for each in planes]),
    }


def _unpack(arrays: dict[str, np.ndarray], name: str, n: int) -> list[Plane]:
    """Return the planes that were packed."""
    ptr, index, values, loss = (arrays[f"{name}_{key}"] for key in ("ptr", "index", "values", "loss"))
    if not (are_pointers(ptr, len(index)) and are_indices(index, n)):
        raise ValueError(f"its {name} planes go beyond the weights")
    parts = [(index[a:b], values[a:b]) for a, b in pairwise(ptr)]
    return [Plane(None if len(i) == n else i, v, float(each)) for (i, v), each in zip(parts, loss, strict=True)]


class _Dual:
    """The dual of one problem."""

    def __init__(self, learner: FrankWolfe, problem: Any, project: Projection) -> None:
        self.learner, self.problem, self.project = learner, problem, project
        self.strength = 2.0 * problem.l2

    def answer(self, at: DualState) -> np.ndarray:
        """Return the weights to use."""
        return at.mean if self.learner.average else self.project(at.sum)

    def epoch(self, at: DualState, seed: int) -> tuple[DualState, dict[str, Any]]:
        """Take as many steps as there are examples; return where the fit is then, and the row of the trace."""
        n, asked = self.problem.n_examples, 0
        now = dataclasses.replace(at, planes=list(at.planes), cached=list(at.cached), gaps=at.gaps.copy())
        rng = np.random.default_rng((seed, at.epoch))
        order = rng.permutation(n)
        w = self.project(now.sum)
        for first in range(0, n, self.learner.batch_size):
            chosen = order[first : first + self.learner.batch_size]
            if self.learner.sampling == "gap" and at.epoch > 0:
                chosen = _drawn(now.gaps, len(chosen), rng, chosen)
            corners, now, missing = self._corners(now, w, chosen)
            asked += missing
            for i, corner in corners.items():
                now = self._step(now, w, i, corner)
                w = self.project(now.sum)
                now = self._averaged(now, w)
        now = dataclasses.replace(now, epoch=at.epoch + 1)
        last = now.epoch == self.learner.epochs
        due = now.epoch == 1 or now.epoch % self.learner.check_every == 0
        checked = last or due or float(now.gaps.sum()) <= self.learner.tol
        if checked:
            now = self._checked(now, w)
        dual = float(now.loss - 0.5 * self.strength * dot(w, w))
        now = dataclasses.replace(now, gap=float(now.primal - dual))
        row = {"iteration": now.epoch, "objective": now.primal, "dual": dual, "gap": now.gap, "checked": checked}
        row |= {"error": float("nan"), "step": float("nan"), "sweeps": 0, "examples": asked, "cached": n - asked}
        return now, row

    def _corners(self, now: DualState, w: np.ndarray, chosen: np.ndarray) -> tuple[dict[int, Any], DualState, int]:
        """Return the plane to move to of each chosen example, from the cache or the oracle, and how often it was asked."""
        heights = {int(i): now.planes[i].at(w) for i in chosen}
        corners: dict[int, Any] = {i: self._from_cache(now, w, i, height) for i, height in heights.items()}
        missing = [i for i, corner in corners.items() if corner is None]
        answers = self.problem.planes(w, np.array(missing)) if missing else []
        for i, (corner, _) in zip(missing, answers, strict=True):
            corners[i] = corner
            now.gaps[i] = max(0.0, corner.at(w) - heights[i])
            if self.learner.cache:
                now.cached[i] = (corner, *now.cached[i])[: self.learner.cache]
        exact = now.exact and all(optimal for _, optimal in answers)
        return corners, dataclasses.replace(now, exact=exact), len(missing)

    def _step(self, now: DualState, w: np.ndarray, i: int, corner: Plane) -> DualState:
        """Move the plane of example i towards another."""
        own = now.planes[i]
        gap = corner.at(w) - own.at(w)
        before = own.dense(len(w))
        move = corner.dense(len(w)) - before
        length = dot(move, move) / self.strength
        share = 0.0 if gap <= 0 else (1.0 if gap >= length else gap / length)
        if share == 0.0:
            return now
        now.planes[i] = Plane.of(before + share * move, own.loss + share * (corner.loss - own.loss))
        total = now.sum - (share / self.strength) * move
        return dataclasses.replace(now, sum=total, loss=now.loss - own.loss + now.planes[i].loss)

    def _from_cache(self, now: DualState, w: np.ndarray, i: int, height: float) -> Plane | None:
        group = now.cached[i]
        if not group or not np.isfinite(now.gaps[i]):
            return None
        heights = [each.at(w) for each in group]
        best = int(np.argmax(heights))
        known = now.gaps[np.isfinite(now.gaps)]
        if heights[best] - height < max(_OWN_SHARE * now.gaps[i], _MEAN_SHARE * float(known.mean()), 1e-300):
            return None
        now.cached[i] = (group[best], *group[:best], *group[best + 1 :])
        return group[best]

    def _averaged(self, now: DualState, w: np.ndarray) -> DualState:
        if not self.learner.average:
            return dataclasses.replace(now, steps=now.steps + 1)
        k = now.steps
        return dataclasses.replace(now, mean=(k * now.mean + 2.0 * w) / (k + 2), steps=k + 1)

    def _checked(self, now: DualState, w: np.ndarray) -> DualState:
        """Return the progress with all gaps at w, and the value of the answer."""
        heights, exact = self._heights(w)
        gaps = np.maximum(0.0, heights - [each.at(w) for each in now.planes])
        answer = self.answer(now)
        if self.learner.average:
            heights, also = self._heights(answer)
            exact &= also
        primal = float(heights.sum()) + 0.5 * self.strength * dot(answer, answer)
        return dataclasses.replace(now, gaps=gaps, primal=primal, exact=exact and now.exact)

    def _heights(self, w: np.ndarray) -> tuple[np.ndarray, bool]:
        """Return the loss of every example at w, and whether each is the true maximum."""
        found = self.problem.heights(w)
        return np.array([height for height, _ in found]), all(optimal for _, optimal in found)


def _drawn(gaps: np.ndarray, count: int, rng: np.random.Generator, otherwise: np.ndarray) -> np.ndarray:
    """Draw examples in proportion to their gaps, none twice; where no gap is left, take some of ``otherwise``."""
    left, chosen = gaps.copy(), []
    for _ in range(count):
        total = np.cumsum(left)
        if total[-1] > 0:
            chosen.append(min(len(left) - 1, int(np.searchsorted(total, rng.random() * total[-1], side="right"))))
            left[chosen[-1]] = 0.0
        else:
            chosen.append(next(int(i) for i in otherwise if i not in chosen))
    return np.array(chosen)
