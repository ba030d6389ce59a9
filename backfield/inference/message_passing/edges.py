"""What all engines of pairwise graphs with one label count share: places of messages, beliefs, log Z, their adjoints.

A visit of variable i multiplies its incoming messages once and sends to some or all of its neighbours. Messages into one
variable lie side by side. How a message goes through a table is left to the engines.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, NamedTuple

import numpy as np

from backfield.graph import Graph, Potentials
from backfield.inference.base import Adjoint
from backfield.inference.message_passing.engine import MessageEngine, uniform_power
from backfield.inference.schedule import Schedule
from backfield.kernels.compile import kernel, label_count
from backfield.kernels.messages import combine
from backfield.kernels.unrolled import small_array, unrolled_kernel


class Links(NamedTuple):
    """Index arrays of a pairwise graph; *places* number the messages in a streaming order."""

    start: np.ndarray  # (n,) first place of the messages into a variable, ...
    stop: np.ndarray  # (n,) ... and the place after its last
    place: np.ndarray  # (S,) place of a slot
    reverse: np.ndarray  # (S,) place of the message over the same edge, the other way
    edge: np.ndarray  # (S,) number of the edge of a place, counted at the first of its two places


class Visits(NamedTuple):
    """A schedule as visits: variable ``variable[g]`` sends over its places ``sends[ptr[g]:ptr[g+1]]``."""

    variable: np.ndarray
    ptr: np.ndarray
    sends: np.ndarray


def links(graph: Graph, schedule: Schedule) -> Links:
    """Number the places variable by variable in the order of visits, so a sweep streams through memory."""
    scope = graph.layout.scope
    sender = scope[schedule.order ^ 1]
    seen, first = np.unique(sender, return_index=True)
    position = np.full(graph.n_variables, graph.n_slots)
    position[seen] = first
    by_place = np.lexsort((np.arange(graph.n_slots), position[scope]))
    place = np.empty(graph.n_slots, dtype=np.int64)
    place[by_place] = np.arange(graph.n_slots)
    receiver = scope[by_place]
    reverse = place[by_place ^ 1]
    here = np.arange(graph.n_slots)
    edge = (np.cumsum(here < reverse) - 1)[np.minimum(here, reverse)]
    start = np.zeros(graph.n_variables, dtype=np.int64)
    change = np.flatnonzero(np.diff(receiver, prepend=-1))
    start[receiver[change]] = change
    return Links(*map(_frozen, (start, start + graph.degree, place, reverse, edge)))


def visits(graph: Graph, schedule: Schedule) -> Visits:
    """Group an order of slots into visits; messages of one sender do not see each other."""
    place = schedule.compiled(graph, "links", links).place
    back = schedule.order ^ 1  # the slot over which the sender of a message listens
    sender = graph.layout.scope[back]
    first = np.flatnonzero(np.diff(sender, prepend=-1))
    return Visits(_frozen(sender[first]), _frozen(np.append(first, len(sender))), _frozen(place[back]))


def _frozen(array: np.ndarray) -> np.ndarray:
    array = np.ascontiguousarray(array)
    array.flags.writeable = False
    return array


class EdgeEngine(MessageEngine):
    """State: messages (S, L), each summing to one, in the order of places."""

    def __init__(self, theta: Potentials, rho: np.ndarray, schedule: Schedule, damping: float) -> None:
        super().__init__(theta, np.ascontiguousarray(rho, dtype=np.float64), schedule, damping)
        graph = theta.graph
        assert graph.n_labels is not None
        self.count = label_count(graph.n_labels)
        self.links: Links = schedule.compiled(graph, "links", links)
        self.visits: Visits = schedule.compiled(graph, "visits", visits)
        # None, not a number, where kernels shall be compiled without a branch.
        self.uniform = uniform_power(rho)
        self.keep = damping if damping > 0 else None
        self.powers = np.empty(graph.n_slots, theta.dtype)
        self.powers[self.links.place] = np.repeat(self.rho, 2)
        self.psi_unary = np.empty((graph.n_variables, graph.n_labels), theta.dtype)
        shift(theta.unary, np.ones(graph.n_variables), self.psi_unary)
        np.exp(self.psi_unary, out=self.psi_unary)  # numpy's exp is vectorised, numba's is not

    def init(self) -> np.ndarray:
        """Return uniform messages."""
        shape = self.theta.graph.n_slots, len(self.count)
        return np.full(shape, 1 / len(self.count), self.theta.dtype)

    def sweep(self, state: np.ndarray, t: int) -> None:
        """Update every message once."""
        self.sweeps(state, t, t + 1)

    def beliefs(self, state: np.ndarray) -> np.ndarray:
        """Return mu(x_i) for all variables."""
        mu = np.empty_like(self.psi_unary)
        _beliefs(self.count, self.links, self.uniform, self.powers, self.psi_unary, state, mu)
        return mu.reshape(-1)

    @abstractmethod
    def factor_beliefs(self, unary: np.ndarray, state: np.ndarray, mu: np.ndarray) -> None:
        """Write mu(x_c) (F, L, L), given mu(x_i) (n, L)."""

    def marginals(self, state: np.ndarray, factors: bool = True) -> Potentials:
        """Return mu(x_i) and mu(x_c)."""
        graph, count = self.theta.graph, len(self.count)
        unary = self.beliefs(state)
        mu = np.empty((graph.n_factors if factors else 0, count, count), self.theta.dtype)
        if factors:
            self.factor_beliefs(unary.reshape(self.psi_unary.shape), state, mu)
        return Potentials.from_flat(graph, unary, mu.reshape(-1))

    def log_partition(self, mu: Potentials) -> Any:
        """Return theta·mu + H(mu)."""
        theta = self.theta
        with np.errstate(divide="ignore"):
            logs = np.log(mu.unary), np.log(mu.factors)
        return log_partition(theta.graph.factors, self.rho, theta.unary, theta.factors, mu.unary, mu.factors, *logs)

    def marginals_vjp(self, state: np.ndarray, d_mu: Potentials, d_state: np.ndarray, d_theta: Adjoint) -> None:
        """Add the adjoints that ``d_mu`` causes."""
        count = len(self.count)
        tables = bool(d_mu.factors_flat.size)
        mu = self.marginals(state, factors=tables)
        values = [mu.unary, d_mu.unary, *(x.factors_flat.reshape(-1, count, count) for x in (mu, d_mu))]
        d_factors = (d_theta.factors if tables else mu.factors_flat).reshape(-1, count, count)
        into = d_state, d_theta.unary.reshape(self.psi_unary.shape), d_factors
        _marginals_vjp(self.count, self.links, self.theta.graph.factors, self.rho, self.powers, *values, *into)


@kernel
def shift(theta, rho, out):
    """Write (theta - max) / rho for each table."""
    for c in range(len(theta)):
        top = theta[c, 0]
        for e in range(1, theta.shape[1]):
            top = max(top, theta[c, e])
        scale = out.dtype.type(1 / rho[c])
        for e in range(theta.shape[1]):
            out[c, e] = (theta[c, e] - top) * scale


@unrolled_kernel
def _beliefs(count, links, uniform, powers, psi_u, m, mu):
    L = len(count)
    dtype = m.dtype
    p = small_array(count, m)
    for i in range(len(psi_u)):
        combine(count, links, i, uniform, powers, psi_u, m, p)
        total = dtype.type(0)
        for a in range(L):
            total += p[a]
        scale = dtype.type(1) / total
        for a in range(L):
            mu[i, a] = p[a] * scale


@kernel
def log_partition(scopes, rho, theta_u, theta_c, mu_u, mu_c, log_u, log_c):
    """Return theta·mu + H(mu)."""
    L = mu_u.shape[1]
    total = 0.0
    for i in range(len(mu_u)):
        for a in range(L):
            if mu_u[i, a] > 0:
                total += mu_u[i, a] * (theta_u[i, a] - log_u[i, a])
    for c in range(len(scopes)):
        i, j = scopes[c, 0], scopes[c, 1]
        for a in range(L):
            for b in range(L):
                if mu_c[c, a, b] > 0:
                    information = log_c[c, a, b] - log_u[i, a] - log_u[j, b]
                    total += mu_c[c, a, b] * (theta_c[c, a, b] - rho[c] * information)
    return total


@kernel
def _marginals_vjp(count, links, scopes, rho, powers, mu_u, d_mu_u, mu_c, d_mu_c, d_state, d_unary, d_factors):
    L = len(count)
    zero = mu_u.dtype.type(0)
    running = np.zeros_like(d_unary)
    column = np.empty(L, mu_u.dtype)
    for i in range(len(mu_u)):
        mean = zero
        for a in range(L):
            mean += mu_u[i, a] * d_mu_u[i, a]
        for a in range(L):
            running[i, a] = mu_u[i, a] * (d_mu_u[i, a] - mean)
    for c in range(len(mu_c)):
        here, there = links.place[2 * c], links.place[2 * c + 1]
        i, j = scopes[c, 0], scopes[c, 1]
        scale = mu_u.dtype.type(1 / rho[c])
        mean = zero
        for a in range(L):
            for b in range(L):
                mean += mu_c[c, a, b] * d_mu_c[c, a, b]
        for b in range(L):
            column[b] = zero
        for a in range(L):
            row = zero
            for b in range(L):
                nu = mu_c[c, a, b] * (d_mu_c[c, a, b] - mean)
                d_factors[c, a, b] += scale * nu
                column[b] += nu
                row += nu
            running[i, a] += row
            d_state[here, a] -= row
        for b in range(L):
            running[j, b] += column[b]
            d_state[there, b] -= column[b]
    for i in range(len(mu_u)):
        for s in range(links.start[i], links.stop[i]):
            for a in range(L):
                d_state[s, a] += powers[s] * running[i, a]
        for a in range(L):
            d_unary[i, a] += running[i, a]
