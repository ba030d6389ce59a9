"""Smoothed classification error ([D13] §4.2.2): the number of variables (or cliques) whose best label is wrong.

    sum_i S( max_{x != x_i} mu_i(x) - mu_i(x_i) ),   S(t) = 1 / (1 + exp(-alpha t))

# Differs from [D13]: the text prints mu(x_i) under the maximum; mu(x'_i) is meant.
Start it from the surrogate likelihood's parameters ([D13] §8): it has local minima.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from backfield.errors import InputError
from backfield.graph import Potentials
from backfield.graph.labeling import Labeling
from backfield.losses.base import (
    Loss,
    clique_entries,
    clique_weights,
    label_weights,
    sigmoid,
    tables_only,
    unary_entries,
    unary_only,
)


def _check_alpha(loss: Any) -> None:
    if not (isinstance(loss.alpha, int | float) and 0 < loss.alpha < np.inf):
        raise InputError(f"{loss.name}: alpha must be a positive number, received {loss.alpha!r}.")


@dataclass(frozen=True, repr=False)
class SmoothedError(Loss, name="smoothed_error"):
    """Smoothed number of wrong variables; ``alpha`` is the steepness of the step."""

    alpha: float = 15.0

    def __post_init__(self) -> None:
        _check_alpha(self)

    def value_and_dmu(self, mu: Potentials, labeling: Labeling, weights: np.ndarray | None) -> tuple[Any, Potentials]:
        """Return the smoothed number of errors and its derivative."""
        graph = mu.graph
        variables, entries = unary_entries(graph, labeling.labels)
        w = np.broadcast_to(label_weights(graph, weights, variables, entries), len(entries))
        sizes = graph.labels
        value, d_unary = _smoothed(self.alpha, mu.unary_flat, sizes, variables, entries, w)
        return value, unary_only(graph, d_unary)


@dataclass(frozen=True, repr=False)
class CliqueSmoothedError(Loss, name="clique_smoothed_error"):
    """Smoothed number of wrong cliques; ``alpha`` is the steepness of the step."""

    alpha: float = 15.0

    cliques: ClassVar[bool] = True

    def __post_init__(self) -> None:
        _check_alpha(self)

    def value_and_dmu(self, mu: Potentials, labeling: Labeling, weights: np.ndarray | None) -> tuple[Any, Potentials]:
        """Return the smoothed number of errors and its derivative."""
        graph = mu.graph
        cliques, entries = clique_entries(graph, labeling.labels)
        w = np.broadcast_to(clique_weights(graph, weights, labeling.allowed, cliques), len(entries))
        sizes = np.diff(graph.layout.table_ptr)
        value, d_factors = _smoothed(self.alpha, mu.factors_flat, sizes, cliques, entries, w)
        return value, tables_only(mu, d_factors)


def _smoothed(
    alpha: float, mu: np.ndarray, sizes: np.ndarray, blocks: np.ndarray, entries: np.ndarray, w: np.ndarray
) -> tuple[Any, np.ndarray]:
    """Sum over blocks of ``sizes`` numbers, in each of which ``entries`` are right."""
    d_mu = np.zeros_like(mu)
    several = np.asarray(sizes)[blocks] > 1  # a block of one number cannot be wrong
    entries, w, blocks = entries[several], w[several], blocks[several]
    if len(entries) == 0:
        return 0.0, d_mu
    rivals = mu.real.copy()
    rivals[entries] = -np.inf
    best = _argmax_per_block(rivals, sizes)[blocks]
    gap = mu[best] - mu[entries]
    s = sigmoid(alpha * gap)
    slope = (w * alpha * s * (1 - s)).astype(mu.dtype, copy=False)
    d_mu[best] = slope
    d_mu[entries] = -slope
    return (w * s).sum(), d_mu


def _argmax_per_block(values: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """Return the flat position of the (first) largest number of each block."""
    start = np.concatenate([[0], np.cumsum(sizes)[:-1]])
    if (np.asarray(sizes) == sizes[0]).all():
        return start + values.reshape(len(sizes), -1).argmax(axis=1)
    top = np.maximum.reduceat(values, start)
    hit = np.flatnonzero(values == np.repeat(top, sizes))
    owner = np.repeat(np.arange(len(sizes)), sizes)[hit]
    return hit[np.unique(owner, return_index=True)[1]]
