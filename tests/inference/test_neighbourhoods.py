"""Inference on grids of any dimension and neighbourhood: against enumeration, the general family, and differences."""

import numpy as np
import pytest

import backfield as bf
from backfield import Graph
from backfield.graph.labeling import as_labeling
from backfield.inference import LoopyBP, MeanField, SmoothedLP, TreeReweighted
from backfield.inference.message_passing.colours import ColoursEngine
from backfield.inference.message_passing.log import LogEngine
from tests.gradients.differences import check
from tests.models import enumerate_model, random_potentials

pytestmark = pytest.mark.filterwarnings("ignore::backfield.ConvergenceWarning")

#: Small enough to enumerate.
SMALL = {
    "2-D, 8": Graph.grid(3, 4, neighbours=8),
    "3-D, 6": Graph.grid((2, 2, 3)),
    "3-D, 18": Graph.grid((2, 2, 3), neighbours=18),
    "3-D, 26": Graph.grid((2, 2, 3), neighbours=26),
    "(0, 3)": Graph.grid(2, 6, offsets=[(0, 1), (1, 0), (0, 3)]),
}
#: Periods other than 2, axes without steps, sizes that periods do not divide, offsets that go back or step out.
WIDE = {
    "2-D, 8": Graph.grid(5, 6, neighbours=8),
    "3-D, 6": Graph.grid((3, 4, 5)),
    "3-D, 18": Graph.grid((3, 4, 3), neighbours=18),
    "3-D, 26": Graph.grid((3, 3, 4), neighbours=26),
    "(0, 3)": Graph.grid(4, 7, offsets=[(0, 1), (1, 0), (0, 3)]),
    "long": Graph.grid(5, 9, offsets=[(0, 3), (-1, 2), (2, 4)]),
    "even": Graph.grid(6, 7, offsets=[(0, 2), (2, 0), (0, 6), (4, -4), (9, 9)]),
    "far": Graph.grid(3, 4, offsets=[(0, 1), (1, 0), (0, 10**6), (10**6, -2)]),
    "1-D": Graph.grid((9,), offsets=[(1,), (3,)]),
    "4-D": Graph.grid((2, 3, 2, 3)),
    "flat": Graph.grid((1, 4, 5), neighbours=26),
}
each_small = pytest.mark.parametrize("graph", SMALL.values(), ids=SMALL.keys())
each_wide = pytest.mark.parametrize("graph", WIDE.values(), ids=WIDE.keys())


def vector(run):
    return np.append(run.marginals.vector(), run.log_partition)


def gradient(method, theta):
    labels = np.random.default_rng(5).integers(0, 2, theta.graph.n_variables)
    return bf.value_and_gradient(theta, labels, inference=method, loss="clique_logistic")


@each_wide
@pytest.mark.parametrize("rho", ["trees", 1.0, 0.4])
def test_lattice_family_equals_the_others(graph, rho):
    theta = random_potentials(graph, np.random.default_rng(0))
    lattice = TreeReweighted(n_iter=4, rho=rho, family="lattice")
    assert isinstance(lattice.engine(theta), ColoursEngine)
    for family in ("pairwise", "log"):
        other = lattice.replace(family=family)
        np.testing.assert_allclose(vector(bf.infer(theta, lattice)), vector(bf.infer(theta, other)), atol=1e-10, rtol=1e-10)
    (value, d_theta), (expected, d_other) = gradient(lattice, theta), gradient(other, theta)
    assert value == pytest.approx(expected, abs=1e-10)
    np.testing.assert_allclose(d_theta.vector(), d_other.vector(), atol=1e-10)


@each_wide
def test_float32(graph):
    theta = random_potentials(graph, np.random.default_rng(0), 0.5)
    single = bf.infer(theta.astype(np.float32), "tree_reweighted(n_iter=4)")
    np.testing.assert_allclose(vector(single), vector(bf.infer(theta, "tree_reweighted(n_iter=4)")), rtol=2e-4, atol=2e-5)


@each_small
def test_bounds_hold(graph):
    """TRW bounds log Z from above, mean field from below."""
    for seed in range(5):
        theta = random_potentials(graph, np.random.default_rng(seed), 0.1 + seed / 2)
        log_z, _ = enumerate_model(theta)
        upper = bf.infer(theta, "tree_reweighted(n_iter=2000, tol=1e-6)")
        lower = bf.infer(theta, "mean_field(n_iter=200, tol=1e-7)")
        assert (upper.bound, lower.bound) == ("upper", "lower")
        assert lower.log_partition - 1e-9 <= log_z <= upper.log_partition + 1e-9


@pytest.mark.parametrize("offset", [(0, 3), (1, -1), (2, 1)])
def test_lines_are_exact(offset):
    """The factors of one offset are lines: nothing is approximate."""
    theta = random_potentials(Graph.grid(3, 5, offsets=[offset]), np.random.default_rng(0))
    log_z, mu = enumerate_model(theta)
    run = bf.infer(theta, "tree_reweighted(n_iter=10)")
    assert run.log_partition == pytest.approx(log_z, abs=1e-10)
    np.testing.assert_allclose(run.marginals.vector(), mu.vector(), atol=1e-10)


@each_small
def test_weak_couplings_are_nearly_exact(graph):
    theta = random_potentials(graph, np.random.default_rng(0), 0.02)
    log_z, mu = enumerate_model(theta)
    run = bf.infer(theta, "loopy_bp(n_iter=30)")
    assert run.log_partition == pytest.approx(log_z, abs=1e-5)
    np.testing.assert_allclose(run.marginals.unary_flat, mu.unary_flat, atol=1e-5)


@each_small
@pytest.mark.parametrize("method", ["tree_reweighted(n_iter=3)", "loopy_bp(n_iter=3)", "mean_field(n_iter=3)"])
def test_gradients_against_differences(graph, method):
    theta = random_potentials(graph, np.random.default_rng(1), 0.7)
    labels = np.random.default_rng(2).integers(0, 2, graph.n_variables)
    check(theta, labels, 1e-6, inference=method, loss="univariate_logistic", gradient="truncated")
    check(theta, labels, 1e-6, inference=method, loss="clique_logistic", gradient="truncated")


@pytest.mark.parametrize("gradient", ["implicit", "perturbation"])
def test_other_gradients(gradient):
    theta = random_potentials(SMALL["3-D, 26"], np.random.default_rng(1), 0.3)
    labels = np.random.default_rng(2).integers(0, 2, 12)
    method = "tree_reweighted(n_iter=2000, tol=1e-12)"
    check(theta, labels, 1e-5, inference=method, loss="univariate_logistic", gradient=gradient)


@pytest.mark.parametrize("shape", [(24, 26, 30), (2, 70, 60)])
@pytest.mark.parametrize("neighbours", [6, 18, 26])
def test_sweeps_that_follow_each_other(shape, neighbours):
    """The same sweeps, whichever way they go through memory, and the same adjoints."""
    theta = random_potentials_at_once(Graph.grid(shape, neighbours=neighbours))
    engine = TreeReweighted(family="lattice").engine(theta)
    one_by_one, n = engine.init(), engine.planes.n_planes
    for t in range(7):
        engine.sweep(one_by_one, t)
    for together in (1, 2, 5):
        engine.lags = engine.planes.lags(np.tile(engine.planes.order, together))
        state = engine.init()
        engine.sweeps(state, 0, 7)
        np.testing.assert_array_equal(state, one_by_one)
    in_turn = np.arange(n) * engine.planes.length
    in_turn.flags.writeable = False
    engine.lags = in_turn  # each plane goes through all places before the next one begins
    state = engine.init()
    engine.sweeps(state, 0, 7)
    np.testing.assert_array_equal(state, one_by_one)
    found = []
    for engine.lags_back in (engine.lags_back, in_turn):
        d_state, d_theta = np.ones_like(state), engine.adjoint()
        engine.sweep_vjp(engine.init(), state, 0, d_state, d_theta)
        found.append((d_state, d_theta.tables))
    np.testing.assert_array_equal(found[0][0], found[1][0])
    np.testing.assert_array_equal(found[0][1], found[1][1])


def random_potentials_at_once(graph):
    rng = np.random.default_rng(0)
    sizes = (graph.n_variables, 2), (graph.n_factors, 2, 2)
    return bf.Potentials(graph, *(rng.normal(size=size) for size in sizes))


def test_a_large_volume_equals_the_pairwise_family():
    theta = random_potentials_at_once(Graph.grid((9, 24, 26), neighbours=18))
    lattice = TreeReweighted(n_iter=6)
    found, expected = (bf.infer(theta, lattice.replace(family=family)) for family in ("lattice", "pairwise"))
    np.testing.assert_allclose(vector(found), vector(expected), atol=1e-10, rtol=1e-10)


def test_strong_couplings_stay_in_range():
    """1 / rho is 13: the product of the ratios into a variable is no float, its power is."""
    theta = random_potentials(WIDE["3-D, 26"], np.random.default_rng(0), 1.7)
    engine = TreeReweighted(n_iter=5).engine(theta)
    assert isinstance(engine, ColoursEngine) and 2 * engine.group < 26
    expected = bf.infer(theta, TreeReweighted(n_iter=5, family="log"))
    np.testing.assert_allclose(vector(bf.infer(theta, TreeReweighted(n_iter=5))), vector(expected), rtol=1e-9, atol=1e-10)
    huge = random_potentials(WIDE["3-D, 26"], np.random.default_rng(0), 300.0)
    assert isinstance(TreeReweighted(n_iter=5).engine(huge), LogEngine)


def test_forbidden_labels():
    theta = random_potentials(WIDE["3-D, 6"], np.random.default_rng(0))
    theta.unary[3, 1] = -np.inf
    assert isinstance(TreeReweighted().engine(theta), LogEngine)
    assert bf.infer(theta, "tree_reweighted(n_iter=3)").marginals.unary[3, 1] == 0


@each_wide
def test_observed_labels(graph):
    theta = random_potentials(graph, np.random.default_rng(0))
    observed = np.full(graph.n_variables, -1)
    observed[::4] = 1
    found, expected = (
        bf.infer(theta, TreeReweighted(n_iter=4, family=family), observed).marginals.vector() for family in ("auto", "log")
    )
    np.testing.assert_allclose(found, expected, atol=1e-10)


@each_wide
@pytest.mark.parametrize("method", [MeanField(n_iter=4), SmoothedLP(n_iter=4)], ids=["mean_field", "smoothed_lp"])
def test_colour_by_colour(graph, method):
    """Other methods visit the colours of a grid in the same order."""
    theta = random_potentials(graph, np.random.default_rng(0))
    plain = bf.Potentials(Graph.from_edges(graph.factors, graph.n_variables), theta.unary, theta.factors)
    order = np.argsort(graph.lattice.colours(), kind="stable")
    found = bf.infer(theta, method)
    assert found.log_partition == pytest.approx(bf.infer(theta, method.replace(family="general")).log_partition, abs=1e-10)
    if isinstance(method, MeanField):
        state = MeanField(n_iter=1, order=order.tolist())
        expected = bf.infer(plain, state)
        np.testing.assert_allclose(bf.infer(theta, method.replace(n_iter=1)).marginals.unary, expected.marginals.unary)


def test_lattice_touches_no_scopes():
    graph = Graph.grid((6, 7, 8), neighbours=26)
    theta = random_potentials_at_once(Graph.grid((6, 7, 8), neighbours=26))
    theta = bf.Potentials.from_flat(graph, theta.unary_flat, theta.factors_flat)
    labels = as_labeling(graph, np.zeros(graph.n_variables, dtype=int))
    bf.infer(theta, LoopyBP(n_iter=2))
    bf.value_and_gradient(theta, labels.labels, inference="tree_reweighted(n_iter=2)", loss="univariate_logistic")
    assert "_scope" not in graph.__dict__ and "layout" not in graph.__dict__
