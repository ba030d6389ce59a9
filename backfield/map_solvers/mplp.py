"""MAP with a certificate: max-product linear programming, a dual decomposition (Globerson and Jaakkola 2007).

    bound(lambda) = sum_i max_{x_i} b_i(x_i) + sum_c max_{x_c} ( theta_c(x_c) - sum_{i in c} lambda_ci(x_i) )
    b_i = theta_i + sum_c lambda_ci

is not below the value of any labels. One step minimises it over all messages of a factor c of n variables at once:

    lambda_ci(x_i) = - b_i^{-c}(x_i) + 1/n max_{x_c with x_i} ( theta_c(x_c) + sum_{j in c} b_j^{-c}(x_j) )
    b_i^{-c} = b_i - lambda_ci

so it never rises ([SGJ11] eq. (1.20)). Where it falls slowly and a gap is left, short cycles become clusters
(``mplp_clusters``), which lower it further. Labels are read off and improved (``mplp_rounding``); the best so far are kept.
Where bound and value meet, the labels are the best there are.

Cost O(table · arity) per factor and sweep; memory O(messages).

[SGJ11] Sontag, Globerson and Jaakkola, Introduction to dual decomposition for inference, 2011.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from backfield.errors import InputError
from backfield.graph import Graph, Potentials
from backfield.kernels.compile import exact_kernel
from backfield.map_solvers.base import MapResult, MapSolver
from backfield.map_solvers.mplp_clusters import Clusters, cluster_bound, cluster_sweep
from backfield.map_solvers.mplp_rounding import decode, improve

#: Sweeps between two readings of labels, and tree moves for each reading.
EVERY, MOVES = 10, 20
#: The bound falls slowly where ten sweeps close less than this share of the gap.
SLOW = 0.1
#: It is stuck where they close less than this share.
STUCK = 0.002


@dataclass(frozen=True, repr=False)
class Mplp(MapSolver, name="mplp"):
    """Dual decomposition: labels, and a bound on how good any labels can be.

    Parameters
    ----------
    n_iter : int
        Sweeps over all factors at the most.
    tol : float
        It stops when the gap is below ``tol`` times 1 + |value|, or ten sweeps lower the bound by less than that.
    tighten : bool
        Whether short cycles become clusters.
    """

    n_iter: int = 1000
    tol: float = 1e-9
    tighten: bool = True

    def __post_init__(self) -> None:
        if isinstance(self.n_iter, bool) or not isinstance(self.n_iter, int) or self.n_iter < 1:
            raise InputError(f"mplp: n_iter must be an integer >= 1, received {self.n_iter!r}.")
        if isinstance(self.tol, bool) or not isinstance(self.tol, int | float) or not 0 <= self.tol < 1:
            raise InputError(f"mplp: tol must be in [0, 1), received {self.tol!r}.")
        if not isinstance(self.tighten, bool):
            raise InputError(f"mplp: tighten must be True or False, received {self.tighten!r}.")

    def solve(self, theta: Potentials) -> MapResult:
        """Return the best labels found, their value, and the bound."""
        theta = theta.written_out().astype(np.float64)
        dual = _Dual(theta)
        best, bound, t = dual.labels(0), np.inf, 0
        while t < self.n_iter:
            steps = min(EVERY, self.n_iter - t)
            new = dual.sweep(t, t + steps)
            t += steps
            found = dual.labels(t)
            best = found if found.value > best.value else best
            slack = self.tol * (1 + abs(new))
            fall, bound = bound - new, min(bound, new)
            if bound - best.value <= slack:
                break
            gap = bound - best.value
            if self.tighten and dual.clusters is None and fall <= max(slack, SLOW * gap):
                dual.add_clusters()
            elif fall <= min(slack, STUCK * gap):
                break
        # Sums of the same numbers in another order may put the bound below the value by rounding.
        bound = max(bound, best.value)
        optimal = bool(bound - best.value <= max(self.tol, 1e-9) * (1 + abs(bound)))
        return MapResult(best.labels, best.value, optimal, t, bound)


class _Dual:
    """Messages, the bound that they give, and the labels that can be read off them."""

    def __init__(self, theta: Potentials) -> None:
        self.theta = theta
        self.unary, self.finite = _finite(theta)
        self.clusters: Clusters | None = None
        self._bind(theta.graph, self.finite.copy())
        self.messages = np.zeros(int(self.layout.msg_ptr[-1]))
        self.beliefs = self.unary.copy()

    def _bind(self, graph: Graph, tables: np.ndarray) -> None:
        self.layout, self.tables = graph.layout, tables
        layout = self.layout
        self.arrays = layout.var_ptr, layout.scope_ptr, layout.scope, layout.stride, layout.table_ptr, layout.msg_ptr

    def add_clusters(self) -> None:
        """Add the clusters of short cycles; the new factors have zeros and send nothing yet."""
        self.clusters = Clusters(self.theta.graph)
        graph = self.clusters.graph
        self._bind(graph, np.concatenate([self.tables, np.zeros(int(graph.layout.table_ptr[-1]) - len(self.tables))]))
        self.messages = np.concatenate([self.messages, np.zeros(int(graph.layout.msg_ptr[-1]) - len(self.messages))])

    def sweep(self, first: int, end: int) -> float:
        """Do sweeps, forward and backward by turns, and return the bound."""
        if not self.clusters:
            _sweeps(*self.arrays, self.tables, first, end, self.beliefs, self.messages)
            return float(_bound(*self.arrays, self.tables, self.beliefs, self.messages))
        layout, clusters = self.layout, self.clusters
        shape = layout.scope_ptr, layout.stride, layout.table_ptr, layout.msg_ptr
        for t in range(first, end):
            cluster_sweep(*shape, self.messages, t % 2 == 1, *clusters.arrays, clusters.messages, self.tables)
            _sweeps(*self.arrays, self.tables, t, t + 1, self.beliefs, self.messages)
        bound = _bound(*self.arrays, self.tables, self.beliefs, self.messages)
        return float(bound + cluster_bound(*clusters.arrays, clusters.messages))

    def labels(self, seed: int) -> MapResult:
        """Return labels that the messages suggest, improved."""
        layout, labels = self.layout, np.full(self.theta.graph.n_variables, -1, dtype=np.int64)
        decode(*self.arrays, layout.inc_ptr, layout.inc, layout.slot_factor, self.unary, self.tables, self.messages, labels)
        return improve(self.theta, self.unary, self.finite, labels, MOVES, seed)


def _finite(theta: Potentials) -> tuple[np.ndarray, np.ndarray]:
    """Put a large penalty in the place of -inf, which keeps the bound one, and is worse than any possible labels."""
    unary, tables = theta.unary_flat.copy(), theta.factors_flat.copy()
    span = 1.0
    for values in (unary, tables):
        known = values[values > -np.inf]
        span += 2 * float(np.abs(known).max(initial=0.0)) * (theta.graph.n_variables + theta.graph.n_factors)
    for values in (unary, tables):
        values[values == -np.inf] = -span
    return unary, tables


@exact_kernel
def _sweeps(var_ptr, scope_ptr, scope, stride, table_ptr, msg_ptr, tables, first, end, beliefs, messages):
    """Do sweeps, forward and backward by turns."""
    n_factors = len(scope_ptr) - 1
    best = np.empty(len(messages))
    for t in range(first, end):
        for k in range(n_factors):
            c = k if t % 2 == 0 else n_factors - 1 - k
            a, z = msg_ptr[scope_ptr[c]], msg_ptr[scope_ptr[c + 1]]
            for s in range(scope_ptr[c], scope_ptr[c + 1]):
                v = var_ptr[scope[s]]
                for x in range(msg_ptr[s + 1] - msg_ptr[s]):
                    beliefs[v + x] -= messages[msg_ptr[s] + x]
            best[a:z] = -np.inf
            if scope_ptr[c + 1] - scope_ptr[c] == 2:  # written out: divisions would take most of the time of a pair
                s = scope_ptr[c]
                first, second = var_ptr[scope[s]], var_ptr[scope[s + 1]]
                for x in range(msg_ptr[s + 1] - msg_ptr[s]):
                    top, row = -np.inf, table_ptr[c] + x * stride[s]
                    for y in range(msg_ptr[s + 2] - msg_ptr[s + 1]):
                        total = tables[row + y * stride[s + 1]] + beliefs[first + x] + beliefs[second + y]
                        top = total if total > top else top
                        at = msg_ptr[s + 1] + y
                        best[at] = total if total > best[at] else best[at]
                    best[msg_ptr[s] + x] = top
            else:
                for e in range(table_ptr[c + 1] - table_ptr[c]):
                    total = tables[table_ptr[c] + e]
                    for s in range(scope_ptr[c], scope_ptr[c + 1]):
                        total += beliefs[var_ptr[scope[s]] + (e // stride[s]) % (msg_ptr[s + 1] - msg_ptr[s])]
                    for s in range(scope_ptr[c], scope_ptr[c + 1]):
                        at = msg_ptr[s] + (e // stride[s]) % (msg_ptr[s + 1] - msg_ptr[s])
                        best[at] = max(best[at], total)
            share = 1.0 / (scope_ptr[c + 1] - scope_ptr[c])
            for s in range(scope_ptr[c], scope_ptr[c + 1]):
                v = var_ptr[scope[s]]
                for x in range(msg_ptr[s + 1] - msg_ptr[s]):
                    messages[msg_ptr[s] + x] = share * best[msg_ptr[s] + x] - beliefs[v + x]
                    beliefs[v + x] = share * best[msg_ptr[s] + x]


@exact_kernel
def _bound(var_ptr, scope_ptr, scope, stride, table_ptr, msg_ptr, tables, beliefs, messages):
    total = 0.0
    for i in range(len(var_ptr) - 1):
        total += beliefs[var_ptr[i] : var_ptr[i + 1]].max()
    for c in range(len(scope_ptr) - 1):
        top = -np.inf
        for e in range(table_ptr[c + 1] - table_ptr[c]):
            value = tables[table_ptr[c] + e]
            for s in range(scope_ptr[c], scope_ptr[c + 1]):
                value -= messages[msg_ptr[s] + (e // stride[s]) % (msg_ptr[s + 1] - msg_ptr[s])]
            top = max(top, value)
        total += top
    return total
