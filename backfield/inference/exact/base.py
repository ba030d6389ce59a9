"""What enumeration, junction tree and forward-backward share.

All three have log Z and marginals also for complex theta (maxima look at real parts only), and apply

    d mu / d theta = Cov(f)        vjp(d_mu) = d/dt mu(theta + t d_mu) at t = 0

by carrying tangents along. So a complex step on top of ``vjp`` gives second derivatives without a difference.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from backfield.errors import InputError
from backfield.graph import Potentials
from backfield.inference.base import ExactInference, Result


class DirectInference(ExactInference):
    """An exact method given by :meth:`marginals` and :meth:`vjp`, real or complex."""

    def marginals(self, theta: Potentials) -> tuple[Any, Potentials]:
        """Return log Z and the marginals, complex where theta is."""
        raise NotImplementedError

    def infer(self, theta: Potentials) -> Result:
        """Return marginals and log Z of ``theta``."""
        log_partition, mu = self.marginals(theta)
        return Result(mu, float(np.real(log_partition)), bound=self.bound, converged=True)


def working(*potentials: Potentials) -> list[np.ndarray]:
    """Return the numbers of potentials as vectors of one type: complex128 if one is complex, else float64."""
    dtype = np.result_type(np.float64, *[part.dtype for part in potentials])
    return [part.vector().astype(dtype, copy=False) for part in potentials]


def direction(theta: Potentials, d_mu: Potentials) -> tuple[np.ndarray, np.ndarray]:
    """Return theta and the direction d_mu as vectors; forbidden entries do not move. Empty factor tables are zeros."""
    if len(d_mu.factors_flat) < len(theta.factors_flat):
        zeros = np.zeros_like(d_mu.unary_flat, shape=theta.factors_flat.shape)
        d_mu = Potentials.from_flat(d_mu.graph, d_mu.unary_flat, zeros)
    values, tangents = working(theta, d_mu)
    tangents[values.real == -np.inf] = 0
    return values, tangents


class ImpossibleError(InputError):
    """A model that forbids every labeling."""

    def __init__(self) -> None:
        super().__init__("no configuration is possible: every labeling has probability zero (-inf).")


def check_possible(log_partition: Any) -> None:
    """Refuse a model that forbids every labeling."""
    if np.real(log_partition) == -np.inf:
        raise ImpossibleError


def check_positive(method: Any, parameter: str) -> None:
    """Refuse a size that is not an integer >= 1."""
    value = getattr(method, parameter)
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise InputError(f"{method.name}: {parameter} must be an integer >= 1, received {value!r}.")
