"""Contracts of objectives: theta, labels -> value, d_theta."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import numpy as np

from backfield.api import value_and_gradient
from backfield.graph import Potentials
from backfield.testing.contract import GENERAL, Contract, check, close, refuses, require
from backfield.testing.differences import gradient_is_right
from backfield.testing.models import models, random_labels


def check_objective(part: Any) -> None:
    """Raise AssertionError unless an objective keeps to the contracts of its room.

    Parameters
    ----------
    part : Objective, class or str
        An objective, its class, or its spec. Inference, where it needs any, is exact.
    """
    check("objectives", part, CONTRACTS)


def setting(objective: Any) -> dict[str, Any]:
    """Return the arguments of ``value_and_gradient`` for an objective."""
    return {"loss": objective, "inference": "exact" if objective.needs_inference else None}


def examples(objective: Any, n: int, hidden: bool = True) -> Iterator[tuple[np.random.Generator, Potentials, np.ndarray]]:
    """Yield potentials and labels that the objective takes; one label is hidden unless it refuses that."""

    def takes(theta: Potentials) -> None:
        labels = random_labels(theta.graph, np.random.default_rng(0), hidden)
        value_and_gradient(theta, labels, **setting(objective))

    for rng, theta in models(takes, n, 0.8):
        yield rng, theta, random_labels(theta.graph, rng, hidden)


def answer(objective: Any) -> None:
    """The value is a finite number and d_theta has the graph and the type of theta; the same seed gives the same."""
    for _, theta, labels in examples(objective, 5, False):
        value, d_theta = value_and_gradient(theta, labels, **setting(objective), seed=3)
        require(np.isfinite(value) and np.isfinite(d_theta.vector()).all(), f"the value {value}")
        require(d_theta.graph is theta.graph and d_theta.dtype == np.float64, "d_theta of another graph or type")
        again, d_again = value_and_gradient(theta, labels, **setting(objective), seed=3)
        require(value == again and (d_theta.vector() == d_again.vector()).all(), "other numbers for the same seed")
        low = value_and_gradient(theta, labels, **setting(objective), dtype="float32", seed=3)
        require(low[1].dtype == np.float32, f"d_theta of type {low[1].dtype} for float32")


def gradients(objective: Any) -> None:
    """Where the objective says ``integrable``, d_theta agrees with central differences of the value."""
    if not objective.integrable:
        return
    for _, theta, labels in examples(objective, 6, False):
        gradient_is_right(theta, labels, 1e-5, **setting(objective))


def hidden_labels(objective: Any) -> None:
    """Hidden labels (-1) are left out or summed over, with the right gradient, or refused by InputError."""
    try:
        found = list(examples(objective, 6))
    except AssertionError:  # refused on every model
        return
    for _, theta, labels in found:
        value, d_theta = value_and_gradient(theta, labels, **setting(objective))
        require(np.isfinite(value) and np.isfinite(d_theta.vector()).all(), f"the value {value}")
        if objective.integrable:
            gradient_is_right(theta, labels, 1e-5, **setting(objective))


def weights(objective: Any) -> None:
    """Weights are taken where the objective says ``weighted`` (ones change nothing) and refused by InputError elsewhere."""
    for _, theta, labels in examples(objective, 4, False):
        ones = np.ones(theta.graph.n_variables)
        call = functools.partial(value_and_gradient, theta, labels, **setting(objective))
        if not objective.weighted:
            refuses("a weight", functools.partial(call, weights=ones))
        else:
            value = call()[0]
            close(call(weights=ones)[0], value, 1e-9 * max(1, abs(value)), "values with weights of 1 and without")


def needs_inference(objective: Any) -> None:
    """An objective that needs inference refuses to go without it."""
    if objective.needs_inference:
        for _, theta, labels in examples(objective, 1, False):
            refuses("no inference", functools.partial(value_and_gradient, theta, labels, loss=objective))


def inputs_are_left_alone(objective: Any) -> None:
    """An objective changes neither theta nor the labels."""
    for _, theta, labels in examples(objective, 3, False):
        before, kept = theta.vector(), labels.copy()
        value_and_gradient(theta, labels, **setting(objective))
        require((theta.vector() == before).all() and (labels == kept).all(), "other inputs after the call")


#: What must hold for every objective, in the order in which it is checked.
CONTRACTS: tuple[Contract, ...] = (
    *GENERAL,
    answer,
    needs_inference,
    gradients,
    hidden_labels,
    weights,
    inputs_are_left_alone,
)
