"""Counting numbers of tree-reweighted message passing: mixtures of trees, and the bound that they give."""

import itertools
import warnings

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from scipy.optimize import linprog

import backfield as bf
from backfield import Graph
from backfield.inference import BruteForce, LoopyBP, MeanField, TreeReweighted
from backfield.inference.message_passing.tree_reweighted import counting_numbers, from_trees
from tests.contracts import strategies
from tests.models import enumerate_model, random_graph, random_potentials


def forests(graph):
    """All acyclic subsets of factors, as rows of 0 and 1."""
    rows = []
    for chosen in itertools.product([0, 1], repeat=graph.n_factors):
        part = list(range(graph.n_variables))
        acyclic = True
        for scope, taken in zip(graph.factors, chosen, strict=True):
            roots = {part[i] for i in scope}
            if taken:
                acyclic &= len(roots) == len(scope)
                part = [min(roots) if p in roots else p for p in part]
        if acyclic:
            rows.append(chosen)
    return np.array(rows)


@pytest.mark.parametrize("pairwise", [True, False])
def test_trees_are_a_mixture_of_acyclic_subsets(pairwise):
    for seed in range(25):
        graph = random_graph(np.random.default_rng(seed), n_max=6, factors_max=8, pairwise=pairwise)
        rho = from_trees(graph)
        assert ((rho > 0) & (rho <= 1)).all()
        if graph.n_factors == 0:
            continue
        subsets = forests(graph)
        mixture = linprog(
            np.zeros(len(subsets)),
            A_eq=np.vstack([subsets.T, np.ones(len(subsets))]),
            b_eq=np.append(rho, 1),
            bounds=(0, 1),
        )
        assert mixture.status == 0, f"seed {seed}: no mixture of acyclic subsets gives {rho}"


def test_trees_on_known_graphs():
    assert (from_trees(Graph.chain(6)) == 1).all()
    assert (from_trees(Graph.grid(4, 5)) == 0.5).all()
    assert (from_trees(Graph.grid(1, 5)) == 1).all() and (from_trees(Graph.grid((1, 4, 5))) == 0.5).all()
    assert (from_trees(Graph.grid((2, 3, 4), neighbours=26)) == 1 / 13).all()
    assert (from_trees(Graph.grid(4, 5, offsets=[(0, 1), (0, 3), (4, 0)])) == 0.5).all()  # one steps out everywhere
    assert (from_trees(Graph([2, 2], [(0, 1)] * 4)) == 0.25).all()
    assert len(from_trees(Graph([2, 2]))) == 0
    # Spanning trees: every subset is as large as it can be.
    graph = Graph.from_edges(Graph.grid(6, 7, neighbours=8).factors)
    assert from_trees(graph).sum() == pytest.approx(graph.n_variables - 1)
    # Parallel factors beyond the usual number of rounds are all covered.
    assert from_trees(Graph([2, 2], [(0, 1)] * 50)).min() > 0


def test_trees_are_the_same_in_a_batch():
    graphs = [random_graph(np.random.default_rng(seed)) for seed in range(20)] + [Graph([2, 2], [(0, 1)] * 30)]
    thetas = [random_potentials(graph, np.random.default_rng(0)) for graph in graphs]
    alone = np.concatenate([from_trees(graph) for graph in graphs])
    np.testing.assert_array_equal(from_trees(bf.batch(thetas).graph), alone)


def test_bound_that_is_reported():
    grid, chain = Graph.grid(3, 3), Graph.chain(4)
    cases = [
        (grid, "trees", "upper"),
        (grid, 0.5, "upper"),
        (grid, 0.3, "upper"),
        (grid, 0.7, "none"),
        (grid, 1, "bethe"),
        (chain, 1, "upper"),
        (chain, [1, 0.5, 0.2], "upper"),
        (grid, np.linspace(0.4, 0.6, 12), "none"),
    ]
    for graph, rho, bound in cases:
        assert TreeReweighted(rho=rho).bound_for(graph) == bound
    assert LoopyBP().infer(random_potentials(chain, np.random.default_rng(0))).bound == "bethe"


def test_numbers_for_rho():
    graph = Graph.chain(4)
    for rho in (1, 1.0, np.float32(1), [1, 1, 1], (1.0, 1, 1), np.ones(3, dtype=np.float32)):
        np.testing.assert_array_equal(counting_numbers(graph, rho), np.ones(3))


def test_rho_of_observed_models():
    """A list of rho keeps the numbers of the factors that are left; a wrong one is refused, not cut."""
    theta = random_potentials(Graph.grid(3, 3), np.random.default_rng(0))
    rho = np.random.default_rng(1).uniform(0.3, 1, 12)
    observed = [0, -1, -1, -1, 1, -1, -1, -1, -1]
    run = bf.infer(theta, TreeReweighted(n_iter=500, tol=1e-12, rho=rho), observed)
    clamped = bf.Potentials(theta.graph, theta.unary.copy(), theta.factors)
    clamped.unary[0, 1] = clamped.unary[4, 0] = -np.inf
    full = bf.infer(clamped, TreeReweighted(n_iter=500, tol=1e-12, rho=rho))
    np.testing.assert_allclose(run.marginals.vector(), full.marginals.vector(), rtol=0, atol=1e-9)
    assert run.log_partition == pytest.approx(full.log_partition, abs=1e-9)
    for bad in ([1, 1], [1] * 13, [[1], [1, 2]], [0] * 12):
        with pytest.raises(bf.InputError, match="rho must be"):
            bf.infer(theta, TreeReweighted(rho=bad), observed)


def loopy_model(seed):
    """A model with cycles: pairwise for even seeds, mixed arity and label counts for odd ones."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(4, 8))
    pairwise = seed % 2 == 0
    labels = np.full(n, rng.integers(2, 4)) if pairwise else rng.integers(2, 4, size=n)
    arities = np.full(2 * n, 2) if pairwise else rng.integers(2, 4, size=2 * n)
    factors = [tuple(rng.choice(n, size=arity, replace=False)) for arity in arities[: rng.integers(n, 2 * n + 1)]]
    return random_potentials(Graph(labels, factors), rng, rng.uniform(0.5, 2) if seed < 100 else 2.0)


@pytest.mark.filterwarnings("ignore::backfield.ConvergenceWarning")
def test_bounds_on_200_loopy_models():
    """Mean field <= log Z <= TRW, which converges on at least 95 %: the acceptance line of the project."""
    converged = 0
    for seed in range(200):
        theta = loopy_model(seed)
        log_z = BruteForce().infer(theta).log_partition
        for n_iter in (0, 1, 100):
            assert MeanField(n_iter=n_iter).infer(theta).log_partition <= log_z + 1e-9
        run = TreeReweighted(rho="trees", n_iter=5000, tol=1e-8, damping=0.3).infer(theta)
        assert run.bound == "upper"
        if run.converged:
            converged += 1
            assert run.log_partition >= log_z - 1e-7
    assert converged >= 190


@settings(max_examples=30, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(theta=strategies.potentials(scales=(0.3, 1.0)))
def test_bound_on_any_graph(theta):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", bf.ConvergenceWarning)
        run = TreeReweighted(n_iter=3000, tol=1e-9, damping=0.2).infer(theta)
    if run.converged:
        assert run.log_partition >= enumerate_model(theta)[0] - 1e-7
