"""Quadratic losses ([D13] §4.2.2 and Table 1): squared distance of the marginals to the labels' indicators.

sum_i sum_x (mu_i(x) - [x = x_i])^2, and the same over cliques
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from backfield.graph import Potentials
from backfield.graph.labeling import Labeling
from backfield.losses.base import (
    Loss,
    clique_entries,
    clique_weights,
    label_weights,
    tables_only,
    unary_entries,
    unary_only,
)


@dataclass(frozen=True, repr=False)
class UnivariateQuadratic(Loss, name="univariate_quadratic"):
    """Squared distance of each variable's marginal to its label's indicator."""

    def value_and_dmu(self, mu: Potentials, labeling: Labeling, weights: np.ndarray | None) -> tuple[Any, Potentials]:
        """Return the weighted sum of squares and its derivative."""
        graph = mu.graph
        variables, entries = unary_entries(graph, labeling.labels)
        w = np.zeros(graph.n_variables)
        w[variables] = label_weights(graph, weights, variables, entries)
        value, d_unary = _squares(mu.unary_flat, entries, np.repeat(w, graph.labels))
        return value, unary_only(graph, d_unary)


@dataclass(frozen=True, repr=False)
class CliqueQuadratic(Loss, name="clique_quadratic"):
    """Squared distance of each factor's marginal to its labels' indicator."""

    cliques: ClassVar[bool] = True

    def value_and_dmu(self, mu: Potentials, labeling: Labeling, weights: np.ndarray | None) -> tuple[Any, Potentials]:
        """Return the weighted sum of squares and its derivative."""
        graph = mu.graph
        cliques, entries = clique_entries(graph, labeling.labels)
        w = np.zeros(graph.n_factors)
        w[cliques] = clique_weights(graph, weights, labeling.allowed, cliques)
        value, d_factors = _squares(mu.factors_flat, entries, np.repeat(w, np.diff(graph.layout.table_ptr)))
        return value, tables_only(mu, d_factors)


def _squares(mu: np.ndarray, entries: np.ndarray, w: np.ndarray) -> tuple[Any, np.ndarray]:
    difference = mu.copy()
    difference[entries] -= 1
    weighted = (w * difference).astype(mu.dtype, copy=False)
    return (weighted * difference).sum(), 2 * weighted
