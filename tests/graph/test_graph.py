"""Graph: scopes, flat layout, equality, union."""

import pickle

import numpy as np
import pytest
from hypothesis import given, settings

import backfield as bf
from backfield import Graph
from backfield.graph.graph import union
from tests.contracts import strategies
from tests.models import random_graph, random_potentials

MIXED = Graph(labels=[2, 3, 2], factors=[(0, 1), (2, 0, 1)])


def test_what_is_in_a_graph():
    assert (MIXED.n_variables, MIXED.n_factors, MIXED.n_slots) == (3, 2, 5)
    assert MIXED.labels.tolist() == [2, 3, 2] and MIXED.factors == [(0, 1), (2, 0, 1)]
    assert MIXED.n_labels is None and MIXED.arity is None and not MIXED.is_pairwise and MIXED.shape is None
    assert MIXED.degree.tolist() == [2, 2, 1]
    assert repr(MIXED) == "Graph(3 variables, 2 factors)"


def test_uniform_graphs_have_arrays():
    graph = Graph([3, 3, 3], [(2, 0), (0, 1), (2, 0)])
    assert graph.n_labels == 3 and graph.arity == 2 and graph.is_pairwise
    np.testing.assert_array_equal(graph.factors, [(2, 0), (0, 1), (2, 0)])  # order, orientation, duplicates are kept
    assert Graph([2, 3], [(0, 1)]).is_pairwise is False
    assert Graph([2, 2, 2], [(0, 1, 2)]).arity == 3


@pytest.mark.parametrize("graph", [Graph([4]), Graph([2, 2]), Graph([1]), Graph.grid(1, 1), Graph.chain(1)])
def test_no_factors_at_all(graph):
    assert graph.n_factors == graph.n_slots == 0 and len(graph.factors) == 0 and graph.arity is None
    assert graph.is_pairwise and graph.degree.tolist() == [0] * graph.n_variables
    assert graph.layout.scope.shape == (0,) and graph.layout.table_ptr.tolist() == [0]


def check_layout(graph):
    """The conventions of the module, spelled out."""
    layout = graph.layout
    for array in layout:
        assert array.dtype == np.int64 and not array.flags.writeable and array.flags.c_contiguous
    np.testing.assert_array_equal(np.diff(layout.var_ptr), graph.labels)
    slots = [(c, i) for c, scope in enumerate(graph.factors) for i in scope]
    assert list(zip(layout.slot_factor.tolist(), layout.scope.tolist(), strict=True)) == [(int(c), int(i)) for c, i in slots]
    for c, scope in enumerate(graph.factors):
        shape = [graph.labels[i] for i in scope]
        strides = np.empty(shape, dtype=np.int8).strides
        assert layout.stride[layout.scope_ptr[c] : layout.scope_ptr[c + 1]].tolist() == list(strides)
        assert layout.table_ptr[c + 1] - layout.table_ptr[c] == np.prod(shape)
    np.testing.assert_array_equal(np.diff(layout.msg_ptr), graph.labels[layout.scope])
    for i in range(graph.n_variables):
        around = layout.inc[layout.inc_ptr[i] : layout.inc_ptr[i + 1]]
        np.testing.assert_array_equal(around, np.flatnonzero(layout.scope == i))
        assert graph.degree[i] == len(around)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(strategies.graphs())
def test_layout(graph):
    check_layout(graph)


@pytest.mark.parametrize(
    "graph", [Graph.grid(3, 4), Graph.grid(1, 3, 3), Graph.grid(3, 3, neighbours=8), Graph.chain(4, [1, 2, 3, 2])]
)
def test_layout_of_built_graphs(graph):
    check_layout(graph)


def test_inputs_of_many_kinds():
    expected = Graph([2, 2, 2], [(0, 1), (1, 2)])
    for labels in ((2, 2, 2), np.array([2, 2, 2], dtype=np.uint8)):
        for factors in (((0, 1), (1, 2)), np.array([[0, 1], [1, 2]], dtype=np.int32), iter([[0, 1], [1, 2]])):
            assert Graph(labels, factors) == expected


def test_a_graph_keeps_its_own_labels():
    labels = np.array([2, 3])
    graph = Graph(labels, [(0, 1)])
    labels[0] = 7
    assert graph.labels.tolist() == [2, 3]
    with pytest.raises(ValueError, match="read-only"):
        graph.labels[0] = 5
    with pytest.raises(ValueError, match="read-only"):
        graph.layout.scope[0] = 1


def test_equality():
    assert Graph([2, 2], [(0, 1)]) == Graph.chain(2)
    assert Graph.grid(2, 2) == Graph([2] * 4, [(0, 1), (2, 3), (0, 2), (1, 3)])
    assert Graph([2, 2], [(0, 1)]) != Graph([2, 2], [(1, 0)])
    assert Graph([2, 2], [(0, 1)]) != Graph([2, 3], [(0, 1)])
    assert Graph([2] * 4, [(0, 1), (2, 3)]) != Graph([2] * 4, [(0, 1, 2, 3)])
    assert Graph.chain(2) != "chain"
    assert len({MIXED, MIXED, Graph.chain(2)}) == 2


@pytest.mark.parametrize("graph", [MIXED, Graph.grid(3, 4), Graph.chain(3)])
def test_pickle_leaves_compiled_arrays_behind(graph):
    size = len(pickle.dumps(graph))
    assert graph.layout is graph.layout
    graph.compiled("x", lambda: np.zeros(10**6))
    copy = pickle.loads(pickle.dumps(graph))
    assert copy == graph and copy.shape == graph.shape
    assert len(pickle.dumps(graph)) < size + 2000
    check_layout(copy)


def test_compiled_once():
    calls = []
    graph = Graph.chain(3)
    for _ in range(3):
        assert graph.compiled("key", lambda: calls.append(1) or "made") == "made"
    assert len(calls) == 1


def test_union():
    graphs = [Graph.chain(2, 3), MIXED, Graph([4]), Graph.grid(2, 2)]
    graph = union(graphs)
    assert graph.n_variables == 10 and graph.n_factors == 7 and graph.shape is None
    assert graph.labels.tolist() == [3, 3, 2, 3, 2, 4, 2, 2, 2, 2]
    assert [tuple(map(int, scope)) for scope in graph.factors] == [(0, 1), (2, 3), (4, 2, 3), (6, 7), (8, 9), (6, 8), (7, 9)]
    check_layout(graph)


def test_batch_is_a_disjoint_union():
    rng = np.random.default_rng(0)
    thetas = [random_potentials(random_graph(rng), rng) for _ in range(5)]
    together = bf.batch(thetas)
    labels = [rng.integers(theta.graph.labels) for theta in thetas]
    total = sum(theta.score(x) for theta, x in zip(thetas, labels, strict=True))
    assert together.score(np.concatenate(labels)) == pytest.approx(total)
    assert bf.batch(thetas[:1]).graph == thetas[0].graph
    both = bf.batch([thetas[0].astype(np.float32), thetas[1]])
    assert both.dtype == np.float64
