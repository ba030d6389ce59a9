"""Marginal-based learning ([D13] §4.2): a loss on the marginals that inference computes, differentiated through it.

``loss=`` takes objectives and losses alike, and names of JGMT (``objectives.names``): :func:`get_objective`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from backfield.errors import InputError
from backfield.gradients import Gradient, Truncated
from backfield.gradients.base import with_tables
from backfield.gradients.truncated import Tape
from backfield.graph import Potentials
from backfield.graph.conditioning import Evidence
from backfield.inference.base import ExactInference, IterativeInference
from backfield.inference.conditioned import Conditioned
from backfield.losses import Loss
from backfield.objectives.base import Objective, Seen, Setting, Target, count_wrong_marginals
from backfield.objectives.names import Alias, jgmt_meaning
from backfield.registry import find_room, get, has, parse

#: Where ``loss=`` is looked for.
ROOMS = ("losses", "objectives")


@dataclass(frozen=True, repr=False)
class Marginal(Objective):
    """``loss`` o inference, with any gradient strategy; not registered: written as the loss itself."""

    loss: Loss

    weighted: ClassVar[bool] = True
    own_gradient: ClassVar[bool] = False

    def __repr__(self) -> str:
        return repr(self.loss)

    @property
    def name(self) -> str:  # type: ignore[override]
        """The name of the loss."""
        return self.loss.name

    @property
    def smooth(self) -> bool:  # type: ignore[override]
        """Whether the loss can be differentiated twice."""
        return self.loss.smooth

    @property
    def per_example(self) -> bool:  # type: ignore[override]
        """Whether the loss is one number per example."""
        return self.loss.per_example

    def check(self, setting: Setting) -> None:
        """Refuse settings that make no sense."""
        super().check(setting)
        assert setting.inference is not None
        strategy(setting).check(setting.inference)

    def supports(self, theta: Potentials, setting: Setting) -> bool:
        """Whether inference does, and the strategy goes through its engine."""
        method = setting.inference
        iterative = isinstance(method, IterativeInference) and strategy(setting).through_engine
        return theta.has_tables_only or (iterative and method is not None and method.supports(theta))

    def separable(self, theta: Potentials, setting: Setting) -> bool:
        """Where the loss is a sum over variables, and what lies between it and theta keeps parts apart."""
        method = setting.inference
        return not self.per_example and strategy(setting).separable and method is not None and method.separable

    def check_target(self, target: Target) -> None:
        """Refuse labels that the loss cannot take."""
        self.loss.check(target.labeling)

    def check_labels(self, seen: np.ndarray) -> None:
        """Refuse labels from which the loss learns nothing."""
        self.loss.check_seen(seen)

    def value_and_dtheta(self, theta: Potentials, target: Target, setting: Setting) -> tuple[Any, Potentials]:
        """Return the loss of the marginals and its gradient."""
        if self.loss.cliques and theta.kernels and not theta.graph.n_factors:
            raise InputError(f"{self.name} is a sum over listed factors, and kernels list none: use univariate_logistic.")
        if target.observed is not None:
            return self._given(theta, target, target.observed, setting)
        assert setting.inference is not None

        def loss(mu: Potentials) -> tuple[Any, Potentials]:
            return self.loss.value_and_dmu(mu, target.labeling, target.weights)

        outcome = strategy(setting).differentiate(setting.inference, theta, loss, self.loss.cliques)
        if setting.watch is not None:
            setting.watch.append(Seen(count_wrong_marginals(outcome.mu, target), outcome.n_iter))
        return outcome.value, outcome.d_theta

    def _given(self, theta: Potentials, target: Target, observed: Evidence, setting: Setting) -> tuple[Any, Potentials]:
        """Return the same in the model given evidence."""
        assert setting.inference is not None
        model = Conditioned(theta, observed, setting.inference)
        if model.theta is None:
            value, _ = self.loss.value_and_dmu(model.expand(None), target.labeling, target.weights)
            return value, model.expand(None, 0.0)

        def loss(mu: Potentials) -> tuple[Any, Potentials]:
            value, d_mu = self.loss.value_and_dmu(model.expand(mu), target.labeling, target.weights)
            return value, model.expand_vjp(with_tables(d_mu)) if model.restriction is not None else d_mu

        cliques = self.loss.cliques or model.restriction is not None
        outcome = strategy(setting).differentiate(setting.inference, model.theta, loss, cliques)
        if setting.watch is not None:
            wrong = count_wrong_marginals(model.expand(outcome.mu), target)
            setting.watch.append(Seen(wrong, outcome.n_iter))
        return outcome.value, model.expand(outcome.d_theta, 0.0)

    def inference_gradient(self, theta: Potentials, target: Target, setting: Setting) -> tuple[float, dict[str, Any]]:
        """Return the loss and its derivatives with respect to the method's own parameters and its initial state."""
        method = setting.inference
        if not isinstance(method, IterativeInference):
            raise InputError("only iterative methods have parameters to differentiate; use loopy_bp or tree_reweighted.")
        plain = method.replace(family=method.plain_family)
        engine = plain.bind(theta)
        tape = Tape(engine, plain, Truncated.memory)
        value, d_mu = self.loss.value_and_dmu(engine.marginals(tape.last), target.labeling, target.weights)
        d_theta, d_state = engine.adjoint(), np.zeros_like(tape.last)
        engine.marginals_vjp(tape.last, with_tables(d_mu), d_state, d_theta)
        tape.unwind(d_state, d_theta)
        return float(value), {**d_theta.parameters, "init": d_state}


def strategy(setting: Setting) -> Gradient:
    """Return the gradient strategy: the one asked for, else truncated."""
    return setting.gradient if setting.gradient is not None else Truncated(setting.memory)


def get_objective(loss: object) -> Objective:
    """Return the objective of a loss or objective, given as a part or its spec: ``loss=`` takes both."""
    if isinstance(loss, Objective):
        return loss
    if isinstance(loss, Loss):
        return Marginal(loss)
    alias = jgmt_alias(loss)
    if alias is not None:
        return get_objective(alias.loss)
    if not isinstance(loss, str):
        return Marginal(get("losses", loss))
    room = find_room(parse(loss)[0], ROOMS)
    return get(room, loss) if room == "objectives" else Marginal(get(room, loss))


def named_setting(loss: Any, inference: Any, gradient: Any) -> tuple[Any, Any]:
    """Return inference and gradient, which a loss with a name of JGMT brings along."""
    alias = jgmt_alias(loss)
    if alias is None:
        return inference, gradient
    if inference is not None or gradient is not None:
        raise InputError(
            f"{loss!r} names inference and gradient, too: leave inference= and gradient= out, or write loss={alias.loss!r}, "
            f"inference={alias.inference!r}, gradient={alias.gradient!r} and change that."
        )
    return alias.inference, alias.gradient


def make_setting(objective: Objective, inference: Any, gradient: Any, seed: int = 0) -> Setting:
    """Check which inference and gradient an objective goes through."""
    method = get("inference", inference) if inference is not None and objective.needs_inference else None
    strategy, direct = None, isinstance(gradient, str) and gradient == "direct"
    if gradient is not None and not direct:
        strategy = get("gradients", gradient)
    if direct and isinstance(objective, Marginal) and not isinstance(method, ExactInference):
        raise InputError(
            f"gradient='direct' is for objectives that compute their own gradient and for exact inference; {objective.name} "
            "through iterations needs 'truncated', 'backpropagation', 'implicit' or 'perturbation'."
        )
    setting = Setting(method, strategy, seed)
    objective.check(setting)
    return setting


def jgmt_alias(loss: object) -> Alias | None:
    """Return the meaning of a name of JGMT; None of a part or its spec, which are looked for first."""
    if not isinstance(loss, str) or any(has(room, loss.partition("(")[0].strip()) for room in ROOMS):
        return None
    return jgmt_meaning(loss)
