"""Marginal perturb-and-MAP likelihoods ([S18] Alg. 2 and 4), for the (weighted) Hamming loss.

    labelled     sum_d theta_d(y_d) [ A_G - B_G(y_d) ]                                        eq. (5), (6)
    unlabelled   sum_d sum_k q_d(k) theta_d(k) [ A_G(given) - B_G(k, given) ]                 Table 1, §4

A_G is the maximum under noise, B_G(k) that with variable d fixed to k and without the noise of d. One draw of noise per step
(``n_samples``) serves all terms. q are soft targets; what is given beside them (labels, sets) keeps its own terms and
conditions those of the others. The gradient is f(y_A) - f(y_B), differences of the maximisers' indicators. Where y_A already
has the label, y_B is y_A and there is nothing to solve (*Gumbel reduction*); the other problems differ in one unary term and
are solved as dynamic cuts. Both can be switched off to measure what they save.

Cost: one MAP problem, and one (dynamic) for each label that the maximiser gets wrong; K - 1 for each soft target.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from backfield.errors import InputError
from backfield.graph import Graph, Potentials
from backfield.graph.labeling import one_hot
from backfield.inference.conditioned import Conditioned
from backfield.inference.sampling.perturb_and_map import gumbel
from backfield.kernels.compile import exact_kernel
from backfield.map_solvers.auto import chain_solver_supports, solve
from backfield.map_solvers.graph_cut import CutProblem
from backfield.map_solvers.viterbi import Changes, fix_each
from backfield.objectives.base import Objective, Setting, Target, is_complete
from backfield.objectives.perturb_and_map import check_samples, free_noise


class Terms(NamedTuple):
    """The terms weight_t [ A_G - B_G(x_t = label_t) ] of one model, x_t = ``variables[t]``."""

    variables: np.ndarray
    labels: np.ndarray
    weights: np.ndarray


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
    soft_targets: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_samples(self)

    def check_target(self, target: Target) -> None:
        """Raise where there is no marginal likelihood."""
        if target.observed is not None:
            raise InputError("marginal_perturb_and_map takes no observed inputs.")
        if target.labeling.has_sets and target.labeling.soft is None:
            raise InputError(
                "marginal_perturb_and_map takes labels or -1, not sets of labels; self_training makes soft targets of them."
            )

    def supports(self, theta: Potentials, setting: Setting) -> bool:
        """Whether theta holds tables, or what Viterbi's algorithm runs on."""
        return theta.has_tables_only or chain_solver_supports(self.solver, theta)

    def separable(self, theta: Potentials, setting: Setting) -> bool:
        """Where Viterbi's algorithm runs on the groups as they are: other solvers may choose by the whole graph."""
        return not theta.has_tables_only and chain_solver_supports(self.solver, theta)

    def merges(self, target: Target) -> bool:
        """Where all labels are known, and count the same."""
        return is_complete(target) and target.weights is None

    def value_and_dtheta(self, theta: Potentials, target: Target, setting: Setting) -> tuple[Any, Potentials]:
        """Return the value under this step's noise and its gradient."""
        value = 0.0
        d_theta = np.zeros(len(theta.vector()))
        models = list(_models(theta, target))
        for m in range(self.n_samples):
            noise = gumbel(theta, setting.seeds or setting.seed, m)
            for model, terms in models:
                assert model.theta is not None
                if model.restriction is None:
                    value += self._add(model.theta, noise, terms, d_theta)
                else:  # the terms are differences, in which the constant of the known labels cancels
                    d_part = np.zeros(len(model.theta.unary_flat) + len(model.theta.factors_flat))
                    value += self._add(model.theta, free_noise(model, noise), terms, d_part)
                    d_theta += theta.contract(model.expand(model.theta.like(d_part), 0.0)).vector()
        return value / self.n_samples, theta.adjoint(d_theta / self.n_samples)

    def _add(self, theta: Potentials, noise: np.ndarray, terms: Terms, d_theta: np.ndarray) -> float:
        """Add the gradient of the terms of one model under one draw of noise to ``d_theta``; return their value."""
        moved = theta.with_unary(theta.unary_flat + noise)
        cut = self._cut(moved)
        best = cut.cut() if cut is not None else solve(moved, self.solver).labels
        value = _left_out(noise, theta.graph.layout.var_ptr, *terms)
        if self.reduction:
            terms = Terms(*_wrong(best, *terms))
        return value + _differences(moved, best, terms.weights, self._forced(moved, cut, best, terms), d_theta)

    def _cut(self, moved: Potentials) -> CutProblem | None:
        graph = moved.graph
        binary = graph.is_pairwise and graph.n_labels == 2 and graph.n_factors
        if self.solver not in ("auto", "graph_cut") or not (binary and moved.has_tables_only):
            return None
        try:
            return CutProblem(moved.astype(np.float64))
        except InputError:
            if self.solver == "graph_cut":
                raise
            return None

    def _forced(self, moved: Potentials, cut: CutProblem | None, best: np.ndarray, terms: Terms) -> Changes:
        """Return how the maximiser changes with one variable fixed to a label, for each term."""
        if cut is not None:
            changes = cut.fix_each(terms.variables, terms.labels, afresh=not self.dynamic)
            return Changes(changes.ptr, changes.where, 1 - best[changes.where])
        if self.solver in ("auto", "viterbi"):
            found = fix_each(moved, best, terms.variables, terms.labels)
            if found is not None:
                return found
        ptr = moved.graph.layout.var_ptr
        where, new = [], []
        for d, label in zip(terms.variables, terms.labels, strict=True):
            unary = moved.unary_flat.copy()
            unary[ptr[d] : ptr[d + 1]] = -np.inf
            unary[ptr[d] + label] = moved.unary_flat[ptr[d] + label]
            labels = solve(Potentials.from_flat(moved.graph, unary, moved.factors_flat), self.solver).labels
            where.append(np.flatnonzero(labels != best))
            new.append(labels[where[-1]])
        none = np.empty(0, dtype=np.int64)
        ends = np.cumsum([0] + [len(each) for each in where])
        return Changes(ends, np.concatenate([none, *where]), np.concatenate([none, *new]))


def _models(theta: Potentials, target: Target) -> Iterator[tuple[Conditioned, Terms]]:
    """Yield the model of the labels and, with soft targets, that of the others given them."""
    labeling, graph = target.labeling, theta.graph
    weight = _weights(graph, target)
    ptr = graph.layout.var_ptr
    known = (labeling.labels >= 0).nonzero()[0]
    if len(known):
        labels = labeling.labels[known]
        yield Conditioned(theta, None), Terms(known, labels, weight[ptr[known] + labels])
    if labeling.soft is None:
        return
    model = Conditioned(theta, target.known(graph))
    if model.theta is None:
        return
    entries = np.flatnonzero((labeling.soft > 0) & labeling.allowed & np.repeat(labeling.labels < 0, graph.labels))
    amount = labeling.soft[entries] * weight[entries]
    if model.restriction is not None:
        entries = model.restriction.target[entries]
    starts = model.theta.graph.layout.var_ptr
    variables = np.searchsorted(starts, entries, side="right") - 1
    yield model, Terms(variables, entries - starts[variables], amount)


def _weights(graph: Graph, target: Target) -> np.ndarray:
    """Return theta_d(k), flat as the unary tables."""
    if target.weights is None:
        return np.ones(int(graph.layout.var_ptr[-1]))
    return np.repeat(target.weights, graph.labels) if len(target.weights) == graph.n_variables else target.weights


@exact_kernel
def _left_out(noise, ptr, variables, labels, weights):
    """Return sum_t weight_t z_t(label_t): the noise that B_G leaves out."""
    total = 0.0
    for t in range(len(weights)):
        total += weights[t] * noise[ptr[variables[t]] + labels[t]]
    return total


@exact_kernel
def _wrong(best, variables, labels, weights):
    """Return the terms whose label the maximiser does not have."""
    wrong = best[variables] != labels
    return variables[wrong], labels[wrong], weights[wrong]


def _differences(theta: Potentials, best: np.ndarray, weights: np.ndarray, changes: Changes, d_theta: np.ndarray) -> float:
    """Return sum_t weight_t theta·(f(best) - f(other_t)); add its gradient to ``d_theta``."""
    graph = theta.graph
    if not graph.is_pairwise or graph.n_labels is None:
        return _differences_of_any(theta, best, weights, changes, d_theta)
    around = graph.compiled("edges of variables", lambda: _edges_of_variables(graph))
    shared, count = theta.shared, graph.n_factors
    tables = theta.factors_flat if shared is None else shared.vector()
    which = np.arange(count) if shared is None else np.zeros(count, dtype=np.int64)
    unary, factors = (part.astype(np.float64, copy=False) for part in (theta.unary_flat, tables))
    d_parts = d_theta[: len(unary)], d_theta[len(unary) :]
    return float(_add_differences(*around, graph.n_labels, *changes, weights, best, which, unary, factors, *d_parts))


def _differences_of_any(
    theta: Potentials, best: np.ndarray, weights: np.ndarray, changes: Changes, d_theta: np.ndarray
) -> float:
    value, top, f_best = 0.0, theta.score(best), np.concatenate(one_hot(theta.graph, best))
    for t, weight in enumerate(weights):
        other = best.copy()
        some = slice(changes.ptr[t], changes.ptr[t + 1])
        other[changes.where[some]] = changes.new[some]
        value += float(weight) * (top - theta.score(other))
        d_theta += weight * (f_best - np.concatenate(one_hot(theta.graph, other)))
    return value


def _edges_of_variables(graph: Graph) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the ends of each edge, and the edges around variable i: ``edges[ptr[i]:ptr[i + 1]]``."""
    ends = np.asarray(graph.layout.scope, dtype=np.int64).reshape(-1, 2)
    edges = np.argsort(ends.reshape(-1), kind="stable") // 2
    ptr = np.concatenate([[0], np.cumsum(np.bincount(ends.reshape(-1), minlength=graph.n_variables))])
    for array in (ends, ptr, edges):
        array.flags.writeable = False
    return ends, ptr, edges


@exact_kernel
def _add_differences(
    ends, around_ptr, around, count, ptr, where, new, weights, best, which, unary, factors, d_unary, d_factors
):
    """:func:`_differences` of pairwise models, at the cost of the variables that change and the edges around them."""
    other = best.copy()
    value = 0.0
    for t in range(len(weights)):
        weight, drop = weights[t], 0.0
        for p in range(ptr[t], ptr[t + 1]):
            other[where[p]] = new[p]
        for p in range(ptr[t], ptr[t + 1]):
            v = where[p]
            old, now = v * count + best[v], v * count + new[p]
            drop += unary[old] - unary[now]
            d_unary[old] += weight
            d_unary[now] -= weight
            for q in range(around_ptr[v], around_ptr[v + 1]):
                e = around[q]
                i, j = ends[e, 0], ends[e, 1]
                partner = i + j - v
                if partner < v and other[partner] != best[partner]:
                    continue  # done with the other end
                start = which[e] * count
                old, now = (start + best[i]) * count + best[j], (start + other[i]) * count + other[j]
                drop += factors[old] - factors[now]
                d_factors[old] += weight
                d_factors[now] -= weight
        for p in range(ptr[t], ptr[t + 1]):
            other[where[p]] = best[where[p]]
        value += weight * drop
    return value
