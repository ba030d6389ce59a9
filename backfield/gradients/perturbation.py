"""Perturbation ([D13] §6): inference at theta moved along d_mu gives the gradient, because d mu / d theta is symmetric.

    d_theta ≈ ( mu(theta + r d_mu) - mu(theta - r d_mu) ) / 2r,
    r = m eps^(1/3) (1 + |theta|_inf) / |d_mu|_inf         (|theta|_inf over finite entries)

One-sided differences need one further inference, two-sided two, four-sided four.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from backfield.constraints import check_choice
from backfield.errors import InputError
from backfield.gradients.base import Gradient, LossFunction, Outcome, warn_unconverged, with_tables
from backfield.graph import Potentials
from backfield.inference.base import Inference, IterativeInference

#: For 1, 2, 4 sides: (steps in units of r, weights of the marginals there), divided by r.
_STENCILS = {
    1: ((1, 1.0), (0, -1.0)),
    2: ((1, 0.5), (-1, -0.5)),
    4: ((2, -1 / 12), (1, 8 / 12), (-1, -8 / 12), (-2, 1 / 12)),
}


@dataclass(frozen=True, repr=False)
class Perturbation(Gradient, name="perturbation"):
    """Finite differences of inference along d_mu, with 1, 2 or 4 ``sides`` and a ``multiplier`` of the step."""

    sides: int = 2
    multiplier: float = 1.0

    at_convergence: ClassVar[bool] = True
    through_engine: ClassVar[bool] = False

    def __post_init__(self) -> None:
        check_choice("sides", self.sides, _STENCILS, "perturbation")
        if not (isinstance(self.multiplier, int | float) and 0 < self.multiplier < np.inf):
            raise InputError(f"perturbation: multiplier must be a positive number, received {self.multiplier!r}.")

    def check(self, method: Inference) -> None:
        """Refuse methods whose Jacobian is not symmetric."""
        super().check(method)
        if not method.symmetric:
            raise InputError(
                f"perturbation needs a symmetric d mu / d theta, which {method.name} does not have; use 'truncated'."
            )

    def differentiate(self, method: Inference, theta: Potentials, loss: LossFunction, cliques: bool) -> Outcome:
        """Return the loss at ``theta`` and its derivative."""
        self.check(method)
        run = method.infer(theta)
        if isinstance(method, IterativeInference) and not run.converged:
            warn_unconverged(self, method, run.residual)
        value, d_mu = loss(run.marginals)
        direction = with_tables(d_mu).vector()
        largest = np.abs(direction).max(initial=0.0)
        if largest == 0:
            return Outcome(value, theta.like(np.zeros_like(direction)), run.marginals, run.n_iter, run.converged)
        vector = theta.vector()
        finite = np.abs(vector[np.isfinite(vector)]).max(initial=0.0)
        r = self.multiplier * np.finfo(theta.dtype).eps ** (1 / 3) * (1 + finite) / largest
        total = np.zeros_like(vector)
        for step, weight in _STENCILS[self.sides]:
            mu = run.marginals if step == 0 else method.infer(theta.like(vector + step * r * direction)).marginals
            total += weight * mu.vector()
        return Outcome(value, theta.like(total / r), run.marginals, run.n_iter, run.converged)
