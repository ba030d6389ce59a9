"""The part of a model that an answer depends on, with the evidence worked in.

Three steps make a model smaller before anything is summed, and change no answer:

1. *barren variables*: where the only table over v is P(v | parents), and v is neither asked for nor known, the table sums
   to one and goes, with v; then its parents may go, too;
2. *evidence and zeros*: labels that the evidence, or zeros of the tables, exclude (``inference.exact.propagation``);
3. *conditioning*: variables with one label left disappear, and tables shrink (``graph.conditioning``).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import numpy as np

from backfield.api import infer
from backfield.errors import InputError
from backfield.graph import Graph, Potentials
from backfield.graph.conditioning import Restriction
from backfield.inference.exact.base import ImpossibleError
from backfield.inference.exact.elimination import TooLargeError
from backfield.inference.exact.products import Products
from backfield.inference.exact.propagation import propagate
from backfield.inference.exact.weighted import WeightedElimination

#: A variable without P(v | parents), and one whose unary table is P(v); else the number of the factor that is it.
NONE, UNARY = -2, -1
#: Most entries of cliques that are multiplied as probabilities (half a minute); beyond, ``exact`` has to say what it needs.
MAX_PRODUCTS = 2**32
#: Largest joint table that is written out.
MAX_JOINT = 2**24


def relevant(theta: Potentials, conditional: np.ndarray, needed: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return which variables and factors are left when barren ones are gone; ``needed`` variables stay."""
    layout = theta.graph.layout
    keep, factors = np.ones(theta.graph.n_variables, dtype=bool), np.ones(theta.graph.n_factors, dtype=bool)
    degree = theta.graph.degree.tolist()
    own = _own_tables(theta, conditional)
    scopes = np.split(layout.scope, layout.scope_ptr[1:-1]) if theta.graph.n_factors else []
    barren = [v for v in np.flatnonzero(~needed).tolist() if own[v] >= 0 and degree[v] == own[v]]
    while barren:
        v = barren.pop()
        keep[v] = False
        if own[v] == 0:
            continue
        factors[conditional[v]] = False
        for u in scopes[conditional[v]].tolist():
            degree[u] -= 1
            if u != v and keep[u] and not needed[u] and own[u] >= 0 and degree[u] == own[u]:
                barren.append(u)
    return keep, factors


def _own_tables(theta: Potentials, conditional: np.ndarray) -> list[int]:
    """Return how many factors P(v | parents) is (0: the unary table is it), or -1 where v has none or other tables."""
    layout = theta.graph.layout
    plain = ~np.logical_or.reduceat(theta.unary_flat != 0, layout.var_ptr[:-1])
    return np.where(conditional == UNARY, 0, np.where((conditional >= 0) & plain, 1, -1)).tolist()


class ReducedModel:
    """A reduced model, and the way back to the numbers of the whole one.

    Parameters
    ----------
    theta : Potentials
        The whole model.
    conditional : (n,) ints
        Which table is P(v | parents).
    allowed : flat bools
        The labels that evidence leaves.
    wanted : sequence of int
        Variables that the answer is about.
    joint : bool
        Keep the wanted variables together in one table.
    """

    def __init__(
        self, theta: Potentials, conditional: np.ndarray, allowed: np.ndarray, wanted: Sequence[int], joint: bool = False
    ) -> None:
        labels = theta.graph.labels
        needed = ~np.logical_and.reduceat(allowed, theta.graph.layout.var_ptr[:-1])
        needed[list(wanted)] = True
        keep, factors = relevant(theta, conditional, needed)
        self.variables = np.flatnonzero(keep)
        self.constant, self.reduced = 0.0, None
        if not len(self.variables):
            return
        self.number = np.cumsum(keep) - 1
        self.joint = [int(self.number[i]) for i in wanted] if joint and len(wanted) > 1 else []
        if self.joint and math.prod(labels[list(wanted)].tolist()) > MAX_JOINT:
            raise InputError(f"the joint table of {len(wanted)} variables has more than {MAX_JOINT:,} entries.")
        self.theta = _part(theta, keep, factors, self.number, self.joint)
        self.allowed = propagate(self.theta, allowed[np.repeat(keep, labels)])
        self.restriction = Restriction(self.theta.graph, self.allowed)
        self.reduced, constant = self.restriction.reduce(self.theta)
        if constant == -np.inf:
            raise ImpossibleError
        self.constant = float(constant)

    def log_partition(self, inference: Any) -> float:
        """Return log Z of the possible labelings."""
        return self.constant if self.reduced is None else self.constant + _solve(self.reduced, inference)[0]

    def marginals(self, inference: Any) -> Potentials:
        """Return marginals of the variables and factors that are left; the last factor is the joint table if any."""
        return self.restriction.expand(None if self.reduced is None else _solve(self.reduced, inference)[1])

    def posteriors(self, inference: Any) -> list[np.ndarray]:
        """Return the marginals of the variables alone."""
        target = self.restriction.target[: len(self.allowed)]
        solved = np.zeros(0) if self.reduced is None else _solve(self.reduced, inference)[1].vector()
        values = np.concatenate([solved, [1.0, 0.0]])
        # Places of the reduced model, then one for labels that are decided; -1 for those that are excluded.
        return np.split(values[target], self.theta.graph.layout.var_ptr[1:-1])

    def elimination(self, last: Sequence[int] = ()) -> WeightedElimination:
        """Compile an elimination of the reduced model; ``last``: variables of the whole model to come last."""
        assert self.reduced is not None
        places = np.searchsorted(self.restriction.kept_variables, self.number[np.array(last, dtype=np.int64)])
        return WeightedElimination(self.reduced.graph, last=places)

    def is_free(self, i: int) -> bool:
        """Whether a wanted variable has more than one label left."""
        return bool(np.isin(self.number[i], self.restriction.kept_variables))

    def labels(self, reduced: np.ndarray, n_variables: int) -> np.ndarray:
        """Return labels (N, n) of the whole model from those (N, r) of the reduced one; -1 where a variable is gone."""
        ptr = self.theta.graph.layout.var_ptr[:-1]
        choices = np.flatnonzero(self.allowed)
        first = np.searchsorted(choices, ptr)
        within = np.zeros((len(reduced), len(ptr)), dtype=np.int64)
        within[:, self.restriction.kept_variables] = reduced
        out = np.full((len(reduced), n_variables), -1, dtype=np.int64)
        out[:, self.variables] = choices[first + within] - ptr
        return out


def is_exact(method: Any) -> bool:
    """Whether a method is named as exact; an array, say, is not."""
    return isinstance(method, str) and method == "exact"


def _solve(theta: Potentials, inference: Any) -> tuple[float, Potentials]:
    """Return log Z and marginals; ``"exact"`` by products of probabilities, where they do not underflow and fit."""
    if is_exact(inference):
        with suppress(TooLargeError):
            products = Products(theta.graph, MAX_PRODUCTS)
            found = products.run(products.tables(theta.unary_flat, theta.factors_flat))
            if found is not None:
                return found[0], theta.like(found[1])
    run = infer(theta, inference)
    return run.log_partition, run.marginals


def _part(theta: Potentials, keep: np.ndarray, factors: np.ndarray, number: np.ndarray, joint: list[int]) -> Potentials:
    """Return the potentials over some variables and factors, and zeros over ``joint`` if any."""
    layout = theta.graph.layout
    slots = factors[layout.slot_factor]
    sizes = np.diff(layout.scope_ptr)[factors].tolist() + ([len(joint)] if joint else [])
    scope = np.concatenate([number[layout.scope[slots]], np.array(joint, dtype=np.int64)]).astype(np.int64)
    labels = theta.graph.labels[keep]
    graph = Graph._from_arrays(labels, np.cumsum([0, *sizes]).astype(np.int64), scope)
    tables = theta.factors_flat[np.repeat(factors, np.diff(layout.table_ptr))]
    if joint:
        tables = np.concatenate([tables, np.zeros(math.prod(labels[joint].tolist()))])
    return Potentials.from_flat(graph, theta.unary_flat[np.repeat(keep, theta.graph.labels)], tables)
