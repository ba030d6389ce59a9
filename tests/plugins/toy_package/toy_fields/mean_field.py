"""Mean field, all variables at once."""

from dataclasses import dataclass

import numpy as np

from backfield.errors import InputError
from backfield.graph import Potentials
from backfield.inference.base import Adjoint, Engine, IterativeInference


class ParallelEngine(Engine):
    """The state is q, (n, L)."""

    def __init__(self, theta):
        self.theta = theta
        # -inf times a marginal of zero is no number: a large finite one, whose exponential is zero, does the same.
        self.unary, self.tables = (np.where(x == -np.inf, -1e9, x) for x in (theta.unary, theta.factors))
        scope = theta.graph.layout.scope.reshape(-1, 2)
        self.left, self.right = scope[:, 0], scope[:, 1]

    def init(self):
        return np.full_like(self.theta.unary, 1 / self.theta.graph.n_labels)

    def sweep(self, state, t):
        a = self.unary.copy()
        np.add.at(a, self.left, np.einsum("eab,eb->ea", self.tables, state[self.right]))
        np.add.at(a, self.right, np.einsum("eab,ea->eb", self.tables, state[self.left]))
        a = np.exp(a - a.real.max(axis=1, keepdims=True))
        state[:] = a / a.sum(axis=1, keepdims=True)

    def beliefs(self, state):
        return state.reshape(-1).copy()

    def marginals(self, state, factors=True):
        pairs = state[self.left][:, :, None] * state[self.right][:, None] if factors else state[:0]
        return Potentials.from_flat(self.theta.graph, self.beliefs(state), pairs.reshape(-1))

    def log_partition(self, mu):
        q = np.where(mu.unary_flat == 0, 1, mu.unary_flat)
        energy = self.unary.reshape(-1) @ mu.unary_flat + self.tables.reshape(-1) @ mu.factors_flat
        return energy - (mu.unary_flat * np.log(q)).sum()

    # ---- adjoints: each adds to d_theta; sweep_vjp replaces d_state, the others add to it ----

    def adjoint(self):
        return Adjoint(self.theta)

    def sweep_vjp(self, before, after, t, d_state, d_theta):
        d_a = after * (d_state - (after * d_state).sum(axis=1, keepdims=True))  # through the softmax
        d_theta.unary += d_a.reshape(-1)
        left, right = d_a[self.left], d_a[self.right]
        d_tables = left[:, :, None] * before[self.right][:, None] + before[self.left][:, :, None] * right[:, None]
        d_theta.factors += d_tables.reshape(-1)
        d_state[:] = 0
        np.add.at(d_state, self.right, np.einsum("eab,ea->eb", self.tables, left))
        np.add.at(d_state, self.left, np.einsum("eab,eb->ea", self.tables, right))

    def marginals_vjp(self, state, d_mu, d_state, d_theta):
        d_state += d_mu.unary
        if d_mu.factors_flat.size:  # univariate losses leave it empty
            np.add.at(d_state, self.left, np.einsum("eab,eb->ea", d_mu.factors, state[self.right]))
            np.add.at(d_state, self.right, np.einsum("eab,ea->eb", d_mu.factors, state[self.left]))

    def log_partition_vjp(self, mu, d_theta, scale=1.0):
        d_theta.unary += scale * mu.unary_flat
        d_theta.factors += scale * mu.factors_flat
        d_unary = scale * (self.unary.reshape(-1) - np.log(np.where(mu.unary_flat == 0, 1, mu.unary_flat)) - 1)
        return Potentials.from_flat(mu.graph, d_unary, scale * self.tables.reshape(-1))


@dataclass(frozen=True, repr=False)
class ParallelMeanField(IterativeInference, name="parallel_mean_field"):
    """Mean field, every variable from the old marginals of its neighbours."""

    n_iter: int = 20
    tol: float | None = None

    factorised = True

    def engine(self, theta):
        if theta.graph.n_labels is None or (theta.graph.n_factors and theta.graph.arity != 2):
            raise InputError(f"{self.name} is for pairs of variables with one label count.")
        return ParallelEngine(theta)
