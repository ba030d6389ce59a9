"""Perturb-and-MAP likelihoods ([S18] Alg. 1 and 2): log-partition functions replaced by maxima under Gumbel noise.

    perturb_and_map            A_G(theta) - A_G(theta | labels)
    marginal_perturb_and_map   sum_d w_d(y_d) [ A_G(theta) - B_G(theta | y_d) ]          eq. (5), (6)

with one draw of noise per step (``n_samples``) that both terms share. The gradient is f(y_A) - f(y_B), differences of the
maximisers' indicators. Where y_A already has label y_d, y_B is y_A and the term is skipped (*Gumbel reduction*); the others
are cuts that differ in one unary term, solved dynamically. Both can be switched off to measure what they save.

# Differs from [S18]: A <= A_G makes f - A_G a lower bound of log P; the text prints the opposite sign.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from backfield.errors import InputError
from backfield.graph import Potentials
from backfield.graph.labeling import one_hot
from backfield.inference.perturb_and_map import gumbel, maximiser
from backfield.map_solvers.auto import solve
from backfield.map_solvers.graph_cut import CutProblem
from backfield.objectives._base import Conditioned, Objective, Setting, Target, both


def _check_samples(objective: Any) -> None:
    if isinstance(objective.n_samples, bool) or not isinstance(objective.n_samples, int) or objective.n_samples < 1:
        raise InputError(f"{objective.name}: n_samples must be a whole number >= 1, got {objective.n_samples!r}.")


@dataclass(frozen=True, repr=False)
class PerturbAndMapLikelihood(Objective, name="perturb_and_map"):
    """Minus the perturb-and-MAP log-likelihood, with ``n_samples`` draws of noise from the step's seed."""

    n_samples: int = 1
    solver: str = "auto"

    needs_inference: ClassVar[bool] = False
    smooth: ClassVar[bool] = False

    def __post_init__(self) -> None:
        _check_samples(self)

    def value_and_dtheta(self, theta: Potentials, target: Target, setting: Setting) -> tuple[Any, Potentials]:
        """Return the value under this step's noise and its gradient."""
        value = 0.0
        d_theta = np.zeros_like(theta.vector())
        free, known = Conditioned(theta, target.observed), Conditioned(theta, both(theta.graph, target))
        for m in range(self.n_samples):
            noise = gumbel(theta, setting.seed, m)
            for sign, model in ((1, free), (-1, known)):
                best, indicator = _maximum(model, noise, self.solver)
                value += sign * best
                d_theta += sign * indicator.vector()
        return value / self.n_samples, theta.like(d_theta / self.n_samples)


def _maximum(model: Conditioned, noise: np.ndarray, solver: str) -> tuple[float, Potentials]:
    """Return the maximum of a conditioned model with noise on its free variables, and f of the maximiser."""
    if model.theta is None:
        return float(model.constant), model.expand(None)
    reduced_noise = noise
    if model.restriction is not None:
        place = model.restriction.target[: len(noise)]
        free = (place >= 0) & (place < model.restriction.n_unary)
        reduced_noise = np.zeros(model.restriction.n_unary)
        reduced_noise[place[free]] = noise[free]
    labels, value, _ = maximiser(model.theta, solver)(reduced_noise)
    unary, factors = one_hot(model.theta.graph, labels)
    return value + float(model.constant), model.expand(Potentials.from_flat(model.theta.graph, unary, factors))


@dataclass(frozen=True, repr=False)
class MarginalPerturbAndMap(Objective, name="marginal_perturb_and_map"):
    """Minus the (weighted) marginal perturb-and-MAP log-likelihood: for the (weighted) Hamming loss.

    Parameters
    ----------
    n_samples : int
        Draws of noise per evaluation.
    solver : str
        MAP solver; ``auto`` is a dynamic cut on binary submodular models.
    reduction : bool
        Solve only for the variables that the perturbed maximiser gets wrong.
    dynamic : bool
        Solve the problems with one label fixed dynamically (cuts).
    """

    n_samples: int = 1
    solver: str = "auto"
    reduction: bool = True
    dynamic: bool = True

    needs_inference: ClassVar[bool] = False
    smooth: ClassVar[bool] = False
    weighted: ClassVar[bool] = True

    def __post_init__(self) -> None:
        _check_samples(self)

    def check_target(self, target: Target) -> None:
        """Refuse what has no marginal likelihood of its own."""
        if target.labeling.has_sets or target.observed is not None:
            raise InputError("marginal_perturb_and_map takes labels or -1, not sets of labels nor observed inputs.")

    def value_and_dtheta(self, theta: Potentials, target: Target, setting: Setting) -> tuple[Any, Potentials]:
        """Return the value under this step's noise and its gradient."""
        graph, labels = theta.graph, target.labeling.labels
        known = np.flatnonzero(labels >= 0)
        weight = np.ones(graph.n_variables)
        if target.weights is not None:
            at = graph.layout.var_ptr[:-1] + np.maximum(labels, 0)
            weight = target.weights if len(target.weights) == graph.n_variables else target.weights[at]
        value = 0.0
        d_theta = np.zeros_like(theta.vector())
        for m in range(self.n_samples):
            noise = gumbel(theta, setting.seed, m)
            part, d_part = self._one(theta, noise, labels, known, weight)
            value += part
            d_theta += d_part
        return value / self.n_samples, theta.like(d_theta / self.n_samples)

    def _one(
        self, theta: Potentials, noise: np.ndarray, labels: np.ndarray, known: np.ndarray, weight: np.ndarray
    ) -> tuple[float, np.ndarray]:
        graph = theta.graph
        moved = Potentials.from_flat(graph, theta.unary_flat + noise, theta.factors_flat)
        own = noise[graph.layout.var_ptr[known] + labels[known]]  # z_d(y_d), which B_G leaves out
        cut = self._cut(moved)
        if cut is not None:
            first = cut.solve()
            best, best_value = first.labels, first.value
        else:
            found = solve(moved, self.solver)
            best, best_value = found.labels, found.value
        wrong = best[known] != labels[known] if self.reduction else np.ones(len(known), dtype=bool)
        value = float((weight[known] * own)[~wrong].sum())
        f_best = np.concatenate(one_hot(graph, best))
        d_theta = np.zeros(len(f_best))
        for d, z, other in zip(known[wrong], own[wrong], self._forced(moved, cut, labels, known[wrong]), strict=True):
            value += weight[d] * (best_value - (moved.score(other) - z))
            d_theta += weight[d] * (f_best - np.concatenate(one_hot(graph, other)))
        return value, d_theta

    def _cut(self, moved: Potentials) -> CutProblem | None:
        graph = moved.graph
        if self.solver not in ("auto", "graph_cut") or not (graph.is_pairwise and graph.n_labels == 2 and graph.n_factors):
            return None
        try:
            return CutProblem(moved.astype(np.float64))
        except InputError:
            if self.solver == "graph_cut":
                raise
            return None

    def _forced(self, moved: Potentials, cut: CutProblem | None, labels: np.ndarray, variables: np.ndarray) -> Any:
        """Yield the maximiser with one variable fixed to its label, for each of ``variables``."""
        if cut is not None and self.dynamic:
            force = np.where(labels[variables] == 1, np.inf, -np.inf)
            changes = cut.solve_many(variables, force, returns="changed")
            base = cut.labels
            for k in range(len(variables)):
                other = base.copy()
                other[changes.where[changes.ptr[k] : changes.ptr[k + 1]]] ^= 1
                yield other
            return
        ptr = moved.graph.layout.var_ptr
        for d in variables:
            unary = moved.unary_flat.copy()
            keep = unary[ptr[d] + labels[d]]
            unary[ptr[d] : ptr[d + 1]] = -np.inf
            unary[ptr[d] + labels[d]] = keep
            yield solve(Potentials.from_flat(moved.graph, unary, moved.factors_flat), self.solver).labels
