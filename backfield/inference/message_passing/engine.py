"""What all engines of message passing share: parameters, and log Z from the marginals.

[D13] eq. (13), (16), (17):

    A = theta·mu + H(mu),   H(mu) = sum_i H(mu_i) - sum_c rho_c I(mu_c)

with the univariate beliefs in the denominator of I, which matters before convergence, when beliefs disagree.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from backfield.errors import InputError
from backfield.graph import Graph, Potentials
from backfield.inference.base import Adjoint, Engine
from backfield.inference.message_passing.upper_bound import upper_bound
from backfield.inference.schedule import Schedule
from backfield.kernels.compile import exact_kernel


def uniform_power(rho: np.ndarray) -> float | None:
    """Return the rho of all factors where they share one, else ``None``; no factors need no kernel of their own."""
    first = float(rho[0]) if len(rho) else 1.0
    return first if (rho == first).all() else None


class MessageEngine(Engine):
    """Theta bound to prepared tables, with counting numbers ``rho`` (F,), an order, and damping."""

    has_messages: ClassVar[bool] = True

    def __init__(self, theta: Potentials, rho: np.ndarray, schedule: Schedule, damping: float) -> None:
        self.theta = theta
        self.rho = rho
        self.schedule = schedule
        self.damping = float(damping)  # an integer is another type to numba

    def adjoint(self) -> Adjoint:
        """Return an empty collector for ``d_theta``."""
        return Adjoint(self.theta)

    def logs(self, state: np.ndarray) -> np.ndarray:
        """Return log messages, or logs of their ratios, in the layout of the state."""
        return np.log(state)

    def log_messages(self, state: np.ndarray) -> np.ndarray:
        """Return log messages, up to a constant each, one block for each slot of the graph."""
        return self.logs(state).reshape(-1)

    def most_changed(self, before: np.ndarray, after: np.ndarray) -> tuple[float, int]:
        """Return the largest change of a finite log message, relative to 1 + |log m|, and its place in the state."""
        change, place = _largest_change(self.logs(before).reshape(-1), self.logs(after).reshape(-1))
        return float(change), int(place)

    def upper_bound(self, state: np.ndarray) -> float:
        """Return an upper bound of log Z, where rho comes from acyclic subsets of factors."""
        return upper_bound(self.theta, self.rho, self.log_messages(state))

    def log_partition(self, mu: Potentials) -> Any:
        """Return theta·mu + H(mu), added up in double precision."""
        layout = self.theta.graph.layout
        return _log_partition(
            layout.var_ptr,
            layout.scope_ptr,
            layout.scope,
            layout.stride,
            layout.table_ptr,
            np.ascontiguousarray(self.rho),  # a broadcast constant has no memory: another type to numba
            self.theta.unary_flat,
            self.theta.factors_flat,
            mu.unary_flat,
            mu.factors_flat,
            np.zeros(1, np.result_type(mu.dtype, np.float64)),
        )

    def log_partition_vjp(self, mu: Potentials, d_theta: Adjoint, scale: float = 1.0) -> Potentials:
        """Return ``scale`` times theta + dH/dmu, and add ``scale`` times mu to ``d_theta``."""
        layout = self.theta.graph.layout
        d_unary = np.empty_like(mu.unary_flat)
        d_factors = np.empty_like(mu.factors_flat)
        d_rho = d_theta.parameters.get("rho", np.zeros(0, dtype=mu.dtype))
        with np.errstate(divide="ignore"):
            logs = np.log(mu.unary_flat), np.log(mu.factors_flat)  # numpy's log is vectorised, numba's is not
        _log_partition_vjp(
            layout.var_ptr,
            layout.scope_ptr,
            layout.scope,
            layout.stride,
            layout.table_ptr,
            np.ascontiguousarray(self.rho),
            self.theta.unary_flat,
            self.theta.factors_flat,
            mu.unary_flat,
            mu.factors_flat,
            *logs,
            mu.dtype.type(scale),
            d_unary,
            d_factors,
            d_rho,
        )
        d_theta.unary += scale * mu.unary_flat
        d_theta.factors += scale * mu.factors_flat
        return Potentials.from_flat(mu.graph, d_unary, d_factors)


def contradiction(graph: Graph, slot: int) -> InputError:
    """Return the error for a message all of whose entries are zero."""
    layout = graph.layout
    return InputError(
        f"the potentials allow no label for variable {layout.scope[slot]}: factor {layout.slot_factor[slot]} and what "
        "lies behind it forbid them all (-inf); no configuration is possible."
    )


@exact_kernel
def _largest_change(before, after):
    largest, place = 0.0, 0
    for a in range(len(after)):
        if before[a] > -np.inf or after[a] > -np.inf:
            change = abs(after[a] - before[a]) / (1 + abs(after[a]))
            if not change <= largest:  # also where it is NaN: a label has died
                largest, place = change if change == change else np.inf, a
    return largest, place


@exact_kernel
def _log_partition(var_ptr, scope_ptr, scope, stride, table_ptr, rho, theta_u, theta_c, mu_u, mu_c, zero):
    total = zero[0]
    log_mu = np.zeros_like(mu_u)
    for a in range(len(mu_u)):
        if mu_u[a].real > 0:
            log_mu[a] = np.log(mu_u[a])
            total += mu_u[a] * (theta_u[a] - log_mu[a])
    for c in range(len(table_ptr) - 1):
        for e in range(table_ptr[c], table_ptr[c + 1]):
            if mu_c[e].real > 0:
                information = np.log(mu_c[e])
                for k in range(scope_ptr[c], scope_ptr[c + 1]):
                    i = scope[k]
                    x = (e - table_ptr[c]) // stride[k] % (var_ptr[i + 1] - var_ptr[i])
                    information -= log_mu[var_ptr[i] + x]
                total += mu_c[e] * (theta_c[e] - rho[c] * information)
    return total


@exact_kernel
def _log_partition_vjp(
    var_ptr, scope_ptr, scope, stride, table_ptr, rho, theta_u, theta_c, mu_u, mu_c, log_u, log_c, scale, d_u, d_c, d_rho
):
    zero = mu_u.dtype.type(0)
    one = mu_u.dtype.type(1)
    for a in range(len(mu_u)):
        d_u[a] = scale * (theta_u[a] - log_u[a] - one) if mu_u[a].real > 0 else zero
    for c in range(len(table_ptr) - 1):
        first, last = table_ptr[c], table_ptr[c + 1]
        for e in range(first, last):
            d_c[e] = log_c[e]
        for k in range(scope_ptr[c], scope_ptr[c + 1]):
            start, step = var_ptr[scope[k]], stride[k]
            count = var_ptr[scope[k] + 1] - start
            for block in range(first, last, count * step):
                for x in range(count):
                    at = block + x * step
                    total = zero
                    for e in range(at, at + step):
                        total += mu_c[e]
                        d_c[e] -= log_u[start + x]
                    if mu_u[start + x].real > 0:
                        d_u[start + x] += scale * rho[c] * total / mu_u[start + x]
        for e in range(first, last):
            information, possible = d_c[e], mu_c[e].real > 0
            d_c[e] = scale * (theta_c[e] - rho[c] * (information + one)) if possible else zero
            if len(d_rho) > 0 and possible:
                d_rho[c] -= scale * mu_c[e] * information
