"""The perturb-and-MAP likelihood ([S18] Alg. 1): log-partition functions replaced by maxima under Gumbel noise.

    A_G(theta) - A_G(theta | labels)

with one draw of noise per step (``n_samples``) that both terms share. The gradient is f(y_A) - f(y_B), the difference of
the maximisers' indicators. What is hidden is maximised out in the second term.

# Differs from [S18]: A <= A_G makes f - A_G a lower bound of log P; the text prints the opposite sign.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from backfield.errors import InputError
from backfield.graph import Potentials
from backfield.inference.conditioned import Conditioned
from backfield.inference.sampling.perturb_and_map import gumbel, maximiser
from backfield.map_solvers.auto import chain_solver_supports
from backfield.objectives.base import Objective, Setting, Target, is_complete


def check_samples(objective: Any) -> None:
    """Refuse a number of samples that is not one."""
    if isinstance(objective.n_samples, bool) or not isinstance(objective.n_samples, int) or objective.n_samples < 1:
        raise InputError(f"{objective.name}: n_samples must be an integer >= 1, received {objective.n_samples!r}.")


@dataclass(frozen=True, repr=False)
class PerturbAndMapLikelihood(Objective, name="perturb_and_map"):
    """Minus the perturb-and-MAP log-likelihood, with ``n_samples`` draws of noise from the step's seed."""

    n_samples: int = 1
    solver: str = "auto"

    needs_inference: ClassVar[bool] = False
    smooth: ClassVar[bool] = False

    def __post_init__(self) -> None:
        check_samples(self)

    def supports(self, theta: Potentials, setting: Setting) -> bool:
        """Whether theta holds tables, or what Viterbi's algorithm runs on."""
        return theta.has_tables_only or chain_solver_supports(self.solver, theta)

    def separable(self, theta: Potentials, setting: Setting) -> bool:
        """Where Viterbi's algorithm runs on the groups as they are: other solvers may choose by the whole graph."""
        return not theta.has_tables_only and chain_solver_supports(self.solver, theta)

    def merges(self, target: Target) -> bool:
        """Where all labels are known, and count the same."""
        return is_complete(target) and target.weights is None

    def value_and_dtheta(self, theta: Potentials, target: Target, setting: Setting) -> tuple[Any, Potentials]:
        """Return the value under this step's noise and its gradient."""
        value = 0.0
        d_theta = np.zeros_like(theta.vector())
        complete = target.observed is None and bool(target.labeling.known.all())
        models = [(1, Conditioned(theta, target.observed))]
        if complete:  # nothing to maximise, and no model to restrict
            value -= self.n_samples * theta.score(target.labeling.labels)
            d_theta -= self.n_samples * theta.indicators(target.labeling.labels).vector()
        else:
            models.append((-1, Conditioned(theta, target.known(theta.graph))))
        for m in range(self.n_samples):
            noise = gumbel(theta, setting.seeds or setting.seed, m)
            for sign, model in models:
                best, indicator = _maximum(model, noise, self.solver)
                value += sign * best
                d_theta += sign * theta.contract(indicator).vector()
        return value / self.n_samples, theta.adjoint(d_theta / self.n_samples)


def _maximum(model: Conditioned, noise: np.ndarray, solver: str) -> tuple[float, Potentials]:
    """Return the maximum of a conditioned model with noise on its free variables, and f of the maximiser."""
    if model.theta is None:
        return float(model.constant), model.expand(None)
    labels, value, _ = maximiser(model.theta, solver)(free_noise(model, noise))
    return value + float(model.constant), model.expand(model.theta.indicators(labels))


def free_noise(model: Conditioned, noise: np.ndarray) -> np.ndarray:
    """Return the noise of the labels that a conditioned model leaves free, flat as its unary tables."""
    if model.restriction is None:
        return noise
    place = model.restriction.target[: len(noise)]
    free = (place >= 0) & (place < model.restriction.n_unary)
    reduced = np.zeros(model.restriction.n_unary)
    reduced[place[free]] = noise[free]
    return reduced
