"""Where most variables are fixed, engines run on the reduced model: the same numbers as in the whole graph."""

import numpy as np
import pytest

import backfield as bf
from backfield.graph.clamping import Clamp
from backfield.inference import base
from tests.models import random_potentials

METHODS = [
    "tree_reweighted(n_iter=4)",
    "tree_reweighted(n_iter=3, rho=0.7, damping=0.3, schedule='flooding')",
    "loopy_bp(n_iter=3, schedule='sequential')",
    "tree_reweighted(n_iter=200, tol=1e-9)",
    "mean_field(n_iter=3)",
    "mean_field(n_iter=2, schedule='flooding')",
]
GRAPHS = {
    "grid": bf.Graph.grid(4, 5, labels=3),
    "triples": bf.Graph([2, 3, 2, 2, 3, 2, 2, 2], [(0, 1), (1, 2, 3), (3, 0), (4, 5, 6), (2, 6), (6, 7), (7, 0)]),
    "chain": bf.Graph.chain(9, labels=3),
}


def case(name, share=0.7, seed=0):
    graph, rng = GRAPHS[name], np.random.default_rng(seed)
    theta = random_potentials(graph, rng)
    labels = np.array([rng.integers(0, count) for count in graph.labels])
    fixed = rng.permutation(graph.n_variables) < share * graph.n_variables
    return theta, labels, np.where(fixed, labels, -1)


def in_both(monkeypatch, call):
    """Return what a call gives in the reduced model, and in the whole graph."""
    seen = []
    make = base.ReducedEngine.__init__
    monkeypatch.setattr(base.ReducedEngine, "__init__", lambda self, *args: (seen.append(1), make(self, *args))[1])
    reduced = call()
    assert seen, "the reduced model was not used"
    monkeypatch.setattr(Clamp, "most", False)
    return reduced, call()


@pytest.mark.parametrize("name", GRAPHS)
@pytest.mark.parametrize("method", METHODS)
def test_inference(monkeypatch, name, method):
    theta, _, observed = case(name)
    found, wanted = in_both(monkeypatch, lambda: bf.infer(theta, method, observed=observed))
    np.testing.assert_allclose(found.marginals.vector(), wanted.marginals.vector(), atol=1e-12)
    assert found.log_partition == pytest.approx(wanted.log_partition, rel=1e-12)
    assert (found.bound, found.n_iter, found.converged) == (wanted.bound, wanted.n_iter, wanted.converged)


@pytest.mark.parametrize("name", GRAPHS)
@pytest.mark.parametrize("method", METHODS[:3] + METHODS[4:])
@pytest.mark.parametrize("loss", ["univariate_logistic", "clique_quadratic", "surrogate_likelihood"])
def test_gradients(monkeypatch, name, method, loss):
    theta, labels, observed = case(name, seed=1)

    def call():
        if loss == "surrogate_likelihood":
            return bf.value_and_gradient(theta, observed, loss=loss, inference=method, gradient="truncated")
        return bf.value_and_gradient(theta, labels, loss=loss, inference=method, gradient="truncated", observed=observed)

    (value, gradient), (wanted, d_wanted) = in_both(monkeypatch, call)
    assert value == pytest.approx(wanted, rel=1e-11)
    np.testing.assert_allclose(gradient.vector(), d_wanted.vector(), atol=1e-11)


def test_forbidden_labels_and_float32(monkeypatch):
    theta, _, observed = case("grid")
    unary = theta.unary.copy()
    free = np.flatnonzero(observed < 0)
    unary[free[0], 1] = -np.inf
    fixed = observed >= 0
    unary[fixed] = np.where(np.arange(3) == observed[fixed][:, None], unary[fixed], -np.inf)
    given = bf.Potentials(theta.graph, unary, theta.factors)
    for dtype, tolerance in (("float64", 1e-12), ("float32", 1e-5)):
        with monkeypatch.context() as patch:
            found, wanted = in_both(patch, lambda dtype=dtype: bf.infer(given, METHODS[0], dtype=dtype))
            np.testing.assert_allclose(found.marginals.vector(), wanted.marginals.vector(), atol=tolerance)
            assert found.marginals.dtype == dtype


def test_a_free_variable_without_a_label_is_named():
    theta, _, observed = case("chain")
    observed[:] = 0
    observed[4] = -1
    tables = theta.factors.copy()
    tables[3, 0, :2] = tables[4, 2:, 0] = -np.inf
    with pytest.raises(bf.InputError, match=r"variable 4|impossible"):
        bf.infer(bf.Potentials(theta.graph, theta.unary, tables), METHODS[0], observed=observed)


def test_gradients_of_second_order():
    theta, labels, observed = case("grid", seed=2)
    direction = theta.like(np.random.default_rng(0).normal(size=len(theta.vector())))
    setting = {"loss": "univariate_logistic", "inference": METHODS[0], "observed": observed}
    product = bf.hessian_vector(theta, labels, direction, **setting)
    step = 1e-6
    ends = [
        bf.value_and_gradient(theta.like(theta.vector() + sign * step * direction.vector()), labels, **setting)[1].vector()
        for sign in (1, -1)
    ]
    np.testing.assert_allclose(product.vector(), (ends[0] - ends[1]) / (2 * step), atol=1e-6)
