"""What a default fit decides by held-out labels: sweeps, ridge, whether edges enter, and how sure the model is.

A fifth of the examples is held out (of fewer than five examples, a fifth of the labels of each); where labels are few, each
fifth in turn. The model is learned on the rest with 5 sweeps of inference, then, from the weights before, with 10 and 20;
the fewest whose held-out loss is within half a per cent of the best are taken. Where there are few labels for each weight,
three times the ridge of the features of variables is taken where it is better by a per cent; edges, which have few weights,
keep theirs. Then all weights together are made smaller where that is noticeably better: a field that has learned from few
images is too sure of itself, and one number sets that right. Where the model without edges, made smaller as well, is
noticeably better, group by group of held-out labels, edges are left out. The final fit sees all examples and starts from
what was found. Large data are decided by a part of them. All is a function of data, settings and seed, not of threads.
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

#: Parts of which one is held out.
_FOLDS = 5
#: Labelled variables that are enough to decide by; of fewer than these every part is held out in turn.
_ENOUGH, _FEW = 100_000, 1_000
#: Held-out losses that differ by less than this share are the same.
_SAME_SWEEPS, _SAME = 0.005, 0.01
#: How many times the ridge is tried, where there are fewer labels than this for each weight.
_STRONGER, _PLENTY = 3.0, 50
#: Groups of held-out labels whose losses are compared one by one: labels of one example are not independent.
_GROUPS = 16
#: What all weights may be multiplied by.
_SCALES = (0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2)
#: Decides what is good enough; the final fit goes on from it.
_LEARNER = "lbfgs(max_iter=40, tol=1e-4)"


#: Settings (None: no edges), examples and their labelled variables -> problem.
Make = Callable[[Settings | None, Sequence[Example], list[int]], Problem]


class Choice(NamedTuple):
    """What was decided, and why, in words and numbers."""

    settings: Settings
    #: The weights to start from.
    start: np.ndarray | None = None
    #: Whether edges enter.
    edges: bool = True
    #: How many times the ridge is taken.
    ridge: float = 1.0
    #: What the weights are multiplied by when they are learned.
    scale: float = 1.0
    reason: str = ""
    numbers: dict[str, Any] | None = None


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
    edges, scale = True, 1.0
    if guarded:
        scale, with_edges = _scale(trials, chosen, trial)
        scale_alone, alone = _scale(trials, None, trials.trial(None, start))
        edges = not _worse(with_edges, alone)
        if not edges:
            scale = scale_alone
        numbers |= {"with_edges": with_edges.loss, "without_edges": alone.loss, "edges": edges, "scale": scale}
        how = "edges enter" if edges else "edges are left out"
        words.append(f"{how} (held-out loss {with_edges.loss:.4g}, without edges {alone.loss:.4g})")
        words += [f"all weights times {scale:g}"] * (scale != 1)
    reason = "; ".join([*words, ""])
    return Choice(chosen, trial.weights[0], edges, ridge, scale, reason, {"held_out": numbers})


class _Trial(NamedTuple):
    """Weights learned on each split, and the mean loss of each group that was held out, with its share of all labels."""

    weights: list[np.ndarray]
    losses: np.ndarray
    shares: np.ndarray

    @property
    def loss(self) -> float:
        """The mean loss of what was held out."""
        return float(self.shares @ self.losses)


def _worse(trial: _Trial, other: _Trial) -> bool:
    """Whether a trial is noticeably worse than another: by a per cent, and by what its groups differ by chance."""
    apart = trial.losses - other.losses
    mean = float(trial.shares @ apart)
    error = math.sqrt(float(trial.shares**2 @ (apart - mean) ** 2))
    return mean > max(_SAME * abs(other.loss), error)


class _Trials:
    """Fits on the training parts, and losses on the parts that are held out, with ``ridge`` times the ridge."""

    def __init__(self, settings: Settings, problem: Problem, splits: list[_Split], make: Make) -> None:
        self.splits, self.make, self.seed, self.ridge = splits, make, settings.seed, 1.0
        self.learner: Learner = part_of("learner", _LEARNER)  # type: ignore[assignment]
        self._problem = problem
        self._groups = [_grouped(split, -(-_GROUPS // len(splits))) for split in splits]

    def trial(self, settings: Settings | None, start: list[np.ndarray]) -> _Trial:
        """Return what is learned from a start."""
        return self.judged(settings, self.learn(settings, start))

    def judged(self, settings: Settings | None, weights: list[np.ndarray]) -> _Trial:
        """Return weights with their held-out losses."""
        losses, sizes = [], []
        for groups, w in zip(self._groups, weights, strict=True):
            for examples, labelled in groups:
                problem = self.make(settings, examples, labelled)
                problem.penalty = self._problem.penalty.times(0.0)
                losses.append(float(problem.value_and_gradient(w, None, self.seed).value))
                sizes.append(problem.size)
        return _Trial(weights, np.array(losses), np.array(sizes) / sum(sizes))

    def learn(self, settings: Settings | None, start: list[np.ndarray]) -> list[np.ndarray]:
        """Return weights learned on the training parts."""
        return [self._learn(settings, split, w) for split, w in zip(self.splits, start, strict=True)]

    def _learn(self, settings: Settings | None, split: _Split, w: np.ndarray) -> np.ndarray:
        whole, problem = self._problem, self.make(settings, split.train, split.train_labelled)
        # The ridge is a sum over labels divided by their number, as the loss is.
        share = whole.size / max(1, whole.task.size(np.array(split.train_labelled)))
        problem.penalty = whole.penalty.stronger(whole.task.layout, self.ridge).times(share)
        return self.learner.fit(problem, w, seed=self.seed).w


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
    better = trial.loss < plain.loss - _SAME * abs(plain.loss)
    return _STRONGER if better else 1.0, {1.0: plain, _STRONGER: trial}


def _scale(trials: _Trials, settings: Settings | None, trial: _Trial) -> tuple[float, _Trial]:
    """Return what the weights are best multiplied by: 1 where nothing else is noticeably better."""
    found = {scale: trials.judged(settings, [scale * w for w in trial.weights]) for scale in _SCALES}
    best = min(found, key=lambda scale: found[scale].loss)
    return (best, found[best]) if _worse(trial, found[best]) else (1.0, trial)


def _words(chosen: str, found: dict[Any, _Trial]) -> str:
    losses = ", ".join(f"{trial.loss:.4g}" for trial in found.values())
    return f"{chosen} of {', '.join(str(key) for key in found)} (held-out loss {losses})"


def _splits(problem: Problem, seed: int) -> list[_Split]:
    """Return examples to learn from and to judge by; none where labels are too few, or sets."""
    examples, labelled = problem.task.examples, problem.task.labelled.tolist()
    turns = range(_FOLDS if sum(labelled) < _FEW else 1)
    if len(labelled) >= _FOLDS:
        order = np.random.default_rng(seed).permutation(len(labelled))
        splits = [_by_examples(examples, labelled, np.roll(order, -turn * len(order) // _FOLDS)) for turn in turns]
    else:
        found = [_by_labels(examples, len(labelled), seed + turn) for turn in turns]
        splits = [split for split in found if split is not None]
    return [split for split in splits if sum(split.train_labelled) > 0 and sum(split.held_labelled) > 0]


def _by_examples(examples: Sequence[Example], labelled: list[int], order: np.ndarray) -> _Split:
    """Return the split that holds out the first fifth of an order; of either side no more than is enough."""
    count = max(1, round(len(order) / _FOLDS))
    parts = [np.sort(_enough(part, labelled)).tolist() for part in (order[count:], order[:count])]
    (train, train_labelled), (held, held_labelled) = (
        ([examples[k] for k in part], [labelled[k] for k in part]) for part in parts
    )
    return _Split(train, train_labelled, held, held_labelled)


def _enough(numbers: np.ndarray, labelled: list[int]) -> np.ndarray:
    """Return the first examples that have enough labels to decide by, and no fewer than there are folds."""
    return numbers[: max(_FOLDS, int(np.searchsorted(np.cumsum(np.array(labelled)[numbers]), _ENOUGH)) + 1)]


def _grouped(split: _Split, count: int) -> list[tuple[Sequence[Example], list[int]]]:
    """Return the held-out examples that have labels in about ``count`` groups; of few examples, runs of their labels."""
    held = [(each, n) for each, n in zip(split.held, split.held_labelled, strict=True) if n]
    if len(held) >= count:
        parts = [part.tolist() for part in np.array_split(np.arange(len(held)), count)]
        return [([held[k][0] for k in part], [held[k][1] for k in part]) for part in parts]
    runs = [run for each, _ in held for run in _runs(each, -(-count // len(held)))]
    return [([run], [n_labelled(run)]) for run in runs]


def _runs(example: Example, count: int) -> list[Example]:
    """Return an example several times, each with a run of its labels; once where they are sets."""
    labels = _single_labels(example)
    if labels is None:
        return [example]
    parts = [part for part in np.array_split(np.flatnonzero(labels >= 0), count) if len(part)]
    return [_with_labels(example, labels, part) for part in parts]


def _by_labels(examples: Sequence[Example], count: int, turn: int) -> _Split | None:
    """Return the split that holds out labels of each example; None where they are sets."""
    halves = [_halves(examples[k], k + turn) for k in range(count)]
    if any(half is None for half in halves):
        return None
    train, held = ([half[side] for half in halves if half is not None] for side in (0, 1))
    return _Split(train, [n_labelled(each) for each in train], held, [n_labelled(each) for each in held])


def _halves(example: Example, turn: int) -> tuple[Example, Example] | None:
    """Return an example without the labels of a run of variables, and with these alone."""
    labels = _single_labels(example)
    if labels is None:
        return None
    known = np.flatnonzero(labels >= 0)
    inside = known[len(known) * (turn % _FOLDS) // _FOLDS : len(known) * (turn % _FOLDS + 1) // _FOLDS]
    return _with_labels(example, labels, np.setdiff1d(known, inside)), _with_labels(example, labels, inside)


def _single_labels(example: Example) -> np.ndarray | None:
    """Return the labels of an example, -1 where unknown; None where they are sets."""
    target = example.target
    if target is None or target.labeling.has_sets or target.labeling.soft is not None:
        return None
    return target.labeling.labels


def _with_labels(example: Example, labels: np.ndarray, kept: np.ndarray) -> Example:
    """Return an example with some of its labels."""
    assert example.target is not None
    some = np.full_like(labels, -1)
    some[kept] = labels[kept]
    target = dataclasses.replace(example.target, labeling=as_labeling(example.graph, some))
    return dataclasses.replace(example, target=target)
