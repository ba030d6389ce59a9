"""Derivatives with respect to the inference itself: rho, damping and the initial state."""

import numpy as np
import pytest

import backfield as bf
from backfield.graph.labeling import as_labeling
from backfield.inference import MeanField, TreeReweighted
from backfield.objectives import get_objective
from backfield.registry import get, lookup
from tests.gradients.differences import GRAPHS, along, example, iterative_methods


def value_of(theta, labels, loss, inference):
    return bf.value_and_gradient(theta, labels, loss=loss, inference=inference)[0]


@pytest.mark.parametrize("graph", GRAPHS)
@pytest.mark.parametrize("loss", ["univariate_logistic", "clique_quadratic"])
def test_rho_and_damping(graph, loss):
    theta, labels = example(GRAPHS[graph])
    rng = np.random.default_rng(0)
    rho = rng.uniform(0.4, 1, size=theta.graph.n_factors)
    method = TreeReweighted(n_iter=4, rho=rho, damping=0.2)
    value, d = bf.inference_gradient(theta, labels, loss=loss, inference=method)
    assert value == pytest.approx(value_of(theta, labels, loss, method))
    direction = rng.normal(size=len(rho))
    along_rho = along(lambda t: value_of(theta, labels, loss, method.replace(rho=rho + t * direction)), 1e-3)
    assert d["rho"] @ direction == pytest.approx(along_rho, rel=1e-6, abs=1e-9)
    along_damping = along(lambda t: value_of(theta, labels, loss, method.replace(damping=0.2 + t)), 1e-3)
    assert d["damping"] == pytest.approx(along_damping, rel=1e-6, abs=1e-9)


@pytest.mark.parametrize("schedule", ["auto", "flooding"])
def test_damping_of_mean_field(schedule):
    for graph in GRAPHS.values():
        theta, labels = example(graph)
        method = MeanField(n_iter=3, damping=0.3, schedule=schedule)
        _, d = bf.inference_gradient(theta, labels, loss="clique_logistic", inference=method)
        measured = along(lambda t: value_of(theta, labels, "clique_logistic", method.replace(damping=0.3 + t)), 1e-3)
        assert d["damping"] == pytest.approx(measured, rel=1e-6, abs=1e-9)


@pytest.mark.parametrize("name", iterative_methods())
def test_initial_state(name):
    method = get("inference", name).replace(n_iter=3)
    plain = method.replace(family="log" if "rho" in lookup("inference", name).__doc__ or name == "loopy_bp" else "general")
    for graph in GRAPHS.values():
        theta, labels = example(graph)
        _, d = bf.inference_gradient(theta, labels, loss="univariate_logistic", inference=method)
        engine = plain.engine(theta)
        direction = np.random.default_rng(0).normal(size=engine.init().shape)

        def value(t):
            state = engine.init() + t * direction
            engine.sweeps(state, 0, 3)
            loss = get_objective("univariate_logistic").loss
            return loss.value_and_dmu(engine.marginals(state), as_labeling(graph, labels), None)[0]

        assert (d["init"] * direction).sum() == pytest.approx(along(value, 1e-3), rel=1e-6, abs=1e-9)


def test_rho_can_be_tuned():
    """A few steps along d_rho lower the loss: what the derivative is for ([S11] §9)."""
    theta, labels = example(bf.Graph.grid(4, 4), scale=1.5)
    method = TreeReweighted(n_iter=10, rho=np.full(theta.graph.n_factors, 0.7))
    before, _ = bf.inference_gradient(theta, labels, loss="univariate_logistic", inference=method)
    value = before
    for _ in range(5):
        _, d = bf.inference_gradient(theta, labels, loss="univariate_logistic", inference=method)
        method = method.replace(rho=np.clip(method.rho - 0.05 * np.sign(d["rho"]), 0.1, 2))
        value, _ = bf.inference_gradient(theta, labels, loss="univariate_logistic", inference=method)
    assert value < before


def test_refusals():
    theta, labels = example(GRAPHS["grid"])
    with pytest.raises(bf.InputError, match="only iterative methods have parameters"):
        bf.inference_gradient(theta, labels, loss="mse", inference="exact")
    with pytest.raises(bf.InputError, match="takes a loss on marginals"):
        bf.inference_gradient(theta, labels, loss="surrogate_likelihood", inference="loopy_bp")
    with pytest.raises(bf.InputError, match="no observed variables"):
        bf.inference_gradient(theta, labels, loss="mse", inference="loopy_bp", observed=labels)
