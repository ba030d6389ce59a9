"""Any engine under observed labels: it runs on theta' of :mod:`backfield.graph.clamping`, in the same graph."""

from __future__ import annotations

from typing import Any

import numpy as np

from backfield.graph import Graph, Potentials
from backfield.graph.clamping import Clamp
from backfield.inference.engine import Adjoint, Engine, WrappedAdjoint, WrappedEngine, inner_adjoint


class ClampedEngine(WrappedEngine):
    """``inner`` is bound to ``clamp.apply(theta)``; marginals and adjoints are those of ``theta``."""

    def __init__(self, inner: Engine, clamp: Clamp, theta: Potentials) -> None:
        super().__init__(inner, theta)
        self.clamp = clamp

    def beliefs(self, state: np.ndarray) -> np.ndarray:
        """Return the flat unary marginals of a state."""
        return self.clamp.set_beliefs(self.inner.beliefs(state))

    def marginals(self, state: np.ndarray, factors: bool = True) -> Potentials:
        """Return all marginals of a state."""
        return self.clamp.expand(self.inner.marginals(state, factors))

    def log_partition(self, mu: Potentials) -> Any:
        """Return theta·mu + H(mu), which is the same in theta'."""
        return self.inner.log_partition(mu)

    def adjoint(self) -> ClampedAdjoint:
        """Return an empty collector for ``d_theta``."""
        return ClampedAdjoint(self.inner.adjoint(), self.clamp)

    def marginals_vjp(self, state: np.ndarray, d_mu: Potentials, d_state: np.ndarray, d_theta: Adjoint) -> None:
        """Add the adjoints that ``d_mu`` causes."""
        self.inner.marginals_vjp(state, self.clamp.expand_vjp(d_mu), d_state, inner_adjoint(d_theta))

    def log_partition_vjp(self, mu: Potentials, d_theta: Adjoint, scale: float = 1.0) -> Potentials:
        """Return ``scale`` times d log_partition / d mu; add the explicit derivative to ``d_theta``."""
        return self.inner.log_partition_vjp(mu, inner_adjoint(d_theta), scale)

    def upper_bound(self, state: np.ndarray) -> float:
        """Return the bound without the log L that each fixed variable, free in theta', adds to log Z."""
        return self.inner.upper_bound(state) - float(np.log(self.theta.graph.labels[self.clamp.variables]).sum())

    def value(self, state: np.ndarray, mu: Potentials) -> Any:
        """Return the value without what the fixed variables, free in theta', add to it."""
        return self.inner.value(state, mu) - self.inner.surplus(self.clamp)

    def value_vjp(
        self, state: np.ndarray, mu: Potentials, d_state: np.ndarray, d_theta: Adjoint, scale: float = 1.0
    ) -> None:
        """Add ``scale`` times the adjoints that :meth:`value` causes."""
        if self.inner.value_of_state:
            self.inner.value_vjp(state, self.inner.marginals(state), d_state, inner_adjoint(d_theta), scale)
        else:
            super().value_vjp(state, mu, d_state, d_theta, scale)


class ClampedAdjoint(WrappedAdjoint):
    """The collector of the engine inside; its adjoint of theta' becomes that of theta when it is read."""

    def __init__(self, inner: Adjoint, clamp: Clamp) -> None:
        super().__init__(inner)
        self.clamp = clamp

    def potentials(self, graph: Graph) -> Potentials:
        """Return d_theta as potentials."""
        return self.clamp.adjoint(self.inner.potentials(graph))
