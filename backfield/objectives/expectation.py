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
from backfield.graph.conditioning import Evidence
from backfield.inference.base import Engine, IterativeInference
from backfield.inference.conditioned import Conditioned
from backfield.inference.sampling.gibbs import gibbs_chain
from backfield.map_solvers.auto import solve
from backfield.objectives.base import (
    Objective,
    Seen,
    Setting,
    Target,
    argmax_labels,
    count_errors,
    is_complete,
    refuse_impossible,
)


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
        if is_complete(target):
            clamped = theta.indicators(target.labeling.labels)
        else:
            clamped, _ = self._expanded(theta, target.known(theta.graph), setting._replace(watch=None), target)
        return count_errors(labels, target), free.minus(clamped)

    def _expanded(
        self, theta: Potentials, evidence: Evidence | None, setting: Setting, target: Target
    ) -> tuple[Potentials, np.ndarray]:
        model = Conditioned(theta, evidence, setting.inference)
        found = None if model.theta is None else self.replacement(model.theta, setting, target)[0]
        mu = model.expand(found)
        return mu, argmax_labels(mu)


@dataclass(frozen=True, repr=False)
class PseudoMarginal(Replacement, name="pseudo_marginal"):
    """PMA: the gradient of the likelihood with pseudo-marginals for marginals."""

    def replacement(self, theta: Potentials, setting: Setting, target: Target) -> tuple[Potentials, np.ndarray]:
        """Return the marginals of inference."""
        assert setting.inference is not None
        run = setting.inference.infer(theta)
        _watch(setting, run.n_iter)
        return run.marginals, argmax_labels(run.marginals)


@dataclass(frozen=True, repr=False)
class MaximumMarginal(Replacement, name="maximum_marginal"):
    """MMA: the gradient of the likelihood with the MPM labels for marginals.

    Parameters
    ----------
    stable : int, optional
        Stop iterative inference when the most probable labels have stayed the same for so many sweeps: only their ranking
        matters ([K05] §6). None: the inference as it is.
    """

    stable: int | None = None

    def __post_init__(self) -> None:
        if self.stable is not None and (
            isinstance(self.stable, bool) or not isinstance(self.stable, int) or self.stable < 1
        ):
            raise InputError(f"maximum_marginal: stable must be None or an integer >= 1, received {self.stable!r}.")

    def replacement(self, theta: Potentials, setting: Setting, target: Target) -> tuple[Potentials, np.ndarray]:
        """Return indicators of the MPM labels."""
        assert setting.inference is not None
        method = setting.inference
        if self.stable is not None and isinstance(method, IterativeInference):
            labels, sweeps = _stable_labels(method, theta, self.stable)
        else:
            run = method.infer(theta)
            labels, sweeps = argmax_labels(run.marginals), run.n_iter
        _watch(setting, sweeps)
        return theta.indicators(labels), labels


def _stable_labels(method: IterativeInference, theta: Potentials, stable: int) -> tuple[np.ndarray, int]:
    """Return the most probable labels once ``stable`` sweeps have not changed them, and the number of sweeps."""
    engine = method.bind(theta)
    state = engine.init()
    labels, same, t = _ranking(engine, state), 0, 0
    while t < method.n_iter and same < stable:
        engine.sweep(state, t)
        last, labels = labels, _ranking(engine, state)
        same = same + 1 if np.array_equal(last, labels) else 0
        t += 1
    return labels, t


def _ranking(engine: Engine, state: np.ndarray) -> np.ndarray:
    return argmax_labels(Potentials.from_flat(engine.theta.graph, engine.beliefs(state), np.empty(0)))


def _watch(setting: Setting, sweeps: int) -> None:
    if setting.watch is not None:  # the errors of these objectives are their value
        setting.watch.append(Seen(float("nan"), sweeps))


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
        free, d_free, truncated = self._best(theta, target.observed)
        if is_complete(target):
            labels = target.labeling.labels
            clamped, d_clamped = theta.score(labels), theta.indicators(labels)
            refuse_impossible(clamped)
        else:
            clamped, d_clamped, _ = self._best(theta, target.known(theta.graph))
        if setting.watch is not None:
            setting.watch.append(Seen(count_errors(argmax_labels(d_free), target), 0, truncated))
        return free - clamped, d_free.minus(d_clamped)

    def _best(self, theta: Potentials, evidence: Evidence | None) -> tuple[float, Potentials, int]:
        """Return the best value, its labels as indicators, and the number of couplings that the solver truncated."""
        model = Conditioned(theta, evidence)
        if model.theta is None:
            return model.constant, model.expand(None), 0
        found = solve(model.theta, self.solver)
        return found.value + model.constant, model.expand(model.theta.indicators(found.labels)), found.n_truncated


@dataclass(frozen=True, repr=False)
class ContrastiveDivergence(Replacement, name="contrastive_divergence"):
    """CD-k: the labels after ``k`` Gibbs sweeps from the known ones stand for the expectation."""

    k: int = 1

    needs_inference: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if isinstance(self.k, bool) or not isinstance(self.k, int) or self.k < 1:
            raise InputError(f"contrastive_divergence: k must be an integer >= 1, received {self.k!r}.")

    def value_and_dtheta(self, theta: Potentials, target: Target, setting: Setting) -> tuple[Any, Potentials]:
        """Return the number of changed labels and the direction."""
        labels = target.labeling.labels
        if (labels < 0).any() or target.observed is not None or target.labeling.has_sets:
            raise InputError("contrastive_divergence starts at the labels, so all must be known; use pseudo_marginal.")
        sampled = gibbs_chain(theta, labels, self.k, setting.seed)
        difference = theta.indicators(sampled).vector() - theta.indicators(labels).vector()
        return count_errors(sampled, target), theta.like(difference)
