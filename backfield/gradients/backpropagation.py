"""Back-propagation at convergence ([D13] §7.2 end; Eaton & Ghahramani).

The sweep at the fixed point is undone again and again until the adjoint of the messages has died out. No tape: one state
is kept.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from backfield.errors import ConvergenceWarning, InputError
from backfield.gradients.base import Gradient, LossFunction, Outcome, warn_unconverged
from backfield.graph import Potentials
from backfield.inference.base import IterativeInference


@dataclass(frozen=True, repr=False)
class Backpropagation(Gradient, name="backpropagation"):
    """Undo sweeps until the adjoint of the state has shrunk to ``tol`` of what it was, ``n_iter`` times at the most."""

    tol: float = 1e-6
    n_iter: int = 10000

    at_convergence: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if not (isinstance(self.tol, int | float) and 0 < self.tol < np.inf):
            raise InputError(f"backpropagation: tol must be a positive number, received {self.tol!r}.")

    def through_iterations(
        self, method: IterativeInference, theta: Potentials, loss: LossFunction, cliques: bool
    ) -> Outcome:
        """Return the loss at ``theta`` and its derivative."""
        engine = method.bind(theta)
        state = engine.init()
        run = method.ending(method.iterate(engine, state))
        if not run.converged:
            warn_unconverged(self, method, run.residual)
        mu = engine.marginals(state, factors=cliques)
        value, d_mu = loss(mu)
        d_theta = engine.adjoint()
        d_state = np.zeros_like(state)
        engine.marginals_vjp(state, d_mu, d_state, d_theta)
        # Relative: losses that are means over many variables have small adjoints from the start.
        small = self.tol * np.abs(d_state).max(initial=0.0)
        for step in range(self.n_iter):
            # Sweeps of an alternating schedule are undone in turn; which comes first does not matter at a fixed point.
            engine.sweep_vjp(state, state.copy(), step, d_state, d_theta)
            if np.abs(d_state).max(initial=0.0) <= small:
                break
        else:
            warnings.warn(
                f"{self!r} did not reach its tolerance in {self.n_iter} steps; the fixed point of {method!r} is close to "
                "unstable: use damping or the gradient 'truncated'.",
                ConvergenceWarning,
                stacklevel=4,
            )
        return Outcome(value, d_theta.potentials(theta.graph), mu, run.n_iter, run.converged)
