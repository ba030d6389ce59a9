"""What a gradient strategy is: the value of a loss on marginals, and its derivative with respect to theta.

A strategy is written once, against the contract of :class:`~backfield.inference.base.Engine` (or the ``vjp`` of exact
methods); it knows neither the algorithm nor the loss.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import numpy as np

from backfield.errors import ConvergenceWarning, InputError
from backfield.graph import Potentials
from backfield.inference.base import ExactInference, Inference, IterativeInference
from backfield.registry import Component

#: mu -> value, d_mu. Factor tables of mu are empty where ``cliques`` is false; those of d_mu may be.
LossFunction = Callable[[Potentials], tuple[Any, Potentials]]


class Outcome(NamedTuple):
    """A value, its derivative with respect to theta, and the marginals it was computed from."""

    value: Any
    d_theta: Potentials
    mu: Potentials
    n_iter: int
    converged: bool


class Gradient(Component):
    """A way from d_mu to d_theta."""

    room: ClassVar[str] = "gradients"
    #: Holds only where inference has converged.
    at_convergence: ClassVar[bool] = False
    #: Goes through the engine of a method, which gives d_theta in the kinds of theta; else theta must hold tables.
    through_engine: ClassVar[bool] = True

    #: In a disconnected graph each part gets the derivative that it gets alone.
    separable: ClassVar[bool] = False

    def differentiate(self, method: Inference, theta: Potentials, loss: LossFunction, cliques: bool) -> Outcome:
        """Return the loss at ``theta`` and its derivative."""
        self.check(method)
        if isinstance(method, ExactInference):
            return exactly(method, theta, loss)
        assert isinstance(method, IterativeInference)
        return self.through_iterations(method, theta, loss, cliques)

    def through_iterations(
        self, method: IterativeInference, theta: Potentials, loss: LossFunction, cliques: bool
    ) -> Outcome:
        """Return the same through the engine of an iterative method: what a strategy implements."""
        raise NotImplementedError

    def check(self, method: Inference) -> None:
        """Refuse a method that this strategy cannot go through."""
        if not method.differentiable:
            raise InputError(
                f"there is no gradient through {method.name}, which samples; use mean_field, loopy_bp or tree_reweighted, "
                "or an objective with its own gradient, such as contrastive_divergence or perturb_and_map."
            )


def exactly(method: ExactInference, theta: Potentials, loss: LossFunction) -> Outcome:
    """Differentiate through an exact method by its own vjp."""
    mu = method.marginals(theta)[1]
    value, d_mu = loss(mu)
    return Outcome(value, method.vjp(theta, with_tables(d_mu)), mu, 0, True)


def with_tables(d_mu: Potentials) -> Potentials:
    """Return adjoints whose factor tables are zero instead of empty."""
    size = len(d_mu.factors_flat)
    wanted = _n_table(d_mu)
    if size == wanted:
        return d_mu
    return Potentials.from_flat(d_mu.graph, d_mu.unary_flat, np.zeros(wanted, d_mu.dtype))


def _n_table(potentials: Potentials) -> int:
    graph = potentials.graph
    if graph.n_factors == 0:
        return 0
    if graph.n_labels is not None and graph.arity is not None:
        return graph.n_factors * graph.n_labels**graph.arity
    return int(graph.layout.table_ptr[-1])


def warn_unconverged(strategy: Gradient, method: IterativeInference, residual: float) -> None:
    """Say that a gradient which holds at convergence was taken elsewhere."""
    warnings.warn(
        f"{strategy!r} holds at convergence, but {method!r} still changes by {residual:.2g}; give it more n_iter or a tol, "
        "or use the gradient 'truncated'.",
        ConvergenceWarning,
        stacklevel=5,
    )
