"""Any engine under observed labels: it runs on theta' of :mod:`backfield.graph.clamping`, in the same graph."""

from __future__ import annotations

from typing import Any

import numpy as np

from backfield.graph import Graph, Potentials
from backfield.graph.clamping import Clamp
from backfield.inference.engine import Adjoint, Engine


class ClampedEngine(Engine):
    """``inner`` is bound to ``clamp.apply(theta)``; marginals and adjoints are those of ``theta``."""

    def __init__(self, inner: Engine, clamp: Clamp, theta: Potentials) -> None:
        self.inner, self.clamp = inner, clamp
        self.has_messages = inner.has_messages  # type: ignore[misc]
        self.theta = theta.astype(inner.theta.dtype)  # an engine may compute in a wider type

    def init(self) -> np.ndarray:
        """Return the starting state of the engine inside; messages of fixed variables are in its unary tables."""
        return self.inner.init()

    def sweep(self, state: np.ndarray, t: int) -> None:
        """Do iteration number ``t`` in place."""
        self.inner.sweep(state, t)

    def sweeps(self, state: np.ndarray, first: int, last: int) -> None:
        """Do iterations ``first .. last - 1`` in place."""
        self.inner.sweeps(state, first, last)

    def record(self, states: np.ndarray, first: int) -> None:
        """Do several sweeps and keep every state."""
        self.inner.record(states, first)

    def unwind(self, states: np.ndarray, first: int, d_state: np.ndarray, d_theta: Adjoint) -> None:
        """Undo what :meth:`record` did."""
        self.inner.unwind(states, first, d_state, _inner(d_theta))

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

    def sweep_vjp(self, before: np.ndarray, after: np.ndarray, t: int, d_state: np.ndarray, d_theta: Adjoint) -> None:
        """Turn the adjoint of ``after`` into that of ``before``."""
        self.inner.sweep_vjp(before, after, t, d_state, _inner(d_theta))

    def marginals_vjp(self, state: np.ndarray, d_mu: Potentials, d_state: np.ndarray, d_theta: Adjoint) -> None:
        """Add the adjoints that ``d_mu`` causes."""
        self.inner.marginals_vjp(state, self.clamp.expand_vjp(d_mu), d_state, _inner(d_theta))

    def log_partition_vjp(self, mu: Potentials, d_theta: Adjoint, scale: float = 1.0) -> Potentials:
        """Return ``scale`` times d log_partition / d mu; add the explicit derivative to ``d_theta``."""
        return self.inner.log_partition_vjp(mu, _inner(d_theta), scale)

    def change(self, before: np.ndarray, after: np.ndarray) -> float:
        """Return the largest change of a message."""
        return self.inner.change(before, after)

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
            self.inner.value_vjp(state, self.inner.marginals(state), d_state, _inner(d_theta), scale)
        else:
            super().value_vjp(state, mu, d_state, d_theta, scale)


class ClampedAdjoint(Adjoint):
    """The collector of the engine inside; its adjoint of theta' becomes that of theta when it is read."""

    def __init__(self, inner: Adjoint, clamp: Clamp) -> None:
        self.inner, self.clamp = inner, clamp
        self.parameters = inner.parameters

    def potentials(self, graph: Graph) -> Potentials:
        """Return d_theta as potentials."""
        return self.clamp.adjoint(self.inner.potentials(graph))


def _inner(d_theta: Adjoint) -> Adjoint:
    assert isinstance(d_theta, ClampedAdjoint)
    return d_theta.inner
