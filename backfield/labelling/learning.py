"""Scribbles -> classifier and field.

The classifier is multinomial logistic regression on painted pixels. The field's three numbers (how far to trust the
classifier, how much neighbours must agree, with and without contrast between them) are learned through truncated
tree-reweighted inference, on painted pixels whose group the classifier below them has not seen:

    min  mean over folds k of the univariate logistic loss of painted pixels in k, theta from W without k, all labels hidden

Both at once, on the same pixels, would learn to smooth everything: a stroke is one label, and the classifier knows it by
heart. The same left-out pixels give the estimate of the error. Every step starts from the last result.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
from scipy.optimize import minimize

from backfield.api import value_and_gradient
from backfield.inference.conditioned import beliefs_given
from backfield.labelling.field import INFERENCE, Field, method
from backfield.labelling.material import WIDE, Material, Window
from backfield.labelling.strokes import HIDDEN
from backfield.oracles import Linear, OracleTask
from backfield.oracles.linear import LinearFunction

FOLDS = 6
#: Painted pixels that the classifier sees.
MOST_ROWS = 20_000
#: Ridge of the classifier while few cells are painted, and the number of cells from which on it falls as 1 / cells: pixels
#: of one cell are much alike and count as one observation.
L2, FEW_CELLS = 1e-3, 100
#: Where the field starts, and what it is drawn to while there are few groups: a, s, t, and how far they usually are off.
START = np.array([0.5, 1.0, 0.2])
_SPREAD = np.array([0.7, 1.0, 0.3])  # of log a, s and t
_PULL = 0.5
_BOUNDS = [(0.3, 2.0), (0.0, 4.0), (0.0, 2.0)]
#: Groups below which the field stays where it starts: too few to be left out.
_FEW = 6

Stop = Callable[[], bool]


class Stopped(Exception):
    """Somebody painted: what is being computed is out of date."""


@dataclass(frozen=True)
class Effort:
    """How much a fit may cost."""

    windows: int  # that the field is fitted to
    max_iter: int  # of its fit
    steps: int  # of the classifier's, from the last one


QUICK = Effort(windows=12, max_iter=6, steps=60)
THOROUGH = Effort(windows=96, max_iter=40, steps=400)


class HeldOut(NamedTuple):
    """Error on groups that were left out: mean over groups, its standard error, and how many there are."""

    error: float
    spread: float | None
    groups: int


@dataclass(frozen=True, eq=False)
class Rows:
    """Painted pixels of all images; groups are numbered through, and spread over folds label by label."""

    features: np.ndarray
    labels: np.ndarray  # positions among the known labels
    groups: np.ndarray
    folds: np.ndarray  # of each group
    known: np.ndarray
    first: list[int]  # number of the first group of each image
    n_cells: int  # cells that are painted, once for each label in them

    @classmethod
    def of(cls, material: Sequence[Material]) -> Rows:
        """Join the material of images."""
        first = np.cumsum([0, *(each.n_groups for each in material)]).tolist()
        labels = np.concatenate([each.labels for each in material])
        groups = np.concatenate([each.groups + at for each, at in zip(material, first, strict=False)])
        known, positions = np.unique(labels, return_inverse=True)
        owners = np.concatenate([each.group_labels for each in material])
        folds = np.zeros(len(owners), np.int64)
        for label in known:
            mine = np.flatnonzero(owners == label)
            folds[mine] = np.arange(len(mine)) % FOLDS
        step = -(-len(labels) // MOST_ROWS)
        features = np.concatenate([each.features for each in material])[::step]
        n_cells = sum(each.n_cells for each in material)
        return cls(features, positions[::step], groups[::step], folds, known, first, n_cells)

    @property
    def can_fold(self) -> bool:
        """Whether every label has two groups, so one can be left out, and there are some of them."""
        owners = np.zeros(len(self.folds), np.int64)
        owners[self.groups] = self.labels
        return len(self.known) > 1 and len(owners) >= _FEW and np.bincount(owners, minlength=len(self.known)).min() >= 2

    def without(self, fold: int | None) -> np.ndarray:
        """Return which rows are not of a fold."""
        return np.ones(len(self.labels), bool) if fold is None else self.folds[self.groups] != fold


@dataclass
class Learner:
    """Fits that start from the last ones.

    Parameters
    ----------
    prior : Field, optional
        A model to start from: the classifier learns what to add to its scores.
    """

    prior: Field | None = None
    _last: dict[tuple[int, ...], LinearFunction] | None = None
    _numbers: np.ndarray | None = None

    def classify(self, rows: Rows, effort: Effort = QUICK) -> Field:
        """Return the field with a new classifier and the numbers of the last fit."""
        numbers = START if self._numbers is None else self._numbers
        a, s, t = numbers.tolist()
        return Field(self._weights(rows, None, effort), a, s, t, rows.known)

    def refine(self, rows: Rows, material: Sequence[Material], effort: Effort, stop: Stop) -> tuple[Field, HeldOut | None]:
        """Return the field with new numbers, and the error on groups that were left out."""
        field = self.classify(rows, effort)
        if not rows.can_fold:
            return field, None
        without = [replace(field, weights=self._weights(rows, fold, effort)) for fold in range(FOLDS)]
        mosaic = Mosaic.of(rows, material, without, effort.windows)
        start = START if self._numbers is None else self._numbers
        self._numbers = mosaic.fit(field, start, effort.max_iter, stop)
        a, s, t = self._numbers.tolist()
        field = replace(field, scale=a, contrast=s, constant=t)
        return field, mosaic.held_out(field)

    def _weights(self, rows: Rows, fold: int | None, effort: Effort) -> np.ndarray:
        """Return the classifier's weights (F + 1, K), from rows that are not of a fold."""
        if self._last is None:
            self._last = {}
        key = (-1 if fold is None else fold, *rows.known.tolist())
        kept = rows.without(fold)
        x, y = rows.features[kept], rows.labels[kept]
        oracle = Linear(l2=L2 * min(1, FEW_CELLS / rows.n_cells), max_iter=effort.steps, tol=1e-4)
        found = oracle.fit(OracleTask(x, y, self._bias(x, rows.known), start=self._last.get(key)))
        self._last[key] = found
        weights = found.weights.T.copy()
        prior = self._prior_weights(rows.known)
        return weights if prior is None else weights + prior

    def _bias(self, x: np.ndarray, known: np.ndarray) -> np.ndarray:
        prior = self._prior_weights(known)
        return np.zeros((len(x), len(known))) if prior is None else x @ prior[:-1] + prior[-1]

    def _prior_weights(self, known: np.ndarray) -> np.ndarray | None:
        """Return the prior's weights for these labels; those it does not know start as likely as its mean."""
        if self.prior is None:
            return None
        weights = np.zeros((len(self.prior.weights), len(known)))
        for position, label in enumerate(known):
            at = np.flatnonzero(self.prior.known == label)
            if len(at):
                weights[:, position] = self.prior.weights[:, at[0]]
        return weights


@dataclass(frozen=True, eq=False)
class Mosaic:
    """Windows of all images stacked into one grid, without edges between them: one call of inference for all.

    A window occurs once for each fold that has painted pixels in it, with the scores of the classifier without that fold.
    """

    scores: np.ndarray  # (H, WIDE, K)
    across: np.ndarray
    down: np.ndarray
    inside: tuple[np.ndarray, np.ndarray]
    labels: np.ndarray  # (H, WIDE) positions, -1 = hidden
    groups: np.ndarray

    @cached_property
    def taught(self) -> np.ndarray:
        """The labels without groups that the classifier gets wrong as a whole: no neighbour can repair those.

        People paint where the picture is wrong, so strokes that are like no other are common; they say that the classifier
        is not to be trusted there, not that neighbours do not agree.
        """
        known = self.groups >= 0
        right = (self.scores.argmax(axis=2) == self.labels)[known]
        numbers = self.groups[known]
        share = np.bincount(numbers, right) / np.maximum(np.bincount(numbers), 1)
        kept = np.zeros(self.labels.shape, bool)
        kept[known] = share[numbers] >= 0.5
        return np.where(kept, self.labels, -1)

    @classmethod
    def of(cls, rows: Rows, material: Sequence[Material], without: list[Field], most: int) -> Mosaic:
        """Stack windows: all, or ``most`` of them, spread evenly."""
        table = np.full(HIDDEN + 1, -1, np.int64)
        table[rows.known] = np.arange(len(rows.known))
        tiles: list[tuple[Window, np.ndarray, np.ndarray, int]] = []
        for each, first in zip(material, rows.first, strict=False):
            for window in each.windows:
                groups = np.where(window.groups >= 0, window.groups + first, -1)
                folds = np.where(groups >= 0, rows.folds[groups], -1)
                for fold in np.unique(folds[folds >= 0]):
                    mine = folds == fold
                    tiles.append((window, np.where(mine, table[window.labels], -1), np.where(mine, groups, -1), int(fold)))
        chosen = [tiles[k] for k in np.unique(np.linspace(0, len(tiles) - 1, min(most, len(tiles))).astype(int))]
        blank = np.zeros((1, WIDE), np.float32)
        return cls(
            np.concatenate([without[fold].scores(window.pixels) for window, _, _, fold in chosen]),
            np.concatenate([window.across for window, _, _, _ in chosen]),
            np.concatenate([np.concatenate([window.down, blank]) for window, _, _, _ in chosen])[:-1],
            (
                np.concatenate([window.inside[0] for window, _, _, _ in chosen]),
                np.concatenate([np.concatenate([window.inside[1], blank]) for window, _, _, _ in chosen])[:-1],
            ),
            np.concatenate([labels for _, labels, _, _ in chosen]),
            np.concatenate([groups for _, _, groups, _ in chosen]),
        )

    def fit(self, field: Field, start: np.ndarray, max_iter: int, stop: Stop) -> np.ndarray:
        """Return a, s and t of the smallest loss."""
        n_groups = len(np.unique(self.groups[self.taught >= 0]))
        if n_groups < 2:
            return start
        pull = _PULL / max(n_groups, 1)

        def objective(numbers: np.ndarray) -> tuple[float, np.ndarray]:
            if stop():
                raise Stopped
            value, gradient = self.loss(field, numbers)
            off = (numbers - START) / _SPREAD
            off[0] = np.log(numbers[0] / START[0]) / _SPREAD[0]
            slope = 1 / _SPREAD
            slope[0] /= numbers[0]
            return value + pull * float(off @ off), gradient + 2 * pull * off * slope

        options = {"maxiter": max_iter, "maxfun": 2 * max_iter, "ftol": 1e-4, "gtol": 1e-3}
        return minimize(objective, start, jac=True, method="L-BFGS-B", bounds=_BOUNDS, options=options).x

    def loss(self, field: Field, numbers: np.ndarray) -> tuple[float, np.ndarray]:
        """Return the mean loss of painted pixels, and its gradient with respect to a, s and t."""
        theta = self._theta(field, numbers)
        value, d_theta = value_and_gradient(
            theta, self.taught.reshape(-1), loss="univariate_logistic", inference=INFERENCE, dtype="float32"
        )
        count = max(int((self.taught >= 0).sum()), 1)
        agree = np.trace(d_theta.factors, axis1=1, axis2=2)
        d_scale = float(np.vdot(d_theta.unary, self.scores.reshape(-1, self.scores.shape[2])))
        contrast, inside = (np.concatenate([each.reshape(-1) for each in pair]) for pair in (self._edges, self.inside))
        return value / count, np.array([d_scale, float(agree @ contrast), float(agree @ inside)]) / count

    def held_out(self, field: Field) -> HeldOut | None:
        """Return the error of the field on pixels that the classifier has not seen, group by group."""
        theta = self._theta(field, np.array([field.scale, field.contrast, field.constant]))
        found = beliefs_given(method(), theta, None).reshape(self.scores.shape).argmax(axis=2)
        known = self.groups >= 0
        _, group = np.unique(self.groups[known], return_inverse=True)
        wrong = np.bincount(group, (found != self.labels)[known]) / np.bincount(group)
        spread = float(wrong.std(ddof=1) / np.sqrt(len(wrong))) if len(wrong) > 1 else None
        return HeldOut(float(wrong.mean()), spread, len(wrong))

    @property
    def _edges(self) -> tuple[np.ndarray, np.ndarray]:
        return self.across, self.down

    def _theta(self, field: Field, numbers: np.ndarray):  # type: ignore[no-untyped-def]
        """Return theta; beyond images, and between windows, nothing is joined."""
        a, s, t = numbers.tolist()
        across, down = (
            np.float32(s) * edge + np.float32(t) * inside for edge, inside in zip(self._edges, self.inside, strict=True)
        )
        return replace(field, scale=a, contrast=1.0, constant=0.0).potentials(self.scores, across, down)
