"""Enumeration: the reference for every other method.

    log Z = log sum_x exp(theta·f(x)),   mu = sum_x p(x) f(x),   vjp(d) = sum_x p(x) (d·f(x) - d·mu) f(x)

Labelings are walked like a counter, last variable fastest. The score of a prefix x_0 .. x_i and the probability mass
below it are kept for every depth i, so a step touches only the factors that end at variables that change.
Cost O(prod_i L_i · factors at the last variables); memory O(tables).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from backfield.errors import InputError
from backfield.graph import Graph, Potentials
from backfield.inference.exact.base import DirectInference, check_positive, check_possible, direction, working
from backfield.kernels.compile import exact_kernel, exact_part


@dataclass(frozen=True, repr=False)
class BruteForce(DirectInference, name="brute_force"):
    """Sum over all labelings, one by one.

    Parameters
    ----------
    max_states : int
        Models with more labelings are refused.
    """

    max_states: int = 2**22

    def __post_init__(self) -> None:
        check_positive(self, "max_states")

    def marginals(self, theta: Potentials) -> tuple[Any, Potentials]:
        """Return log Z and the marginals, complex where theta is."""
        (values,) = working(theta)
        sums, mu = self._sums(theta.graph, values, np.empty(0, values.dtype))
        total = mu[: theta.graph.labels[0]].sum()  # 1 but for the rounding of sums[1], a plain sum over all labelings
        return sums[0] + np.log(sums[1] * total), theta.like((mu / total).astype(theta.dtype, copy=False))

    def vjp(self, theta: Potentials, d_mu: Potentials) -> Potentials:
        """Return the covariance of f applied to ``d_mu``."""
        _, d_theta = self._sums(theta.graph, *direction(theta, d_mu))
        return theta.like(d_theta.astype(np.result_type(theta.dtype, d_mu.dtype), copy=False))

    def _sums(self, graph: Graph, theta: np.ndarray, d: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return [largest score, sum of exp(score - largest), mean of d·f] and the weighted sum of f."""
        states = math.prod(graph.labels.tolist())
        if states > self.max_states:
            raise InputError(
                f"brute_force would enumerate {states:,} labelings, but max_states={self.max_states:,}; use 'exact'."
            )
        ending = graph.compiled("brute_force", lambda: _ending(graph))
        sums, out = np.empty(3, theta.dtype), np.zeros_like(theta)
        _total(graph.layout, *ending, theta, d, sums)
        check_possible(sums[0])
        _weigh(graph.layout, *ending, theta, d, sums, out)
        return sums, out


def _ending(graph: Graph) -> tuple[np.ndarray, np.ndarray]:
    """Return the factors grouped by the largest of their variables: pointers (n + 1,) and factors."""
    layout = graph.layout
    last = np.maximum.reduceat(layout.scope, layout.scope_ptr[:-1]) if graph.n_factors else np.empty(0, np.int64)
    ptr = np.searchsorted(np.sort(last), np.arange(graph.n_variables + 1)).astype(np.int64)
    factors = np.argsort(last, kind="stable").astype(np.int64)
    ptr.flags.writeable = factors.flags.writeable = False
    return ptr, factors


@exact_part
def _entry(layout, c, x):
    """Place of the table entry of factor c that labels x select, in [unary, factors]."""
    at = layout.var_ptr[-1] + layout.table_ptr[c]
    for k in range(layout.scope_ptr[c], layout.scope_ptr[c + 1]):
        at += x[layout.scope[k]] * layout.stride[k]
    return at


@exact_part
def _descend(layout, end_ptr, end, depth, x, theta, scores):
    """Score all prefixes that end at ``depth`` or later: scores[i + 1] = scores[i] + what ends at i."""
    for i in range(depth, len(x)):
        score = scores[i] + theta[layout.var_ptr[i] + x[i]]
        for k in range(end_ptr[i], end_ptr[i + 1]):
            score += theta[_entry(layout, end[k], x)]
        scores[i + 1] = score


@exact_part
def _next_depth(labels, x):
    """First variable that changes in the next labeling, -1 after the last one."""
    i = len(x) - 1
    while i >= 0 and x[i] == labels[i] - 1:
        i -= 1
    return i


@exact_part
def _advance(depth, x):
    x[depth] += 1
    x[depth + 1 :] = 0


@exact_kernel
def _total(layout, end_ptr, end, theta, d, sums):
    x = np.zeros(len(layout.labels), np.int64)
    scores = np.zeros(len(x) + 1, theta.dtype)
    slopes = np.zeros(len(x) + 1, theta.dtype)
    top, total, slope = -np.inf, theta.dtype.type(0), theta.dtype.type(0)
    depth = 0
    while depth >= 0:
        _descend(layout, end_ptr, end, depth, x, theta, scores)
        if len(d):
            _descend(layout, end_ptr, end, depth, x, d, slopes)
        score = scores[-1]
        if score.real > top:
            shrink = np.exp(top - score.real)
            total, slope, top = total * shrink, slope * shrink, score.real
        if score.real > -np.inf:
            weight = np.exp(score - top)
            total += weight
            slope += weight * slopes[-1]
        depth = _next_depth(layout.labels, x)
        if depth >= 0:
            _advance(depth, x)
    sums[0], sums[1], sums[2] = top, total, slope / total


@exact_kernel
def _weigh(layout, end_ptr, end, theta, d, sums, out):
    x = np.zeros(len(layout.labels), np.int64)
    scores = np.zeros(len(x) + 1, theta.dtype)
    slopes = np.zeros(len(x) + 1, theta.dtype)
    mass = np.zeros(len(x) + 1, theta.dtype)  # mass[i + 1]: of the labelings with the present prefix x_0 .. x_i
    depth = 0
    while depth >= 0:
        _descend(layout, end_ptr, end, depth, x, theta, scores)
        if len(d):
            _descend(layout, end_ptr, end, depth, x, d, slopes)
        if scores[-1].real > -np.inf:
            weight = np.exp(scores[-1] - sums[0]) / sums[1]
            mass[-1] = weight * (slopes[-1] - sums[2]) if len(d) else weight
        depth = _next_depth(layout.labels, x)
        for i in range(len(x) - 1, max(depth, 0) - 1, -1):
            out[layout.var_ptr[i] + x[i]] += mass[i + 1]
            for k in range(end_ptr[i], end_ptr[i + 1]):
                out[_entry(layout, end[k], x)] += mass[i + 1]
            mass[i] += mass[i + 1]
            mass[i + 1] = 0
        if depth >= 0:
            _advance(depth, x)
