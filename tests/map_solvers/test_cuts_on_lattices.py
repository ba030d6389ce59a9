"""Cuts and expansions on grids of any dimension and neighbourhood: with the grid's arithmetic as with written-out arcs."""

import numpy as np
import pytest

import backfield as bf
from backfield import Graph
from backfield.map_solvers import CutProblem, GraphCut
from tests.inference.test_neighbourhoods import SMALL, WIDE

each_wide = pytest.mark.parametrize("graph", WIDE.values(), ids=WIDE.keys())


def attractive(graph, seed=0, labels=2):
    """Tables that a cut can express, and the same model on a graph that does not know that it is a grid."""
    rng = np.random.default_rng(seed)
    graph = Graph.grid(graph.shape, labels, offsets=graph.offsets)
    factors = rng.normal(size=(graph.n_factors, labels, labels)) * 0.3
    factors += rng.uniform(0.9, 1.5, graph.n_factors)[:, None, None] * np.eye(labels)
    unary = rng.normal(size=(graph.n_variables, labels))
    plain = Graph.from_edges(graph.factors, graph.n_variables, labels)
    return bf.Potentials(graph, unary, factors), bf.Potentials(plain, unary, factors)


@each_wide
def test_cuts_are_those_of_the_plain_graph(graph):
    for seed in range(3):
        ours, plain = attractive(graph, seed)
        found, expected = (GraphCut(truncate=True).solve(theta) for theta in (ours, plain))
        np.testing.assert_array_equal(found.labels, expected.labels)
        assert found.value == expected.value and found.n_truncated == expected.n_truncated


@pytest.mark.parametrize("graph", SMALL.values(), ids=SMALL.keys())
def test_cuts_are_the_best_labels(graph):
    ours, _ = attractive(graph)
    best = bf.find_map(ours, "brute_force")
    assert GraphCut(truncate=True).solve(ours).value <= best.value + 1e-9
    clean = bf.Potentials(ours.graph, ours.unary, np.tile(np.eye(2), (graph.n_factors, 1, 1)))
    found, best = GraphCut().solve(clean), bf.find_map(clean, "brute_force")
    assert found.optimal and found.value == pytest.approx(best.value, abs=1e-9)


@each_wide
def test_dynamic_cuts(graph):
    ours, plain = attractive(graph, 1)
    problems = [CutProblem(theta, truncate=True) for theta in (ours, plain)]
    rng = np.random.default_rng(0)
    for problem in problems:
        problem.solve()
    variables, deltas = rng.integers(0, graph.n_variables, 20), rng.normal(0, 3, 20)
    labels = [problem.solve_many(variables, deltas, returns="labels") for problem in problems]
    np.testing.assert_array_equal(*labels)
    np.testing.assert_allclose(*(problem.min_marginals() for problem in problems))


@each_wide
def test_expansions(graph):
    ours, plain = attractive(graph, 2, labels=4)
    found, expected = (bf.find_map(theta, "alpha_expansion") for theta in (ours, plain))
    assert found.value == pytest.approx(expected.value)


def test_forbidden_entries():
    ours, plain = attractive(WIDE["3-D, 26"], 3)
    for theta in (ours, plain):
        theta.factors[5, 0, 1] = theta.unary[7, 0] = -np.inf
    found, expected = (GraphCut(truncate=True).solve(theta) for theta in (ours, plain))
    np.testing.assert_array_equal(found.labels, expected.labels)


def test_what_is_not_submodular_is_named():
    graph = Graph.grid((2, 2, 2))
    factors = np.tile(np.eye(2), (graph.n_factors, 1, 1))
    factors[9] = 1 - factors[9]
    i, j = graph.factors[9]
    with pytest.raises(bf.InputError, match=rf"factor 9 over variables \({i}, {j}\)"):
        GraphCut().solve(bf.Potentials(graph, np.zeros((8, 2)), factors))
