"""Factor groups: the structure, tables and tied tables as values of one."""

import pickle

import numpy as np
import pytest

import backfield as bf
from backfield import Graph, InputError, Potentials, Tied
from backfield.graph.graph import union
from backfield.graph.groups import Tables

RNG = np.random.default_rng(0)


def spans(graph):
    return [(group.name, group.start, group.stop) for group in graph.groups]


def test_every_factor_belongs_to_one_group():
    assert spans(Graph([2, 3, 2], [(0, 1), (0, 1, 2)])) == [("", 0, 2)]
    assert spans(Graph.chain(5)) == [("", 0, 4)]
    assert spans(Graph.grid(2, 3)) == [("horizontal", 0, 4), ("vertical", 4, 7)]
    assert spans(Graph.grid(1, 3)) == [("horizontal", 0, 2), ("vertical", 2, 2)]
    eight = [("horizontal", 0, 4), ("vertical", 4, 7), ("down-right", 7, 9), ("down-left", 9, 11)]
    assert spans(Graph.grid(2, 3, neighbours=8)) == eight


def test_a_group_knows_the_shape_of_its_tables():
    (mixed,) = Graph([2, 3, 2], [(0, 1), (0, 1, 2)]).groups
    assert (mixed.arity, mixed.shape) == (None, None)
    (alike,) = Graph([2, 3, 2, 3], [(0, 1), (2, 3)]).groups
    assert (alike.arity, alike.shape) == (2, (2, 3))
    (turned,) = Graph([2, 3, 2, 3], [(0, 1), (3, 2)]).groups
    assert (turned.arity, turned.shape) == (2, None)
    assert [group.shape for group in Graph.grid(2, 2, labels=4).groups] == [(4, 4)] * 2
    assert Graph.chain(1, labels=3).groups[0].shape == (3, 3)


def test_a_union_of_chains_has_one_group():
    assert spans(union([Graph.chain(3), Graph.chain(1), Graph.chain(4)])) == [("", 0, 5)]
    grids = union([Graph.grid(2, 2), Graph.grid(1, 2)])
    assert [group.n_factors for group in grids.groups] == [2, 2, 1, 0]
    assert len(union([Graph.chain(3, 2), Graph.chain(3, 3)]).groups) == 2


def test_equal_graphs_have_one_hash():
    grid = Graph.grid(3, 4)
    assert grid == Graph.grid(3, 4) and hash(grid) == hash(Graph.grid(3, 4))
    listed = Graph([2] * 12, [tuple(scope) for scope in Graph.grid(3, 4).factors])
    assert grid == listed and hash(grid) == hash(listed) and len({grid, listed}) == 1
    assert Graph.grid(2, 6) != Graph.grid(6, 2) and Graph.grid(1, 4) == Graph.grid(4, 1)
    assert "_scope" not in (large := Graph.grid(300, 300)).__dict__ and large == Graph.grid(300, 300)
    assert "_scope" not in large.__dict__


def test_groups_of_tables_are_views():
    graph = Graph.grid(2, 3)
    theta = Potentials(graph, np.zeros((6, 2)), np.arange(28.0).reshape(7, 2, 2))
    assert [type(group) for group in theta.groups] == [Tables, Tables]
    np.testing.assert_array_equal(theta.groups[1].flat, np.arange(16.0, 28))
    assert np.shares_memory(theta.groups[0].flat, theta.factors_flat)
    same = Potentials(graph, theta.unary, groups=[theta.factors[:4], theta.factors[4:]])
    assert same.has_tables_only and same.factors_flat.tobytes() == theta.factors_flat.tobytes()
    mixed = Graph([2, 3, 2], [(0, 1), (0, 1, 2)])
    tables = [RNG.normal(size=(2, 3)), RNG.normal(size=(2, 3, 2))]
    listed = Potentials(mixed, [np.zeros(2), np.zeros(3), np.zeros(2)], groups=[tables])
    np.testing.assert_array_equal(listed.factors[1], tables[1])


def tied_grid(rng, constant=False, fixed=False, forbid=False, dtype=np.float64):
    """A grid with a table per horizontal edge and two tied tables (and one without scales) for the vertical ones."""
    graph = Graph.grid(3, 3, labels=3)
    tables = rng.normal(size=(3 if constant else 2, 3, 3)).astype(dtype)
    scales = rng.uniform(0.5, 2, size=(6, 2)).astype(dtype)
    if forbid:
        tables[0, 1, 2], scales[3, 0] = -np.inf, 0
    across = rng.normal(size=(6, 3, 3)).astype(dtype)
    tied = Tied(tables, scales, fixed_scales=fixed)
    return Potentials(graph, rng.normal(size=(9, 3)).astype(dtype), groups=[across, tied])


def plain_tables(tied):
    """Write a tied group out, factor by factor and entry by entry."""
    out = np.zeros((tied.n_factors, *tied.tables.shape[1:]))
    for c in range(tied.n_factors):
        for k, table in enumerate(tied.tables):
            scale = tied.scales[c, k] if k < tied.scales.shape[1] else 1.0
            if scale != 0:
                out[c] += scale * table
    return out


@pytest.mark.parametrize("constant", [False, True])
@pytest.mark.parametrize("forbid", [False, True])
def test_tied_tables_are_written_out(constant, forbid):
    theta = tied_grid(np.random.default_rng(0), constant, forbid=forbid)
    np.testing.assert_allclose(theta.factors[6:], plain_tables(theta.groups[1]), rtol=1e-14)
    assert theta.is_finite != forbid
    assert theta.factors_flat is theta.factors_flat and theta.written_out().factors_flat is theta.factors_flat
    labels = np.array([0, 1, 0, 2, 2, 1, 1, 1, 0])
    assert theta.score(labels) == pytest.approx(theta.written_out().score(labels), rel=1e-13)


@pytest.mark.parametrize("fixed", [False, True])
@pytest.mark.parametrize("constant", [False, True])
def test_the_adjoint_of_writing_out(constant, fixed):
    rng = np.random.default_rng(1)
    theta = tied_grid(rng, constant, fixed)
    d_tables = rng.normal(size=theta.factors_flat.shape)
    d = theta.contract(Potentials.from_flat(theta.graph, np.zeros(27), d_tables))
    assert (d.groups[1].scales is None) == fixed
    direction = rng.normal(size=len(theta.vector()))
    direction[:27] = 0
    step = 1e-6
    there, back = (theta.like(theta.vector() + sign * step * direction).factors_flat for sign in (1, -1))
    assert d.vector() @ direction == pytest.approx((there - back) @ d_tables / (2 * step), rel=1e-7)


@pytest.mark.parametrize("fixed", [False, True])
def test_indicators_are_the_gradient_of_the_score(fixed):
    rng = np.random.default_rng(2)
    theta = tied_grid(rng, True, fixed)
    labels = rng.integers(0, 3, size=9)
    d = theta.indicators(labels)
    written = theta.written_out()
    np.testing.assert_allclose(d.vector(), theta.contract(written.indicators(labels)).vector(), atol=1e-14)
    hidden = labels.copy()
    hidden[4] = -1
    np.testing.assert_allclose(
        theta.indicators(hidden).vector(), theta.contract(written.indicators(hidden)).vector(), atol=1e-14
    )


def test_a_gradient_is_not_written_out():
    theta = tied_grid(RNG)
    d = theta.indicators(np.zeros(9, dtype=int))
    with pytest.raises(InputError, match=r"groups\[k\].tables"):
        _ = d.factors


def test_vectors_types_and_pickles():
    theta = tied_grid(RNG, constant=True)
    assert len(theta.vector()) == 27 + 54 + 27 + 12
    np.testing.assert_array_equal(theta.like(theta.vector()).vector(), theta.vector())
    assert len(tied_grid(RNG, constant=True, fixed=True).vector()) == 27 + 54 + 27
    single = theta.astype(np.float32)
    assert single.groups[1].scales.dtype == np.float32 and single.factors_flat.dtype == np.float32
    _ = theta.factors_flat
    copy = pickle.loads(pickle.dumps(theta))
    assert "_tables" not in copy.__dict__
    np.testing.assert_array_equal(copy.vector(), theta.vector())
    with pytest.raises(InputError, match="need 120 numbers"):
        theta.like(np.zeros(3))


def test_one_table_of_all_factors():
    table = RNG.normal(size=(2, 2))
    theta = Potentials(Graph.chain(4), np.zeros((4, 2)), groups=[Tied(table)])
    np.testing.assert_array_equal(theta.factors, np.broadcast_to(table, (3, 2, 2)))
    assert theta.indicators(np.array([0, 1, 1, 0])).groups[0].tables.shape == (2, 2)


def test_a_group_without_factors():
    theta = Potentials(Graph.chain(1), np.zeros((1, 2)), groups=[Tied(np.array([[0.0, -np.inf], [1.0, 2.0]]))])
    assert theta.factors.shape == (0, 2, 2)
    d = theta.contract(Potentials.from_flat(theta.graph, np.zeros(2), np.empty(0)))
    np.testing.assert_array_equal(d.groups[0].tables, np.zeros((2, 2)))
    assert theta.indicators(np.array([1])).groups[0].tables.shape == (2, 2)


def test_batches():
    table = RNG.normal(size=(2, 2))
    thetas = [Potentials(Graph.chain(n), RNG.normal(size=(n, 2)), groups=[Tied(table)]) for n in (3, 1, 4)]
    joined = bf.batch(thetas)
    assert len(joined.groups) == 1 and joined.groups[0].n_factors == 5
    np.testing.assert_array_equal(joined.factors, np.concatenate([theta.factors for theta in thetas]))
    scaled = [Potentials(t.graph, t.unary, groups=[Tied(table, RNG.normal(size=(t.graph.n_factors, 1)))]) for t in thetas]
    joined = bf.batch(scaled)
    assert len(joined.groups) == 1
    np.testing.assert_array_equal(joined.factors, np.concatenate([theta.factors for theta in scaled]))
    mixed = bf.batch([thetas[0], thetas[2].written_out()])
    assert [group.kind for group in mixed.groups] == ["tied", "tables"]
    np.testing.assert_array_equal(mixed.factors, np.concatenate([thetas[0].factors, thetas[2].factors]))


@pytest.mark.parametrize(
    ("tied", "words"),
    [
        (Tied(np.zeros((3, 3))), "must have shape \\(2, 2\\)"),
        (Tied(np.full((2, 2), np.nan)), "NaN"),
        (Tied(np.zeros((2, 2, 2))), "needs scales \\(3, 2\\)"),
        (Tied(np.zeros((2, 2)), np.zeros((2, 1))), "must have shape \\(3, 1\\)"),
        (Tied(np.zeros((2, 2)), np.full((3, 1), np.inf)), "finite"),
        (Tied(np.full((2, 2), -np.inf), -np.ones((3, 1))), "negative"),
        (Tied(np.array([["a"]])), "real numbers"),
    ],
)
def test_bad_tied_groups_are_refused(tied, words):
    with pytest.raises(InputError, match=words):
        Potentials(Graph.chain(4), np.zeros((4, 2)), groups=[tied])


def test_bad_groups_are_refused():
    graph = Graph.grid(2, 2)
    with pytest.raises(InputError, match=r"2 entries.*horizontal \(2\), vertical \(2\)"):
        Potentials(graph, np.zeros((4, 2)), groups=[np.zeros((4, 2, 2))])
    with pytest.raises(InputError, match="not both"):
        Potentials(graph, np.zeros((4, 2)), np.zeros((4, 2, 2)), groups=[])
    with pytest.raises(InputError, match=r"groups\[1\] must have shape"):
        Potentials(graph, np.zeros((4, 2)), groups=[np.zeros((2, 2, 2)), np.zeros((1, 2, 2))])
    with pytest.raises(InputError, match="different shapes"):
        Potentials(
            Graph([2, 3, 2], [(0, 1), (1, 2)]), [np.zeros(2), np.zeros(3), np.zeros(2)], groups=[Tied(np.zeros((2, 3)))]
        )
