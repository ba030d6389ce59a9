"""Objectives made of maxima (perturb-and-MAP, margins) on linear chains that share one transition table.

The same numbers as the general evaluator, several times faster: scores of a batch are one product, and one kernel runs
Viterbi's algorithm for all its chains. Applies where every label is known, without weights and edge features.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from scipy.sparse import issparse, vstack

from backfield.inference.sampling.perturb_and_map import gumbel_numbers
from backfield.kernels.compile import exact_kernel
from backfield.objectives import MarginalPerturbAndMap, MaxMargin, PerturbAndMapLikelihood
from backfield.training.evaluators.base import Evaluator, Sum, Task
from backfield.training.examples import Example, Rows

_MARGIN, _JOINT, _MARGINAL = range(3)
_MODES = {MaxMargin: _MARGIN, PerturbAndMapLikelihood: _JOINT, MarginalPerturbAndMap: _MARGINAL}


class _Stack(NamedTuple):
    """Some chains end to end."""

    features: Any  # (N, F) of all positions
    ptr: np.ndarray  # where chains begin
    labels: np.ndarray  # (N,)


@dataclass(frozen=True, eq=False)
class StackedMaxima(Evaluator):
    """Maxima over all chains of a chunk at once."""

    @classmethod
    def applies(cls, task: Task) -> bool:
        """Margins and perturb-and-MAP solved by Viterbi's algorithm, over chains of dense features in memory."""
        objective = task.objective
        if not isinstance(objective, MaxMargin | PerturbAndMapLikelihood | MarginalPerturbAndMap):
            return False
        reduced = not isinstance(objective, MarginalPerturbAndMap) or objective.reduction
        known = type(objective) in _MODES and objective.solver in ("auto", "viterbi")
        return bool(known and reduced and task.layout.factors and _are_stackable(task)) and not any(
            issparse(example.unary[0].features)  # type: ignore[union-attr]
            for example in task.examples
        )

    def n_chunks(self, planned: int, count: int) -> int:
        """Return fewer chunks: one of a single chain would cost as much as eight."""
        return max(1, min(super().n_chunks(planned, count), count // 8))

    def chunk(self, numbers: np.ndarray, w: np.ndarray, seed: int) -> Sum:
        """Sum over some chains at once."""
        task = self.task
        block, edges = task.layout.unary[0], task.layout.factors[0]
        features, ptr, labels = _stacked([task.examples[number] for number in numbers])
        count = block.n_outputs
        unary = block.scores(w, Rows(slice(0, len(labels)), features)).astype(np.float64)
        table = _transitions(task, w).astype(np.float64)
        gradient = np.zeros(task.n_weights)
        if not (np.isfinite(unary).all() and np.isfinite(table).all()):
            return Sum(np.inf, gradient, 0.0, 0)
        mode = _MODES[type(task.objective)]  # type: ignore[index]
        samples = 1 if isinstance(task.objective, MaxMargin) else task.objective.n_samples  # type: ignore[attr-defined]
        value, d_unary, d_table = 0.0, np.zeros_like(unary), np.zeros_like(table)
        for m in range(samples):
            if mode == _MARGIN:
                bonus = 1.0 - (np.arange(count) == labels[:, None])
            else:
                sizes = count * np.diff(ptr)
                noise = [gumbel_numbers(k, seed + int(n), m) for k, n in zip(sizes, numbers, strict=True)]
                bonus = np.concatenate(noise).reshape(-1, count)
            value += _add_maxima(mode, unary, bonus, ptr, table, labels, d_unary, d_table)
        gradient[block.start : block.stop] = block.energy.vjp(features, d_unary.astype(task.dtype), block.intercept)
        if edges.stop > edges.start:
            gradient[edges.start : edges.stop] = d_table.reshape(-1)
        return Sum(float(value) / samples, gradient / samples, float("nan"), 0)


def _are_stackable(task: Task) -> bool:
    """Whether all examples are chains in memory with one transition table, whose labels are known and count the same."""
    layout = task.layout
    tied = len(layout.unary) == 1 and not layout.unary[0].energy.whole and len(layout.factors) <= 1
    tied = tied and all(block.n_features == 0 for block in layout.factors)
    return task.chains and task.in_memory and tied and all(_is_complete(example) for example in task.examples)


def _is_complete(example: Example) -> bool:
    """Whether every label is known and counts the same."""
    target = example.target
    return (
        target is not None
        and example.weight == 1.0
        and target.observed is None
        and target.weights is None
        and not target.labeling.has_sets
        and bool((target.labeling.labels >= 0).all())
    )


def _stacked(examples: list[Example]) -> _Stack:
    """Return chains end to end."""
    features = [example.unary[0].features for example in examples]  # type: ignore[union-attr]
    labels = np.concatenate([example.target.labeling.labels for example in examples])  # type: ignore[union-attr]
    ptr = np.concatenate([[0], np.cumsum([example.graph.n_variables for example in examples])])
    return _Stack(vstack(features, format="csr") if issparse(features[0]) else np.concatenate(features), ptr, labels)


def _transitions(task: Task, w: np.ndarray) -> np.ndarray:
    """Return the table of all edges in the type of the task, as float64 zeros where it has no weights."""
    count = task.layout.unary[0].n_outputs
    for edges in task.layout.factors:
        if edges.stop > edges.start:
            return w[edges.start : edges.stop].reshape(count, count).astype(task.dtype)
    return np.zeros((count, count))


@exact_kernel
def _add_maxima(mode, unary, bonus, ptr, table, labels, d_unary, d_table):
    """Add the gradients of all chains; return the sum of their values."""
    n, count = unary.shape
    moved = unary + bonus
    best, other, h = np.empty(n, dtype=np.int64), np.empty(n, dtype=np.int64), np.empty((n, count))
    value = 0.0
    for c in range(len(ptr) - 1):
        a, b = ptr[c], ptr[c + 1]
        _viterbi(moved, a, b, table, -1, -1, h, best)
        if mode != 2:
            value += _score(moved, a, b, table, best) - _score(unary, a, b, table, labels)
            _add_indicators(a, b, best, 1.0, d_unary, d_table)
            _add_indicators(a, b, labels, -1.0, d_unary, d_table)
            continue
        top = _score(moved, a, b, table, best)
        for i in range(a, b):
            value += bonus[i, labels[i]]
            if best[i] != labels[i]:
                _viterbi(moved, a, b, table, i, labels[i], h, other)
                value += top - _score(moved, a, b, table, other)
                _add_indicators(a, b, best, 1.0, d_unary, d_table)
                _add_indicators(a, b, other, -1.0, d_unary, d_table)
    return value


@exact_kernel
def _viterbi(theta, a, b, table, fixed, label, h, out):
    """The best labels of variables a .. b - 1, with ``fixed`` held at ``label``; ties as in ``map_solvers.viterbi``."""
    count = theta.shape[1]
    message = np.empty(count)
    for i in range(a, b):
        if i > a:
            message[:] = -np.inf
            for y in range(count):
                shift = h[i - 1, y]
                if shift > -np.inf:
                    for x in range(count):
                        total = table[y, x] + shift
                        message[x] = total if total > message[x] else message[x]
        for x in range(count):
            h[i, x] = theta[i, x] + (message[x] if i > a else 0.0)
            if i == fixed and x != label:
                h[i, x] = -np.inf
    out[b - 1] = np.argmax(h[b - 1])
    for i in range(b - 2, a - 1, -1):
        top, at = -np.inf, 0
        for y in range(count):
            total = h[i, y] + table[y, out[i + 1]]
            if total > top:
                top, at = total, y
        out[i] = at


@exact_kernel
def _score(theta, a, b, table, labels):
    total = 0.0
    for i in range(a, b):
        total += theta[i, labels[i]]
        if i > a:
            total += table[labels[i - 1], labels[i]]
    return total


@exact_kernel
def _add_indicators(a, b, labels, sign, d_unary, d_table):
    for i in range(a, b):
        d_unary[i, labels[i]] += sign
        if i > a:
            d_table[labels[i - 1], labels[i]] += sign
