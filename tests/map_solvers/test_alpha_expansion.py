import itertools

import numpy as np
import pytest

import backfield as bf
from backfield import Graph, InputError, Potentials
from backfield.map_solvers import AlphaBetaSwap, AlphaExpansion, GraphCut

INF = np.inf
SOLVERS = [AlphaExpansion, AlphaBetaSwap]


def some_graph(rng, labels):
    if rng.random() < 0.5:
        return Graph.grid(2, 3, labels=labels)
    n = int(rng.integers(1, 6))
    edges = [rng.choice(n, 2, replace=False) for _ in range(int(rng.integers(0, 8)) if n > 1 else 0)]
    return Graph.from_edges(np.array(edges).reshape(-1, 2), n, labels=labels)


def metric(graph, rng):
    """Normal unaries; truncated linear or Potts factors of random weight."""
    labels = np.arange(graph.n_labels)
    distance = np.minimum(np.abs(labels[:, None] - labels), rng.choice([1, 2]))
    return Potentials(graph, rng.normal(size=(graph.n_variables, graph.n_labels)), -weights(graph, rng) * distance)


def anything(graph, rng):
    factors = rng.normal(size=(graph.n_factors, graph.n_labels, graph.n_labels))
    return Potentials(graph, rng.normal(size=(graph.n_variables, graph.n_labels)), factors)


def weights(graph, rng):
    return rng.random(graph.n_factors)[:, None, None] * 2


def moves(solver, labels, n_labels):
    """All labelings that one move can reach."""
    n = len(labels)
    for choice in itertools.product(range(2), repeat=n):
        choice = np.array(choice, dtype=bool)
        for a in range(n_labels):
            if solver is AlphaExpansion:
                yield np.where(choice, a, labels)
            else:
                for b in range(a):
                    yield np.where((labels == a) | (labels == b), np.where(choice, a, b), labels)


@pytest.mark.parametrize("solver", SOLVERS)
def test_no_move_improves_the_result_on_metric_models(solver):
    rng = np.random.default_rng(0)
    for _ in range(25):
        theta = metric(some_graph(rng, int(rng.integers(3, 5))), rng)
        run = solver(truncate=False).solve(theta)
        assert run.value == theta.score(run.labels)
        best = max(theta.score(other) for other in moves(solver, run.labels, theta.graph.n_labels))
        assert best <= run.value + 1e-9
        assert run.value >= theta.score(theta.unary.argmax(axis=1))


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("init", ["unary", "zero"])
def test_value_never_falls(solver, init):
    rng = np.random.default_rng(1)
    for _ in range(40):
        theta = anything(some_graph(rng, int(rng.integers(1, 5))), rng)
        start = theta.unary.argmax(axis=1) if init == "unary" else np.zeros(theta.graph.n_variables, dtype=np.int64)
        value = theta.score(start)
        for n_iter in (1, 2, 10):
            run = solver(n_iter=n_iter, init=init).solve(theta)
            assert run.value == theta.score(run.labels) >= value - 1e-12
            assert run.n_iter <= n_iter
            value = run.value


@pytest.mark.parametrize("solver", SOLVERS)
def test_two_labels_are_solved_exactly_where_submodular(solver):
    rng = np.random.default_rng(2)
    for _ in range(20):
        theta = metric(some_graph(rng, 2), rng)
        run, cut = solver().solve(theta), GraphCut().solve(theta)
        assert run.optimal and run.value == cut.value
        assert not solver().solve(anything(Graph.grid(3, 3, labels=2), rng)).optimal


@pytest.mark.parametrize("solver", SOLVERS)
def test_forbidden_entries(solver):
    rng = np.random.default_rng(3)
    found = 0
    for _ in range(40):
        theta = metric(Graph.grid(2, 3, labels=3), rng)
        theta.unary[rng.random((6, 3)) < 0.2] = -INF
        theta.factors[rng.random((7, 3, 3)) < 0.1] = -INF
        theta.unary[np.arange(6), 1] = 0.0
        theta.factors[:, 1, 1] = -0.5  # all 1 is possible
        run = solver().solve(theta)
        assert run.value == theta.score(run.labels)
        found += run.value > -INF
    assert found >= 38


def test_close_to_the_optimum_and_better_than_swaps_on_potts_images():
    rng = np.random.default_rng(4)
    graph = Graph.grid(20, 20, labels=5)
    theta = Potentials(graph, rng.normal(size=(400, 5)), np.tile(np.eye(5), (graph.n_factors, 1, 1)))
    expansion, swap, icm = (bf.find_map(theta, name).value for name in ("alpha_expansion", "alpha_beta_swap", "icm"))
    assert expansion >= swap > icm


def test_grid_and_general_graph_agree():
    rng = np.random.default_rng(5)
    theta = metric(Graph.grid(6, 7, labels=4), rng)
    general = Graph.from_edges(theta.graph.factors, 42, labels=4)
    for solver in SOLVERS:
        a, b = solver().solve(theta), solver().solve(Potentials(general, theta.unary, theta.factors))
        np.testing.assert_array_equal(a.labels, b.labels)


def test_refusals():
    factors = np.zeros((2, 3, 3))
    factors[1, 0, 2] = 1
    theta = Potentials(Graph.from_edges([[0, 1], [2, 1]], 3, labels=3), np.zeros((3, 3)), factors)
    with pytest.raises(InputError, match=r"factor 1 over variables \(2, 1\) is not metric.* truncate=True"):
        AlphaExpansion(truncate=False).solve(theta)
    with pytest.raises(InputError, match=r"factor 1 over variables \(2, 1\) is not semi-metric.* truncate=True"):
        AlphaBetaSwap(truncate=False).solve(theta)
    with pytest.raises(InputError, match=r"same number of labels"):
        AlphaExpansion().solve(Potentials(Graph([2, 3]), [np.zeros(2), np.zeros(3)]))
    with pytest.raises(InputError, match=r"factors of two variables"):
        AlphaBetaSwap().solve(Potentials(Graph([2] * 3, [(0, 1, 2)]), np.zeros((3, 2)), np.zeros((1, 2, 2, 2))))
    for bad in ({"n_iter": 0}, {"init": "best"}):
        with pytest.raises(InputError, match=next(iter(bad))):
            AlphaExpansion(**bad)
    assert repr(AlphaExpansion(n_iter=3)) == "alpha_expansion(n_iter=3)"
