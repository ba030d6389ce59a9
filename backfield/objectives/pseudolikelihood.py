"""Pseudolikelihood and patch pseudolikelihood ([D13] §4.1.4).

    - sum_P log p(x_P | x_rest)

over single variables (``patch=1``) or connected patches of up to ``patch`` variables that together cover each variable
once; one patch over everything is the exact likelihood. Hidden variables have no term, and every factor that touches one
is dropped. Cost: the number of labelings of a patch times the factors around it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from backfield.errors import InputError
from backfield.graph import Graph, Potentials
from backfield.inference.conditioned import Conditioned
from backfield.kernels.compile import exact_kernel, exact_part, inlined, log_sum_exp
from backfield.objectives.base import Objective, Setting, Target, reduced_target

_LARGEST_PATCH = 2**20


@dataclass(frozen=True, repr=False)
class Pseudolikelihood(Objective, name="pseudolikelihood"):
    """Minus the log probability of each patch given all other labels; ``patch`` is its largest number of variables."""

    patch: int = 1

    needs_inference: ClassVar[bool] = False
    weighted: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if isinstance(self.patch, bool) or not isinstance(self.patch, int) or self.patch < 1:
            raise InputError(f"pseudolikelihood: patch must be an integer >= 1, received {self.patch!r}.")

    def check_target(self, target: Target) -> None:
        """Refuse sets of labels."""
        refuse_sets(self, target)
        if target.weights is not None and self.patch > 1:
            raise InputError("pseudolikelihood takes weights for patch=1 only.")

    def separable(self, theta: Potentials, setting: Setting) -> bool:
        """Always: each term sees one variable or factor and its neighbours."""
        return True

    def value_and_dtheta(self, theta: Potentials, target: Target, setting: Setting) -> tuple[Any, Potentials]:
        """Return the value and its gradient."""
        return conditioned(theta, target, self._value_and_dtheta)

    def _value_and_dtheta(self, theta: Potentials, target: Target) -> tuple[Any, Potentials]:
        graph, labels = theta.graph, target.labeling.labels
        member, ptr = _patches(graph, self.patch)
        d_unary = np.zeros_like(theta.unary_flat)
        d_factors = np.zeros_like(theta.factors_flat)
        weight = np.ones(graph.n_variables)
        if target.weights is not None:
            at = graph.layout.var_ptr[:-1] + np.maximum(labels, 0)
            weight = target.weights if len(target.weights) == graph.n_variables else target.weights[at]
        value = _value_and_gradient(
            graph.layout,
            theta.unary_flat,
            theta.factors_flat,
            member,
            ptr,
            labels,
            np.ascontiguousarray(weight, dtype=np.float64),
            d_unary,
            d_factors,
        )
        return value, Potentials.from_flat(graph, d_unary, d_factors)


def conditioned(
    theta: Potentials, target: Target, function: Callable[[Potentials, Target], tuple[Any, Potentials]]
) -> tuple[Any, Potentials]:
    """Return the value and gradient of a function of the model in which the observed inputs are fixed."""
    model = Conditioned(theta, target.observed)
    if model.theta is None:
        return 0.0, model.expand(None, 0.0)
    value, d_theta = function(model.theta, reduced_target(theta.graph, target))
    return value, model.expand(d_theta, 0.0)


def refuse_sets(objective: Objective, target: Target) -> None:
    """Refuse sets of labels, which are not a label nor hidden."""
    if target.labeling.has_sets:
        raise InputError(f"{objective.name} takes one label per variable or -1, not sets; use a logistic loss.")


def _patches(graph: Graph, size: int) -> tuple[np.ndarray, np.ndarray]:
    """Return a partition of the variables into connected patches: members, and where each patch starts."""
    if size == 1:
        return np.arange(graph.n_variables), np.arange(graph.n_variables + 1)
    return graph.compiled(("patches", size), lambda: _grow_patches(graph, size))


def _grow_patches(graph: Graph, size: int) -> tuple[np.ndarray, np.ndarray]:
    layout = graph.layout
    taken = np.zeros(graph.n_variables, dtype=bool)
    member: list[int] = []
    ptr = [0]
    for root in range(graph.n_variables):
        if taken[root]:
            continue
        patch = [root]
        taken[root] = True
        states = int(graph.labels[root])
        for i in patch:
            for k in layout.inc[layout.inc_ptr[i] : layout.inc_ptr[i + 1]]:
                c = layout.slot_factor[k]
                for j in layout.scope[layout.scope_ptr[c] : layout.scope_ptr[c + 1]]:
                    if not taken[j] and len(patch) < size and states * graph.labels[j] <= _LARGEST_PATCH:
                        taken[j] = True
                        patch.append(int(j))
                        states *= int(graph.labels[j])
        member += patch
        ptr.append(len(member))
    return np.array(member), np.array(ptr)


@exact_kernel
def _value_and_gradient(layout, theta_u, theta_c, member, ptr, labels, weight, d_u, d_c):
    """Add up -log p(patch | its neighbours) over the patches; hidden variables and what touches them are left out."""
    var_ptr = layout.var_ptr
    entry = _selected(layout, labels)
    place = np.full(len(labels), -1, np.int64)  # position in the current patch
    seen = np.full(len(entry), -1, np.int64)  # the last patch that met a factor
    inside, digits = np.empty(len(member), np.int64), np.zeros(len(member), np.int64)
    touching, scores = np.empty(len(entry), np.int64), np.empty(1, theta_u.dtype)
    total = theta_u.dtype.type(0)
    for p in range(len(ptr) - 1):
        size, states, met = 0, 1, 0
        for at in range(ptr[p], ptr[p + 1]):
            i = member[at]
            if labels[i] >= 0:
                inside[size], place[i] = i, size
                size += 1
                states *= var_ptr[i + 1] - var_ptr[i]
                for s in range(layout.inc_ptr[i], layout.inc_ptr[i + 1]):
                    c = layout.slot_factor[layout.inc[s]]
                    if entry[c] >= 0 and seen[c] != p:
                        seen[c], touching[met] = p, c
                        met += 1
        if size == 0:
            continue
        if states > len(scores):
            scores = np.empty(states, theta_u.dtype)
        right = 0  # the state that the labels are
        for state in range(states):
            score = theta_u.dtype.type(0)
            same = True
            for at in range(size):
                score += theta_u[var_ptr[inside[at]] + digits[at]]
                same = same and digits[at] == labels[inside[at]]
            for t in range(met):
                score += theta_c[_entry_at(layout, touching[t], entry[touching[t]], place, digits, labels)]
            scores[state] = score
            if same:
                right = state
            _advance(var_ptr, inside, size, digits)
        normaliser = log_sum_exp(scores[:states])
        w = weight[inside[0]]
        total += w * (normaliser - scores[right])
        for state in range(states):
            d_score = w * np.exp(scores[state] - normaliser)
            if state == right:
                d_score -= w
            for at in range(size):
                d_u[var_ptr[inside[at]] + digits[at]] += d_score
            for t in range(met):
                d_c[_entry_at(layout, touching[t], entry[touching[t]], place, digits, labels)] += d_score
            _advance(var_ptr, inside, size, digits)
        for at in range(size):
            place[inside[at]] = -1
    return total


@exact_part
def _selected(layout, labels):
    """Return the entry of each table that the labels select; -1 where a variable is hidden."""
    entry = layout.table_ptr[:-1].copy()
    for c in range(len(entry)):
        for k in range(layout.scope_ptr[c], layout.scope_ptr[c + 1]):
            label = labels[layout.scope[k]]
            if label < 0:
                entry[c] = -1
                break
            entry[c] += label * layout.stride[k]
    return entry


@inlined
def _entry_at(layout, c, entry, place, digits, labels):
    """Return the entry of a table when the variables of the patch have the labels ``digits``."""
    for k in range(layout.scope_ptr[c], layout.scope_ptr[c + 1]):
        i = layout.scope[k]
        if place[i] >= 0:
            entry += (digits[place[i]] - labels[i]) * layout.stride[k]
    return entry


@inlined
def _advance(var_ptr, inside, size, digits):
    """Step to the next state of the patch; after the last one to the first."""
    for at in range(size - 1, -1, -1):
        digits[at] += 1
        if digits[at] < var_ptr[inside[at] + 1] - var_ptr[inside[at]]:
            break
        digits[at] = 0
