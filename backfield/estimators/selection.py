"""What a default fit decides by held-out labels: how many sweeps, and how strongly edges enter.

A fifth of the examples is held out (of fewer than five examples, a fifth of the labels of each). The model is learned on the
rest with 5 sweeps of inference, then, from the weights before, with 10 and 20; the fewest whose held-out loss is within half
a per cent of the best are taken. Then the weights of edges are halved, quartered, ... and dropped: where less of them is
noticeably better on held-out labels, less of them enters the model. The final fit sees all examples and starts from what was
found. Large data are decided by a part of them. All is a function of data, settings and seed; threads do not matter.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from backfield.estimators._settings import Settings, part_of
from backfield.graph.labeling import as_labeling
from backfield.learners import Learner
from backfield.training.examples import Example
from backfield.training.problem import Problem, n_labelled
from backfield.training.weights import WeightLayout

#: Parts of which one is held out.
_FOLDS = 5
#: Labelled variables that are enough to decide by.
_ENOUGH = 100_000
#: Held-out losses that differ by less than this share are the same.
_SAME_SWEEPS, _SAME_EDGES = 0.005, 0.01
#: Standard error of a relative difference of held-out losses, times the root of the number of labels: a rough guess.
_NOISE = 0.5
#: How strongly edges may enter, beside fully.
_STRENGTHS = (0.75, 0.5, 0.25, 0.1)
#: Decides what is good enough; the final fit goes on from it.
_LEARNER = "lbfgs(max_iter=40, tol=1e-3)"


#: Settings (None: no edges), examples and their labelled variables -> problem.
Make = Callable[[Settings | None, Sequence[Example], list[int]], Problem]


class Choice(NamedTuple):
    """What was decided: settings, weights to start from, the share of edges, and why, in words and numbers."""

    settings: Settings
    start: np.ndarray | None = None
    strength: float = 1.0
    reason: str = ""
    numbers: dict[str, Any] | None = None


class _Split(NamedTuple):
    train: Sequence[Example]
    train_labelled: list[int]
    held: Sequence[Example]
    held_labelled: list[int]


def choose(settings: Settings, problem: Problem, make: Make) -> Choice:
    """Return what held-out labels say about the fit of a problem."""
    sweeps, guarded, layout = settings.sweep_candidates, settings.guarded, problem.task.layout
    coupled = any(block.stop > block.start for block in layout.factors)
    if not (sweeps or guarded) or not coupled or not settings.can_select or layout.kernels or layout.start().any():
        return Choice(settings.with_sweeps(None))
    split = _split(problem, settings.seed)
    if split is None:
        return Choice(settings.with_sweeps(None), reason="too few labels to hold some out; ")
    trials = _Trials(settings, problem, split, make)
    start = trials.learn(None, np.zeros(problem.n_weights))
    alone = trials.held_loss(None, start) if guarded else None
    found: dict[int, tuple[float, np.ndarray]] = {}
    w = start
    for n_iter in sweeps or (0,):
        here = settings.with_sweeps(n_iter or None)
        w = trials.learn(here, w)
        found[n_iter] = trials.held_loss(here, w), w
        losses = [loss for loss, _ in found.values()]
        if len(losses) > 1 and losses[-1] > (1 - _SAME_SWEEPS) * losses[-2]:
            break
    best = min(loss for loss, _ in found.values())
    n_iter = next(n for n, (loss, _) in found.items() if loss <= (1 + _SAME_SWEEPS) * best)
    chosen = settings.with_sweeps(n_iter or None)
    strength, edges = _strength(trials, chosen, *found[n_iter], alone)
    numbers: dict[str, Any] = {"sweeps": {str(n): loss for n, (loss, _) in found.items()}} if sweeps else {}
    if alone is not None:
        numbers |= {"without_edges": alone, "edges": strength}
    words = [_sweep_words(n_iter, found)] if sweeps else []
    return Choice(chosen, found[n_iter][1], strength, "; ".join([*words, *edges, ""]), {"held_out": numbers})


def scaled(layout: WeightLayout, w: np.ndarray, strength: float) -> np.ndarray:
    """Return weights with those of edges times ``strength``."""
    out = w.copy()
    for block in layout.factors:
        out[block.start : block.stop] *= strength
    return out


class _Trials:
    """Fits on the training part, and losses on the part that is held out."""

    def __init__(self, settings: Settings, problem: Problem, split: _Split, make: Make) -> None:
        self.split, self.make, self.seed = split, make, settings.seed
        self.learner: Learner = part_of("learner", _LEARNER)  # type: ignore[assignment]
        # The ridge is a sum over labels divided by their number, as the loss is.
        self.ridge = problem.penalty.times(problem.size / max(1, problem.task.size(np.array(split.train_labelled))))

    def learn(self, settings: Settings | None, w: np.ndarray) -> np.ndarray:
        """Return weights learned on the training part."""
        problem = self.make(settings, self.split.train, self.split.train_labelled)
        problem.penalty = self.ridge
        return self.learner.fit(problem, w, seed=self.seed).w

    def held_loss(self, settings: Settings | None, w: np.ndarray) -> float:
        """Return the mean loss of the labels that are held out."""
        problem = self.make(settings, self.split.held, self.split.held_labelled)
        problem.penalty = self.ridge.times(0.0)
        return float(problem.value_and_gradient(w, None, self.seed).value)


def _strength(
    trials: _Trials, settings: Settings, full: float, w: np.ndarray, alone: float | None
) -> tuple[float, list[str]]:
    """Return how strongly edges enter, and what was found."""
    if alone is None:
        return 1.0, []
    losses = {1.0: full, 0.0: alone}
    if full > (1 - _SAME_EDGES) * alone:  # edges are of little use, or worse: would fewer be better?
        layout = trials.make(settings, trials.split.held, trials.split.held_labelled).task.layout
        losses |= {s: trials.held_loss(settings, scaled(layout, w, s)) for s in _STRENGTHS}
    best = min(losses.values())
    noise = _NOISE / math.sqrt(sum(trials.split.held_labelled))
    strength = max(s for s, loss in losses.items() if loss <= best + (_SAME_EDGES + noise) * abs(alone))
    how = "edges enter fully" if strength == 1 else "edges are left out" if strength == 0 else f"edges enter by {strength:g}"
    return strength, [f"{how} (held-out loss {losses[strength]:.4g}, without edges {alone:.4g})"]


def _sweep_words(n_iter: int, found: dict[int, tuple[float, np.ndarray]]) -> str:
    losses = ", ".join(f"{loss:.4g}" for loss, _ in found.values())
    return f"{n_iter} sweeps of {', '.join(str(n) for n in found)} (held-out loss {losses})"


def _split(problem: Problem, seed: int) -> _Split | None:
    """Return examples to learn from and to judge by; None where labels are too few, or sets."""
    examples, labelled = problem.task.examples, problem.task.labelled.tolist()
    order = np.random.default_rng(seed).permutation(len(labelled))
    order = order[: max(_FOLDS, int(np.searchsorted(np.cumsum(np.array(labelled)[order]), _ENOUGH)) + 1)]
    if len(order) >= _FOLDS:
        count = max(1, round(len(order) / _FOLDS))
        held, train = np.sort(order[:count]), np.sort(order[count:])
        parts = [[examples[int(k)] for k in numbers] for numbers in (train, held)]
        counts = [[labelled[int(k)] for k in numbers] for numbers in (train, held)]
    else:
        halves = [_halves(examples[k], k + seed) for k in range(len(labelled))]
        if any(half is None for half in halves):
            return None
        parts = [[half[side] for half in halves if half is not None] for side in (0, 1)]
        counts = [[n_labelled(example) for example in part] for part in parts]
    if not sum(counts[0]) or not sum(counts[1]):
        return None
    return _Split(parts[0], counts[0], parts[1], counts[1])


def _halves(example: Example, turn: int) -> tuple[Example, Example] | None:
    """Return an example without the labels of a run of variables, and with these alone."""
    target = example.target
    if target is None or target.labeling.has_sets or target.labeling.soft is not None:
        return None
    labels = target.labeling.labels
    known = np.flatnonzero(labels >= 0)
    inside = known[len(known) * (turn % _FOLDS) // _FOLDS : len(known) * (turn % _FOLDS + 1) // _FOLDS]
    hidden, alone = labels.copy(), np.full_like(labels, -1)
    hidden[inside], alone[inside] = -1, labels[inside]
    parts = [dataclasses.replace(target, labeling=as_labeling(example.graph, each)) for each in (hidden, alone)]
    first, second = (dataclasses.replace(example, target=part) for part in parts)
    return first, second
