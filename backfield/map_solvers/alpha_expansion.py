"""MAP of multi-label pairwise models by moves, each the best of exponentially many and found by one cut [BVZ01].

A move offers every variable two labels, the present one and another:

    alpha-expansion   x_i = 0 keeps y_i,  x_i = 1 takes alpha                                  (L cuts an iteration)
    alpha-beta swap   variables labeled alpha or beta choose between the two, others keep y_i  (L (L - 1) / 2 cuts)

and is a binary model. Its couplings are submodular if every factor satisfies, for all labels,

    expansion   theta(a,a) + theta(b,c) >= theta(a,c) + theta(b,a)     (a metric, for -theta with zero diagonal)
    swap        theta(a,a) + theta(b,b) >= theta(a,b) + theta(b,a)     (a semi-metric)

Other couplings are truncated as in ``graph_cut``. That lowers the value of moves where one of two variables changes and
keeps the present value of an expansion, so a truncated expansion never makes the labels worse ([RKKB05]); a swap that
does is not taken. Iterated conditional modes follow every round with truncated moves.

Cost: one cut a move. Memory: that of ``graph_cut`` and one binary model.

[BVZ01] Boykov, Veksler, Zabih: Fast approximate energy minimization via graph cuts. TPAMI 23(11), 2001.
[RKKB05] Rother, Kumar, Kolmogorov, Blake: Digital tapestry. CVPR 2005.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from backfield.errors import InputError
from backfield.graph import Graph, Potentials
from backfield.kernels.compile import exact_kernel
from backfield.map_solvers import _max_flow
from backfield.map_solvers._cut_graph import NO_SCOPE, edge_terms, topology
from backfield.map_solvers.base import MapResult, MapSolver
from backfield.map_solvers.graph_cut import CutProblem
from backfield.map_solvers.icm import icm

_TOLERANCE = 1e-9  # share of a table that counts as rounding


@dataclass(frozen=True, repr=False)
class _MoveMaking(MapSolver):
    """What expansion and swap share.

    Parameters
    ----------
    n_iter : int
        Rounds over all moves, at the most; the search ends with the first round that finds nothing better.
    truncate : bool
        Cut off couplings that no cut can express instead of refusing the model.
    init : {"unary", "zero"}
        First labels: the best of each unary table, or all 0.
    """

    n_iter: int = 10
    truncate: bool = True
    init: str = "unary"

    def __post_init__(self) -> None:
        if isinstance(self.n_iter, bool) or not isinstance(self.n_iter, int) or self.n_iter < 1:
            raise InputError(f"{self.name}: n_iter must be an integer >= 1, received {self.n_iter!r}.")
        if self.init not in ("unary", "zero"):
            raise InputError(f"{self.name}: init must be 'unary' or 'zero', received {self.init!r}.")

    def solve(self, theta: Potentials) -> MapResult:
        """Return labels that no single move improves (or those after ``n_iter`` rounds)."""
        _check_graph(theta.graph, self.name)
        if theta.graph.n_labels == 2:
            problem = CutProblem(theta, truncate=self.truncate)
            if problem.n_truncated == 0:
                cut = problem.solve()
                return MapResult(cut.labels, cut.value, optimal=True, n_iter=1)
        elif not self.truncate:
            self._check_moves(theta)
        moves = _Moves(theta)
        labels = moves.first(self.init)
        done = 0
        improved = True
        while improved and done < self.n_iter:
            improved = False
            for low, high in self._offers(labels, theta.graph.n_labels):
                improved |= moves.apply(labels, low, high)
            if moves.truncated:
                improved |= moves.polish(labels)
            done += 1
        return MapResult(labels, theta.score(labels), optimal=theta.graph.n_labels == 1, n_iter=done)

    def _offers(self, labels: np.ndarray, n_labels: Any) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yield the two labels that each move offers to every variable; ``labels`` are always the present ones."""
        raise NotImplementedError

    def _check_moves(self, theta: Potentials) -> None:
        raise NotImplementedError


@dataclass(frozen=True, repr=False)
class AlphaExpansion(_MoveMaking, name="alpha_expansion"):
    """Alpha-expansion: every variable may change to the label alpha, for each alpha in turn."""

    def _offers(self, labels: np.ndarray, n_labels: Any) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        for alpha in range(n_labels):
            yield labels.copy(), np.full_like(labels, alpha)

    def _check_moves(self, theta: Potentials) -> None:
        tables = theta.factors.astype(np.float64)
        factor, a, b, c = _not_metric(tables, 1e-9 if theta.dtype == np.float64 else 1e-5)
        if factor >= 0:
            i, j = theta.graph.factors[factor]
            raise InputError(
                f"factor {factor} over variables ({i}, {j}) is not metric: theta({a},{a}) + theta({b},{c}) is below "
                f"theta({a},{c}) + theta({b},{a}); use truncate=True, or max_product."
            )


@dataclass(frozen=True, repr=False)
class AlphaBetaSwap(_MoveMaking, name="alpha_beta_swap"):
    """Alpha-beta swap: variables with two labels may exchange them, for each pair of labels in turn."""

    def _offers(self, labels: np.ndarray, n_labels: Any) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        for alpha in range(n_labels):
            for beta in range(alpha + 1, n_labels):
                active = (labels == alpha) | (labels == beta)
                if active.any():
                    yield np.where(active, alpha, labels), np.where(active, beta, labels)

    def _check_moves(self, theta: Potentials) -> None:
        tables = theta.factors.astype(np.float64)
        size = 1e-9 if theta.dtype == np.float64 else 1e-5
        diagonal = np.einsum("faa->fa", tables)
        with np.errstate(invalid="ignore"):
            gap = tables + tables.swapaxes(1, 2) - diagonal[:, :, None] - diagonal[:, None, :]
            bad = np.argwhere(gap > size * (1 + np.abs(diagonal[:, :, None]) + np.abs(tables)))
        if len(bad):
            factor, a, b = bad[0]
            i, j = theta.graph.factors[factor]
            raise InputError(
                f"factor {factor} over variables ({i}, {j}) is not semi-metric: theta({a},{a}) + theta({b},{b}) is "
                f"below theta({a},{b}) + theta({b},{a}); use truncate=True, or max_product."
            )


class _Moves:
    """The binary model of a move and its cut, on arrays that all moves share."""

    def __init__(self, theta: Potentials) -> None:
        graph = theta.graph
        self.theta = _finite(theta.astype(np.float64))
        self.topo = topology(graph)
        self.flow = _max_flow.new_flow(self.topo)
        self.inside = slice(self.topo.offset, self.topo.offset + graph.n_variables)
        self.scope = graph.factors if graph.n_factors else NO_SCOPE
        self.binary = Potentials.from_flat(graph, np.empty(2 * graph.n_variables), np.empty(4 * graph.n_factors))
        self.truncated = False  # whether any coupling so far was

    def first(self, init: str) -> np.ndarray:
        """Return the labels to start from."""
        if init == "zero":
            return np.zeros(self.theta.graph.n_variables, dtype=np.int64)
        return self.theta.unary.argmax(axis=1)

    def apply(self, labels: np.ndarray, low: np.ndarray, high: np.ndarray) -> bool:
        """Make the best choice between ``low`` and ``high`` in place, if it is better than ``labels``."""
        flow, excess = self.flow, self.flow.excess
        excess[:] = 0
        flow.cap[:] = 0
        _move(self.scope, self.theta.unary, self.theta.factors, low, high, self.binary.factors_flat, excess[self.inside])
        self.truncated |= edge_terms(self.binary, _TOLERANCE, excess, flow.cap)[0] > 0
        _max_flow.solve(self.topo.arcs, flow)
        proposed = np.where(flow.label[self.inside], high, low)
        if _gain(self.scope, self.theta.unary, self.theta.factors, labels, proposed) <= 0:
            return False
        labels[:] = proposed
        return True

    def polish(self, labels: np.ndarray) -> bool:
        """Change single variables in place: truncated moves undervalue just these. Return whether it helped."""
        better = icm(self.theta, labels).labels
        if (better == labels).all():
            return False
        labels[:] = better
        return True


def _finite(theta: Potentials) -> Potentials:
    """Replace -inf by a number so low that one forbidden entry outweighs all others, so moves can leave it."""
    flats = theta.unary_flat, theta.factors_flat
    finite = [flat[flat > -np.inf] for flat in flats]
    if all(len(a) == len(b) for a, b in zip(flats, finite, strict=True)):
        return theta
    low, high = (pick(np.concatenate([*finite, [0.0]])) for pick in (np.min, np.max))
    floor = low - 1 - (high - low) * (theta.graph.n_variables + theta.graph.n_factors)
    return Potentials.from_flat(theta.graph, *(np.maximum(flat, floor) for flat in flats))


def _check_graph(graph: Graph, name: str) -> None:
    if graph.n_factors and graph.arity != 2:
        raise InputError(f"{name} takes factors of two variables; use max_product for others.")
    if graph.n_labels is None:
        raise InputError(f"{name} needs the same number of labels at every variable; use max_product for others.")


@exact_kernel
def _move(scope, unary, factors, low, high, tables, difference):
    """Write the binary model of a move: 0 takes ``low``, 1 takes ``high``."""
    for i in range(len(low)):
        difference[i] = unary[i, high[i]] - unary[i, low[i]]
    for e in range(len(scope)):
        i, j = scope[e, 0], scope[e, 1]
        tables[4 * e] = factors[e, low[i], low[j]]
        tables[4 * e + 1] = factors[e, low[i], high[j]]
        tables[4 * e + 2] = factors[e, high[i], low[j]]
        tables[4 * e + 3] = factors[e, high[i], high[j]]


@exact_kernel
def _gain(scope, unary, factors, old, new):
    """theta·f(new) - theta·f(old), without what both share; rounding counts as nothing."""
    total, size = 0.0, 0.0
    for i in range(len(old)):
        if old[i] != new[i]:
            step = unary[i, new[i]] - unary[i, old[i]]
            total += step
            size += abs(step)
    for e in range(len(scope)):
        i, j = scope[e, 0], scope[e, 1]
        if old[i] != new[i] or old[j] != new[j]:
            step = factors[e, new[i], new[j]] - factors[e, old[i], old[j]]
            total += step
            size += abs(step)
    return total if abs(total) > 1e-12 * size else 0.0


@exact_kernel
def _not_metric(factors, tolerance):
    """Return the first factor and labels a, b, c with theta(a,a) + theta(b,c) < theta(a,c) + theta(b,a), else -1."""
    n_labels = factors.shape[1]
    for e in range(len(factors)):
        for a in range(n_labels):
            for b in range(n_labels):
                for c in range(n_labels):
                    up = factors[e, a, a] + factors[e, b, c]
                    down = factors[e, a, c] + factors[e, b, a]
                    if up < down - tolerance * (abs(up) + abs(down)) or (up == -np.inf and down > -np.inf):
                        return e, a, b, c
    return -1, 0, 0, 0
