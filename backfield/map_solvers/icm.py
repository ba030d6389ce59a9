"""Iterated conditional modes: every variable in turn takes its best label given all others (Besag 1986).

A move must be better lexicographically: fewer impossible (-inf) terms first, then a larger sum of the finite ones. So
the value never falls, and an impossible start is repaired where single moves can repair it.

Cost O(degree · L) per variable and sweep; memory O(n).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from backfield.constraints import check_choice
from backfield.errors import InputError
from backfield.graph import Graph, Potentials
from backfield.kernels.compile import exact_kernel, exact_part
from backfield.map_solvers.base import MapResult, MapSolver

INITS = ("unary", "zero")


@dataclass(frozen=True, repr=False)
class Icm(MapSolver, name="icm"):
    """Iterated conditional modes: fast, finds a local maximum.

    Parameters
    ----------
    n_iter : int
        Sweeps at the most; it stops when a sweep changes nothing.
    init : {"unary", "zero"}
        Start at the best label of each unary table, or at label 0.
    n_restarts : int
        Further starts at random labels; the best result is returned.
    seed : int
        Seed of the random starts.
    """

    n_iter: int = 100
    init: str = "unary"
    n_restarts: int = 0
    seed: int = 0

    def __post_init__(self) -> None:
        for key in ("n_iter", "n_restarts", "seed"):
            value = getattr(self, key)
            if isinstance(value, bool) or not isinstance(value, int) or value < 0:
                raise InputError(f"icm: {key} must be an integer >= 0, received {value!r}.")
        check_choice("init", self.init, INITS, "icm")

    def solve(self, theta: Potentials) -> MapResult:
        """Return the best local maximum found."""
        n = theta.graph.n_variables
        start = unary_argmax(theta) if self.init == "unary" else np.zeros(n, dtype=np.int64)
        best = icm(theta, start, self.n_iter)
        rng = np.random.default_rng(self.seed)
        for _ in range(self.n_restarts):
            run = icm(theta, rng.integers(0, theta.graph.labels), self.n_iter)
            best = run if run.value > best.value else best
        return best


def icm(theta: Potentials, start: np.ndarray, n_iter: int = 100) -> MapResult:
    """Improve ``start`` (n,) by iterated conditional modes; the value is never below that of ``start``."""
    labels = _checked(theta.graph, start)
    exact = theta.astype(np.float64)
    sweeps = _climb(theta.graph.layout, exact.unary_flat, exact.factors_flat, n_iter, labels)
    return MapResult(labels, theta.score(labels), optimal=False, n_iter=int(sweeps))


def unary_argmax(theta: Potentials) -> np.ndarray:
    """Return the best label of each unary table, the lowest of equals."""
    if theta.graph.n_labels is not None:
        return np.argmax(theta.unary, axis=1)
    return np.array([np.argmax(table) for table in theta.unary], dtype=np.int64)


def _checked(graph: Graph, start: np.ndarray) -> np.ndarray:
    labels = np.array(start)
    if labels.shape != (graph.n_variables,) or labels.dtype.kind not in "iu":
        raise InputError(f"start must be ({graph.n_variables},) integers, received {labels.dtype} of shape {labels.shape}.")
    bad = np.flatnonzero((labels < 0) | (labels >= graph.labels))
    if len(bad):
        i = int(bad[0])
        raise InputError(f"start[{i}] is {labels[i]}; variable {i} has labels 0 .. {graph.labels[i] - 1}.")
    return labels.astype(np.int64)


@exact_kernel
def _climb(layout, theta_u, theta_c, n_iter, x):
    """Sweep until nothing changes; returns the number of sweeps."""
    value = np.empty(layout.labels.max())
    forbidden = np.empty(layout.labels.max(), dtype=np.int64)
    for t in range(n_iter):
        changed = False
        for i in range(len(x)):
            _conditional(layout, theta_u, theta_c, x, i, value, forbidden)
            best = x[i]
            for a in range(layout.labels[i]):
                fewer = forbidden[a] < forbidden[best]
                if fewer or (forbidden[a] == forbidden[best] and value[a] > value[best]):
                    best = a
            changed = changed or best != x[i]
            x[i] = best
        if not changed:
            return t + 1
    return n_iter


@exact_part
def _conditional(layout, theta_u, theta_c, x, i, value, forbidden):
    """Write, for each label of variable i, the sum of its finite terms and the number of its -inf terms."""
    for a in range(layout.labels[i]):
        term = theta_u[layout.var_ptr[i] + a]
        forbidden[a] = term == -np.inf
        value[a] = 0.0 if term == -np.inf else term
    for s in range(layout.inc_ptr[i], layout.inc_ptr[i + 1]):
        k = layout.inc[s]
        c = layout.slot_factor[k]
        entry = layout.table_ptr[c]
        for d in range(layout.scope_ptr[c], layout.scope_ptr[c + 1]):
            if d != k:
                entry += layout.stride[d] * x[layout.scope[d]]
        for a in range(layout.labels[i]):
            term = theta_c[entry + a * layout.stride[k]]
            if term == -np.inf:
                forbidden[a] += 1
            else:
                value[a] += term
