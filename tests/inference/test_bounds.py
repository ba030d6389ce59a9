"""No bound is claimed that does not hold: converged or not, with tiny and with huge potentials, with forbidden labels."""

import numpy as np
import pytest

import backfield as bf
from backfield import Graph, Potentials
from backfield.registry import get
from tests.models import enumerate_model, random_graph, random_potentials

pytestmark = pytest.mark.filterwarnings("ignore::backfield.ConvergenceWarning")

METHODS = (
    "tree_reweighted(n_iter=3)",
    "tree_reweighted(n_iter=60)",
    "tree_reweighted(n_iter=60, damping=0.3)",
    "tree_reweighted(n_iter=500, tol=1e-6)",
    "tree_reweighted(n_iter=20, tol=1e-3)",
    "tree_reweighted(n_iter=500, tol=1e-9, damping=0.3, schedule='flooding')",
    "mean_field(n_iter=3)",
    "mean_field(n_iter=100, tol=1e-6)",
    "smoothed_lp(n_iter=5, eps=1.0)",
    "smoothed_lp(n_iter=100, eps=1.5, tol=1e-6)",
)


def hard_model(seed):
    """A small model with potentials of size .01 to 1e4; every third has forbidden labels, every fourth is a grid."""
    rng = np.random.default_rng(seed)
    graph = Graph.grid(2, int(rng.integers(2, 4))) if seed % 4 == 0 else random_graph(rng)
    theta = random_potentials(graph, rng, 10 ** rng.uniform(-2, 4))
    if seed % 3 == 0:
        for row in theta.unary:
            row[rng.permutation(len(row))[: rng.integers(0, len(row))]] = -np.inf
    return theta


@pytest.mark.parametrize("start", range(0, 200, 25))
def test_bounds_that_are_claimed_hold(start):
    claimed = 0
    for seed in range(start, start + 25):
        theta = hard_model(seed)
        log_z, _ = enumerate_model(theta)
        slack = 1e-9 * (1 + abs(log_z))
        for method in METHODS:
            run = bf.infer(theta, method)
            claimed += run.bound in ("upper", "lower")
            if run.bound == "upper":
                assert run.log_partition >= log_z - slack, (seed, method)
            if run.bound == "lower":
                assert run.log_partition <= log_z + slack, (seed, method)
    assert claimed > 25 * 7  # most of the ten methods say something


def test_marginals_may_stand_still_while_messages_move():
    """The case of issue 18: potentials of a few hundred saturate the marginals after one sweep."""
    rng = np.random.default_rng(111)
    graph = Graph.grid(2, 2)
    theta = Potentials(graph, rng.normal(0, 500, (4, 2)), rng.normal(0, 500, (4, 2, 2)))
    log_z, _ = enumerate_model(theta)
    for family in ("lattice", "pairwise", "general", "log"):
        method = get("inference", "tree_reweighted(n_iter=1000, tol=1e-6)").replace(
            family=family if family != "lattice" else "auto"
        )
        run = bf.infer(theta, method)
        assert run.log_partition >= log_z - 1e-9 * (1 + abs(log_z))
        if run.converged:
            longer = bf.infer(theta, method.replace(n_iter=run.n_iter + 5, tol=None))
            assert longer.log_partition == pytest.approx(run.log_partition, rel=1e-5)


@pytest.mark.parametrize("family", ["auto", "pairwise", "general", "log"])
@pytest.mark.parametrize("spec", ["tree_reweighted", "loopy_bp"])
def test_converged_means_that_messages_have_converged(family, spec):
    for seed in range(10):
        theta = random_potentials(Graph.grid(3, 3), np.random.default_rng(seed), 30.0)
        method = get("inference", spec).replace(n_iter=400, tol=1e-7, damping=0.2, family=family)
        run = bf.infer(theta, method)
        if run.converged:
            engine = method.bind(theta)
            state = engine.init()
            for t in range(run.n_iter):
                before = state.copy()
                engine.sweep(state, t)
            assert engine.most_changed(before, state)[0] < 1e-7


def test_the_bound_of_any_messages():
    """Above log Z wherever the messages are, and equal to theta·mu + H(mu) where they have converged; in all families."""
    for seed in range(30):
        rng = np.random.default_rng(seed)
        theta = random_potentials(Graph.grid(3, 3), rng, 1.0) if seed % 2 else hard_model(seed)
        log_z, _ = enumerate_model(theta)
        found = {}
        for family in ("auto", "general", "log"):
            engine = get("inference", "tree_reweighted").replace(family=family).bind(theta)
            state = engine.init()
            found[family] = []
            for t in range(4):
                found[family].append(engine.upper_bound(state))
                engine.sweep(state, t)
            assert min(found[family]) >= log_z - 1e-9 * (1 + abs(log_z))
        np.testing.assert_allclose(found["auto"], found["log"], rtol=1e-9)
        np.testing.assert_allclose(found["general"], found["log"], rtol=1e-9)
    engine = get("inference", "tree_reweighted").bind(theta := random_potentials(Graph.grid(3, 3), rng))
    state = engine.init()
    engine.sweeps(state, 0, 400)
    assert engine.upper_bound(state) == pytest.approx(engine.log_partition(engine.marginals(state)), rel=1e-12)


def test_copies():
    rng = np.random.default_rng(0)
    theta = bf.batch([random_potentials(Graph.chain(4), rng) for _ in range(8)])
    engine = get("inference", "tree_reweighted(schedule='flooding', rho=1.0)").bind(theta)
    assert type(engine).__module__.endswith("copies")
    state = engine.init()
    before = state.copy()
    engine.sweeps(state, 0, 10)
    log_z = bf.infer(theta, "exact").log_partition
    assert engine.upper_bound(state) == pytest.approx(log_z, rel=1e-12) and engine.most_changed(before, state)[0] > 0
