"""The model without factors, from which all papers start."""

from __future__ import annotations

import numpy as np

from backfield.graph import Potentials
from backfield.losses.base import unary_entries
from backfield.objectives.base import argmax_labels
from backfield.objectives.piecewise import pieces
from backfield.training.problem import Example, Layout, Problem, _Sum


class IndependentProblem(Problem):
    """The same examples without factors: logistic regression on the rows."""

    def _one(self, w: np.ndarray, example: Example, seed: int) -> _Sum:
        assert example.target is not None
        labels = example.target.labeling.labels
        graph = example.graph
        theta = self.layout.theta(w, Example(graph, example.unary, [None] * len(self.layout.factors)), self.dtype)
        known, entries = unary_entries(graph, labels)
        count = graph.n_labels  # a grid's own layout is many times its labels, and not needed here
        ptr = graph.layout.var_ptr if count is None else np.arange(0, graph.n_variables * count + 1, count)
        value, d_unary = pieces(theta.unary_flat, ptr, known, entries, np.ones(len(known)))
        wrong = float((argmax_labels(theta)[known] != labels[known]).sum())
        d_theta = Potentials.from_flat(graph, d_unary, theta.factors_flat)
        gradient = Layout(self.layout.unary, [], self.n_weights).vjp(Example(example.graph, example.unary, []), d_theta, w)
        return _Sum(float(value), gradient, wrong, 0)
