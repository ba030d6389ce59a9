"""MAP with a certificate: max-product linear programming, a dual decomposition (Globerson and Jaakkola 2007).

    bound(lambda) = sum_i max_{x_i} b_i(x_i) + sum_c max_{x_c} ( theta_c(x_c) - sum_{i in c} lambda_ci(x_i) )
    b_i = theta_i + sum_c lambda_ci

is not below the value of any labels. One step minimises it over all messages of a factor c of n variables at once:

    lambda_ci(x_i) = - b_i^{-c}(x_i) + 1/n max_{x_c with x_i} ( theta_c(x_c) + sum_{j in c} b_j^{-c}(x_j) )
    b_i^{-c} = b_i - lambda_ci

so it never rises ([SGJ11] eq. (1.20)). Labels are read off in the order of the variables, given those already chosen, and
improved by ICM; the best so far are kept. Where bound and value meet, the labels are the best there are.

Cost O(table · arity) per factor and sweep; memory O(messages).

[SGJ11] Sontag, Globerson and Jaakkola, Introduction to dual decomposition for inference, 2011.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from backfield.errors import InputError
from backfield.graph import Potentials
from backfield.kernels.compile import exact_kernel
from backfield.map_solvers.base import MapResult, MapSolver
from backfield.map_solvers.icm import icm

#: Sweeps between two readings of labels.
EVERY = 10


@dataclass(frozen=True, repr=False)
class Mplp(MapSolver, name="mplp"):
    """Dual decomposition: labels, and a bound on how good any labels can be.

    Parameters
    ----------
    n_iter : int
        Sweeps over all factors at the most.
    tol : float
        It stops when the gap is below ``tol`` times 1 + |value|, or ten sweeps lower the bound by less than that.
    """

    n_iter: int = 1000
    tol: float = 1e-9

    def __post_init__(self) -> None:
        if isinstance(self.n_iter, bool) or not isinstance(self.n_iter, int) or self.n_iter < 1:
            raise InputError(f"mplp: n_iter must be an integer >= 1, received {self.n_iter!r}.")
        if isinstance(self.tol, bool) or not isinstance(self.tol, int | float) or not 0 <= self.tol < 1:
            raise InputError(f"mplp: tol must be in [0, 1), received {self.tol!r}.")

    def solve(self, theta: Potentials) -> MapResult:
        """Return the best labels found, their value, and the bound."""
        theta = theta.written_out().astype(np.float64)
        layout = theta.graph.layout
        unary, tables = _finite(theta)
        beliefs, messages = unary.copy(), np.zeros(int(layout.msg_ptr[-1]))
        arrays = (layout.var_ptr, layout.scope_ptr, layout.scope, layout.stride, layout.table_ptr, layout.msg_ptr)
        best, bound, t = _read(theta, arrays, layout, unary, tables, messages), np.inf, 0
        while t < self.n_iter:
            steps = min(EVERY, self.n_iter - t)
            new = _sweeps(*arrays, tables, t, t + steps, beliefs, messages)
            t += steps
            found = _read(theta, arrays, layout, unary, tables, messages)
            best = found if found.value > best.value else best
            slack = self.tol * (1 + abs(new))
            stuck, bound = bound - new <= slack, min(bound, new)
            if bound - best.value <= slack or stuck:
                break
        # Sums of the same numbers in another order may put the bound below the value by rounding.
        bound = max(bound, best.value)
        optimal = bool(bound - best.value <= max(self.tol, 1e-9) * (1 + abs(bound)))
        return MapResult(best.labels, best.value, optimal, t, bound)


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


def _read(theta, arrays, layout, unary, tables, messages) -> MapResult:  # type: ignore[no-untyped-def]
    labels = np.full(theta.graph.n_variables, -1, dtype=np.int64)
    _decode(*arrays, layout.inc_ptr, layout.inc, layout.slot_factor, unary, tables, messages, labels)
    return icm(theta, labels, 20)


@exact_kernel
def _sweeps(var_ptr, scope_ptr, scope, stride, table_ptr, msg_ptr, tables, first, end, beliefs, messages):
    """Do sweeps, forward and backward by turns, and return the bound."""
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
    return _bound(var_ptr, scope_ptr, scope, stride, table_ptr, msg_ptr, tables, beliefs, messages)


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


@exact_kernel
def _decode(
    var_ptr, scope_ptr, scope, stride, table_ptr, msg_ptr, inc_ptr, inc, slot_factor, unary, tables, messages, labels
):
    """Choose labels one by one: factors whose other variables are chosen count as such, others by their messages."""
    for i in range(len(labels)):
        score = unary[var_ptr[i] : var_ptr[i + 1]].copy()
        for j in range(inc_ptr[i], inc_ptr[i + 1]):
            s = inc[j]
            c = slot_factor[s]
            at, known = table_ptr[c], True
            for other in range(scope_ptr[c], scope_ptr[c + 1]):
                if other != s:
                    if labels[scope[other]] < 0:
                        known = False
                    else:
                        at += labels[scope[other]] * stride[other]
            for x in range(len(score)):
                score[x] += tables[at + x * stride[s]] if known else messages[msg_ptr[s] + x]
        labels[i] = np.argmax(score)
