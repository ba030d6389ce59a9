"""Surrogate likelihood and surrogate EM ([D13] §4.1.1-2, §7.3).

    value = A(theta) - A(theta, z)

with approximate log-partition functions, the second clamped to the known labels z (to theta·f(z) when all are known).
At convergence the gradient is the difference of the two marginals (20); before, that is not the derivative of the value, and
a warning says so. With the gradient ``truncated`` it is the exact
derivative of the truncated partition functions of §7.3, at any number of sweeps.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any, ClassVar

from backfield.errors import ConvergenceWarning, InputError
from backfield.gradients import Truncated
from backfield.gradients.truncated import log_partition_and_gradient
from backfield.graph import Potentials
from backfield.graph.conditioning import Evidence
from backfield.inference.base import ExactInference, Inference, IterativeInference
from backfield.inference.conditioned import Conditioned
from backfield.objectives.base import (
    Objective,
    Seen,
    Setting,
    Target,
    count_wrong_marginals,
    is_complete,
    refuse_impossible,
)
from backfield.registry import get


@dataclass(frozen=True, repr=False)
class SurrogateLikelihood(Objective, name="surrogate_likelihood"):
    """Approximate minus log-likelihood; with hidden variables, surrogate EM.

    Parameters
    ----------
    clamped : str, optional
        Spec of another method for A(theta, z): ``"mean_field(...)"`` under TRW for A(theta) gives a bound on the true
        EM loss.
    """

    clamped: str | None = None

    own_gradient: ClassVar[bool] = False

    def check(self, setting: Setting) -> None:
        """Refuse sampling methods and strategies that do not apply."""
        super().check(setting)
        for method in (setting.inference, self._clamped_method(setting)):
            if not method.differentiable:  # type: ignore[union-attr]
                raise InputError(f"surrogate_likelihood needs a variational or exact method, not {method.name}.")  # type: ignore[union-attr]
        if setting.gradient is not None and not isinstance(setting.gradient, Truncated):
            raise InputError(
                f"surrogate_likelihood has its own gradient at convergence (gradient=None) or goes through the sweeps "
                f"(gradient='truncated'); {setting.gradient.name} does not apply."
            )

    def _clamped_method(self, setting: Setting) -> Inference:
        assert setting.inference is not None
        return get("inference", self.clamped) if self.clamped is not None else setting.inference

    def supports(self, theta: Potentials, setting: Setting) -> bool:
        """Whether one of its methods does; the other gets what it takes."""
        methods = [method.supports(theta) for method in (setting.inference, self._clamped_method(setting)) if method]
        return all(methods) if theta.kernels else any(methods)

    def separable(self, theta: Potentials, setting: Setting) -> bool:
        """Where both methods keep parts apart."""
        return all(method.separable for method in (setting.inference, self._clamped_method(setting)) if method)

    def value_and_dtheta(self, theta: Potentials, target: Target, setting: Setting) -> tuple[Any, Potentials]:
        """Return A(theta) - A(theta, z) and its gradient."""
        assert setting.inference is not None
        free, d_free = _log_partition(theta, target.observed, setting.inference, setting)
        if setting.watch is not None and isinstance(setting.inference, ExactInference):
            setting.watch.append(Seen(count_wrong_marginals(d_free, target)))  # the gradient is the marginals
        if is_complete(target):
            labels = target.labeling.labels
            clamped, d_clamped = theta.score(labels), theta.indicators(labels)
            refuse_impossible(clamped)
        else:
            clamped, d_clamped = _log_partition(theta, target.known(theta.graph), self._clamped_method(setting), setting)
        return free - clamped, d_free.minus(d_clamped).astype(theta.dtype)


def _log_partition(
    theta: Potentials, evidence: Evidence | None, method: Inference, setting: Setting
) -> tuple[Any, Potentials]:
    """Return log Z given evidence and its derivative with respect to theta."""
    model = Conditioned(theta, evidence, method)
    if model.theta is None:
        return model.constant, theta.contract(model.expand(None))
    value, gradient = _plain_log_partition(model.theta, method, setting)
    return value + model.constant, theta.contract(model.expand(gradient))


def _plain_log_partition(theta: Potentials, method: Inference, setting: Setting) -> tuple[Any, Potentials]:
    if isinstance(method, ExactInference):
        return method.log_partition_and_gradient(theta)
    assert isinstance(method, IterativeInference)
    if isinstance(setting.gradient, Truncated) or theta.kernels:
        memory = setting.gradient.memory if isinstance(setting.gradient, Truncated) else setting.memory
        return log_partition_and_gradient(method, theta, memory)[:2]
    if method.tol is None and _is_looked_at(theta, method) and not method.infer(theta).converged:
        # No figures in the text: Python shows the same warning once, not for every example.
        warnings.warn(
            f"surrogate_likelihood: {method!r} has not converged, and its own gradient is that of convergence, not the "
            "derivative of the value; give more n_iter and tol, or gradient='truncated', which goes through the sweeps.",
            ConvergenceWarning,
            stacklevel=4,
        )
    return method.marginals(theta)


def _is_looked_at(theta: Potentials, method: Inference) -> bool:
    """Whether to see if a run converges: in the 1st, 2nd, 4th, 8th, ... evaluation of a graph, as it takes a run more."""
    count = theta.graph.compiled(("looked at", repr(method)), lambda: [0])
    count[0] += 1
    return count[0] & (count[0] - 1) == 0
