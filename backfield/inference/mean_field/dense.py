"""Mean field with kernel groups: all pairs of variables coupled by Gaussian kernels, filtered instead of written out.

    z_i(a) = u_i(a) + [factors of the graph] + sum_m sum_b w_m C_m(a, b) (K_m q)_i(b),   q' ∝ exp(z)

([KK11] Alg. 1; all variables at once). A(q) = theta·mu + 1/2 sum_m <q, K_m q w_m C_m> + H(q) is a lower bound of log Z of
the model whose pairs are those of the filters, if these have no self terms and are not directed.

The parallel update may oscillate. The convergent one ([KK13] Krähenbühl and Koltun, "Parameter learning and convergent
inference for dense random fields") bounds A from below. Let no eigenvalue of its second derivative but that of H be below
-lambda. As q sums to one, |q - p|^2 <= KL(q | p) (Pinsker), and the maximum of the bound

    <q, z(p)> + H(q) - (lambda / 2) KL(q | p)

is the parallel update damped in the logarithm by lambda / (2 + lambda): closed, and A never falls.
Differs from [KK13]: there the bound is quadratic and every variable solves its own equation. Lambda is rounded up to a
power of two: it is constant where parameters move a little, and the derivative of the sweeps is exact.

The state is log q (n, L). Cost of a sweep: one filter for each kernel; of its adjoint: two, one if bandwidths are fixed.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from backfield.errors import InputError
from backfield.graph import Graph, Potentials
from backfield.inference.base import Adjoint
from backfield.inference.mean_field import general
from backfield.inference.mean_field.engine import MeanFieldEngine
from backfield.kernels.compile import kernel, label_count
from backfield.kernels.unrolled import small_array, unrolled_kernel
from backfield.kernels.vector_math import probability_exp, vector_log

#: Kernels are compiled for each number of labels up to this.
_MOST_UNROLLED = 32


class DenseEngine(MeanFieldEngine):
    """State: log q (n, L). Kernel groups beside any factors of the graph; all variables are updated at once."""

    def __init__(self, theta: Potentials, damping: float = 0.0, convergent: bool = False) -> None:
        super().__init__(theta)
        graph = theta.graph
        self.operators = [kernel.operator() for kernel in theta.kernels]
        self.unary = theta.unary
        assert graph.n_labels is not None
        self.width = label_count(graph.n_labels) if graph.n_labels <= _MOST_UNROLLED else ()
        self.pairs = graph.compiled("mean_field pairs", lambda: general.pairs_of(graph)) if graph.n_factors else None
        self.finite = self.pairs is None or bool(self.tables.factors_flat.min() > -np.inf)
        needed = _share(self.curvature()) if convergent else 0.0
        #: Share of the old log q that a sweep keeps.
        self.damping = max(float(damping), needed)

    def init(self) -> np.ndarray:
        """Return uniform marginals; variables with one possible label have it from the start."""
        possible = self.unary > -np.inf
        state = np.full_like(self.unary, -np.log(self.unary.shape[1]))
        fixed = possible.sum(axis=1) == 1
        if fixed.any():
            state[fixed] = np.where(possible[fixed], 0, -np.inf)
        return state

    def from_unary(self) -> np.ndarray:
        """Return the state of the unary terms alone, where [KK11] starts."""
        state = self.unary.copy()
        self._normalise(state, state, np.empty_like(state), 0.0)
        return state

    def adjoint(self) -> DenseAdjoint:
        """Return an empty collector."""
        return DenseAdjoint(self)

    def sweep(self, state: np.ndarray, t: int) -> None:
        """Update every variable once, from the old marginals of all."""
        self.sweeps(state, t, t + 1)

    def sweeps(self, state: np.ndarray, first: int, last: int) -> None:
        """Do iterations ``first .. last - 1``."""
        q = self.beliefs(state).reshape(state.shape)
        for _ in range(first, last):
            self._step(state, q, state)

    def record(self, states: np.ndarray, first: int) -> None:
        """Write every state."""
        q = self.beliefs(states[0]).reshape(states[0].shape)
        for k in range(len(states) - 1):
            self._step(states[k], q, states[k + 1])

    def _step(self, before: np.ndarray, q: np.ndarray, after: np.ndarray) -> None:
        """Write log q after an update to ``after``, which may be ``before``, and q itself to ``q``."""
        z = after if self.damping == 0 else np.empty_like(after)
        np.copyto(z, self.unary)
        self._add_pairs(q, z)
        self._normalise(z, before, q, self.damping, after)

    def _add_pairs(self, q: np.ndarray, z: np.ndarray) -> None:
        """Add what all factors and kernels say about the variables."""
        if self.pairs is not None:
            layout = self.theta.graph.layout
            flat = q.reshape(-1), z.reshape(-1)
            general.add_expectations(layout, self.pairs, self.width, self.finite, self.tables.factors_flat, *flat)
        for operator in self.operators:
            operator.add(q, z)

    def _normalise(
        self, z: np.ndarray, before: np.ndarray, q: np.ndarray, damping: float, after: np.ndarray | None = None
    ) -> None:
        bad = (_normalise if self.width else _normalise_any)(
            self.width, z, before, z.dtype.type(damping), z if after is None else after, q
        )
        if bad >= 0:
            raise InputError(
                f"mean field forbids every label of variable {bad}: each one is -inf, or meets -inf where the neighbours "
                "have positive probability."
            )

    def sweep_vjp(self, before: np.ndarray, after: np.ndarray, t: int, d_state: np.ndarray, d_theta: Adjoint) -> None:
        """Turn the adjoint of ``after`` into that of ``before``."""
        self._back(self._q(before), self._q(after), d_state, d_theta)

    def unwind(self, states: np.ndarray, first: int, d_state: np.ndarray, d_theta: Adjoint) -> None:
        """Undo what :meth:`record` did; marginals are computed once for each state."""
        q_after = self._q(states[-1])
        for k in range(len(states) - 2, -1, -1):
            q = self._q(states[k])
            self._back(q, q_after, d_state, d_theta)
            q_after = q

    def _q(self, state: np.ndarray) -> np.ndarray:
        return self.beliefs(state).reshape(state.shape)

    def _back(self, q: np.ndarray, q_after: np.ndarray, d_state: np.ndarray, d_theta: Adjoint) -> None:
        assert isinstance(d_theta, DenseAdjoint)
        # After this the adjoint of z is in d_z, and d_state holds what damping hands on.
        d_z, d_q = np.empty_like(d_state), np.zeros_like(d_state)
        _normalise_vjp(q_after, d_state.dtype.type(self.damping), d_state, d_z, d_theta.unary.reshape(d_z.shape))
        if self.pairs is not None:
            layout, flat = self.theta.graph.layout, (q.reshape(-1), d_z.reshape(-1), d_state.reshape(-1))
            tables = self.tables.factors_flat
            general.add_expectations_vjp(layout, self.pairs, self.width, tables, *flat, d_theta.factors)
        for operator, d in zip(self.operators, d_theta.kernels, strict=True):
            operator.vjp(q, d_z, d_q, d)
        _add_product(q, d_q, d_state)

    def beliefs(self, state: np.ndarray) -> np.ndarray:
        """Return q, flat."""
        q = np.empty(state.size, state.dtype)
        general.exponentials(state.reshape(-1), q)
        return q

    def marginals(self, state: np.ndarray, factors: bool = True) -> Potentials:
        """Return q, and the marginals of the graph's own factors as products."""
        mu_u = self.beliefs(state)
        mu_c = np.empty(len(self.tables.factors_flat) if factors else 0, self.theta.dtype)
        if factors and len(mu_c):
            general.products(self.theta.graph.layout, mu_u, mu_c)
        return Potentials.from_flat(self.theta.graph, mu_u, mu_c)

    def marginals_vjp(self, state: np.ndarray, d_mu: Potentials, d_state: np.ndarray, d_theta: Adjoint) -> None:
        """Add the adjoint of log q that ``d_mu`` causes."""
        general.add_marginals_vjp(self.theta.graph, self.beliefs(state), d_mu, d_state.reshape(-1))

    def log_partition(self, mu: Potentials) -> Any:
        """Return A(q) in double precision."""
        return super().log_partition(mu) + sum(operator.energy(mu.unary) for operator in self.operators)

    def log_partition_vjp(self, mu: Potentials, d_theta: Adjoint, scale: float = 1.0) -> Potentials:
        """Return ``scale`` times dA/dmu; add the explicit derivative to ``d_theta``."""
        assert isinstance(d_theta, DenseAdjoint)
        d_mu = super().log_partition_vjp(mu, d_theta, scale)
        q, pairs = mu.unary, np.zeros_like(mu.unary)
        for operator, d in zip(self.operators, d_theta.kernels, strict=True):
            operator.add(q, pairs)
            operator.add_energy_vjp(q, scale, d)
        d_mu.unary_flat += np.where(mu.unary_flat > 0, mu.dtype.type(scale) * pairs.reshape(-1), 0)
        return d_mu

    def curvature(self) -> float:
        """Return lambda of all kernels and of the graph's own factors."""
        if not self.finite:
            raise InputError("schedule='convergent' of mean_field needs factors without -inf; use schedule='flooding'.")
        listed = 0.0 if self.pairs is None else float(_curvature(self.theta.graph.layout, self.tables.factors_flat))
        return listed + sum(operator.curvature() for operator in self.operators)


class DenseAdjoint(Adjoint):
    """Collects the adjoint of unary tables, of the graph's own factors, and of each kernel's parameters."""

    def __init__(self, engine: DenseEngine) -> None:
        super().__init__(engine.tables)
        self.operators = engine.operators
        self.kernels = [operator.adjoint() for operator in engine.operators]

    def potentials(self, graph: Graph) -> Potentials:
        """Return d_theta; what was collected for the kernels is used up."""
        pairs = zip(self.operators, self.kernels, strict=True)
        own = super().potentials(graph)
        return own.with_kernels([operator.gradient(d) for operator, d in pairs])


def _share(curvature: float) -> float:
    """Return the share of the old log q that makes updates convergent."""
    if curvature == 0:
        return 0.0
    rounded = 2.0 ** np.ceil(np.log2(curvature))
    return float(rounded / (2 + rounded))


@unrolled_kernel
def _normalise(width, z, before, damping, after, q):
    """Write log q = z - log sum exp z, of z mixed with log q before where damped, and q.

    Return the first variable without a possible label, or -1. A block of rows at a time, so exponentials run through
    contiguous numbers. ``after`` may be ``z`` or ``before``.
    """
    n, n_labels = len(q), len(width)
    flat_q, row = q.reshape(-1), small_array(width, q)
    low, zero = q.dtype.type(-np.inf), q.dtype.type(0)
    keep, take = damping, q.dtype.type(1) - damping
    totals = np.empty(64, q.dtype)
    for first in range(0, n, 64):
        last = min(first + 64, n)
        y = flat_q[first * n_labels : last * n_labels]
        for i in range(last - first):
            for a in range(n_labels):
                row[a] = z[first + i, a]
            if keep > zero:
                for a in range(n_labels):
                    alive = row[a] > low and before[first + i, a] > low
                    row[a] = take * row[a] + keep * before[first + i, a] if alive else low
            top = row[0]
            for a in range(1, n_labels):
                top = max(top, row[a])
            if not top > low:
                return first + i
            for a in range(n_labels):
                y[i * n_labels + a] = row[a] - top
                after[first + i, a] = row[a] - top
        for x in range(len(y)):
            y[x] = probability_exp(y[x])
        for i in range(last - first):
            for a in range(n_labels):
                row[a] = y[i * n_labels + a]
            total = row[0]
            for a in range(1, n_labels):
                total += row[a]
            totals[i] = total
            inverse = q.dtype.type(1) / total
            for a in range(n_labels):
                y[i * n_labels + a] = inverse * row[a]
        for i in range(last - first):
            totals[i] = vector_log(totals[i])
        for i in range(last - first):
            for a in range(n_labels):
                after[first + i, a] -= totals[i]
    return -1


@kernel
def _normalise_any(width, z, before, damping, after, q):
    """Do what ``_normalise`` does for any number of labels."""
    low, zero = q.dtype.type(-np.inf), q.dtype.type(0)
    keep, take = damping, q.dtype.type(1) - damping
    for i in range(len(q)):
        x, y = after[i], q[i]
        top = low
        for a in range(len(x)):
            value = z[i, a]
            if keep > zero:
                alive = value > low and before[i, a] > low
                value = take * value + keep * before[i, a] if alive else low
            x[a] = value
            top = max(top, value)
        if not top > low:
            return i
        total = zero
        for a in range(len(x)):
            x[a] -= top
            y[a] = probability_exp(x[a])
            total += y[a]
        inverse, shift = q.dtype.type(1) / total, np.log(total)
        for a in range(len(x)):
            y[a] *= inverse
            x[a] -= shift
    return -1


@kernel
def _normalise_vjp(q, damping, d_state, d_z, d_unary):
    """Turn the adjoint of log q to that of z, added to d_unary, and of log q before."""
    take = q.dtype.type(1) - damping
    for i in range(len(q)):
        total = q.dtype.type(0)
        for a in range(q.shape[1]):
            total += d_state[i, a]
        for a in range(q.shape[1]):
            d = d_state[i, a] - q[i, a] * total
            d_z[i, a] = take * d
            d_unary[i, a] += take * d
            d_state[i, a] = damping * d


@kernel
def _add_product(q, d_q, d_state):
    for i in range(len(q)):
        for a in range(q.shape[1]):
            d_state[i, a] += q[i, a] * d_q[i, a]


@kernel
def _curvature(layout, tables):
    """Return the largest sum, over the factors of a variable, of bounds of their second derivatives.

    Between two variables a factor has at most half the range of its table in absolute sums, so L times that in squares.
    """
    rows = np.zeros(len(layout.labels))
    for c in range(len(layout.table_ptr) - 1):
        low = high = tables[layout.table_ptr[c]]
        for e in range(layout.table_ptr[c], layout.table_ptr[c + 1]):
            low, high = min(low, tables[e]), max(high, tables[e])
        first, last = layout.scope_ptr[c], layout.scope_ptr[c + 1]
        for k in range(first, last):
            i = layout.scope[k]
            rows[i] += (last - first - 1) * layout.labels[i] * np.float64(high - low) / 2
    return rows.max()
