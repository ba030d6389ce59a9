"""The likelihood of many labelled chains that share one transition table, and its gradient, in one pass over the scores.

    value = sum over chains of log Z - theta(y);    d_unary = mu - [y];    pairs as in :mod:`.tied_chains`

The recursions are those of :mod:`backfield.inference.exact.tied_chains`. Labels are padded to a multiple of four with scores
of -inf, and the kernel is compiled for each such number: a row of labels is a few vector registers. Where potentials leave
the range that is safe in the probability domain, nothing is returned, and a caller asks the general engine.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from backfield.inference.exact.forward_backward import LIMIT
from backfield.kernels.compile import label_count
from backfield.kernels.unrolled import small_array, unrolled_kernel
from backfield.kernels.vector_math import vector_exp

#: A step takes a label down to e^-400 of the others at most: below this, the next one could leave the range of floats.
_FLOOR = 1e-100
#: Denominators of labels that cannot be reached, which have numerators of 0.
_TINY = 1e-300
_LANES = 4


class Likelihood(NamedTuple):
    """Minus log-likelihood, the expected number of each transition, and labels that are not the most probable ones."""

    value: float
    pairs: np.ndarray
    wrong: int


def padded(n_labels: int) -> int:
    """Return the width of a row of labels."""
    return -(-n_labels // _LANES) * _LANES


def chain_likelihood(
    unary: np.ndarray, ptr: np.ndarray, labels: np.ndarray, table: np.ndarray, forbids: bool
) -> Likelihood | None:
    """Return the likelihood of labels; ``unary`` becomes its derivative in place. None: another engine is needed.

    Parameters
    ----------
    unary : (n, padded(L)) float64
        Log-potentials, chain after chain; -inf forbids a label, as all those of the padding are.
    ptr : (B + 1,) int64
        Chain ``b`` owns positions ``[ptr[b], ptr[b + 1])``; none is empty.
    labels : (n,) int64
        The label of each position.
    table : (L, L) float64
        Log-potentials of two neighbours; -inf forbids a transition.
    forbids : bool
        Whether there are such labels or transitions.
    """
    n_labels, width = len(table), unary.shape[1]
    if not np.abs(table[table > -np.inf]).max(initial=0) < LIMIT:
        return None
    forward, backward = np.ones((n_labels, width)), np.zeros((n_labels, width))
    np.exp(table, out=forward[:, :n_labels])
    backward[:, :n_labels] = forward[:, :n_labels].T
    column = np.empty((int(np.diff(ptr).max()), width))
    pairs = np.zeros((n_labels, width))
    # Where transitions are forbidden, labels can fall behind by more in every step, and matter in the end.
    floor = _FLOOR if forbids else 0.0
    rows = label_count(width), ptr, labels, table, forward, backward, floor, unary, column, pairs
    value, wrong, largest = _likelihood(*rows)
    if not largest < LIMIT**2 or not np.isfinite(value):
        return None
    return Likelihood(value, pairs[:, :n_labels] * forward[:, :n_labels], wrong)


@unrolled_kernel
def _likelihood(count, ptr, labels, table, forward, backward, floor, unary, column, pairs):
    """Return value, wrong labels and the largest square of a finite score; NaN where a label falls below the floor."""
    n, n_labels = len(count), len(table)
    value, wrong = 0.0, 0
    acc, held, largest = small_array(count, unary), small_array(count, unary), small_array(count, unary)
    for y in range(n):
        largest[y] = 0.0
    for b in range(len(ptr) - 1):
        first, last = ptr[b], ptr[b + 1]
        for t in range(first, last):
            a = unary[t]
            value -= a[labels[t]]
            for y in range(n):
                square = a[y] * a[y] if a[y] > -np.inf else 0.0
                largest[y] = square if square > largest[y] else largest[y]
            for y in range(n):
                acc[y] = vector_exp(a[y]) if a[y] > -np.inf else 0.0
            if t > first:
                value -= table[labels[t - 1], labels[t]]
                c, before = column[t - first], unary[t - 1]
                for y in range(n):
                    held[y] = 0.0
                for x in range(n_labels):
                    weight = before[x]
                    for y in range(n):
                        held[y] += weight * forward[x, y]
                for y in range(n):
                    c[y] = held[y]
                for y in range(n):
                    acc[y] *= held[y]
            total = 0.0
            for y in range(n):
                total += acc[y]
            inverse = 1.0 / total
            for y in range(n):
                a[y] = acc[y] * inverse
            value += np.log(total)
            if floor > 0:
                for y in range(n_labels):
                    if 0.0 < a[y] <= floor:
                        return np.nan, 0, 0.0
        for t in range(last - 1, first, -1):
            c, a, before = column[t - first], unary[t], unary[t - 1]
            for y in range(n):
                acc[y] = a[y] / (c[y] if c[y] > _TINY else _TINY)
            for y in range(n):
                c[y] = acc[y]
            for x in range(n_labels):
                weight = before[x]
                for y in range(n):
                    pairs[x, y] += weight * acc[y]
            for x in range(n):
                held[x] = 0.0
            for y in range(n_labels):
                weight = c[y]
                for x in range(n):
                    held[x] += weight * backward[y, x]
            for x in range(n):
                before[x] *= held[x]
        for t in range(first, last):
            a, best = unary[t], 0
            top = a[0]
            for y in range(1, n_labels):
                top = a[y] if a[y] > top else top
            while a[best] < top:
                best += 1
            wrong += best != labels[t]
            a[labels[t]] -= 1.0
    worst = 0.0
    for y in range(n):
        worst = max(worst, largest[y])
    return value, wrong, worst
