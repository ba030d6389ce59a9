"""Likelihood gradients whose expectation is replaced by something cheaper ([K05] §3.1, §4).

    d_theta = (replacement of the expected f) - f(labels)

==========================  ==============================================================================
pseudo_marginal (PMA)       pseudo-marginals of inference
maximum_marginal (MMA)      indicators of the labels with the largest marginals (MPM)
saddle_point (SPA)          indicators of the MAP labels: the perceptron, the only one with an objective
contrastive_divergence      indicators of a Gibbs sample that started at the labels
==========================  ==============================================================================

All but SPA are not gradients of anything ([K05] §7.2): their value is the number of errors, they declare
``integrable = False``, and L-BFGS refuses them. Hidden variables are clamped out by the same replacement with the known
labels fixed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from backfield.errors import InputError
from backfield.graph import Potentials
from backfield.graph.conditioning import Restriction
from backfield.graph.labeling import one_hot
from backfield.inference.gibbs import gibbs_chain
from backfield.map_solvers.auto import solve
from backfield.objectives._base import Conditioned, Objective, Setting, Target, argmax_labels, both, count_errors


class Replacement(Objective):
    """An objective whose gradient is the difference of two replacements, free and clamped to the labels."""

    integrable: ClassVar[bool] = False
    smooth: ClassVar[bool] = False

    def replacement(self, theta: Potentials, setting: Setting, target: Target) -> tuple[Potentials, np.ndarray]:
        """Return what stands for the expected f in a model, and the labels that it amounts to."""
        raise NotImplementedError

    def value_and_dtheta(self, theta: Potentials, target: Target, setting: Setting) -> tuple[Any, Potentials]:
        """Return the number of errors and the direction."""
        free, labels = self._expanded(theta, target.observed, setting, target)
        clamped, _ = self._expanded(theta, both(theta.graph, target), setting, target)
        return count_errors(labels, target), theta.like(free.vector() - clamped.vector())

    def _expanded(
        self, theta: Potentials, restriction: Restriction | None, setting: Setting, target: Target
    ) -> tuple[Potentials, np.ndarray]:
        model = Conditioned(theta, restriction)
        if model.theta is None:
            mu = model.expand(None)
        elif restriction is None:
            mu = self.replacement(theta, setting, target)[0]
        else:
            inner = setting._replace(inference=model.method(setting.inference) if setting.inference else None)
            mu = model.expand(self.replacement(model.theta, inner, target)[0])
        return mu, argmax_labels(mu)


@dataclass(frozen=True, repr=False)
class PseudoMarginal(Replacement, name="pseudo_marginal"):
    """PMA: the gradient of the likelihood with pseudo-marginals for marginals."""

    def replacement(self, theta: Potentials, setting: Setting, target: Target) -> tuple[Potentials, np.ndarray]:
        """Return the marginals of inference."""
        assert setting.inference is not None
        mu = setting.inference.infer(theta).marginals
        return mu, argmax_labels(mu)


@dataclass(frozen=True, repr=False)
class MaximumMarginal(Replacement, name="maximum_marginal"):
    """MMA: the gradient of the likelihood with the MPM labels for marginals."""

    def replacement(self, theta: Potentials, setting: Setting, target: Target) -> tuple[Potentials, np.ndarray]:
        """Return indicators of the MPM labels."""
        assert setting.inference is not None
        labels = argmax_labels(setting.inference.infer(theta).marginals)
        return indicators(theta, labels), labels


@dataclass(frozen=True, repr=False)
class SaddlePoint(Objective, name="saddle_point"):
    """SPA, the structured perceptron: max_y theta·f(y) - theta·f(labels).

    Parameters
    ----------
    solver : str
        Spec of the MAP solver; ``"auto"`` is ``viterbi`` on acyclic graphs, ``graph_cut`` on binary pairwise models that
        allow it, else ``max_product``.
    """

    solver: str = "auto"

    needs_inference: ClassVar[bool] = False
    smooth: ClassVar[bool] = False

    def value_and_dtheta(self, theta: Potentials, target: Target, setting: Setting) -> tuple[Any, Potentials]:
        """Return the perceptron loss and its subgradient."""
        free, d_free = self._best(theta, target.observed)
        clamped, d_clamped = self._best(theta, both(theta.graph, target))
        return free - clamped, theta.like(d_free.vector() - d_clamped.vector())

    def _best(self, theta: Potentials, restriction: Restriction | None) -> tuple[float, Potentials]:
        model = Conditioned(theta, restriction)
        if model.theta is None:
            return model.constant, model.expand(None)
        found = solve(model.theta, self.solver)
        return found.value + model.constant, model.expand(indicators(model.theta, found.labels))


@dataclass(frozen=True, repr=False)
class ContrastiveDivergence(Replacement, name="contrastive_divergence"):
    """CD-k: the labels after ``k`` Gibbs sweeps from the known ones stand for the expectation."""

    k: int = 1

    needs_inference: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if isinstance(self.k, bool) or not isinstance(self.k, int) or self.k < 1:
            raise InputError(f"contrastive_divergence: k must be a whole number >= 1, got {self.k!r}.")

    def value_and_dtheta(self, theta: Potentials, target: Target, setting: Setting) -> tuple[Any, Potentials]:
        """Return the number of changed labels and the direction."""
        labels = target.labeling.labels
        if (labels < 0).any() or target.observed is not None or target.labeling.has_sets:
            raise InputError("contrastive_divergence starts at the labels, so that all must be known; use pseudo_marginal.")
        sampled = gibbs_chain(theta, labels, self.k, setting.seed)
        difference = indicators(theta, sampled).vector() - indicators(theta, labels).vector()
        return count_errors(sampled, target), theta.like(difference)


def indicators(theta: Potentials, labels: np.ndarray) -> Potentials:
    """Return f(labels) in the type of theta."""
    unary, factors = one_hot(theta.graph, labels)
    return Potentials.from_flat(theta.graph, unary.astype(theta.dtype), factors.astype(theta.dtype))
