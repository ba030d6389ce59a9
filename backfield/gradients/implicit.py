"""Implicit differentiation at the fixed point ([D13] §5).

The converged state solves s = S(s, theta). With J = dS/ds, z = (I - J')^-1 d_s, and d_theta = (dS/dtheta)' z. The linear
system is solved by GMRES, for which a product with J' is one undone sweep; nothing is stored but vectors of the
state's size.

``system="explicit"`` solves the sparse system of the theorem in [D13] §5 instead, for small models and as a reference:

    [[D, B'], [B, 0]] [g; l] = [-d_mu; 0]      by least squares, with D = d²H/dmu² and B mu = d the local polytope

# Differs from [D13]: D is singular where 1 - sum_c rho_c = 0 and B has dependent rows, so D cannot be inverted.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from backfield.errors import InputError
from backfield.gradients.base import Gradient, LossFunction, Outcome, warn_unconverged, with_tables
from backfield.graph import Graph, Potentials
from backfield.inference.base import Engine, Inference, IterativeInference
from backfield.inference.message_passing.families import MessagePassing

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix

_LARGEST_EXPLICIT = 4000


@dataclass(frozen=True, repr=False)
class Implicit(Gradient, name="implicit"):
    """Solve the linear system of the fixed point, to a relative residual of ``rtol``."""

    rtol: float = 1e-10
    system: str = "matrix_free"

    at_convergence: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if self.system not in ("matrix_free", "explicit"):
            raise InputError(f"implicit: system must be 'matrix_free' or 'explicit', received {self.system!r}.")

    def check(self, method: Inference) -> None:
        """Refuse the explicit system for methods that it does not describe."""
        super().check(method)
        if self.system == "explicit" and not isinstance(method, MessagePassing):
            raise InputError(
                f"the explicit system of implicit describes loopy_bp and tree_reweighted, not {method.name}; "
                "use system='matrix_free' or the gradient 'truncated'."
            )

    def through_iterations(
        self, method: IterativeInference, theta: Potentials, loss: LossFunction, cliques: bool
    ) -> Outcome:
        """Return the loss at ``theta`` and its derivative."""
        engine = method.bind(theta)
        state = engine.init()
        run = method.ending(method.iterate(engine, state))
        if not run.converged:
            warn_unconverged(self, method, run.residual)
        mu = engine.marginals(state)
        value, d_mu = loss(mu)
        if self.system == "explicit":
            assert isinstance(method, MessagePassing)
            rho = method.counting_numbers(theta.graph)
            d_theta = _explicit(mu, rho, with_tables(d_mu))
        else:
            d_theta = self._solve(engine, state, d_mu)
        return Outcome(value, d_theta, mu, run.n_iter, run.converged)

    def _solve(self, engine: Engine, state: np.ndarray, d_mu: Potentials) -> Potentials:
        d_theta = engine.adjoint()
        right = np.zeros_like(state)
        engine.marginals_vjp(state, d_mu, right, d_theta)

        def undo(z: np.ndarray, into: Any) -> np.ndarray:
            """Return J' z for the two sweeps of an alternating schedule."""
            d_state = z.reshape(state.shape).astype(state.dtype)
            for t in (1, 0):
                engine.sweep_vjp(state, state.copy(), t, d_state, into)
            return d_state.reshape(-1)

        from scipy.sparse.linalg import LinearOperator, gmres

        operator = LinearOperator(
            (state.size, state.size), matvec=lambda z: z - undo(z, engine.adjoint()), dtype=state.dtype
        )
        z, info = gmres(operator, right.reshape(-1), rtol=self.rtol, atol=0.0, restart=60, maxiter=200)
        if info != 0:
            raise InputError(
                "implicit: the linear system of the fixed point could not be solved (the fixed point is singular or "
                "inference has not converged); use the gradient 'truncated'."
            )
        undo(z, d_theta)
        return d_theta.potentials(engine.theta.graph)


def _explicit(mu: Potentials, rho: np.ndarray, d_mu: Potentials) -> Potentials:
    """Solve the system of the theorem in [D13] §5 by dense least squares."""
    graph = mu.graph
    size = len(mu.vector())
    if size > _LARGEST_EXPLICIT:
        raise InputError(f"the explicit system has {size} unknowns, over {_LARGEST_EXPLICIT}; use system='matrix_free'.")
    constraints = _local_polytope(graph)
    around = np.bincount(graph.layout.scope, weights=rho[graph.layout.slot_factor], minlength=graph.n_variables)
    weight = np.concatenate([np.repeat(1 - around, graph.labels), np.repeat(rho, np.diff(graph.layout.table_ptr))])
    values, d_theta = mu.vector(), np.zeros(size)
    possible = np.flatnonzero(values > np.finfo(values.dtype).tiny)  # a forbidden entry stays zero
    constraints = constraints[:, possible]
    from scipy.sparse import bmat, diags

    curvature = diags(-weight[possible] / values[possible])
    system = bmat([[curvature, constraints.T], [constraints, None]]).toarray()
    right = np.concatenate([-d_mu.vector()[possible], np.zeros(constraints.shape[0])])
    d_theta[possible] = np.linalg.lstsq(system, right, rcond=None)[0][: len(possible)]
    return mu.like(d_theta)


def _local_polytope(graph: Graph) -> csr_matrix:
    """Return B of eq. (15): each variable sums to one, each factor sums to its variables."""
    layout = graph.layout
    n_unary = int(layout.var_ptr[-1])
    entries: list[tuple[int, int, float]] = []
    for i in range(graph.n_variables):
        for a in range(layout.var_ptr[i], layout.var_ptr[i + 1]):
            entries.append((i, a, 1.0))
    row = graph.n_variables
    for k in range(graph.n_slots):
        i, c = layout.scope[k], layout.slot_factor[k]
        for x in range(graph.labels[i]):
            entries.append((row + x, layout.var_ptr[i] + x, -1.0))
        for e in range(layout.table_ptr[c + 1] - layout.table_ptr[c]):
            x = e // layout.stride[k] % graph.labels[i]
            entries.append((row + x, n_unary + layout.table_ptr[c] + e, 1.0))
        row += graph.labels[i]
    rows, columns, values = zip(*entries, strict=True)
    from scipy.sparse import csr_matrix

    return csr_matrix((values, (rows, columns)), shape=(row, n_unary + int(layout.table_ptr[-1])))
