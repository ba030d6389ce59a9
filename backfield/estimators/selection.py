"""What a default fit decides by held-out labels: how many sweeps, how strong a ridge, and how strongly edges enter.

A fifth of the examples is held out (of fewer than five examples, a fifth of the labels of each); where labels are few, each
fifth in turn. The model is learned on the rest with 5 sweeps of inference, then, from the weights before, with 10 and 20;
the fewest whose held-out loss is within half a per cent of the best are taken. Where there are few labels for each weight,
three times the ridge of the features of variables is taken where it is better by a per cent; edges, which have few weights,
keep theirs. Then the weights of edges are halved, quartered, ... and dropped: where less of them is noticeably better on
held-out labels, less of them enters the model. The final fit sees all examples and starts from what was found. Where there
are few labels for each weight, edges enter fully and the number of sweeps was open, the trial goes on first, and the final
fit ends where its held-out loss began to rise: a ridge does not keep models from fitting what few sweeps make of their
messages. Large data are decided by a part of them. All is a function of data, settings and seed; threads do not matter.
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
#: Labelled variables that are enough to decide by; of fewer than these every part is held out in turn.
_ENOUGH, _FEW = 100_000, 1_000
#: Held-out losses that differ by less than this share are the same.
_SAME_SWEEPS, _SAME_RIDGE, _SAME_EDGES = 0.005, 0.01, 0.01
#: How many times the ridge is tried, where there are fewer labels than this for each weight.
_STRONGER, _PLENTY = 3.0, 50
#: Standard error of a relative difference of held-out losses, times the root of the number of labels: a rough guess.
_NOISE = 0.25
#: How strongly edges may enter, beside fully.
_STRENGTHS = (0.75, 0.5, 0.25, 0.1)
#: Decides what is good enough; the final fit goes on from it.
_STAGE = 40
_LEARNER = f"lbfgs(max_iter={_STAGE}, tol=1e-4)"
#: Iterations of a final fit that goes no further than the trial, on more labels.
_LAST = 10


#: Settings (None: no edges), examples and their labelled variables -> problem.
Make = Callable[[Settings | None, Sequence[Example], list[int]], Problem]


class Choice(NamedTuple):
    """What was decided: settings, weights to start from, factors of edges and ridge, and why, in words and numbers."""

    settings: Settings
    start: np.ndarray | None = None
    strength: float = 1.0
    ridge: float = 1.0
    reason: str = ""
    numbers: dict[str, Any] | None = None
    #: Iterations of the final fit, where more would overfit.
    max_iter: int | None = None


class _Split(NamedTuple):
    train: Sequence[Example]
    train_labelled: list[int]
    held: Sequence[Example]
    held_labelled: list[int]


def choose(settings: Settings, problem: Problem, make: Make, open_ridge: bool = False) -> Choice:
    """Return what held-out labels say about the fit of a problem."""
    sweeps, guarded, layout = settings.sweep_candidates, settings.guarded, problem.task.layout
    coupled = any(block.stop > block.start for block in layout.factors)
    open_ridge = open_ridge and problem.task.labelled.sum() < _PLENTY * problem.n_weights
    if not (sweeps or guarded or open_ridge) or not coupled or not settings.can_select:
        return Choice(settings.with_sweeps(None))
    if layout.kernels or layout.start().any():
        return Choice(settings.with_sweeps(None))
    splits = _splits(problem, settings.seed)
    if not splits:
        return Choice(settings.with_sweeps(None), reason="too few labels to hold some out; ")
    trials = _Trials(settings, problem, splits, make)
    start = trials.learn(None, [np.zeros(problem.n_weights)] * len(splits))
    n_iter, found = _sweeps(trials, settings, sweeps or (0,), start)
    chosen, trial = settings.with_sweeps(n_iter or None), found[n_iter]
    numbers: dict[str, Any] = {}
    words = []
    if sweeps:
        numbers["sweeps"] = {str(n): each.loss for n, each in found.items()}
        words.append(_words(f"{n_iter} sweeps", found))
    ridge = 1.0
    if open_ridge:
        ridge, tried = _ridge(trials, chosen, trial)
        trial, trials.ridge = tried[ridge], ridge
        numbers["ridge"] = {f"{factor:g}": each.loss for factor, each in tried.items()}
        words.append(_words(f"{ridge:g} times the ridge", {f"{factor:g}": each for factor, each in tried.items()}))
    strength = 1.0
    if guarded:
        alone = trials.trial(None, start)
        strength, edges = _strength(trials, chosen, trial, alone.loss)
        numbers |= {"without_edges": alone.loss, "edges": strength}
        words.append(edges)
    max_iter = None
    if sweeps and open_ridge and strength == 1 and settings.open_iterations:
        max_iter, losses = _iterations(trials, chosen, trial, settings.learner.max_iter)
        numbers["iterations"] = {str(_STAGE * k): loss for k, loss in enumerate(losses)}
        if max_iter is not None:
            rise = f"from {min(losses):.4g} to {losses[-1]:.4g}"
            words.append(f"{max_iter} iterations, as {_STAGE} more raise the held-out loss {rise}")
    reason = "; ".join([*words, ""])
    return Choice(chosen, trial.weights[0], strength, ridge, reason, {"held_out": numbers}, max_iter)


def scaled(layout: WeightLayout, w: np.ndarray, strength: float) -> np.ndarray:
    """Return weights with those of edges times ``strength``."""
    out = w.copy()
    for block in layout.factors:
        out[block.start : block.stop] *= strength
    return out


class _Trial(NamedTuple):
    """Weights learned on each split, and the mean loss of what was held out."""

    weights: list[np.ndarray]
    loss: float


class _Trials:
    """Fits on the training parts, and losses on the parts that are held out, with ``ridge`` times the ridge."""

    def __init__(self, settings: Settings, problem: Problem, splits: list[_Split], make: Make) -> None:
        self.splits, self.make, self.seed, self.ridge = splits, make, settings.seed, 1.0
        self.learner: Learner = part_of("learner", _LEARNER)  # type: ignore[assignment]
        self._problem = problem
        self.noise = _NOISE / math.sqrt(sum(sum(split.held_labelled) for split in splits))

    def trial(self, settings: Settings | None, start: list[np.ndarray]) -> _Trial:
        """Return what is learned from a start."""
        weights = self.learn(settings, start)
        return _Trial(weights, self.held_loss(settings, weights))

    def learn(self, settings: Settings | None, start: list[np.ndarray]) -> list[np.ndarray]:
        """Return weights learned on the training parts."""
        return [self._learn(settings, split, w) for split, w in zip(self.splits, start, strict=True)]

    def _learn(self, settings: Settings | None, split: _Split, w: np.ndarray) -> np.ndarray:
        whole, problem = self._problem, self.make(settings, split.train, split.train_labelled)
        # The ridge is a sum over labels divided by their number, as the loss is.
        share = whole.size / max(1, whole.task.size(np.array(split.train_labelled)))
        problem.penalty = whole.penalty.stronger(whole.task.layout, self.ridge).times(share)
        return self.learner.fit(problem, w, seed=self.seed).w

    def held_loss(self, settings: Settings | None, weights: list[np.ndarray]) -> float:
        """Return the mean loss of the labels that are held out."""
        losses, counts = [], []
        for split, w in zip(self.splits, weights, strict=True):
            problem = self.make(settings, split.held, split.held_labelled)
            problem.penalty = self._problem.penalty.times(0.0)
            losses.append(float(problem.value_and_gradient(w, None, self.seed).value))
            counts.append(problem.size)
        return float(np.average(losses, weights=counts))


def _sweeps(
    trials: _Trials, settings: Settings, candidates: tuple[int, ...], start: list[np.ndarray]
) -> tuple[int, dict[int, _Trial]]:
    """Return the fewest sweeps (0: as the settings have them) that are about the best, and what was tried."""
    found: dict[int, _Trial] = {}
    for n_iter in candidates:
        found[n_iter] = trials.trial(settings.with_sweeps(n_iter or None), start)
        start = found[n_iter].weights
        losses = [trial.loss for trial in found.values()]
        if len(losses) > 1 and losses[-1] > (1 - _SAME_SWEEPS) * losses[-2]:
            break
    best = min(trial.loss for trial in found.values())
    return next(n for n, trial in found.items() if trial.loss <= (1 + _SAME_SWEEPS) * best), found


def _ridge(trials: _Trials, settings: Settings, plain: _Trial) -> tuple[float, dict[float, _Trial]]:
    """Return how many times the ridge is best, and what was tried."""
    trials.ridge = _STRONGER
    trial = trials.trial(settings, plain.weights)
    better = trial.loss < plain.loss - _SAME_RIDGE * abs(plain.loss)
    return _STRONGER if better else 1.0, {1.0: plain, _STRONGER: trial}


def _iterations(trials: _Trials, settings: Settings, trial: _Trial, most: int) -> tuple[int | None, list[float]]:
    """Return after how many iterations from a trial on the held-out loss rises (None: it does not), and the losses."""
    losses = [trial.loss]
    for done in range(0, most, _STAGE):
        before, trial = trial, trials.trial(settings, trial.weights)
        losses.append(trial.loss)
        if trial.loss > min(losses) + _SAME_RIDGE * abs(min(losses)):
            return max(done, _LAST), losses
        if all(np.array_equal(a, b) for a, b in zip(before.weights, trial.weights, strict=True)):
            break  # converged
    return None, losses


def _strength(trials: _Trials, settings: Settings, full: _Trial, alone: float) -> tuple[float, str]:
    """Return how strongly edges enter, and what was found."""
    losses = {1.0: full.loss, 0.0: alone}
    if full.loss > (1 - _SAME_EDGES) * alone:  # edges are of little use, or worse: would fewer be better?
        layout = trials.make(settings, trials.splits[0].held, trials.splits[0].held_labelled).task.layout
        for share in _STRENGTHS:
            losses[share] = trials.held_loss(settings, [scaled(layout, w, share) for w in full.weights])
    best = min(losses.values())
    strength = max(s for s, loss in losses.items() if loss <= best + (_SAME_EDGES + trials.noise) * abs(alone))
    how = "edges enter fully" if strength == 1 else "edges are left out" if strength == 0 else f"edges enter by {strength:g}"
    return strength, f"{how} (held-out loss {losses[strength]:.4g}, without edges {alone:.4g})"


def _words(chosen: str, found: dict[Any, _Trial]) -> str:
    losses = ", ".join(f"{trial.loss:.4g}" for trial in found.values())
    return f"{chosen} of {', '.join(str(key) for key in found)} (held-out loss {losses})"


def _splits(problem: Problem, seed: int) -> list[_Split]:
    """Return examples to learn from and to judge by; none where labels are too few, or sets."""
    examples, labelled = problem.task.examples, problem.task.labelled.tolist()
    order = np.random.default_rng(seed).permutation(len(labelled))
    order = order[: max(_FOLDS, int(np.searchsorted(np.cumsum(np.array(labelled)[order]), _ENOUGH)) + 1)]
    turns = range(_FOLDS if sum(labelled) < _FEW else 1)
    if len(order) >= _FOLDS:
        count = max(1, round(len(order) / _FOLDS))
        splits = [_by_examples(examples, labelled, order, slice(turn * count, (turn + 1) * count)) for turn in turns]
    else:
        found = [_by_labels(examples, len(labelled), seed + turn) for turn in turns]
        splits = [split for split in found if split is not None]
    return [split for split in splits if sum(split.train_labelled) > 0 and sum(split.held_labelled) > 0]


def _by_examples(examples: Sequence[Example], labelled: list[int], order: np.ndarray, held: slice) -> _Split:
    numbers = (np.sort(np.delete(order, held)).tolist(), np.sort(order[held]).tolist())
    (train, train_labelled), (rest, rest_labelled) = (
        ([examples[k] for k in part], [labelled[k] for k in part]) for part in numbers
    )
    return _Split(train, train_labelled, rest, rest_labelled)


def _by_labels(examples: Sequence[Example], count: int, turn: int) -> _Split | None:
    """Return the split that holds out labels of each example; None where they are sets."""
    halves = [_halves(examples[k], k + turn) for k in range(count)]
    if any(half is None for half in halves):
        return None
    train, held = ([half[side] for half in halves if half is not None] for side in (0, 1))
    return _Split(train, [n_labelled(each) for each in train], held, [n_labelled(each) for each in held])


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
