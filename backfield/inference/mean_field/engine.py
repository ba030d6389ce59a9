"""The objective that all engines of mean field share, read off flat tables without a loop over the graph.

[D13] eq. (10), (12):

    A = theta·mu + H(mu),   H(mu) = - sum_i sum_{x_i} mu(x_i) log mu(x_i)

with 0·(-inf) = 0. As mu is a distribution, A is a lower bound of log Z at any mu, converged or not.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from backfield.graph import Potentials
from backfield.inference.base import Adjoint, Engine
from backfield.kernels.compile import kernel


class MeanFieldEngine(Engine):
    """Theta bound to prepared tables."""

    def __init__(self, theta: Potentials) -> None:
        self.theta = theta
        #: Theta without kernels: what has tables.
        self.tables = theta.without_kernels()

    def adjoint(self) -> Adjoint:
        """Return an empty collector for ``d_theta``."""
        return Adjoint(self.theta)

    def log_partition(self, mu: Potentials) -> Any:
        """Return theta·mu + H(mu), added up in double precision."""
        zero = np.zeros(1, np.result_type(mu.dtype, np.float64))
        tables = self.tables.unary_flat, self.tables.factors_flat, mu.unary_flat, mu.factors_flat
        return _log_partition(*tables, zero)

    def log_partition_vjp(self, mu: Potentials, d_theta: Adjoint, scale: float = 1.0) -> Potentials:
        """Return ``scale`` times theta + dH/dmu, and add ``scale`` times mu to ``d_theta``."""
        scale = mu.dtype.type(scale)
        d_mu = Potentials.from_flat(mu.graph, np.empty_like(mu.unary_flat), np.empty_like(mu.factors_flat))
        _unary_vjp(self.theta.unary_flat, mu.unary_flat, scale, d_mu.unary_flat, d_theta.unary)
        _factors_vjp(self.tables.factors_flat, mu.factors_flat, scale, d_mu.factors_flat, d_theta.factors)
        return d_mu


@kernel
def _log_partition(theta_u, theta_c, mu_u, mu_c, zero):
    total = zero[0]
    possible = True  # a complex number times -inf would be NaN
    for a in range(len(mu_u)):
        if mu_u[a].real > 0:
            possible &= theta_u[a].real > -np.inf
            total += mu_u[a] * (theta_u[a] - np.log(mu_u[a]))
    for e in range(len(mu_c)):
        if mu_c[e].real > 0:
            possible &= theta_c[e].real > -np.inf
            total += mu_c[e] * theta_c[e]
    return total if possible else zero.dtype.type(-np.inf)


@kernel
def _unary_vjp(theta, mu, scale, d_mu, d_theta):
    zero = mu.dtype.type(0)
    one = mu.dtype.type(1)
    for a in range(len(mu)):
        # mu = 0 stays 0: it comes from -inf, or from a number too small to matter.
        d_mu[a] = scale * (theta[a] - np.log(mu[a]) - one) if mu[a].real > 0 else zero
        d_theta[a] += scale * mu[a]


@kernel
def _factors_vjp(theta, mu, scale, d_mu, d_theta):
    zero = mu.dtype.type(0)
    for e in range(len(mu)):
        d_mu[e] = scale * theta[e] if theta[e].real > -np.inf else zero
        d_theta[e] += scale * mu[e]
