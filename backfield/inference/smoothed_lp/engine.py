"""What all engines of the smoothed LP share: the order of stars, the value of marginals, and biases from messages.

Kernels count in units of eps: tables are theta / eps and the state is l = lambda / eps. A constant added to one message
lambda_alpha(y_v) cancels between Z_alpha and Z_v, so neither marginals nor the dual see it; each message is kept
with mean zero over the labels that are possible.

A label into which any message is -inf is *dead*, as in ``_messages_log``: where one region forbids it, the star update
sends its probability to zero in all regions around, and the dual is the limit of that.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, ClassVar

import numpy as np

from backfield.errors import InputError
from backfield.graph import Graph, Potentials
from backfield.graph.clamping import Clamp
from backfield.inference.base import Adjoint, Engine
from backfield.kernels.compile import exact_kernel

CHOICES = ("cyclic", "random", "greedy")


class Stars:
    """The order of stars in each sweep; ``cyclic`` is kept with the graph, ``random`` drawn from (seed, t)."""

    def __init__(self, graph: Graph, choice: str, schedule: str, seed: int) -> None:
        self.graph, self.choice, self.schedule, self.seed = graph, choice, schedule, seed

    def order(self, t: int) -> np.ndarray:
        """Return the stars of sweep ``t``; under ``greedy`` they are found on the way."""
        if self.choice == "random":
            return frozen(np.random.default_rng([self.seed, t]).permutation(self.graph.n_variables))
        cycle = self.graph.compiled(("stars", self.schedule), lambda: _cycle(self.graph, self.schedule))
        return cycle[t % len(cycle)]


def _cycle(graph: Graph, schedule: str) -> tuple[np.ndarray, ...]:
    """Return the orders that follow one another: variables forward and backward, or red, then black ones."""
    order = np.arange(graph.n_variables)
    if schedule == "lattice":
        assert graph.lattice is not None
        return (frozen(np.argsort(graph.lattice.colours(), kind="stable")),)
    return frozen(order), frozen(order[::-1])


def frozen(array: Any) -> np.ndarray:
    """Return whole numbers as kernels take those of graphs: contiguous and read-only."""
    array = np.ascontiguousarray(array, dtype=np.int64)
    array.flags.writeable = False
    return array


class SmoothedEngine(Engine):
    """Theta bound to tables theta / eps."""

    value_of_state: ClassVar[bool] = True

    def __init__(self, theta: Potentials, eps: float, stars: Stars) -> None:
        self.theta, self.eps, self.stars = theta, float(eps), stars

    @abstractmethod
    def dual(self, state: np.ndarray) -> Any:
        """Return A(lambda, theta) of a state: an upper bound of A(theta) that no sweep raises."""

    @abstractmethod
    def messages(self, state: np.ndarray) -> np.ndarray:
        """Return lambda of a state, one block for each slot of the graph."""

    @abstractmethod
    def state_of(self, messages: np.ndarray) -> np.ndarray:
        """Return the state of messages lambda: :meth:`init` for a warm start."""

    @abstractmethod
    def disagreement(self, mu: Potentials, scale: float, d_state: np.ndarray) -> None:
        """Add ``scale`` times dA / d lambda = mu_alpha(y_v) - mu_v(y_v), in units of the state."""

    def adjoint(self) -> Adjoint:
        """Return an empty collector for ``d_theta``."""
        return Adjoint(self.theta)

    def value(self, state: np.ndarray, mu: Potentials) -> Any:
        """Return the dual."""
        return self.dual(state)

    def surplus(self, clamp: Clamp) -> float:
        """Return eps log L for each fixed variable, its own region and all factors around it."""
        regions = 1 + self.theta.graph.degree[clamp.variables]
        return self.eps * float(regions @ np.log(self.theta.graph.labels[clamp.variables]))

    def value_vjp(
        self, state: np.ndarray, mu: Potentials, d_state: np.ndarray, d_theta: Adjoint, scale: float = 1.0
    ) -> None:
        """Add ``scale`` times the derivatives of the dual, which are the marginals and their disagreement."""
        d_theta.unary += mu.dtype.type(scale) * mu.unary_flat
        d_theta.factors += mu.dtype.type(scale) * mu.factors_flat
        self.disagreement(mu, scale, d_state)

    def log_partition(self, mu: Potentials) -> Any:
        """Return theta·mu + eps sum_alpha H(mu_alpha), to which the dual falls as the marginals come to agree."""
        zero = np.zeros(1, np.result_type(mu.dtype, np.float64))
        unary = _primal(self.theta.unary_flat, mu.unary_flat, self.eps, zero)
        return unary + _primal(self.theta.factors_flat, mu.factors_flat, self.eps, zero)

    def log_partition_vjp(self, mu: Potentials, d_theta: Adjoint, scale: float = 1.0) -> Potentials:
        """Return ``scale`` times theta + eps dH/dmu, and add ``scale`` times mu to ``d_theta``."""
        d_mu = Potentials.from_flat(mu.graph, np.empty_like(mu.unary_flat), np.empty_like(mu.factors_flat))
        numbers = mu.dtype.type(self.eps), mu.dtype.type(scale)
        _primal_vjp(self.theta.unary_flat, mu.unary_flat, *numbers, d_mu.unary_flat, d_theta.unary)
        _primal_vjp(self.theta.factors_flat, mu.factors_flat, *numbers, d_mu.factors_flat, d_theta.factors)
        return d_mu

    def contradiction(self, i: int) -> InputError:
        """Return the error for a variable that is left without a label."""
        return InputError(
            f"the potentials allow no label for variable {i}: the factors around it and what lies behind them forbid "
            "them all (-inf); no configuration is possible."
        )

    def impossible(self, c: int) -> InputError:
        """Return the error for a factor that is left without a configuration."""
        return InputError(
            f"the potentials allow no configuration of factor {c}: it and what lies around it forbid them all (-inf)."
        )


def scaled(values: np.ndarray, factor: float) -> np.ndarray:
    """Return ``factor`` times values; a complex -inf keeps its imaginary part, which a product would make NaN."""
    real = values.view(values.real.dtype)
    return (real * real.dtype.type(factor)).view(values.dtype)


def checked(graph: Graph, messages: Any, dtype: Any = None, size: int | None = None) -> np.ndarray:
    """Return messages as one contiguous array; refuse another number of them than ``size``, or than slots need."""
    messages = np.ascontiguousarray(messages, dtype)
    if size is None:
        size = graph.n_slots * graph.n_labels if graph.n_labels is not None else int(graph.layout.msg_ptr[-1])
    if messages.shape != (size,):
        raise InputError(f"messages of this graph are {size} numbers (smoothed_lp), received shape {messages.shape}.")
    return messages


def biases(graph: Graph, messages: np.ndarray, eps: float, delta: Potentials | None = None) -> Potentials:
    """Return the biases b_alpha(y_alpha) that messages put on each region: [L13] eq. (14).

    The marginals of these messages are those of logistic regressions with scores f and biases b, region by region:
    mu_alpha is the softmax of f_alpha + b_alpha where theta = eps f + delta.

    Parameters
    ----------
    graph : Graph
    messages : array
        lambda, one block for each slot (:meth:`SmoothedEngine.messages`).
    eps : float
    delta : Potentials, optional
        The margin Delta(y^k_alpha, y_alpha), zero where not given.
    """
    layout = graph.layout
    messages = checked(graph, messages)
    unary = np.zeros(int(layout.var_ptr[-1]), messages.dtype)
    factors = np.zeros(int(layout.table_ptr[-1]), messages.dtype)
    if delta is not None:
        unary += delta.unary_flat
        factors += delta.factors_flat
    _biases(layout, messages, messages.dtype.type(1 / eps), unary, factors)
    return Potentials.from_flat(graph, unary, factors)


@exact_kernel
def _biases(layout, messages, scale, unary, factors):
    """Add what the messages give to each region and take from each variable; all divided by eps."""
    low = messages.dtype.type(-np.inf)
    for k in range(len(layout.scope)):
        i, c = layout.scope[k], layout.slot_factor[k]
        step = layout.stride[k] * layout.labels[i]
        for x in range(layout.labels[i]):
            value = messages[layout.msg_ptr[k] + x]
            a = layout.var_ptr[i] + x
            unary[a] = low if value.real == -np.inf else unary[a] - value
            for block in range(layout.table_ptr[c] + x * layout.stride[k], layout.table_ptr[c + 1], step):
                for e in range(block, block + layout.stride[k]):
                    factors[e] += value
    for a in range(len(unary)):
        unary[a] *= scale
    for e in range(len(factors)):
        factors[e] *= scale


@exact_kernel
def _primal(theta, mu, eps, zero):
    total = zero[0]
    possible = True  # a complex number times -inf would be NaN
    for a in range(len(mu)):
        if mu[a].real > 0:
            possible &= theta[a].real > -np.inf
            total += mu[a] * (theta[a] - eps * np.log(mu[a]))
    return total if possible else zero.dtype.type(-np.inf)


@exact_kernel
def _primal_vjp(theta, mu, eps, scale, d_mu, d_theta):
    one = mu.dtype.type(1)
    for a in range(len(mu)):
        # mu = 0 stays 0: it comes from -inf, or from a number too small to matter.
        possible = mu[a].real > 0 and theta[a].real > -np.inf
        d_mu[a] = scale * (theta[a] - eps * (np.log(mu[a]) + one)) if possible else mu.dtype.type(0)
        d_theta[a] += scale * mu[a]
