"""Grids of any number of dimensions and any neighbourhood: order of factors, groups, colours, files, bad input."""

import itertools
import pickle

import numpy as np
import pytest

import backfield as bf
from backfield import Graph, InputError, Sample
from backfield.data.codecs import SampleCodec
from backfield.graph.lattice import axes, neighbourhood

GRIDS = {
    "2-D, 4": Graph.grid(4, 5),
    "2-D, 8": Graph.grid(4, 5, neighbours=8),
    "3-D, 6": Graph.grid((3, 4, 5), neighbours=6),
    "3-D, 18": Graph.grid((3, 4, 5), neighbours=18),
    "3-D, 26": Graph.grid((3, 4, 5), neighbours=26),
    "1-D": Graph.grid((7,), offsets=[(1,), (3,)]),
    "4-D": Graph.grid((2, 3, 2, 3)),
    "long": Graph.grid(5, 9, offsets=[(0, 3), (-1, 2), (2, 4)]),
    "flat": Graph.grid((1, 4, 5), neighbours=26),
    "even": Graph.grid(6, 7, offsets=[(0, 2), (2, 0), (0, 6), (4, -4)]),
    "steps out": Graph.grid((2, 2), offsets=[(0, 5), (1, 1)]),
}
each_grid = pytest.mark.parametrize("graph", GRIDS.values(), ids=GRIDS.keys())


def plain_factors(shape, offsets):
    """Offset by offset, row-major by the first end, from the definition."""
    for offset in offsets:
        for place in np.ndindex(*shape):
            other = tuple(x + o for x, o in zip(place, offset, strict=True))
            if all(0 <= x < n for x, n in zip(other, shape, strict=True)):
                yield np.ravel_multi_index(place, shape), np.ravel_multi_index(other, shape)


@each_grid
def test_factors_follow_offset_by_offset(graph):
    expected = list(plain_factors(graph.shape, graph.offsets))
    assert [tuple(scope) for scope in graph.factors] == expected and graph.n_factors == len(expected)
    counts = [len(list(plain_factors(graph.shape, [offset]))) for offset in graph.offsets]
    assert [group.n_factors for group in graph.groups] == counts


@each_grid
def test_no_factor_joins_variables_of_one_colour(graph):
    colours = graph.lattice.colours()
    assert colours.shape == (graph.n_variables,) and colours.min() == 0
    assert (colours[graph.factors[:, 0]] != colours[graph.factors[:, 1]]).all()


def test_known_neighbourhoods():
    assert neighbourhood(2, None) == ((0, 1), (1, 0)) == axes(2)
    assert neighbourhood(2, 8) == ((0, 1), (1, 0), (1, 1), (1, -1))
    assert neighbourhood(3, 6) == ((0, 0, 1), (0, 1, 0), (1, 0, 0))
    assert neighbourhood(3, 18)[3:] == ((0, 1, 1), (0, 1, -1), (1, 0, 1), (1, 0, -1), (1, 1, 0), (1, -1, 0))
    assert neighbourhood(3, 26)[9:] == ((1, 1, 1), (1, 1, -1), (1, -1, 1), (1, -1, -1))
    assert len(neighbourhood(4, 80)) == 40


@pytest.mark.parametrize(("name", "count"), [("2-D, 4", 2), ("2-D, 8", 4), ("3-D, 6", 2), ("3-D, 18", 4), ("3-D, 26", 8)])
def test_number_of_colours(name, count):
    assert GRIDS[name].lattice.colours().max() + 1 == count


def test_long_steps_find_their_period_at_once():
    assert Graph.grid(5, 5, offsets=[(0, 10**6), (10**5, 1)]).lattice.periods
    every = [(0, k) for k in range(1, 12)]
    assert Graph.grid(3, 20, offsets=every).lattice.colours().max() == 11


def test_ways_to_write_a_grid():
    assert (
        Graph.grid((4, 5))
        == Graph.grid(4, 5)
        == Graph.grid([4, 5], 2)
        == Graph.grid(4, 5, 2, 4)
        == Graph.grid(np.array([4, 5]))
    )
    assert Graph.grid((3, 4, 5), 3, neighbours=6) == Graph.grid((3, 4, 5), labels=3)
    assert Graph.grid(4, 5, offsets=[(0, 1), (1, 0)]).image_shape == (4, 5)
    assert Graph.grid(4, 5).image_stack == (1, 4, 5) and Graph.grid(4, 5, neighbours=8).image_stack is None
    assert Graph.grid((3, 4, 5), offsets=[(0, 0, 1), (0, 1, 0)]).image_stack == (3, 4, 5)
    assert Graph.grid((3, 4, 5)).image_stack is None and Graph.chain(3).image_stack is None
    assert repr(Graph.grid((3, 4, 5))) == "Graph(grid 3x4x5, 60 variables, 133 factors)"
    assert Graph.grid((3, 4, 5)).image_shape is None and Graph.chain(3).shape is None and Graph.chain(3).offsets is None


def test_equal_and_different_grids():
    for one, other in itertools.combinations(GRIDS, 2):
        same = (one, other) == ("2-D, 8", "flat")  # which have the same factors
        assert (GRIDS[one] == GRIDS[other]) == same
    assert Graph.grid(4, 5, offsets=[(0, 1)]) != Graph.grid(4, 5, offsets=[(0, -1)])
    assert Graph.grid(4, 5, neighbours=8) == Graph.from_edges(Graph.grid(4, 5, neighbours=8).factors)


@each_grid
def test_grids_come_back(graph):
    again = pickle.loads(pickle.dumps(graph))
    assert again == graph and again.lattice == graph.lattice
    sample = Sample(graph, np.zeros((graph.n_variables, 1)))
    arrays = SampleCodec().encode(sample)
    assert "graph_scope" not in arrays
    found = SampleCodec().decode(set(arrays), arrays.__getitem__).graph
    assert found == graph and found.lattice == graph.lattice


BAD = {
    "repeated": (lambda: Graph.grid(3, 3, offsets=[(0, 1), (0, 1)]), r"the offset \(0, 1\) occurs twice"),
    "opposite": (lambda: Graph.grid(3, 3, offsets=[(0, 1), (0, -1)]), r"\(0, 1\) and \(0, -1\) join the same variables"),
    "zero": (lambda: Graph.grid(3, 3, offsets=[(0, 0)]), r"the offset \(0, 0\) joins a variable to itself"),
    "three of two": (lambda: Graph.grid(3, 3, offsets=[(0, 0, 1)]), r"has 2 integers, received \(0, 0, 1\)"),
    "half": (lambda: Graph.grid(3, 3, offsets=[(0, 0.5)]), r"has 2 integers, received \(0, 0.5\)"),
    "ragged": (lambda: Graph.grid(3, 3, offsets=[(0, (1, 2))]), "has 2 integers"),
    "none": (lambda: Graph.grid(3, 3, offsets=[]), r"at least one step of 2 integers, received \[\]"),
    "a number": (lambda: Graph.grid(3, 3, offsets=4), "at least one step of 2 integers, received 4"),
    "both": (lambda: Graph.grid(3, 3, neighbours=4, offsets=[(0, 1)]), "neighbours or offsets, received both"),
    "8 in 3-D": (lambda: Graph.grid((3, 3, 3), neighbours=8), "of 3 dimensions has 6, 18 or 26 neighbours, received 8"),
    "3 in 1-D": (lambda: Graph.grid((3,), neighbours=3), "of 1 dimensions has 2 neighbours, received 3"),
    "no shape": (lambda: Graph.grid(()), "at least one dimension"),
    "a size of 0": (lambda: Graph.grid((3, 0, 2)), r"positive integers, received 0 in \(3, 0, 2\)"),
    "labels twice": (lambda: Graph.grid((3, 2), 2, labels=3), "takes labels once, received 2 and 3"),
}


@pytest.mark.parametrize(("call", "message"), BAD.values(), ids=BAD.keys())
def test_bad_grids(call, message):
    with pytest.raises(InputError, match=message):
        call()


@pytest.mark.parametrize("damage", [{"graph_shape": [3, 4]}, {"graph_offsets": [[0, 0, 0]]}, {"graph_shape": []}])
def test_damaged_grids_in_shards(damage):
    arrays = SampleCodec().encode(Sample(GRIDS["3-D, 6"], np.zeros((60, 1))))
    arrays |= {key: np.array(value, dtype=np.int64) for key, value in damage.items()}
    with pytest.raises(InputError):
        SampleCodec().decode(set(arrays), arrays.__getitem__)


def test_a_checkpoint_knows_the_neighbourhood():
    from backfield.training.fingerprint import _graph

    seen = {repr(_graph(graph)) for graph in GRIDS.values()}
    assert len(seen) == len(GRIDS)
    assert _graph(Graph.grid(3, 4))[:3] == ("grid", (3, 4), 17)


def test_batches_of_grids():
    theta = bf.Potentials(GRIDS["3-D, 6"], np.zeros((60, 2)), np.zeros((133, 2, 2)))
    both = bf.batch([theta, theta])
    assert both.graph.n_factors == 266 and both.graph.lattice is None
