import numpy as np
import pytest

import backfield as bf
from backfield import Graph, InputError, Potentials
from backfield.inference import Gibbs
from backfield.inference.sampling import gibbs_kernels
from backfield.inference.sampling.gibbs import gibbs_chain, gibbs_steps, rng_states, sample
from tests.models import enumerate_model, random_graph, random_potentials

INF = np.inf


def ising(rows, columns, coupling, seed=0):
    graph = Graph.grid(rows, columns)
    rng = np.random.default_rng(seed)
    table = coupling * np.array([[1.0, -1.0], [-1.0, 1.0]])
    return Potentials(graph, rng.normal(size=(rows * columns, 2)), np.broadcast_to(table, (graph.n_factors, 2, 2)))


def forbidding():
    """Some labels and pairs are forbidden, but single changes still lead everywhere."""
    rng = np.random.default_rng(5)
    theta = random_potentials(Graph([3, 3, 2, 3], [(0, 1), (1, 2, 3), (3, 0)]), rng)
    theta.unary_flat[1] = -INF
    theta.factors_flat[[3, 12, 20]] = -INF
    return theta


def models():
    rng = np.random.default_rng(0)
    yield ising(3, 3, 0.4)
    yield forbidding()
    yield random_potentials(Graph.chain(6, 4), rng)
    yield random_potentials(Graph([2, 3, 1, 4], [(0, 1), (0, 1), (3, 2, 1)]), rng)
    yield random_potentials(Graph([3, 2]), rng)


@pytest.mark.parametrize("index", range(5))
def test_marginals_are_within_standard_errors_of_enumeration(index):
    theta = list(models())[index]
    runs = [Gibbs(n_samples=300, burn_in=50, n_chains=2, seed=seed).infer(theta) for seed in range(12)]
    estimates = np.array([run.marginals.vector() for run in runs])
    error = estimates.std(axis=0, ddof=1) / np.sqrt(len(runs))
    assert error.max() < 0.02
    assert (np.abs(estimates.mean(axis=0) - enumerate_model(theta)[1].vector()) < 5 * error + 1e-4).all()


def test_log_partition_is_within_reported_errors():
    off = []
    for seed in range(30):
        rng = np.random.default_rng(seed)
        theta = random_potentials(random_graph(rng), rng, scale=[0.3, 1.0, 3.0][seed % 3])
        run = Gibbs(seed=seed, n_samples=400).infer(theta)
        assert run.bound == "none" and np.isfinite(run.log_partition_error)
        off.append(abs(run.log_partition - enumerate_model(theta)[0]) / (run.log_partition_error + 1e-9))
    assert np.mean(np.array(off) < 5) >= 0.95
    assert np.median(off) > 0.05  # the reported error is not a wild guess upward


def test_error_of_log_partition_covers_what_annealing_misses():
    theta = ising(30, 30, 0.5)
    few, many = Gibbs(n_samples=1, n_chains=2).infer(theta), Gibbs(n_samples=1000, n_chains=2).infer(theta)
    assert abs(few.log_partition - many.log_partition) < 5 * few.log_partition_error
    assert many.log_partition_error < few.log_partition_error


def test_marginals_sum_to_one():
    for seed in range(10):
        rng = np.random.default_rng(seed)
        theta = random_potentials(random_graph(rng), rng)
        mu = Gibbs(n_samples=20, n_chains=1).infer(theta).marginals
        layout = theta.graph.layout
        assert np.allclose(np.add.reduceat(mu.unary_flat, layout.var_ptr[:-1]), 1)
        if theta.graph.n_factors:
            assert np.allclose(np.add.reduceat(mu.factors_flat, layout.table_ptr[:-1]), 1)


def test_rao_blackwell_is_exact_without_factors():
    theta = random_potentials(Graph([2, 5, 3]), np.random.default_rng(0), scale=3)
    run = Gibbs(n_samples=3, n_chains=1, burn_in=0).infer(theta)
    log_z, mu = enumerate_model(theta)
    assert np.allclose(run.marginals.vector(), mu.vector())
    assert run.log_partition == pytest.approx(log_z)
    assert run.log_partition_error < 1e-9


def test_seeds():
    theta = ising(3, 4, 0.5)
    first, again, other = (Gibbs(n_samples=50, seed=seed).infer(theta) for seed in (1, 1, 2))
    assert first.marginals.vector().tobytes() == again.marginals.vector().tobytes()
    assert first.log_partition == again.log_partition
    assert not np.array_equal(first.marginals.vector(), other.marginals.vector())
    assert first.log_partition != other.log_partition
    assert sample(theta, 9, seed=1).tobytes() == sample(theta, 9, seed=1).tobytes()
    assert not np.array_equal(sample(theta, 9, seed=1), sample(theta, 9, seed=2))


def test_generator_is_xoshiro256():
    mask = 2**64 - 1

    def rotate(v, k):
        return ((v << k) | (v >> (64 - k))) & mask

    state = rng_states(3, 1)[0]
    s = [int(v) for v in state]
    for _ in range(50):
        expected = (rotate((s[0] + s[3]) & mask, 23) + s[0]) & mask
        t = (s[1] << 17) & mask
        s[2] ^= s[0]
        s[3] ^= s[1]
        s[1] ^= s[2]
        s[0] ^= s[3]
        s[2] ^= t
        s[3] = rotate(s[3], 45)
        assert gibbs_kernels._uniform(state) == (expected >> 11) * 2.0**-53


def test_convergence_is_r_hat():
    run = Gibbs().infer(ising(3, 3, 0.3))
    assert run.converged and run.extra["r_hat"] < 1.05
    assert run.residual == run.extra["r_hat"] - 1
    assert run.n_iter == 1100
    assert Gibbs(n_samples=10, burn_in=5, thin=3).infer(ising(2, 2, 0.1)).n_iter == 35
    frozen = Potentials(Graph.chain(6), np.zeros((6, 2)), np.tile([[0, -INF], [-INF, 0]], (5, 1, 1)))
    stuck = Gibbs(n_samples=50).infer(frozen)  # all equal: no single change is possible
    assert not stuck.converged and stuck.extra["r_hat"] == INF


def test_observed_and_dtype():
    theta = forbidding()
    observed = np.array([-1, 1, -1, -1])
    run = bf.infer(theta, "gibbs(n_samples=2000, seed=3)", observed=observed, dtype="float32")
    clamped = Potentials.from_flat(theta.graph, theta.unary_flat.copy(), theta.factors_flat)
    clamped.unary_flat[[3, 5]] = -INF
    log_z, mu = enumerate_model(clamped)
    assert run.marginals.dtype == np.float32
    assert np.array_equal(run.unary[1], [0, 1, 0])
    assert np.abs(run.marginals.vector() - mu.vector()).max() < 0.03
    assert abs(run.log_partition - log_z) < 5 * run.log_partition_error + 1e-5


def colouring(graph, n_colours, scale=1.0):
    rng = np.random.default_rng(0)
    factors = scale * rng.normal(size=(graph.n_factors, n_colours, n_colours))
    factors[:, np.arange(n_colours), np.arange(n_colours)] = -INF
    return Potentials(graph, scale * rng.normal(size=(graph.n_variables, n_colours)), factors)


@pytest.mark.parametrize("scale", [1.0, 1e4])
def test_chains_start_where_it_is_possible(scale):
    theta = colouring(Graph.grid(8, 8, 3), 3, scale)
    run = Gibbs(n_samples=20, n_chains=2, burn_in=5).infer(theta)
    forbidden = theta.factors_flat == -INF
    assert (run.marginals.factors_flat[forbidden] == 0).all()
    assert np.isfinite(run.log_partition) and run.log_partition_error > 0
    assert all(theta.score(x) > -INF for x in sample(theta, 20))


def test_impossible_models_are_refused():
    triangle = Graph.from_edges([(0, 1), (1, 2), (2, 0)])
    with pytest.raises(InputError, match="no possible configuration"):
        Gibbs().infer(colouring(triangle, 2))
    with pytest.raises(InputError, match="no possible configuration"):
        sample(colouring(triangle, 2), 5)
    pair = Graph(labels=[2, 2, 2], factors=[(0, 1), (1, 2)])
    theta = Potentials(pair, np.zeros((3, 2)), [[[0, -INF], [0, -INF]], [[-INF, -INF], [0, 0]]])
    with pytest.raises(InputError, match="no configuration is possible"):
        Gibbs().infer(theta)
    with pytest.raises(InputError, match="variable 0 has no allowed label"):
        Gibbs().infer(Potentials(Graph([2]), [[-INF, -INF]]))


def test_sample_follows_the_model():
    theta = ising(2, 3, 0.5)
    draws = sample(theta, 4000, seed=2, thin=2)
    assert draws.shape == (4000, 6) and draws.dtype == np.int64
    assert np.abs(draws.mean(axis=0) - enumerate_model(theta)[1].unary[:, 1]).max() < 0.04


def test_chain_from_given_labels():
    theta = ising(3, 3, 0.5)
    start = np.arange(9) % 2
    assert np.array_equal(gibbs_chain(theta, start, 0), start)
    one = gibbs_chain(theta, start, 1, seed=4)
    assert np.array_equal(one, gibbs_chain(theta, start, 1, seed=4))
    assert np.array_equal(start, np.arange(9) % 2)
    draws = np.array([gibbs_chain(theta, start, 20, seed=seed) for seed in range(1500)])
    assert np.abs(draws.mean(axis=0) - enumerate_model(theta)[1].unary[:, 1]).max() < 0.06
    x, rng = start.copy(), rng_states(4, 1)[0]
    gibbs_steps(theta.graph.layout, theta.unary_flat, theta.factors_flat, x, rng, 1)
    assert np.array_equal(x, one)
    with pytest.raises(InputError, match=r"start\[2\] is hidden"):
        gibbs_chain(theta, [0, 0, -1, 0, 0, 0, 0, 0, 0], 1)


def test_chain_leaves_impossible_labels():
    theta = colouring(Graph.chain(5, 3), 3)
    assert theta.score(np.zeros(5, dtype=int)) == -INF
    assert theta.score(gibbs_chain(theta, np.zeros(5, dtype=int), 5)) > -INF


@pytest.mark.parametrize("spec", ["gibbs(n_samples=0)", "gibbs(burn_in=-1)", "gibbs(thin=0)", "gibbs(seed=1.5)"])
def test_bad_settings_are_refused(spec):
    with pytest.raises(InputError, match="integer"):
        bf.infer(ising(2, 2, 0), spec)


def test_huge_potentials_stay_finite():
    theta = random_potentials(Graph.grid(3, 3, 3), np.random.default_rng(1), scale=1e4)
    run = Gibbs(n_samples=50).infer(theta)
    assert np.isfinite(run.marginals.vector()).all() and np.isfinite(run.log_partition)
    assert abs(run.log_partition - enumerate_model(theta)[0]) <= 5 * run.log_partition_error + 1e-6
