"""Builders: chains, grids, edge lists, networkx, superpixel maps."""

import networkx
import numpy as np
import pytest

from backfield import Graph


def test_chain():
    graph = Graph.chain(4, labels=26)
    np.testing.assert_array_equal(graph.factors, [(0, 1), (1, 2), (2, 3)])
    assert graph.labels.tolist() == [26] * 4
    assert Graph.chain(3, labels=[2, 3, 4]).labels.tolist() == [2, 3, 4]
    assert Graph.chain(np.int64(3)).n_variables == 3


def test_grid_order():
    """Horizontal edges by left end, then vertical edges by upper end, both row-major."""
    graph = Graph.grid(2, 3)
    horizontal, vertical = [(0, 1), (1, 2), (3, 4), (4, 5)], [(0, 3), (1, 4), (2, 5)]
    np.testing.assert_array_equal(graph.factors, horizontal + vertical)
    assert graph.shape == (2, 3) and graph.labels.tolist() == [2] * 6
    assert repr(graph) == "Graph(grid 2x3, 6 variables, 7 factors)"


@pytest.mark.parametrize("shape", [(1, 1), (1, 5), (5, 1), (2, 2), (4, 7)])
def test_grid_is_what_networkx_makes(shape):
    graph = Graph.grid(*shape, labels=3)
    expected = networkx.grid_2d_graph(*shape)
    edges = {tuple(sorted(divmod(int(i), shape[1]) for i in scope)) for scope in graph.factors}
    assert edges == {tuple(sorted(edge)) for edge in expected.edges} and len(edges) == graph.n_factors


def test_grid_of_eight_neighbours():
    graph = Graph.grid(2, 3, neighbours=8)
    np.testing.assert_array_equal(graph.factors[:7], Graph.grid(2, 3).factors)
    np.testing.assert_array_equal(graph.factors[7:], [(0, 4), (1, 5), (1, 3), (2, 4)])
    assert graph.shape == (2, 3) and graph.image_shape is None


def test_from_edges():
    graph = Graph.from_edges([(2, 0), (0, 2), (1, 0), (2, 0)], n_variables=5, labels=3)
    np.testing.assert_array_equal(graph.factors, [(2, 0), (0, 2), (1, 0), (2, 0)])
    assert graph.n_variables == 5
    assert Graph.from_edges([(0, 3)]).n_variables == 4
    assert Graph.from_edges([(0, 1)], labels=[2, 3, 4]).labels.tolist() == [2, 3, 4]
    assert Graph.from_edges([], n_variables=2).n_factors == 0
    assert Graph.from_edges(np.empty((0, 2)), labels=[2, 2]).n_variables == 2


@pytest.mark.parametrize("dtype", [np.uint8, np.uint32, np.uint64, np.int32, np.int64])
def test_edges_of_any_integer_type(dtype):
    assert Graph.from_edges(np.array([(0, 1), (1, 2)], dtype=dtype)) == Graph.chain(3)


def test_edges_are_copied():
    edges = np.array([(0, 1), (1, 2)])
    graph = Graph.from_edges(edges)
    edges[:] = 0
    assert graph == Graph.chain(3)
    assert edges.flags.writeable


def test_from_networkx():
    source = networkx.Graph()
    source.add_nodes_from("cab")
    source.add_edges_from([("a", "b"), ("c", "a")])
    graph = Graph.from_networkx(source, labels=4)
    assert graph.n_variables == 3 and graph.n_labels == 4
    assert {tuple(sorted(map(int, scope))) for scope in graph.factors} == {(1, 2), (0, 1)}
    parallel = networkx.MultiGraph([(0, 1), (0, 1)])
    assert Graph.from_networkx(parallel).n_factors == 2


def test_from_regions():
    regions = np.array([[0, 0, 1], [2, 2, 1], [2, 3, 3]])
    np.testing.assert_array_equal(Graph.from_regions(regions).factors, [(0, 1), (0, 2), (1, 2), (1, 3), (2, 3)])
    checkers = np.array([[0, 1], [2, 3]], dtype=np.uint16)
    assert Graph.from_regions(checkers).n_factors == 4
    assert Graph.from_regions(checkers, connectivity=2, labels=8).n_factors == 6
    assert Graph.from_regions([[0, 0]]).n_factors == 0


def test_regions_of_single_pixels_are_a_grid():
    pixels = np.arange(12).reshape(3, 4)
    for connectivity, neighbours in ((1, 4), (2, 8)):
        edges = {tuple(sorted(map(int, s))) for s in Graph.from_regions(pixels, connectivity=connectivity).factors}
        assert edges == {tuple(sorted(map(int, s))) for s in Graph.grid(3, 4, neighbours=neighbours).factors}


def test_a_large_grid_writes_out_no_scopes():
    graph = Graph.grid(1000, 1000)
    assert (graph.n_variables, graph.n_factors, graph.n_slots) == (10**6, 1998000, 3996000)
    assert graph.n_labels == 2 and graph.arity == 2 and graph.is_pairwise
    assert "_scope" not in vars(graph) and "layout" not in vars(graph)
