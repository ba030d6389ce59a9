"""Any engine where most variables are fixed: it runs on the reduced model, with the rho and the order of the whole graph.

In theta' of :mod:`backfield.graph.clamping` messages from and to fixed variables are uniform and change nothing. Where most
are, they are left out: the same numbers as :class:`~backfield.inference.clamped.ClampedEngine`, from fewer messages.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from backfield.graph import Graph, Potentials
from backfield.graph.clamping import Clamp
from backfield.graph.conditioning import Restriction
from backfield.inference.engine import Adjoint, Engine, WrappedAdjoint, WrappedEngine, inner_adjoint


def restriction_of(clamp: Clamp) -> Restriction:
    """Return the reduced model of the fixed labels, made once for a clamp."""
    found: Restriction = clamp.compiled("restriction", lambda: Restriction(clamp.graph, clamp.allowed))
    return found


class ReducedEngine(WrappedEngine):
    """``inner`` is bound to the reduced ``theta``; marginals and adjoints are those of ``theta``."""

    def __init__(self, inner: Engine, restriction: Restriction, constant: Any, theta: Potentials) -> None:
        super().__init__(inner, theta)
        self.restriction, self.constant = restriction, constant

    def beliefs(self, state: np.ndarray) -> np.ndarray:
        """Return the flat unary marginals of a state."""
        return self.restriction.expand_unary(self.inner.beliefs(state))

    def marginals(self, state: np.ndarray, factors: bool = True) -> Potentials:
        """Return all marginals of a state."""
        if factors:
            return self.restriction.expand(self.inner.marginals(state))
        beliefs = self.beliefs(state)
        return Potentials.from_flat(self.theta.graph, beliefs, beliefs[:0])

    def log_partition(self, mu: Potentials) -> Any:
        """Return theta·mu + H(mu)."""
        return self.inner.log_partition(self.restriction.select(mu)) + self.constant

    def adjoint(self) -> ReducedAdjoint:
        """Return an empty collector for ``d_theta``."""
        return ReducedAdjoint(self.inner.adjoint(), self.restriction)

    def marginals_vjp(self, state: np.ndarray, d_mu: Potentials, d_state: np.ndarray, d_theta: Adjoint) -> None:
        """Add the adjoints that ``d_mu`` causes."""
        reduced = self.restriction.expand_vjp(d_mu)
        assert reduced is not None
        self.inner.marginals_vjp(state, reduced, d_state, inner_adjoint(d_theta))

    def log_partition_vjp(self, mu: Potentials, d_theta: Adjoint, scale: float = 1.0) -> Potentials:
        """Return ``scale`` times d log_partition / d mu; add the explicit derivative to ``d_theta``."""
        d_mu = self.inner.log_partition_vjp(self.restriction.select(mu), inner_adjoint(d_theta), scale)
        _outer(d_theta).constant += scale
        return self.restriction.select_vjp(d_mu)

    def upper_bound(self, state: np.ndarray) -> float:
        """Return the bound of the reduced model with the constant."""
        return self.inner.upper_bound(state) + float(np.real(self.constant))

    def value(self, state: np.ndarray, mu: Potentials) -> Any:
        """Return the value of the reduced model with the constant."""
        return self.inner.value(state, self.restriction.select(mu)) + self.constant

    def value_vjp(
        self, state: np.ndarray, mu: Potentials, d_state: np.ndarray, d_theta: Adjoint, scale: float = 1.0
    ) -> None:
        """Add ``scale`` times the adjoints that :meth:`value` causes."""
        _outer(d_theta).constant += scale
        self.inner.value_vjp(state, self.restriction.select(mu), d_state, inner_adjoint(d_theta), scale)


class ReducedAdjoint(WrappedAdjoint):
    """The collector of the engine inside, and the adjoint of the constant that the fixed labels add to log Z."""

    def __init__(self, inner: Adjoint, restriction: Restriction) -> None:
        super().__init__(inner)
        self.restriction, self.constant = restriction, 0.0

    def potentials(self, graph: Graph) -> Potentials:
        """Return d_theta as potentials."""
        assert self.restriction.graph is not None
        return self.restriction.expand(self.inner.potentials(self.restriction.graph), self.constant)


def _outer(d_theta: Adjoint) -> ReducedAdjoint:
    assert isinstance(d_theta, ReducedAdjoint)
    return d_theta
