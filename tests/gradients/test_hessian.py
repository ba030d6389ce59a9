"""Hessian-vector products against four-point differences of gradients."""

import numpy as np
import pytest

import backfield as bf
from backfield.registry import lookup, names
from tests.gradients.differences import GRAPHS, along, example, iterative_methods, takes

LOSSES = [name for name in names("losses") if lookup("losses", name).smooth]
OWN = ["surrogate_likelihood", "pseudolikelihood", "pseudolikelihood(patch=3)", "piecewise"]
SETS = ["univariate_logistic", "clique_logistic", "surrogate_likelihood"]


def check(theta, labels, seed=0, **setting):
    rng = np.random.default_rng(seed)
    direction = np.where(np.isfinite(theta.vector()), rng.normal(size=len(theta.vector())), 0)
    found = bf.hessian_vector(theta, labels, theta.like(direction), **setting).vector()
    strategy = "truncated" if setting["loss"] == "surrogate_likelihood" else None

    def gradient(t):
        moved = theta.like(theta.vector() + t * direction)
        return bf.value_and_gradient(moved, labels, gradient=strategy, **setting)[1].vector()

    expected = along(gradient, 1e-4)
    assert np.abs(found - expected).max() <= 1e-7 * max(1, np.abs(expected).max()), (theta.graph, setting)


@pytest.mark.parametrize("method", [*iterative_methods(), "exact"])
@pytest.mark.parametrize("loss", LOSSES)
def test_losses(loss, method):
    sweeps = [""] if method == "exact" else ["(n_iter=1)", "(n_iter=8)"]
    for graph in GRAPHS.values():
        if takes(loss, graph):
            theta, labels = example(graph, scale=0.4)
            for given in sweeps:
                check(theta, labels, loss=loss, inference=method + given)


@pytest.mark.parametrize("loss", OWN)
def test_objectives(loss):
    for graph in GRAPHS.values():
        theta, labels = example(graph)
        for method in ("tree_reweighted(n_iter=3)", "mean_field(n_iter=3)", "exact", "brute_force"):
            check(theta, labels, loss=loss, inference=method)


@pytest.mark.parametrize("loss", SETS)
def test_sets_weights_and_observed(loss):
    theta, labels = example(GRAPHS["mixed"])
    allowed = [np.arange(count) != 0 if count > 2 else np.ones(count, bool) for count in theta.graph.labels]
    allowed[0] = np.array([True, False])
    weights = None if loss == "surrogate_likelihood" else [0.5, 1, 2, 3, 4]
    check(theta, allowed, loss=loss, inference="tree_reweighted(n_iter=3)", weights=weights)
    check(theta, labels, loss=loss, inference="loopy_bp(n_iter=3)", observed=[-1, labels[1], -1, -1, -1])


def test_forbidden_entries():
    theta, labels = example(GRAPHS["mixed"])
    values = theta.vector()
    for entry in (3, len(theta.unary_flat) + 1, len(theta.unary_flat) + 20):
        values[entry] = -np.inf
    labels[:] = [0, 0, -1, 1, 0]
    for method in [*iterative_methods(), "exact", "brute_force"]:
        check(theta.like(values), labels, loss="univariate_logistic", inference=method)


def test_is_symmetric():
    theta, labels = example(GRAPHS["mixed"])
    rng = np.random.default_rng(0)
    a, b = (theta.like(rng.normal(size=len(theta.vector()))) for _ in range(2))
    setting = {"loss": "clique_logistic", "inference": "loopy_bp(n_iter=2)"}
    left = bf.hessian_vector(theta, labels, a, **setting).vector() @ b.vector()
    assert left == pytest.approx(bf.hessian_vector(theta, labels, b, **setting).vector() @ a.vector(), rel=1e-10)


@pytest.mark.parametrize("loss", ["saddle_point", "pseudo_marginal", "maximum_marginal", "contrastive_divergence"])
def test_refused_where_there_is_none(loss):
    theta, labels = example(GRAPHS["grid"])
    with pytest.raises(bf.InputError, match=f"{loss} has no second derivative; use a logistic"):
        bf.hessian_vector(theta, np.maximum(labels, 0), theta, loss=loss, inference="loopy_bp")


def test_direction_must_fit():
    theta, labels = example(GRAPHS["grid"])
    other, _ = example(GRAPHS["mixed"])
    with pytest.raises(bf.InputError, match="direction must be Potentials of the same graph"):
        bf.hessian_vector(theta, labels, other, loss="mse", inference="loopy_bp")
