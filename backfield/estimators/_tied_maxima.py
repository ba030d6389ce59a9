"""Objectives made of maxima (perturb-and-MAP, margins) on linear chains that share one transition table.

The same numbers as the general path, several times faster: scores of a batch are one product, and one kernel runs
Viterbi's algorithm for all its chains. Used where it applies: every label known, no weights, no edge features.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from backfield.estimators._tied_chains import is_simple
from backfield.inference.sampling.perturb_and_map import gumbel_numbers
from backfield.kernels.compile import exact_kernel
from backfield.objectives import MarginalPerturbAndMap, MaxMargin, PerturbAndMapLikelihood
from backfield.training.problem import Problem, Rows, _Sum

_MARGIN, _JOINT, _MARGINAL = range(3)


class TiedMaximaProblem(Problem):
    """A problem over chains in memory."""

    @staticmethod
    def applies(problem: Problem) -> bool:
        """Whether this path computes the same as ``problem``."""
        layout, solver = problem.layout, getattr(problem.objective_info, "solver", "")
        known = type(problem.objective_info) in (MarginalPerturbAndMap, MaxMargin, PerturbAndMapLikelihood)
        one = len(layout.unary) == 1 and len(layout.factors) == 1 and layout.factors[0].n_features == 0
        one = one and not layout.unary[0].energy.whole
        reduced = getattr(problem.objective_info, "reduction", True)
        listed = isinstance(problem.examples, list)
        return bool(known and one and reduced and listed and solver in ("auto", "viterbi")) and all(
            is_simple(example) and not hasattr(example.unary[0].features, "indptr")  # type: ignore[union-attr]
            for example in problem.examples
        )

    def _n_chunks(self, count: int) -> int:
        return max(1, min(super()._n_chunks(count), count // 8))  # a chunk of one chain would cost as much as eight

    def chunk(self, numbers: np.ndarray, w: np.ndarray, seed: int) -> _Sum:
        """Sum over some chains at once."""
        block, edges = self.layout.unary[0], self.layout.factors[0]
        examples = [self.examples[number] for number in numbers]
        features = np.concatenate([example.unary[0].features for example in examples])  # type: ignore[union-attr]
        labels = np.concatenate([example.target.labeling.labels for example in examples])  # type: ignore[union-attr]
        ptr = np.concatenate([[0], np.cumsum([example.graph.n_variables for example in examples])])
        count = block.n_outputs
        unary = block.scores(w, Rows(slice(0, len(labels)), features)).astype(np.float64)
        table = np.zeros((count, count))
        if edges.stop > edges.start:
            table[:] = w[edges.start : edges.stop].reshape(count, count).astype(self.dtype)
        gradient = np.zeros(self.n_weights)
        if not (np.isfinite(unary).all() and np.isfinite(table).all()):
            return _Sum(np.inf, gradient, 0.0, 0)
        objective: Any = self.objective_info
        samples, d_unary, d_table = getattr(objective, "n_samples", 1), np.zeros_like(unary), np.zeros_like(table)
        value = 0.0
        for m in range(samples):
            mode, bonus = _MARGIN, 1.0 - (np.arange(count) == labels[:, None])
            if not isinstance(objective, MaxMargin):
                mode = _MARGINAL if isinstance(objective, MarginalPerturbAndMap) else _JOINT
                sizes = count * np.diff(ptr)
                noise = [gumbel_numbers(k, seed + int(n), m) for k, n in zip(sizes, numbers, strict=True)]
                bonus = np.concatenate(noise).reshape(-1, count)
            value += _add_maxima(mode, unary, bonus, ptr, table, labels, d_unary, d_table)
        gradient[block.start : block.stop] = block.energy.vjp(features, d_unary.astype(self.dtype), block.intercept)
        if edges.stop > edges.start:
            gradient[edges.start : edges.stop] = d_table.reshape(-1)
        return _Sum(float(value) / samples, gradient / samples, float("nan"), 0)


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
