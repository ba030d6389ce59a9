"""Exact inference on paths: chains of any numbering, label counts and orientation of edges, and unions of them.

Chains of order two (``Graph.chain(order=2)``) are :mod:`backfield.inference.exact.order_two` where they share their tables,
else the junction tree's.

Marginals by :mod:`backfield.inference.exact.forward_backward`. The vjp needs the marginals only: with F_t and B_t the
conditional expectations of d·f over what comes before (with t) and after t, given x_t,

    d_theta(x_t) = mu(x_t) (F_t + B_t - mean)
    d_theta(x_{t-1}, x_t) = mu(x_{t-1}, x_t) (F_{t-1} + d_T + d_t + B_t - mean)

Cost O(n L^2), of which the exponentials are most.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from backfield.graph import Potentials
from backfield.graph.chains import second_order, tied_order_two
from backfield.inference.exact.base import DirectInference, direction
from backfield.inference.exact.forward_backward import forward_backward
from backfield.inference.exact.junction import Exact
from backfield.inference.exact.order_two import order_two_gradient
from backfield.inference.exact.paths import arrange, paths_of, restore
from backfield.inference.exact.tied_chains import chain_starts, shared_chain_gradient
from backfield.kernels.compile import exact_kernel, exact_part

#: Conditional expectations given a label of smaller probability are not formed: they cannot matter.
TINY = 1e-290


@dataclass(frozen=True, repr=False)
class Chain(DirectInference, name="chain"):
    """Forward-backward on disjoint paths; parallel edges are allowed."""

    @property
    def separable(self) -> bool:
        """Always: what is exact is exact for each part."""
        return True

    def supports(self, theta: Potentials) -> bool:
        """Whether theta holds tables, or one for all edges of chains, or for all pairs and all triples of order two."""
        return theta.has_tables_only or chain_starts(theta) is not None or _is_tied_order_two(theta)

    def marginals(self, theta: Potentials) -> tuple[Any, Potentials]:
        """Return log Z and the marginals, complex where theta is."""
        if second_order(theta.graph) is not None:
            found = Exact().marginals(theta)
            _fix_single(theta, found[1])
            return found
        theta, paths = theta.written_out(), paths_of(theta.graph)
        dtype = np.result_type(theta.dtype, np.float64)
        log_partition, *mu = forward_backward(paths, *arrange(paths, theta.astype(dtype)))
        return log_partition, restore(paths, theta.graph, *mu).astype(theta.dtype)

    def log_partition_and_gradient(self, theta: Potentials) -> tuple[Any, Potentials]:
        """Return log Z and its gradient; where all edges share one table, none is written per edge."""
        return _tied_gradient(theta) or super().log_partition_and_gradient(theta)

    def beliefs(self, theta: Potentials) -> np.ndarray:
        """Return the marginals of the variables; where all edges share one table, none is written per edge."""
        found = _tied_gradient(theta)
        return super().beliefs(theta) if found is None else found[1].unary_flat

    def vjp(self, theta: Potentials, d_mu: Potentials) -> Potentials:
        """Return the covariance of f applied to ``d_mu``."""
        if second_order(theta.graph) is not None:
            return Exact().vjp(theta, d_mu)
        theta, paths = theta.written_out(), paths_of(theta.graph)
        values, tangents = map(theta.like, direction(theta, d_mu))
        _, *mu = forward_backward(paths, *arrange(paths, values))
        d = arrange(paths, tangents)
        out = np.empty_like(d[0]), np.empty_like(d[1])
        _covariance(paths.labels, paths.unary_ptr, paths.table_ptr, *mu, *d, np.empty_like(d[0]), *out)
        return restore(paths, theta.graph, *out).astype(np.result_type(theta.dtype, d_mu.dtype))


def _tied_gradient(theta: Potentials) -> tuple[Any, Potentials] | None:
    """Return log Z and its gradient of chains that share their tables; None of other models."""
    return shared_chain_gradient(theta) or order_two_gradient(theta)


def _fix_single(theta: Potentials, mu: Potentials) -> None:
    """Make the marginals of variables with one possible label exactly one-hot."""
    possible = np.real(theta.unary) > -np.inf
    single = possible.sum(axis=1) == 1
    mu.unary[single] = possible[single]


def _is_tied_order_two(theta: Potentials) -> bool:
    return theta.dtype.kind == "f" and tied_order_two(theta) is not None


@exact_part
def _matters(p):
    return p.real > TINY or p.real < -TINY or p.imag > TINY or p.imag < -TINY


@exact_part
def _centre(mu, values):
    mean = mu.dtype.type(0)
    for x in range(len(mu)):
        mean += mu[x] * values[x]
    for x in range(len(mu)):
        values[x] -= mean


@exact_kernel
def _covariance(labels, unary_ptr, table_ptr, mu_u, mu_t, d_u, d_t, before, out_u, out_t):
    """Write the covariance of f times d; ``before`` becomes F, and out_u holds B until it is used."""
    out_u[:] = 0
    for t in range(len(labels)):
        at = table_ptr[t]
        _expect_before(t, at, labels, unary_ptr, mu_u, mu_t, d_u, d_t, before)
    after = np.empty_like(d_u[: labels.max()])
    for t in range(len(labels) - 1, -1, -1):
        start, end, at = unary_ptr[t], unary_ptr[t + 1], table_ptr[t]
        if at >= 0:
            first, table = unary_ptr[t - 1], slice(at, at + labels[t - 1] * labels[t])
            for y in range(labels[t]):
                after[y] = d_u[start + y] + out_u[start + y]
            _expect_after(mu_t[table], d_t[table], after[: labels[t]], before[first:start], out_u[first:start], out_t[table])
            for x in range(first, start):
                out_u[x] = out_u[x] / mu_u[x] if _matters(mu_u[x]) else d_u.dtype.type(0)
            _centre(mu_u[first:start], out_u[first:start])
        for y in range(start, end):
            out_u[y] = mu_u[y] * (before[y] + out_u[y])


@exact_part
def _expect_before(t, at, labels, unary_ptr, mu_u, mu_t, d_u, d_t, before):
    """F_t(y) = d_t(y) + sum_x mu(x | y) (F_{t-1}(x) + d_T(x, y)), less its mean."""
    start, end = unary_ptr[t], unary_ptr[t + 1]
    before[start:end] = 0
    if at >= 0:
        for x in range(unary_ptr[t - 1], start):
            for y in range(start, end):
                before[y] += mu_t[at] * (before[x] + d_t[at])
                at += 1
    for y in range(start, end):
        before[y] = d_u[y] + (before[y] / mu_u[y] if _matters(mu_u[y]) else d_u.dtype.type(0))
    _centre(mu_u[start:end], before[start:end])


@exact_part
def _expect_after(mu, d_t, after, before, total, out):
    """total(x) = sum_y mu(x, y) (d_T(x, y) + after(y)); out = mu (before + d_T + after - mean)."""
    n = len(after)
    mean = mu.dtype.type(0)
    for x in range(len(before)):
        total[x] = 0
        for y in range(n):
            total[x] += mu[x * n + y] * (d_t[x * n + y] + after[y])
            mean += mu[x * n + y] * (before[x] + d_t[x * n + y] + after[y])
    for x in range(len(before)):
        for y in range(n):
            out[x * n + y] = mu[x * n + y] * (before[x] + d_t[x * n + y] + after[y] - mean)
