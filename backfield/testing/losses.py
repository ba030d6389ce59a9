"""Contracts of losses on marginals."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import numpy as np

from backfield.graph import Graph, Potentials
from backfield.graph.labeling import as_labeling
from backfield.losses.base import unary_only
from backfield.testing.contract import GENERAL, Contract, check, close, refuses, require
from backfield.testing.differences import along, gradient_is_right
from backfield.testing.models import models, random_labels, random_marginals


def check_loss(part: Any) -> None:
    """Raise AssertionError unless a loss keeps to the contracts of its room.

    Parameters
    ----------
    part : Loss, class or str
        A loss, its class, or its spec. Where it raises InputError for a kind of graph, simpler kinds are tried.
    """
    check("losses", part, CONTRACTS)


def evaluate(loss: Any, mu: Potentials, labels: Any, weights: np.ndarray | None = None) -> tuple[Any, Potentials]:
    """Return value and d_mu of a loss at given marginals."""
    labeling = as_labeling(mu.graph, labels)
    loss.check(labeling)
    return loss.value_and_dmu(mu, labeling, weights)


def examples(loss: Any, n: int) -> Iterator[tuple[np.random.Generator, Potentials, np.ndarray]]:
    """Yield marginals and labels, one of them hidden, that the loss takes."""

    def takes(theta: Potentials) -> None:
        rng = np.random.default_rng(0)
        evaluate(loss, random_marginals(theta.graph, rng), random_labels(theta.graph, rng))

    for rng, theta in models(takes, n):
        yield rng, random_marginals(theta.graph, rng), random_labels(theta.graph, rng)


def slope(d_mu: Potentials, direction: np.ndarray) -> Any:
    """Return d_mu · direction, where factor tables may be empty."""
    n = len(d_mu.unary_flat)
    return d_mu.unary_flat @ direction[:n] + (d_mu.factors_flat @ direction[n:] if d_mu.factors_flat.size else 0)


def inside(mu: Potentials, rng: np.random.Generator) -> np.ndarray:
    """Return a random direction along which marginals stay probabilities: that of the only label stays 1."""
    return np.where(mu.vector() < 1, rng.normal(size=len(mu.vector())), 0.0)


def weightings(graph: Graph, rng: np.random.Generator) -> list[np.ndarray | None]:
    """Return no weights, weights per variable, and weights per variable and label."""
    return [None, rng.random(graph.n_variables), rng.random(int(graph.labels.sum()))]


def answer(loss: Any) -> None:
    """The value is a finite number, and d_mu belongs to the graph and is of the type of mu."""
    for _, mu, labels in examples(loss, 8):
        for dtype in (np.float64, np.float32):
            value, d_mu = evaluate(loss, mu.astype(dtype), labels)
            require(np.ndim(value) == 0 and np.isfinite(value), f"the value {value!r}")
            require(isinstance(d_mu, Potentials) and d_mu.graph is mu.graph, "d_mu of another graph")
            require(np.isfinite(d_mu.vector()).all(), "d_mu that is not finite")
            require(len(d_mu.unary_flat) == len(mu.unary_flat), "d_mu without the variables")
            sizes = (len(mu.factors_flat), 0)
            require(len(d_mu.factors_flat) in sizes[: 1 if loss.cliques else 2], "factor tables of another size in d_mu")
            require(d_mu.dtype == dtype, f"d_mu of type {d_mu.dtype} for mu of type {np.dtype(dtype)}")


def derivative(loss: Any) -> None:
    """d_mu is the derivative of the value, with any weights."""
    for rng, mu, labels in examples(loss, 20):
        for weights in weightings(mu.graph, rng):
            _, d_mu = evaluate(loss, mu, labels, weights)
            direction = inside(mu, rng)
            measured = along(_along(loss, mu, labels, weights, direction), 1e-6)
            found = slope(d_mu, direction)
            close(found, measured, 1e-6 * abs(measured) + 1e-8, "d_mu and the difference of values along a direction")


def _along(loss: Any, mu: Potentials, labels: Any, weights: Any, direction: np.ndarray) -> Any:
    return lambda t: evaluate(loss, mu.like(mu.vector() + t * direction), labels, weights)[0]


def second_derivative(loss: Any) -> None:
    """Complex marginals are differentiated through where the loss says ``smooth``: a step along i gives the derivative."""
    if not loss.smooth:
        return
    for rng, mu, labels in examples(loss, 8):
        direction = inside(mu, rng)
        value, d_mu = evaluate(loss, mu, labels)
        moved, _ = evaluate(loss, mu.like(mu.vector() + 1e-30j * direction), labels)
        close(np.real(moved), value, 1e-10 * max(1, abs(value)), "values with and without a step along i")
        close(np.imag(moved) / 1e-30, slope(d_mu, direction), 1e-8 * max(1, abs(value)), "the step along i and d_mu")


def hidden_variables(loss: Any) -> None:
    """Hidden variables (-1), and cliques with one, contribute nothing to the value and get no derivative."""
    for rng, mu, labels in examples(loss, 12):
        value, d_mu = evaluate(loss, mu, labels)
        require(not np.any(d_mu.unary_flat[: mu.graph.labels[0]]), "a derivative at a hidden variable")
        moved = mu.vector()
        moved[: mu.graph.labels[0]] = rng.dirichlet(np.ones(mu.graph.labels[0]))
        close(evaluate(loss, mu.like(moved), labels)[0], value, 1e-12 * max(1, abs(value)), "values for a hidden variable")
        if not loss.per_example:
            nothing, d_nothing = evaluate(loss, mu, np.full(mu.graph.n_variables, -1))
            require(nothing == 0 and not d_nothing.vector().any(), f"the value {nothing} where all is hidden")


def factors_are_not_needed(loss: Any) -> None:
    """A loss without ``cliques`` does not look at the marginals of factors, which may be left empty."""
    if loss.cliques:
        return
    for _, mu, labels in examples(loss, 8):
        value, d_mu = evaluate(loss, mu, labels)
        bare, d_bare = evaluate(loss, unary_only(mu.graph, mu.unary_flat), labels)
        require(value == bare and (d_mu.unary_flat == d_bare.unary_flat).all(), "another value without factor tables")


def weights_scale(loss: Any) -> None:
    """Of a sum over variables or cliques, weights are the factors: twice the weights, twice the value; zero, nothing."""
    if loss.per_example:
        return
    for rng, mu, labels in examples(loss, 8):
        for weights in weightings(mu.graph, rng)[1:]:
            assert weights is not None
            value, d_mu = evaluate(loss, mu, labels, weights)
            double, d_double = evaluate(loss, mu, labels, 2 * weights)
            close(double, 2 * value, 1e-10 * max(1, abs(value)), "the value for twice the weights and twice the value")
            close(d_double.vector(), 2 * d_mu.vector(), 1e-8 * max(1, np.abs(d_mu.vector()).max()), "derivatives")
            require(evaluate(loss, mu, labels, 0 * weights)[0] == 0, "a value where all weights are zero")
        one = evaluate(loss, mu, labels)[0]
        close(evaluate(loss, mu, labels, np.ones(mu.graph.n_variables))[0], one, 1e-10 * max(1, abs(one)), "values for 1")


def sets_of_labels(loss: Any) -> None:
    """Sets of allowed labels are taken where the loss says ``sets``, and refused by InputError elsewhere."""
    for rng, mu, _ in examples(loss, 8):
        allowed = [rng.random(count) < 0.5 for count in mu.graph.labels]
        for row in allowed:
            row[rng.integers(len(row))] = True
        given = allowed if mu.graph.n_labels is None else np.array(allowed)
        if not as_labeling(mu.graph, given).has_sets:
            continue
        if not loss.sets:
            refuses("a set of labels", functools.partial(evaluate, loss, mu, given))
            continue
        _, d_mu = evaluate(loss, mu, given)
        direction = inside(mu, rng)
        measured = along(_along(loss, mu, given, None, direction), 1e-6)
        close(slope(d_mu, direction), measured, 1e-6 * abs(measured) + 1e-8, "d_mu and the difference for sets")


def zero_marginals(loss: Any) -> None:
    """Where the marginal of the right label underflowed to zero, value and d_mu stay finite, also in float32."""
    for _, mu, labels in examples(loss, 8):
        values = mu.vector()
        first = mu.graph.layout.var_ptr[:-1]
        known = np.flatnonzero(labels >= 0)
        values[first[known] + labels[known]] = 0
        values[len(mu.unary_flat) :] = 0
        for dtype in (np.float64, np.float32):
            value, d_mu = evaluate(loss, mu.like(values).astype(dtype), labels)
            require(np.isfinite(value) and np.isfinite(d_mu.vector()).all(), f"the value {value} in {np.dtype(dtype)}")


def inputs_are_left_alone(loss: Any) -> None:
    """A loss changes neither marginals nor labels nor weights."""
    for rng, mu, labels in examples(loss, 4):
        weights = rng.random(mu.graph.n_variables)
        before = mu.vector(), labels.copy(), weights.copy()
        evaluate(loss, mu, labels, weights)
        same = [(a == b).all() for a, b in zip(before, (mu.vector(), labels, weights), strict=True)]
        require(all(same), "other inputs after the call")


def gradients(loss: Any) -> None:
    """Gradients with respect to theta agree with central differences, through exact and through truncated inference."""

    def takes(theta: Potentials) -> None:
        evaluate(
            loss,
            random_marginals(theta.graph, np.random.default_rng(0)),
            random_labels(theta.graph, np.random.default_rng(0)),
        )

    for rng, theta in models(takes, 5, 0.8):
        labels = random_labels(theta.graph, rng)
        for method in ("exact", "loopy_bp(n_iter=3)", "mean_field(n_iter=3)"):
            gradient_is_right(theta, labels, 1e-6, loss=loss, inference=method)


#: What must hold for every loss, in the order in which it is checked.
CONTRACTS: tuple[Contract, ...] = (
    *GENERAL,
    answer,
    derivative,
    second_derivative,
    hidden_variables,
    factors_are_not_needed,
    weights_scale,
    sets_of_labels,
    zero_marginals,
    inputs_are_left_alone,
    gradients,
)
