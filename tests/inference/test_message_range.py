"""Products of messages stay within the number type: kernels that multiply are used up to a bound, and are right up to it."""

import itertools

import numpy as np
import pytest

import backfield as bf
from backfield import Graph
from backfield.inference import TreeReweighted
from backfield.inference.message_passing.families import _exposure_of, fits
from tests.models import random_potentials

STAR = [(0, leaf) for leaf in range(1, 25)]
GRAPHS = {
    "star": Graph.from_edges(STAR, labels=2),
    "grid": Graph.grid(5, 5),
    "3 labels": Graph.grid(4, 4, labels=3),
    "mixed": Graph([2, 5, 3, 2], [(0, 1), (1, 2, 3), (2, 0), (3, 0)]),
}
#: "auto" takes the kernels of pairs for the star and three labels, those of images for the grid.
FAMILIES = {"star": ["auto"], "grid": ["auto", "general"], "3 labels": ["auto"], "mixed": ["general"]}
#: A rho for each factor has kernels of its own: one graph for those of pairs, and one for the general ones.
RUNS = [(name, rho) for name in GRAPHS for rho in (0.3, 0.5, 1.0, 2.0)] + [("star", "array"), ("mixed", "array")]


def models(graph):
    """A random model, one whose entries are at the ends of their range, and attraction against fields that disagree."""
    rng = np.random.default_rng(0)
    theta = random_potentials(graph, rng)
    yield theta
    yield theta.like(np.sign(theta.vector()))
    fields = [np.where(np.arange(count) == i % count, 1.0, -1.0) for i, count in enumerate(graph.labels)]
    tables = [np.where(np.ptp(np.indices(table.shape), axis=0) == 0, 1.0, -1.0) for table in theta.factors]
    yield theta.like(np.concatenate([part.ravel() for part in (*fields, *tables)]))


def largest(theta, method, dtype):
    """Scale a model up to where its kernels are just taken."""
    low, high = 1e-3, 1e4
    for _ in range(40):
        middle = (low * high) ** 0.5
        bound = _exposure_of(method.engine(theta.like(middle * theta.vector())))
        low, high = (middle, high) if fits(bound, dtype) else (low, middle)
    return theta.like(0.999 * low * theta.vector())


@pytest.mark.parametrize(("name", "rho"), RUNS)
@pytest.mark.parametrize(("dtype", "tolerance"), [("float32", 1e-3), ("float64", 1e-9)])
def test_kernels_are_right_up_to_the_bound(name, rho, dtype, tolerance):
    graph = GRAPHS[name]
    if rho == "array":
        rho = np.random.default_rng(1).uniform(0.2, 2, graph.n_factors)
    labels = np.zeros(graph.n_variables, int)
    plain, *methods = (TreeReweighted(n_iter=6, rho=rho, family=family) for family in ("log", *FAMILIES[name]))
    for model, method in itertools.product(models(graph), methods):
        theta = largest(model, method, dtype)
        assert method.engine(theta.astype(dtype)).theta.dtype == dtype  # no other kernels have stepped in
        value, gradient = bf.value_and_gradient(theta, labels, loss="univariate_logistic", inference=method, dtype=dtype)
        expected, slope = bf.value_and_gradient(theta, labels, loss="univariate_logistic", inference=plain)
        assert value == pytest.approx(expected, rel=tolerance, abs=tolerance)
        np.testing.assert_allclose(gradient.vector(), slope.vector(), rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("rho", [0.01, 0.5, 2.0, 30.0])
@pytest.mark.parametrize("family", ["auto", "pairwise", "general", "log"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_no_rho_and_no_scale_leaves_the_range(family, rho, dtype):
    for scale in (1, 5, 20, 100, 1e4):
        theta = random_potentials(Graph.grid(5, 5), np.random.default_rng(0), scale)
        run = bf.infer(theta, TreeReweighted(n_iter=10, rho=rho, family=family), dtype=dtype)
        plain = bf.infer(theta, TreeReweighted(n_iter=10, rho=rho, family="log"))
        assert np.isfinite(run.marginals.vector()).all() and np.isfinite(run.log_partition)
        if dtype == "float64" and scale <= 20:
            np.testing.assert_allclose(run.marginals.vector(), plain.marginals.vector(), rtol=0, atol=1e-10)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("label", [0, 1])
def test_a_forbidden_label_leaves_the_kernels_of_grids(dtype, label):
    graph = bf.Graph.grid(3, 4)
    unary = np.zeros((12, 2))
    unary[0, label], unary[11, label] = -np.inf, 900.0
    theta = bf.Potentials(graph, unary, np.zeros((17, 2, 2)))
    run = bf.infer(theta, "tree_reweighted(n_iter=3)", dtype=dtype)
    assert run.unary[0, label] == 0 and run.unary[11, 1 - label] == 0
    expected = bf.infer(theta, "tree_reweighted(n_iter=3, family='log')")
    np.testing.assert_allclose(run.unary, expected.unary, atol=1e-6)
    assert abs(run.log_partition - expected.log_partition) < 1e-3
