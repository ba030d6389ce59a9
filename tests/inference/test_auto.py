"""Exact where it fits; bounds that hold, and do not get worse with time."""

import numpy as np
import pytest

import backfield as bf
from backfield.inference.auto.bounds import Bounds, LowerByClusters, UpperByMiniBuckets, plain_upper, tighten
from backfield.inference.auto.cluster_mean_field import ClusterMeanField, cut
from backfield.inference.auto.descent import minimise
from backfield.inference.auto.mini_buckets import MiniBucketBound, Split
from backfield.inference.exact.elimination import eliminate
from backfield.inference.exact.junction_tree import free_scopes
from backfield.inference.exact.propagation import propagate
from backfield.inference.exact.weighted import WeightedElimination
from backfield.kernels.compiling import clock
from tests.models import enumerate_model, random_graph, random_potentials

pytestmark = pytest.mark.usefixtures("processor_time")


def model(seed, n=8, scale=2.0, zeros=0.0):
    """Factors of two and three variables with two or three labels, some entries forbidden but not all labelings."""
    rng = np.random.default_rng(seed)
    factors = [rng.choice(n, size=rng.integers(2, 4), replace=False) for _ in range(n + 3)]
    theta = random_potentials(bf.Graph(rng.integers(2, 4, size=n), factors), rng, scale)
    safe = rng.integers(theta.graph.labels)
    for scope, table in zip(theta.graph.factors, theta.factors, strict=True):
        entry = table[tuple(safe[list(scope)])]
        table[rng.random(table.shape) < zeros] = -np.inf
        table[tuple(safe[list(scope)])] = entry
    return theta


def order_of(theta):
    return eliminate(*free_scopes(theta.graph)).order.tolist()


def uniform(theta):
    return np.concatenate([np.full(count, 1 / count) for count in theta.graph.labels])


@pytest.mark.parametrize("zeros", [0.0, 0.3])
def test_mini_buckets_are_above(zeros):
    for seed in range(15):
        theta = model(seed, zeros=zeros)
        log_z, _ = enumerate_model(theta)
        start = split = None
        for limit in (4, 12, 40, 10**6):
            split = Split(theta.graph, order_of(theta), limit, split)
            assert split.order.largest <= max(limit, 27)
            start = MiniBucketBound(theta, split, 2**30, start)
            first = start.value
            assert first >= log_z - 1e-9
            start.tighten(clock() + 0.05)
            assert log_z - 1e-9 <= start.value <= first + 1e-9
        assert split.is_exact and start.value == pytest.approx(log_z, abs=1e-9)


def test_gradients_of_mini_buckets():
    theta = model(1, zeros=0.2)
    bound = MiniBucketBound(theta, Split(theta.graph, order_of(theta), 9), 2**30)
    rng = np.random.default_rng(0)
    delta, weight = rng.normal(size=len(bound.delta)), rng.normal(size=len(bound.log_weight))
    _, d_delta, d_weight = bound.evaluate(delta, weight)
    for _ in range(5):
        a, b = rng.normal(size=len(delta)), rng.normal(size=len(weight))
        ahead, back = (bound.evaluate(delta + s * a, weight + s * b)[0] for s in (1e-6, -1e-6))
        assert (ahead - back) / 2e-6 == pytest.approx(d_delta @ a + d_weight @ b, rel=1e-5, abs=1e-7)


@pytest.mark.parametrize("zeros", [0.0, 0.3])
def test_clusters_are_below_and_rise(zeros):
    for seed in range(15):
        theta = model(seed, zeros=zeros)
        log_z, mu = enumerate_model(theta)
        start = uniform(theta)
        if zeros:
            best = bf.find_map(theta, "brute_force").labels
            start = np.zeros_like(start)
            start[theta.graph.layout.var_ptr[:-1] + best] = 1
        for count in (1, 2, 4, 8):
            field = ClusterMeanField(theta, cut(np.arange(8), count), start, 2**20)
            values = [field.sweep() for _ in range(15)]
            assert np.diff(values).min() >= -1e-9 and values[-1] <= log_z + 1e-9
            assert values[0] > -np.inf
            if count == 1:
                assert values[0] == pytest.approx(log_z, abs=1e-9)
                np.testing.assert_allclose(field.beliefs(), mu.unary_flat, atol=1e-9)


def test_one_cluster_for_each_variable_is_mean_field():
    theta = model(0, scale=0.5)
    naive = bf.infer(theta, "mean_field(n_iter=2000, tol=1e-12)")
    field = ClusterMeanField(theta, cut(np.arange(8), 8), naive.marginals.unary_flat, 2**20)
    assert field.raise_until(clock() + 1) == pytest.approx(naive.log_partition, abs=1e-8)


def test_bounds_on_a_grid_with_known_partition():
    rng = np.random.default_rng(5)
    theta = random_potentials(bf.Graph.grid(9, 9), rng, 2.0)
    log_z = bf.infer(theta, "exact").log_partition
    bounds, seen = Bounds(), []
    upper = UpperByMiniBuckets(theta, order_of(theta), bounds, 2**18)  # memory for tables of a few entries
    lower = LowerByClusters(theta, uniform(theta), bounds, 2**14)

    class Watch:
        def improve(self, seconds, deadline):
            seen.append((bounds.lower, bounds.upper))

    tighten(bounds, [upper, lower, Watch()], clock() + 3)
    assert not upper.split.is_exact and len(seen) > 2
    assert all(low <= log_z + 1e-8 and high >= log_z - 1e-8 for low, high in seen)
    widths = [high - low for low, high in seen]
    assert np.diff(widths).max() <= 1e-12
    naive = (
        bf.infer(theta, "tree_reweighted(n_iter=500)").log_partition
        - bf.infer(theta, "mean_field(n_iter=500)").log_partition
    )
    assert widths[-1] < naive


def test_exact_where_it_fits():
    for seed in range(10):
        theta = model(seed, zeros=0.3 * (seed % 2))
        log_z, mu = enumerate_model(theta)
        run = bf.infer(theta, "auto(seconds=5)")
        assert run.bound == "exact" and run.lower == run.upper == run.log_partition == pytest.approx(log_z, abs=1e-9)
        np.testing.assert_allclose(run.marginals.vector(), mu.vector(), atol=1e-10)
        assert run.extra["known"].startswith("exact")


def test_bounds_where_memory_is_short():
    rng = np.random.default_rng(1)
    theta = random_potentials(bf.Graph.grid(8, 8, labels=3), rng, 1.0)
    log_z = bf.infer(theta, "exact").log_partition
    observed = np.full(64, -1)
    observed[:3] = 1
    for known in (None, observed):
        wanted = log_z if known is None else bf.infer(theta, "exact", observed=known).log_partition
        run = bf.infer(theta, "auto(seconds=1.5, memory=60000)", observed=known)
        assert run.bound == "none" and run.lower - 1e-8 <= wanted <= run.upper + 1e-8
        assert np.isfinite(run.lower) and np.isfinite(run.upper) and run.lower <= run.log_partition <= run.upper
        assert "log Z is in [" in run.extra["known"]
        np.testing.assert_allclose([row.sum() for row in run.unary], 1)


@pytest.mark.parametrize("zeros", [0.0, 0.3])
def test_a_bound_from_above_is_known_at_once(zeros):
    for seed in range(20):
        theta = model(seed, zeros=zeros)
        assert plain_upper(theta) >= enumerate_model(theta)[0] - 1e-9
    edges = np.stack(np.triu_indices(40, 1), axis=1)
    theta = random_potentials(bf.Graph.from_edges(edges, n_variables=40), np.random.default_rng(0), 0.5)
    run = bf.infer(theta, "auto(seconds=0.01)")
    assert run.lower <= run.upper < np.inf


def test_zeros_with_short_memory():
    theta = model(3, n=14, zeros=0.3)
    log_z = bf.infer(theta, "exact").log_partition
    run = bf.infer(theta, "auto(seconds=1, memory=3000)")
    assert run.lower - 1e-8 <= log_z <= run.upper + 1e-8


def test_bounds_of_other_methods():
    theta = model(0, scale=0.5)
    log_z, _ = enumerate_model(theta)
    assert bf.infer(theta, "mean_field(n_iter=50)").lower <= log_z
    assert bf.infer(theta, "mean_field(n_iter=50)").upper == np.inf
    run = bf.infer(theta, "tree_reweighted(n_iter=3000, tol=1e-9)")
    assert run.upper >= log_z - 1e-7 and run.lower == -np.inf
    assert bf.infer(theta, "loopy_bp(n_iter=50)").lower == -np.inf


@pytest.mark.parametrize(
    "spec", ["auto(seconds=0)", "auto(seconds=-1)", "auto(seconds='x')", "auto(seconds=True)", "auto(memory=0)"]
)
def test_bad_settings(spec):
    with pytest.raises(bf.InputError, match="auto: "):
        bf.infer(model(0), spec)


def test_impossible_models():
    theta = bf.Potentials(bf.Graph.chain(3), np.zeros((3, 2)), np.full((2, 2, 2), -np.inf))
    theta.factors[0][0, 0] = theta.factors[1][1, 1] = 0
    with pytest.raises(bf.InputError, match="no configuration is possible"):
        bf.infer(theta, "auto")


def test_propagation_loses_no_labeling():
    for seed in range(40):
        theta = model(seed, zeros=0.6)
        _, mu = enumerate_model(theta)
        allowed = propagate(theta, np.ones(len(theta.unary_flat), dtype=bool))
        assert allowed[mu.unary_flat > 0].all()
    decided = model(2, zeros=0.9)
    assert not propagate(decided, np.ones(len(decided.unary_flat), dtype=bool)).all()


def test_weighted_elimination_sums_maximises_and_samples():
    for seed in range(20):
        rng = np.random.default_rng(seed)
        theta = random_potentials(random_graph(rng), rng, 1.0)
        log_z, mu = enumerate_model(theta)
        elimination = WeightedElimination(theta.graph)
        forward = elimination.forward(theta.vector(), np.ones(theta.graph.n_variables))
        assert forward.value == pytest.approx(log_z, abs=1e-10)
        np.testing.assert_allclose(forward.marginals()[0], mu.vector(), atol=1e-12)
        best = elimination.forward(theta.vector(), np.zeros(theta.graph.n_variables))
        assert theta.score(best.labels()) == pytest.approx(best.value)
        assert best.value == pytest.approx(bf.find_map(theta, "brute_force").value)


def test_descent_finds_the_minimum_of_a_convex_function():
    rng = np.random.default_rng(0)
    half = rng.normal(size=(30, 30))
    matrix, target = half @ half.T + 0.1 * np.eye(30), rng.normal(size=30)
    values = []

    def function(x):
        values.append(0.5 * x @ matrix @ x - target @ x)
        return values[-1], matrix @ x - target

    x = minimise(function, np.zeros(30), clock() + 5, tol=0)
    np.testing.assert_allclose(x, np.linalg.solve(matrix, target), atol=1e-4)
