"""Piecewise likelihood ([D13] §4.1.5): every clique and every variable normalised by itself.

    sum_i ( A_i - theta(x_i) ) + sum_c ( A_c - theta(x_c) ),   A_c = log sum_{x_c} exp theta(x_c)

An upper bound of A is the sum of these. Hidden variables, and factors that touch one, are dropped.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from backfield.graph import Potentials
from backfield.losses.base import clique_entries, clique_weights, label_weights, unary_entries
from backfield.objectives.base import Objective, Setting, Target, pieces
from backfield.objectives.pseudolikelihood import conditioned, refuse_sets


@dataclass(frozen=True, repr=False)
class Piecewise(Objective, name="piecewise"):
    """Minus the log-likelihood of each variable and each clique as if it stood alone."""

    needs_inference: ClassVar[bool] = False
    weighted: ClassVar[bool] = True

    def check_target(self, target: Target) -> None:
        """Refuse sets of labels."""
        refuse_sets(self, target)

    def separable(self, theta: Potentials, setting: Setting) -> bool:
        """Always: each term sees one variable or factor and its neighbours."""
        return True

    def value_and_dtheta(self, theta: Potentials, target: Target, setting: Setting) -> tuple[Any, Potentials]:
        """Return the value and its gradient."""
        return conditioned(theta, target, _value_and_dtheta)


def _value_and_dtheta(theta: Potentials, target: Target) -> tuple[Any, Potentials]:
    graph, labels = theta.graph, target.labeling.labels
    variables, entries = unary_entries(graph, labels)
    w = np.broadcast_to(label_weights(graph, target.weights, variables, entries), len(entries))
    value_u, d_unary = pieces(theta.unary_flat, graph.layout.var_ptr, variables, entries, w)
    cliques, entries = clique_entries(graph, labels)
    w = np.broadcast_to(clique_weights(graph, target.weights, target.labeling.allowed, cliques), len(entries))
    value_c, d_factors = pieces(theta.factors_flat, graph.layout.table_ptr, cliques, entries, w)
    return value_u + value_c, Potentials.from_flat(graph, d_unary, d_factors)
