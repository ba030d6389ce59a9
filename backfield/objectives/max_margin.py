"""Margin losses: the structured hinge, and its entropy-smoothed relaxation ([L13] eq. (3), (4), (6)).

    max_margin            max_y [ theta·f(y) + Delta(y) ] - theta·f(labels)
    smoothed_max_margin   A_eps(theta + Delta) - theta·f(labels),  A_eps by ``smoothed_lp``
                          d_theta = mu(theta + Delta) - labels

Delta is the (weighted) Hamming distance to the labels. Hidden variables have no margin and are maximised out in both terms.

# Differs from [L13]: the text calls eq. (3) slack rescaling; it is margin rescaling.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from backfield.errors import InputError
from backfield.graph import Potentials
from backfield.graph.labeling import one_hot
from backfield.inference.base import Inference
from backfield.inference.conditioned import Conditioned
from backfield.inference.smoothed_lp.method import SmoothedLP
from backfield.map_solvers.auto import chain_solver_supports, solve
from backfield.objectives.base import Objective, Setting, Target, argmax_labels, is_complete, refuse_impossible


class Margin(Objective):
    """What both have in common: a maximum with the margin minus one at the labels."""

    needs_inference: ClassVar[bool] = False
    smooth: ClassVar[bool] = False
    weighted: ClassVar[bool] = True
    #: How much Delta counts.
    scale: float = 1.0

    def check_target(self, target: Target) -> None:
        """Refuse sets of labels, to which there is no Hamming distance."""
        if target.labeling.has_sets:
            raise InputError(f"{self.name} takes one label per variable or -1, not sets of labels.")

    @property
    def method(self) -> Inference | None:
        """The inference that :meth:`maximum` runs; None for MAP solvers."""
        return None

    def maximum(self, theta: Potentials) -> tuple[float, Potentials]:
        """Return the (smoothed) maximum of theta·f and what attains it."""
        raise NotImplementedError

    def value_and_dtheta(self, theta: Potentials, target: Target, setting: Setting) -> tuple[Any, Potentials]:
        """Return the loss and its (sub)gradient."""
        augmented = theta.with_unary(theta.unary_flat + margin(theta, target) * theta.dtype.type(self.scale))
        high, d_high = self._given(Conditioned(augmented, target.observed, self.method))
        if is_complete(target):  # nothing to maximise, and no model to restrict
            low, d_low = theta.score(target.labeling.labels), theta.indicators(target.labeling.labels)
            refuse_impossible(low)
        else:
            low, d_low = self._given(Conditioned(theta, target.known(theta.graph), self.method))
        return high - low, theta.contract(d_high).minus(theta.contract(d_low))

    def _given(self, model: Conditioned) -> tuple[float, Potentials]:
        if model.theta is None:
            return float(model.constant), model.expand(None)
        value, mu = self.maximum(model.theta)
        return value + float(model.constant), model.expand(mu)


def margin(theta: Potentials, target: Target) -> np.ndarray:
    """Return Delta, flat as the unary tables: the weight of the true label for every other one."""
    graph, labels = theta.graph, target.labeling.labels
    unary, _ = one_hot(graph, labels)
    weight = np.ones(graph.n_variables)
    if target.weights is not None:
        at = graph.layout.var_ptr[:-1] + np.maximum(labels, 0)
        weight = target.weights if len(target.weights) == graph.n_variables else target.weights[at]
    each = np.repeat(np.where(labels >= 0, weight, 0.0), graph.labels)
    return (each * (1 - unary)).astype(theta.dtype)


class Violation(NamedTuple):
    """The labels that violate the margin most, their distance Delta to the true ones, and whether no others do more."""

    labels: np.ndarray
    loss: float
    optimal: bool


def complete_labels(theta: Potentials, target: Target) -> np.ndarray | None:
    """Return the labels of all variables, known or observed; None where one is hidden."""
    if target.observed is None:
        return target.labeling.labels if target.labeling.known.all() else None
    model = Conditioned(theta, target.known(theta.graph))
    return argmax_labels(model.expand(None)) if model.theta is None else None


@dataclass(frozen=True, repr=False)
class MaxMargin(Margin, name="max_margin"):
    """The structured hinge loss with an exact MAP ``solver``; Delta counts ``scale`` times, 0: the perceptron loss."""

    solver: str = "auto"
    scale: float = 1.0

    def __post_init__(self) -> None:
        if isinstance(self.scale, bool) or not isinstance(self.scale, int | float) or not 0 <= self.scale < np.inf:
            raise InputError(f"max_margin: scale must be a finite number >= 0, received {self.scale!r}.")

    def supports(self, theta: Potentials, setting: Setting) -> bool:
        """Whether theta holds tables, or what Viterbi's algorithm runs on."""
        return theta.has_tables_only or chain_solver_supports(self.solver, theta)

    def separable(self, theta: Potentials, setting: Setting) -> bool:
        """Where Viterbi's algorithm runs on the groups as they are: other solvers may choose by the whole graph."""
        return not theta.has_tables_only and chain_solver_supports(self.solver, theta)

    def merges(self, target: Target) -> bool:
        """Where all labels are known, and count the same."""
        return is_complete(target) and target.weights is None

    def maximum(self, theta: Potentials) -> tuple[float, Potentials]:
        """Return the MAP value and indicators."""
        found = solve(theta, self.solver)
        return found.value, theta.indicators(found.labels)

    def most_violating(self, theta: Potentials, target: Target) -> Violation:
        """Return the maximiser of theta·f(y) + Delta(y): the oracle of Frank-Wolfe methods."""
        delta = margin(theta, target) * theta.dtype.type(self.scale)
        augmented = theta.with_unary(theta.unary_flat + delta)
        model = Conditioned(augmented, target.observed)
        if model.theta is None:
            labels, optimal = argmax_labels(model.expand(None)), True
        else:
            found = solve(model.theta, self.solver)
            labels, optimal = found.labels, found.optimal
            if model.restriction is not None:
                indicators = Potentials.from_flat(model.theta.graph, *one_hot(model.theta.graph, labels))
                labels = argmax_labels(model.expand(indicators))
        loss = float(delta[theta.graph.layout.var_ptr[:-1] + labels].sum(dtype=np.float64))
        return Violation(labels, loss, optimal)


@dataclass(frozen=True, repr=False)
class SmoothedMaxMargin(Margin, name="smoothed_max_margin"):
    """The hinge over the local polytope, smoothed by ``eps`` times the entropy, after ``n_iter`` sweeps or at ``tol``.

    ``regions="nested"`` is the polytope of [L13] in full, as of ``smoothed_lp``.
    """

    eps: float = 0.1
    n_iter: int = 1000
    tol: float | None = 1e-7
    regions: str = "variables"

    def __post_init__(self) -> None:
        self.method  # noqa: B018 - refuses bad settings

    @property
    def method(self) -> SmoothedLP:
        """The smoothed LP."""
        return SmoothedLP(n_iter=self.n_iter, eps=self.eps, tol=self.tol, regions=self.regions)

    def maximum(self, theta: Potentials) -> tuple[float, Potentials]:
        """Return the dual value and the marginals."""
        return self.method.marginals(theta)
