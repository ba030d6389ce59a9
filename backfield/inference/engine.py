"""What an iterative method is: theta bound to prepared arrays, with a ``sweep`` and the adjoints of all it does.

The contract between inference and gradients: an outsider's method implements :class:`Engine`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar

import numpy as np

from backfield.graph import Graph, Potentials
from backfield.graph.clamping import Clamp


class Engine(ABC):
    """An iterative method bound to one theta: the contract between inference and gradients.

    The state is one array (messages or marginals, in the layout of the kernels). ``d_state`` is its adjoint;
    ``d_theta`` collects the adjoint of theta and of the method's own parameters. All ``*_vjp`` *add* to what they
    are given, except that ``sweep_vjp`` replaces the adjoint of the state after the sweep by that before it.
    """

    theta: Potentials
    #: :meth:`value` is a function of the state, not of the marginals.
    value_of_state: ClassVar[bool] = False

    @abstractmethod
    def init(self) -> np.ndarray:
        """Return the starting state."""

    @abstractmethod
    def sweep(self, state: np.ndarray, t: int) -> None:
        """Do iteration number ``t`` in place."""

    def sweeps(self, state: np.ndarray, first: int, last: int) -> None:
        """Do iterations ``first .. last - 1`` in place; engines override it to save calls."""
        for t in range(first, last):
            self.sweep(state, t)

    def record(self, states: np.ndarray, first: int) -> None:
        """Write to ``states[k + 1]`` what iteration ``first + k`` makes of ``states[k]``; overridden to save calls."""
        for k in range(len(states) - 1):
            states[k + 1] = states[k]
            self.sweep(states[k + 1], first + k)

    def unwind(self, states: np.ndarray, first: int, d_state: np.ndarray, d_theta: Adjoint) -> None:
        """Undo what :meth:`record` did: ``sweep_vjp`` from the last state to the first; overridden to save calls."""
        for k in range(len(states) - 2, -1, -1):
            self.sweep_vjp(states[k], states[k + 1], first + k, d_state, d_theta)

    @abstractmethod
    def beliefs(self, state: np.ndarray) -> np.ndarray:
        """Return the flat unary marginals of a state."""

    @abstractmethod
    def marginals(self, state: np.ndarray, factors: bool = True) -> Potentials:
        """Return all marginals of a state; without ``factors`` the factor tables are left empty."""

    @abstractmethod
    def log_partition(self, mu: Potentials) -> Any:
        """Return the approximate log Z, theta·mu + H(mu), of marginals."""

    @abstractmethod
    def adjoint(self) -> Adjoint:
        """Return an empty collector for ``d_theta``."""

    @abstractmethod
    def sweep_vjp(self, before: np.ndarray, after: np.ndarray, t: int, d_state: np.ndarray, d_theta: Adjoint) -> None:
        """Turn the adjoint of ``after`` into that of ``before``, in place, and add to ``d_theta``.

        ``after`` may be overwritten: the caller is done with it.
        """

    @abstractmethod
    def marginals_vjp(self, state: np.ndarray, d_mu: Potentials, d_state: np.ndarray, d_theta: Adjoint) -> None:
        """Add the adjoints of the state and of theta that ``d_mu`` causes; its factor tables may be left empty."""

    @abstractmethod
    def log_partition_vjp(self, mu: Potentials, d_theta: Adjoint, scale: float = 1.0) -> Potentials:
        """Return ``scale`` times d log_partition / d mu; add the explicit derivative to ``d_theta``."""

    #: Has messages that may still change when the marginals do not: see :meth:`most_changed`.
    has_messages: ClassVar[bool] = False

    def most_changed(self, before: np.ndarray, after: np.ndarray) -> tuple[float, int]:
        """Return the largest change of a finite log message, relative to 1 + |log m|, and its place; 0 where there are none.

        The arrays are states, or the same parts of two of them.
        """
        return 0.0, 0

    def upper_bound(self, state: np.ndarray) -> float:
        """Return an upper bound of log Z that holds at any state; inf where none is known."""
        return np.inf

    def value(self, state: np.ndarray, mu: Potentials) -> Any:
        """Return what a result reports as ``log_partition``; a method whose value is one of the state overrides it."""
        return self.log_partition(mu)

    def surplus(self, clamp: Clamp) -> float:
        """Return by how much :meth:`value` is too large where the fixed variables are free, and alone."""
        return 0.0

    def value_vjp(
        self, state: np.ndarray, mu: Potentials, d_state: np.ndarray, d_theta: Adjoint, scale: float = 1.0
    ) -> None:
        """Add ``scale`` times the adjoints of the state and of theta that :meth:`value` causes."""
        self.marginals_vjp(state, self.log_partition_vjp(mu, d_theta, scale), d_state, d_theta)


class Adjoint:
    """Collects the adjoint of theta's tables and of an engine's own parameters (``rho``, ``damping``, ``init``)."""

    def __init__(self, theta: Potentials, **parameters: np.ndarray) -> None:
        self.unary = np.zeros_like(theta.unary_flat)
        self.factors = np.zeros_like(theta.factors_flat)
        self.parameters = parameters

    def potentials(self, graph: Graph) -> Potentials:
        """Return d_theta as potentials."""
        return Potentials.from_flat(graph, self.unary, self.factors)


class WrappedEngine(Engine):
    """An engine whose iterations are those of another one, ``inner``, bound to a changed theta.

    A subclass says what the marginals and the adjoint of ``inner`` are for its own ``theta``.
    """

    def __init__(self, inner: Engine, theta: Potentials) -> None:
        self.inner = inner
        self.has_messages = inner.has_messages  # type: ignore[misc]
        self.theta = theta.astype(inner.theta.dtype)  # an engine may compute in a wider type

    def init(self) -> np.ndarray:
        """Return the starting state of the engine inside."""
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
        self.inner.unwind(states, first, d_state, inner_adjoint(d_theta))

    def sweep_vjp(self, before: np.ndarray, after: np.ndarray, t: int, d_state: np.ndarray, d_theta: Adjoint) -> None:
        """Turn the adjoint of ``after`` into that of ``before``."""
        self.inner.sweep_vjp(before, after, t, d_state, inner_adjoint(d_theta))

    def most_changed(self, before: np.ndarray, after: np.ndarray) -> tuple[float, int]:
        """Return the largest change of a message, and its place."""
        return self.inner.most_changed(before, after)


class WrappedAdjoint(Adjoint):
    """The collector of the engine inside; a subclass says what its adjoint is for the theta outside."""

    def __init__(self, inner: Adjoint) -> None:
        self.inner, self.parameters = inner, inner.parameters

    @abstractmethod
    def potentials(self, graph: Graph) -> Potentials:
        """Return d_theta as potentials."""


def inner_adjoint(d_theta: Adjoint) -> Adjoint:
    """Return the collector inside that of a :class:`WrappedEngine`."""
    assert isinstance(d_theta, WrappedAdjoint)
    return d_theta.inner
