"""Messages through Potts tables in O(L): the same numbers as through tables."""

import numpy as np
import pytest

from backfield import Graph, Potentials, Tied
from backfield.gradients.truncated import Tape
from backfield.inference import TreeReweighted
from backfield.inference.message_passing.families import _exposure_of
from backfield.inference.message_passing.pairwise import PairwiseEngine
from backfield.inference.message_passing.potts import PottsEngine, potts_strengths

GRAPHS = {
    "grid": Graph.grid(4, 5, labels=3),
    "dense": Graph.from_edges([(0, 1), (2, 1), (1, 3), (3, 0), (0, 1), (4, 2)], n_variables=6, labels=3),
    "five labels": Graph.grid(3, 3, labels=5),
}
SETTINGS = ({}, {"rho": 1.0}, {"damping": 0.3}, {"schedule": "flooding"}, {"rho": 0.7})
#: Kernels are compiled for a label count, for settings and for a sign: damping and flooding on the grid, there with those
#: of repulsion, whose branches hold those of attraction; five labels with the usual settings only.
RUNS = [(name, sign, options) for name in GRAPHS for sign in (1.0, -1.0, 12.0, -12.0) for options in SETTINGS
        if {"grid": "rho" in options or not options or sign < 0,
            "dense": "rho" in options or not options,
            "five labels": not options}[name]]  # fmt: skip


def potts_table(a, b, count):
    return a + b * np.eye(count)


def tied_potts(graph, rng, sign=1.0, dtype=np.float64, scaled=True):
    """Potts groups: a table for all, or two scaled ones and one more."""
    groups, count = [], graph.n_labels
    for number, span in enumerate(graph.groups):
        if number == 0 and scaled:
            tables = np.array([potts_table(rng.normal(), sign * rng.uniform(0.1, 2), count) for _ in range(3)])
            groups.append(Tied(tables.astype(dtype), rng.uniform(0.2, 1.5, size=(span.n_factors, 2)).astype(dtype)))
        else:
            groups.append(Tied(potts_table(0.3, sign * 0.7, count).astype(dtype)))
    return Potentials(graph, rng.normal(size=(graph.n_variables, count)).astype(dtype), groups=groups)


def engines(method, theta):
    """Bind a method to tied, written-out and forced tables."""
    rho, order = np.array(method.counting_numbers(theta.graph)), method._order(theta.graph)
    written = theta.written_out()
    potts = [PottsEngine(each, rho, order, method.damping, potts_strengths(each)) for each in (theta, written)]
    return [*potts, PairwiseEngine(written, rho, order, method.damping)]


def gradient(method, engine, d_unary, d_factors=None):
    tape = Tape(engine, method, 2**30)
    mu = engine.marginals(tape.last, factors=d_factors is not None)
    d_mu = Potentials.from_flat(engine.theta.graph, d_unary, d_unary[:0] if d_factors is None else d_factors)
    d_theta, d_state = engine.adjoint(), np.zeros_like(tape.last)
    engine.marginals_vjp(tape.last, d_mu, d_state, d_theta)
    tape.unwind(d_state, d_theta)
    return mu, d_theta.potentials(engine.theta.graph)


@pytest.mark.parametrize(("name", "sign", "options"), RUNS)
def test_marginals_and_gradients_equal_those_through_tables(name, sign, options):
    rng = np.random.default_rng(0)
    graph = GRAPHS[name]
    method = TreeReweighted(n_iter=4, **options)
    theta = tied_potts(graph, rng, sign)
    d_unary = rng.normal(size=theta.unary_flat.shape)
    d_factors = rng.normal(size=theta.factors_flat.shape)
    for cliques in (False, True):
        runs = [gradient(method, engine, d_unary, d_factors if cliques else None) for engine in engines(method, theta)]
        (mu, d_tied), (_, d_tables), (wanted_mu, wanted) = runs
        np.testing.assert_allclose(mu.vector(), wanted_mu.vector(), rtol=1e-10, atol=1e-14)
        np.testing.assert_allclose(d_tables.vector(), wanted.vector(), rtol=1e-8, atol=1e-12)
        assert [group.kind for group in d_tied.groups] == ["tied"] * len(graph.groups)
        np.testing.assert_allclose(d_tied.vector(), theta.contract(wanted).vector(), rtol=1e-8, atol=1e-11)
        assert abs(sign) > 1 or np.abs(d_tied.groups[0].tables[..., 0, 1]).max() > 1e-9  # off the diagonal, too


def test_strong_repulsion_loses_no_digits():
    """With b = -30 the largest label's message is the sum of the others, 1e-13 of the total: see METHODS."""
    graph = Graph.chain(3, labels=3)
    unary = np.zeros((3, 3))
    unary[0] = [30.0, 0.0, 0.5]
    theta = Potentials(graph, unary, groups=[Tied(potts_table(0.0, -60.0, 3))])
    method = TreeReweighted(n_iter=2, rho=1.0)
    potts, _, tables = engines(method, theta)
    states = []
    for engine in (potts, tables):
        state = engine.init()
        engine.sweep(state, 0)
        states.append(state)
    np.testing.assert_allclose(*states, rtol=1e-13)
    d_state, found = np.random.default_rng(0).normal(size=states[0].shape), []
    for engine in (potts, tables):
        d_theta, d_before = engine.adjoint(), d_state.copy()
        engine.sweep_vjp(engine.init(), states[0].copy(), 0, d_before, d_theta)
        found += [d_theta.unary, d_before.ravel()]
    np.testing.assert_allclose(np.concatenate(found[:2]), np.concatenate(found[2:]), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_single_precision(sign):
    rng = np.random.default_rng(1)
    method = TreeReweighted(n_iter=3)
    theta = tied_potts(GRAPHS["grid"], rng, sign, np.float32)
    d_unary = rng.normal(size=theta.unary_flat.shape).astype(np.float32)
    (mu, found), _, (wanted_mu, wanted) = (gradient(method, engine, d_unary) for engine in engines(method, theta))
    assert mu.dtype == found.dtype == found.groups[0].tables.dtype == np.float32
    np.testing.assert_allclose(mu.vector(), wanted_mu.vector(), atol=2e-6)
    np.testing.assert_allclose(found.vector(), theta.contract(wanted).vector(), atol=2e-5)


def test_a_table_of_zeros_keeps_all_entries_of_its_gradient():
    rng = np.random.default_rng(2)
    graph = GRAPHS["grid"]
    theta = Potentials(graph, rng.normal(size=(20, 3)), groups=[Tied(np.zeros((3, 3)))] * 2)
    method = TreeReweighted(n_iter=3)
    _, d_theta = gradient(method, method.engine(theta), rng.normal(size=60))
    assert (np.abs(d_theta.groups[0].tables) > 1e-12).all() and theta._tables is None


def test_what_is_not_potts_goes_through_tables():
    rng = np.random.default_rng(3)
    graph = GRAPHS["grid"]
    method = TreeReweighted(n_iter=1)
    unary, potts = rng.normal(size=(20, 3)), potts_table(0.1, 0.5, 3)
    other = potts.copy()
    other[1, 2] += 1e-9
    assert isinstance(method.engine(Potentials(graph, unary, groups=[Tied(potts), Tied(potts)])), PottsEngine)
    assert isinstance(method.engine(Potentials(graph, unary, np.tile(potts, (graph.n_factors, 1, 1)))), PottsEngine)
    assert isinstance(method.engine(Potentials(graph, unary, groups=[Tied(potts), Tied(other)])), PairwiseEngine)
    mixed = Potentials(graph, unary, groups=[Tied(potts), np.tile(potts, (15, 1, 1))])
    assert potts_strengths(mixed) is None and potts_strengths(mixed.written_out()) is not None


def test_exposure_is_that_of_the_tables():
    for sign in (1.0, -3.0):
        theta = tied_potts(GRAPHS["dense"], np.random.default_rng(4), sign)
        potts, _, tables = engines(TreeReweighted(), theta)
        assert _exposure_of(potts) == pytest.approx(_exposure_of(tables), rel=1e-12)
