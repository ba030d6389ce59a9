"""What every engine of iterated inference keeps: sweeps in one call, inputs left alone, factor tables left out."""

import numpy as np
import pytest

import backfield as bf
from backfield.graph.graph import union
from backfield.inference import LoopyBP, MeanField, SmoothedLP, TreeReweighted
from tests.models import random_potentials

GRID = bf.Graph.grid(5, 3)
MIXED = bf.Graph([2, 3, 1, 2, 4], [(0, 1), (3, 1, 0), (4, 3), (2, 4), (1, 0), (4, 0, 2, 1)])
COPIES = union([bf.Graph.from_edges([(0, 1), (2, 1), (2, 0), (1, 0)], n_variables=4, labels=2)] * 8)
#: Method and graph: every family of kernels with the orders that it treats each in its own way.
RUNS = [
    *((LoopyBP(family=family), GRID) for family in ("lattice", "pairwise", "general", "log")),
    *((LoopyBP(family=family, schedule="flooding"), GRID) for family in ("pairwise", "general", "log")),
    *((LoopyBP(family=family, schedule="sequential"), bf.Graph.grid(4, 5, labels=3)) for family in ("pairwise", "general")),
    *((LoopyBP(family=family, **order), MIXED) for family in ("general", "log") for order in ({}, {"schedule": "flooding"})),
    (LoopyBP(schedule="flooding", family="copies"), COPIES),
    (LoopyBP(family="lattice"), bf.Graph.grid((3, 2, 4))),
    (TreeReweighted(family="lattice"), bf.Graph.grid((3, 2, 4), neighbours=26)),
    (TreeReweighted(rho=0.7, damping=0.3), GRID),
    (MeanField(), GRID),
    (MeanField(family="general"), GRID),
    (MeanField(schedule="sequential"), MIXED),
    (MeanField(schedule="flooding"), GRID),
    (MeanField(schedule="flooding", damping=0.3), GRID),
    (SmoothedLP(), GRID),
    (SmoothedLP(family="pairwise"), GRID),
    (SmoothedLP(family="general"), MIXED),
    (SmoothedLP(regions="nested"), MIXED),
    (SmoothedLP(regions="nested", choice="random", seed=3), MIXED),
    (SmoothedLP(choice="random", seed=3), GRID),
    (SmoothedLP(choice="random", seed=3, family="general"), GRID),
    (SmoothedLP(choice="greedy"), GRID),
]
ENGINES = pytest.mark.parametrize(("method", "graph"), RUNS, ids=repr)


@ENGINES
def test_sweeps_in_one_call(method, graph):
    engine = method.engine(random_potentials(graph, np.random.default_rng(0)))
    one, many = engine.init(), engine.init()
    for t in range(5):
        engine.sweep(one, t)
    engine.sweeps(many, 0, 2)
    engine.sweeps(many, 2, 5)
    np.testing.assert_array_equal(one, many)


@pytest.mark.parametrize("shape", [(2, 2), (3, 70), (70, 3), (33, 47), (2, 900), (90, 90)])
@pytest.mark.parametrize("rho", [1.0, 0.5, 0.7])
def test_lattice_sweeps_that_follow_each_other(shape, rho):
    """The same sweeps, whichever way they go through memory."""
    theta = random_potentials(bf.Graph.grid(*shape), np.random.default_rng(0))
    engine = TreeReweighted(rho=rho, family="lattice").engine(theta)
    one_by_one = engine.init()
    for t in range(7):
        engine.sweep(one_by_one, t)
    for together in (1, 2, 3, engine.together):
        engine.together = together
        state = engine.init()
        engine.sweeps(state, 0, 7)
        np.testing.assert_array_equal(state, one_by_one)


@ENGINES
def test_marginals_without_a_residual(method, graph):
    theta = random_potentials(graph, np.random.default_rng(4))
    method = method.replace(n_iter=3)
    run = method.infer(theta)
    log_partition, mu = method.marginals(theta)
    assert log_partition == run.log_partition
    np.testing.assert_array_equal(mu.vector(), run.marginals.vector())


@ENGINES
def test_inputs_are_left_alone(method, graph):
    theta = random_potentials(graph, np.random.default_rng(1))
    engine = method.engine(theta)
    before = engine.init()
    after = before.copy()
    engine.sweep(after, 0)
    copies = theta.vector(), before.copy()
    engine.marginals_vjp(after, engine.marginals(after), np.zeros_like(after), engine.adjoint())
    engine.sweep_vjp(before, after, 0, np.ones_like(after), engine.adjoint())
    np.testing.assert_array_equal(theta.vector(), copies[0])
    np.testing.assert_array_equal(before, copies[1])


@ENGINES
def test_factor_tables_may_be_left_out(method, graph):
    theta = random_potentials(graph, np.random.default_rng(2))
    engine = method.engine(theta)
    state = engine.init()
    engine.sweeps(state, 0, 2)
    full, brief = engine.marginals(state), engine.marginals(state, factors=False)
    np.testing.assert_array_equal(brief.unary_flat, full.unary_flat)
    assert brief.factors_flat.size == 0
    d_unary = np.random.default_rng(3).normal(size=len(theta.unary_flat))
    results = []
    for d_factors in (brief.factors_flat, np.zeros_like(full.factors_flat)):
        adjoint, d_state = engine.adjoint(), np.zeros_like(state)
        engine.marginals_vjp(state, bf.Potentials.from_flat(graph, d_unary, d_factors), d_state, adjoint)
        results.append(np.concatenate([d_state.ravel(), adjoint.potentials(graph).vector()]))
    np.testing.assert_allclose(results[0], results[1], atol=1e-14)
