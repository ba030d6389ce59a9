"""Contracts of gradient strategies: value and derivative of a loss on marginals, through any engine."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from backfield.api import value_and_gradient
from backfield.graph import Graph
from backfield.registry import get
from backfield.testing.contract import GENERAL, Contract, check, close, refuses, require
from backfield.testing.models import random_labels, random_potentials

LOSSES = ("univariate_logistic", "clique_quadratic")


def check_gradient(part: Any) -> None:
    """Raise AssertionError unless a gradient strategy keeps to the contracts of its room.

    Parameters
    ----------
    part : Gradient, class or str
        A strategy, its class, or its spec.
    """
    check("gradients", part, CONTRACTS)


def _methods(strategy: Any) -> list[str]:
    """Methods that a strategy must go through: a few sweeps, or enough of them where it holds at convergence."""
    sweeps = "n_iter=5000, tol=1e-13" if strategy.at_convergence else "n_iter=3"
    return [f"tree_reweighted({sweeps})", f"loopy_bp({sweeps})", f"mean_field({sweeps})"]


def _examples() -> list[Any]:
    rng = np.random.default_rng(0)
    graphs = (Graph.grid(2, 3), Graph.chain(4, labels=3), Graph([2, 3, 2, 2], [(0, 1), (1, 2, 3), (3, 0)]))
    return [(random_potentials(graph, rng, 0.4), random_labels(graph, rng)) for graph in graphs]


def agrees(strategy: Any) -> None:
    """The gradient is that of ``truncated``, which central differences confirm; at convergence where it says so."""
    tolerance = 1e-4 if strategy.at_convergence else 1e-8
    for theta, labels in _examples():
        for method in _methods(strategy):
            for loss in LOSSES:
                call = functools.partial(value_and_gradient, theta, labels, loss=loss, inference=method)
                value, d_theta = call(gradient=strategy)
                wanted, d_wanted = call(gradient="truncated")
                close(value, wanted, 1e-9 * max(1, abs(wanted)), f"values of {loss} through {method} and those of truncated")
                scale = max(1.0, float(np.abs(d_wanted.vector()).max()))
                close(d_theta.vector(), d_wanted.vector(), tolerance * scale, f"gradients of {loss} through {method}")


def exact_methods(strategy: Any) -> None:
    """Exact methods are differentiated, too: their own vjp is the answer."""
    for theta, labels in _examples():
        for loss in LOSSES:
            found = value_and_gradient(theta, labels, loss=loss, inference="exact", gradient=strategy)
            wanted = value_and_gradient(theta, labels, loss=loss, inference="exact")
            close(found[1].vector(), wanted[1].vector(), 1e-8, "gradients through exact inference")


def outcome(strategy: Any) -> None:
    """An outcome holds the value, d_theta, the marginals of the end of the run, and the number of iterations."""
    theta, _ = _examples()[0]
    method = get("inference", _methods(strategy)[0])
    wanted = method.infer(theta)
    target = np.random.default_rng(1).normal(size=len(theta.vector()))
    found = strategy.differentiate(method, theta, lambda mu: (mu.vector() @ target, mu.like(target)), True)
    close(found.mu.vector(), wanted.marginals.vector(), 1e-9, "marginals and those of inference")
    close(found.value, wanted.marginals.vector() @ target, 1e-9, "the value and the loss of the marginals")
    require(found.d_theta.graph is theta.graph, "d_theta of another graph")
    require(found.n_iter == wanted.n_iter, f"{found.n_iter} iterations, where inference does {wanted.n_iter}")


def single_precision(strategy: Any) -> None:
    """In float32 the gradient is of that type and close to that in float64."""
    if strategy.at_convergence:  # which float32 does not reach
        return
    for theta, labels in _examples():
        call = functools.partial(
            value_and_gradient, theta, labels, loss=LOSSES[0], inference=_methods(strategy)[0], gradient=strategy
        )
        low, full = call(dtype="float32")[1], call()[1]
        require(low.dtype == np.float32, f"d_theta of type {low.dtype}")
        close(low.vector(), full.vector(), 1e-4, "gradients in float32 and float64")


def refused_methods(strategy: Any) -> None:
    """A method without derivatives is refused by InputError."""
    theta, labels = _examples()[0]
    call = functools.partial(value_and_gradient, theta, labels, loss=LOSSES[0], inference="gibbs", gradient=strategy)
    refuses("gibbs", call)


#: What must hold for every strategy, in the order in which it is checked.
CONTRACTS: tuple[Contract, ...] = (*GENERAL, agrees, exact_methods, outcome, single_precision, refused_methods)
