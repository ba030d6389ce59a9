"""A fit that is checked: the rows before it, and afterwards whether the oracle did what oracles must do."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from backfield.errors import InputError
from backfield.oracles.base import Oracle, OracleFunction, OracleTask, shown


class Fit(NamedTuple):
    """A fitted function, its scores on the rows that it was fitted to, and the mean biased loss after and before."""

    function: OracleFunction
    scores: np.ndarray
    loss: float
    loss_before: float


def checked_fit(oracle: Oracle, task: OracleTask, start_scores: np.ndarray | None = None) -> Fit:
    """Call ``oracle.fit``; raise ``InputError`` where the rows cannot be used or the oracle returns what it must not.

    An oracle is said to ignore the bias if either rule holds:

    - the biased loss rises by more than a quarter (and 0.01) over that of ``task.start`` (of f = 0 without one), while the
      loss without the bias falls. A step that is only too long makes both rise;
    - at the first fit (without ``start``), f does not answer to a bias: up to 1000 of the rows are fitted three times,
      with the bias +10 for class 0 on half of the rows, with -10, and with +10 again. The first two functions must
      differ by more than twice the difference of the first and the third, which is 0 for an oracle that keeps to its
      seed, and by 0.5 if it does not. Functions that are 0, and oracles that cannot fit those rows, pass.

    Parameters
    ----------
    start_scores : (N, K) floats, optional
        ``task.start.scores(task.features)``, if known.
    """
    name = _name(oracle)
    task = _checked_task(oracle, task)
    problem = task.problem()
    if task.start is None:
        start_scores = np.zeros(task.bias.shape)
    elif start_scores is None:
        start_scores = _checked_scores(name, task.start, task)
    function = oracle.fit(task)
    scores = _checked_scores(name, function, task)
    fit = Fit(function, scores, problem.value(scores), problem.value(start_scores))
    _check_descent(name, fit, start_scores, task)
    if task.start is None and np.any(scores):
        _check_answer(oracle, task)
    return fit


def _name(oracle: Oracle) -> str:
    return f"oracle {oracle.name or type(oracle).__name__!r}"


def _checked_task(oracle: Oracle, task: OracleTask) -> OracleTask:
    """Return the task with contiguous arrays, or raise the one thing that is wrong with them."""
    name = _name(oracle)
    features, bias = np.asarray(task.features), np.asarray(task.bias)
    if features.ndim != 2 or features.dtype.kind not in "fiub" or len(features) == 0:
        raise InputError(f"{name}: features are {shown(features)}; (N, F) numbers with N >= 1 are needed.")
    features = np.ascontiguousarray(features, dtype=np.float32 if features.dtype == np.float32 else np.float64)
    _check_finite(name, "features", features)
    n = len(features)
    if bias.ndim != 2 or len(bias) != n or bias.shape[1] < 2 or bias.dtype.kind not in "fiub":
        raise InputError(f"{name}: bias is {shown(bias)}; ({n}, K) numbers for K >= 2 classes are needed.")
    bias = np.ascontiguousarray(bias, dtype=np.float64)
    _check_finite(name, "bias", bias)
    labels, weight = _checked_labels(oracle, task.labels, *bias.shape), _checked_weight(name, task.weight, n)
    return replace(task, features=features, labels=labels, bias=bias, weight=weight)


def _checked_labels(oracle: Oracle, labels: Any, n: int, n_classes: int) -> np.ndarray:
    name, labels = _name(oracle), np.asarray(labels)
    if labels.ndim == 2:
        return _checked_soft(oracle, labels, n, n_classes)
    if labels.shape != (n,) or labels.dtype.kind not in "iub":
        soft = f" or ({n}, {n_classes}) probabilities" if oracle.supports_soft_targets else ""
        raise InputError(f"{name}: labels are {shown(labels)}; ({n},) integers{soft} are needed.")
    bad = np.flatnonzero((labels < 0) | (labels >= n_classes))
    if len(bad):
        raise InputError(f"{name}: labels[{bad[0]}] is {labels[bad[0]]}; 0 .. {n_classes - 1} are allowed.")
    return np.ascontiguousarray(labels, dtype=np.int64)


def _checked_soft(oracle: Oracle, soft: np.ndarray, n: int, n_classes: int) -> np.ndarray:
    name = _name(oracle)
    if not oracle.supports_soft_targets:
        raise InputError(f"{name} takes labels only, received soft targets of shape {soft.shape}.")
    if soft.shape != (n, n_classes) or soft.dtype.kind not in "fiub":
        raise InputError(f"{name}: soft targets are {shown(soft)}; ({n}, {n_classes}) probabilities are needed.")
    soft = np.ascontiguousarray(soft, dtype=np.float64)
    bad = np.flatnonzero(~((soft >= 0).all(axis=1) & (np.abs(soft.sum(axis=1) - 1) < 1e-3)))
    if len(bad):
        row = np.array2string(soft[bad[0]], precision=4, threshold=8)
        raise InputError(f"{name}: soft target {bad[0]} is {row}; probabilities that sum to 1 are needed.")
    return soft / soft.sum(axis=1, keepdims=True)


def _checked_weight(name: str, weight: Any, n: int) -> np.ndarray | None:
    if weight is None:
        return None
    weight = np.asarray(weight)
    if weight.shape != (n,) or weight.dtype.kind not in "fiub":
        raise InputError(f"{name}: weights are {shown(weight)}; ({n},) numbers are needed.")
    weight = np.ascontiguousarray(weight, dtype=np.float64)
    _check_finite(name, "weight", weight)
    if weight.min() < 0:
        i = int(np.argmin(weight))
        raise InputError(f"{name}: weight[{i}] is {weight[i]:g}; weights are 0 or more.")
    if weight.sum() == 0:
        raise InputError(f"{name}: all {n} weights are 0; there is nothing to fit.")
    return weight


def _checked_scores(name: str, function: Any, task: OracleTask) -> np.ndarray:
    if not callable(getattr(function, "scores", None)):
        got = type(function).__name__
        raise InputError(f"{name} gave {got}; a function with scores(features) is needed.")
    scores, needed = np.asarray(function.scores(task.features)), task.bias.shape
    if scores.shape != needed or scores.dtype.kind not in "fiub":
        raise InputError(f"{name} returned scores that are {shown(scores)}; {needed} numbers are needed.")
    _check_finite(name, "returned scores", scores)
    return scores


def _check_finite(name: str, what: str, x: np.ndarray) -> None:
    # One pass without a temporary: a sum is finite unless a term is not, or it overflows.
    with np.errstate(over="ignore", invalid="ignore"):
        if np.isfinite(x.sum()):
            return
    bad = np.argwhere(~np.isfinite(x))
    if len(bad):
        at = ", ".join(map(str, bad[0]))
        raise InputError(f"{name}: {what}[{at}] is {x[tuple(bad[0])]}; finite numbers are needed.")


def _check_descent(name: str, fit: Fit, start_scores: np.ndarray, task: OracleTask) -> None:
    if fit.loss <= 1.25 * fit.loss_before + 0.01:
        return
    plain = replace(task, bias=np.zeros(task.bias.shape)).problem()
    before, after = plain.value(start_scores), plain.value(fit.scores)
    if after < before:
        raise InputError(
            f"{name} ignores the bias: its fit raises the biased loss from {fit.loss_before:.4g} to {fit.loss:.4g}, "
            f"but lowers the loss without the bias from {before:.4g} to {after:.4g}."
        )


def _check_answer(oracle: Oracle, task: OracleTask) -> None:
    """Raise if f is the same for biases of +10 and -10 of class 0; see ``checked_fit``."""
    rows = _sample(task.labels)
    x = task.features[rows]
    shift = np.zeros((len(rows), task.n_classes))
    shift[:, 0] = 10.0 * _upper_half(x)
    few = replace(task, features=x, labels=task.labels[rows], weight=None)
    try:
        plus, minus, again = (oracle.fit(replace(few, bias=bias)).scores(x) for bias in (shift, -shift, shift))
    except Exception:  # The oracle has fitted all rows; that it cannot fit a few of them proves nothing.
        return
    answer, noise = np.abs(plus - minus).max(), np.abs(plus - again).max()
    unsteady = noise > 1e-3
    if np.any(plus) and answer <= max(2 * noise, 0.5 if unsteady else 1e-9 * np.abs(plus).max()):
        hint = " (up to the difference of two fits with one seed)" if unsteady else ""
        raise InputError(
            f"{_name(oracle)} ignores the bias: on {len(rows)} of the rows, biases of +10 and of -10 for class 0 give "
            f"the same function{hint}; fit f such that f + bias predicts the labels."
        )


def _sample(labels: np.ndarray, size: int = 1000) -> np.ndarray:
    """Return up to ``size`` rows spread over the classes in proportion, and one of each class at least."""
    hard = labels.argmax(axis=1) if labels.ndim == 2 else labels
    order = np.argsort(hard, kind="stable")
    spread = order[np.linspace(0, len(order) - 1, min(size, len(order))).astype(np.int64)]
    return np.unique(np.concatenate([spread, np.unique(hard, return_index=True)[1]]))


def _upper_half(x: np.ndarray) -> np.ndarray:
    """Mark the rows above the median of the first column that varies (all rows without one).

    Such a bias has a mean and a slope, so a constant can answer to it as well as a line without an intercept.
    """
    for column in x.T:
        upper = column > np.median(column)
        if upper.any():
            return upper
    return np.ones(len(x), dtype=bool)
