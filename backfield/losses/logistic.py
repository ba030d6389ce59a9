"""Logistic losses ([D13] §4.2.1, §4.2.3).

    univariate:  - sum_i log mu(x_i)          clique:  - sum_c log mu(x_c)

For a set of allowed labels, the probability of the set takes the place of mu(x_i); for cliques, of the product set.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from backfield.graph import Graph, Potentials
from backfield.graph.labeling import Labeling
from backfield.losses.base import (
    Loss,
    clique_entries,
    clique_weights,
    label_weights,
    minus_log,
    safe,
    tables_only,
    unary_entries,
    unary_only,
    variable_weights,
)


@dataclass(frozen=True, repr=False)
class UnivariateLogistic(Loss, name="univariate_logistic"):
    """Minus the log probability of each label."""

    sets: ClassVar[bool] = True

    def value_and_dmu(self, mu: Potentials, labeling: Labeling, weights: np.ndarray | None) -> tuple[Any, Potentials]:
        """Return - sum_i w_i log mu(x_i) and its derivative."""
        graph = mu.graph
        d_unary = np.zeros_like(mu.unary_flat)
        if labeling.has_sets:
            return self._of_sets(mu, labeling, weights, d_unary)
        variables, entries = unary_entries(graph, labeling.labels)
        w = label_weights(graph, weights, variables, entries)
        p = safe(mu.unary_flat[entries], w)
        d_unary[entries] = -w / p
        return minus_log(p, w), unary_only(graph, d_unary)

    def _of_sets(
        self, mu: Potentials, labeling: Labeling, weights: np.ndarray | None, d_unary: np.ndarray
    ) -> tuple[Any, Potentials]:
        layout = mu.graph.layout
        allowed = labeling.allowed
        count = np.add.reduceat(allowed.astype(np.int64), layout.var_ptr[:-1])
        w = np.ones(len(count)) if weights is None else variable_weights(mu.graph, weights, allowed)
        w = np.where(count < mu.graph.labels, w, 0)
        p = safe(np.add.reduceat(np.where(allowed, mu.unary_flat, 0), layout.var_ptr[:-1]), w)
        d_unary[:] = np.where(allowed, np.repeat(-w / p, mu.graph.labels), 0)
        return minus_log(p, w), unary_only(mu.graph, d_unary)


@dataclass(frozen=True, repr=False)
class CliqueLogistic(Loss, name="clique_logistic"):
    """Minus the log probability of the labels of each factor."""

    cliques: ClassVar[bool] = True
    sets: ClassVar[bool] = True

    def value_and_dmu(self, mu: Potentials, labeling: Labeling, weights: np.ndarray | None) -> tuple[Any, Potentials]:
        """Return - sum_c w_c log mu(x_c) and its derivative."""
        d_factors = np.zeros_like(mu.factors_flat)
        if labeling.has_sets:
            return self._of_sets(mu, labeling, weights, d_factors)
        cliques, entries = clique_entries(mu.graph, labeling.labels)
        w = clique_weights(mu.graph, weights, labeling.allowed, cliques)
        p = safe(mu.factors_flat[entries], w)
        d_factors[entries] = -w / p
        return minus_log(p, w), tables_only(mu, d_factors)

    def _of_sets(
        self, mu: Potentials, labeling: Labeling, weights: np.ndarray | None, d_factors: np.ndarray
    ) -> tuple[Any, Potentials]:
        graph, layout = mu.graph, mu.graph.layout
        if graph.n_factors == 0:
            return 0.0, tables_only(mu, d_factors)
        inside = product_sets(graph, labeling.allowed)
        count = np.add.reduceat(labeling.allowed.astype(np.int64), layout.var_ptr[:-1])
        hidden = (count == graph.labels) & (labeling.labels < 0)
        use = ~np.logical_or.reduceat(hidden[layout.scope], layout.scope_ptr[:-1])
        w = np.broadcast_to(clique_weights(graph, weights, labeling.allowed, np.arange(graph.n_factors)), graph.n_factors)
        w = np.where(use, w, 0)
        p = safe(np.add.reduceat(np.where(inside, mu.factors_flat, 0), layout.table_ptr[:-1]), w)
        d_factors[:] = np.where(inside, np.repeat(-w / p, np.diff(layout.table_ptr)), 0)
        return minus_log(p, w), tables_only(mu, d_factors)


def product_sets(graph: Graph, allowed: np.ndarray) -> np.ndarray:
    """Return which entries of the factor tables have only allowed labels."""
    layout = graph.layout
    factor = np.repeat(np.arange(graph.n_factors), np.diff(layout.table_ptr))
    entry = np.arange(int(layout.table_ptr[-1])) - layout.table_ptr[factor]
    inside = np.ones(len(entry), dtype=bool)
    arity = np.diff(layout.scope_ptr)
    for position in range(int(arity.max(initial=0))):
        has = position < arity[factor]
        slot = layout.scope_ptr[factor[has]] + position
        label = entry[has] // layout.stride[slot] % graph.labels[layout.scope[slot]]
        inside[has] &= allowed[layout.var_ptr[layout.scope[slot]] + label]
    return inside
