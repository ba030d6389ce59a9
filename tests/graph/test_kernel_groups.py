"""Kernel groups as parts of potentials: numbers, scores, filters, and what is refused."""

import pickle

import numpy as np
import pytest

import backfield as bf
from backfield.errors import InputError
from backfield.kernels.gaussian.choose import FEW_POINTS, axes_of, choose

RNG = np.random.default_rng(0)
POINTS = RNG.normal(size=(6, 2))
UNARY = RNG.normal(size=(6, 3))
FULL = np.array([[1.0, -0.4, 0.1], [-0.4, 0.7, 0.3], [0.1, 0.3, -0.6]])
GRAPH = bf.Graph(labels=[3] * 6)
EDGES = bf.Graph(labels=[3] * 6, factors=[(0, 1), (2, 4)])


def potentials(*kernels, graph=GRAPH):
    tables = [RNG.normal(size=(2, 3, 3))] if graph is EDGES else []
    return bf.Potentials(graph, UNARY, groups=[*tables, *kernels])


@pytest.mark.parametrize("graph", [GRAPH, EDGES])
def test_score_and_its_gradient_are_those_of_the_pairs(graph):
    theta = potentials(bf.Kernel(POINTS, FULL, [0.8, 1.2], 1.5), bf.Kernel(POINTS[:, :1], 2.0), graph=graph)
    labels = np.array([0, 2, 1, 1, 0, 2])
    assert theta.score(labels) == pytest.approx(theta.pairs_written_out().score(labels), abs=1e-12)
    found, vector, step = theta.indicators(labels).vector(), theta.vector(), 1e-6
    for k in range(18, len(vector)):
        e = step * (np.arange(len(vector)) == k)
        slope = (theta.like(vector + e).score(labels) - theta.like(vector - e).score(labels)) / (2 * step)
        assert found[k] == pytest.approx(slope, rel=1e-6, abs=1e-8)


def test_vectors_go_there_and_back():
    theta = potentials(
        bf.Kernel(POINTS, FULL, [0.8, 1.2]), bf.Kernel(POINTS, [1.0, 2.0, 3.0]), bf.Kernel(POINTS), graph=EDGES
    )
    vector = theta.vector()
    assert len(vector) == 18 + 18 + (1 + 6 + 2) + (1 + 3 + 1) + (1 + 1 + 1)
    other = theta.like(vector + 1)
    assert np.array_equal(other.vector(), vector + 1)
    assert np.array_equal(other.kernels[0].compatibility, FULL + 1)
    assert np.array_equal(theta.adjoint(vector).vector(), vector)
    assert np.abs(theta.adjoint(vector).minus(theta.adjoint(vector)).vector()).max() == 0


def test_groups_and_copies():
    theta = potentials(bf.Kernel(POINTS, FULL), graph=EDGES)
    assert [group.kind for group in theta.groups] == ["tables", "kernel"]
    assert not theta.has_tables_only and theta.without_kernels().has_tables_only
    again = pickle.loads(pickle.dumps(theta))
    assert again.score(np.zeros(6, int)) == pytest.approx(theta.score(np.zeros(6, int)))
    assert theta.astype(np.float32).kernels[0].dtype == np.float32
    for name in ("factors_flat", "factors"):
        with pytest.raises(InputError, match="takes no kernel groups"):
            getattr(theta, name)
    with pytest.raises(InputError, match="a batch takes no kernel groups"):
        bf.batch([theta, theta])
    with pytest.raises(InputError, match="is not a kernel"):
        theta.adjoint(theta.vector()).kernels[0].operator()


def test_beside_tied_tables():
    graph = bf.Graph.chain(6, labels=3)
    theta = bf.Potentials(graph, UNARY, groups=[bf.Tied(FULL), bf.Kernel(POINTS, 0.5)])
    pairs = theta.pairs_written_out()
    run, other = bf.infer(theta, "mean_field(n_iter=3)"), bf.infer(pairs, "mean_field(n_iter=3, schedule='flooding')")
    assert np.abs(run.unary - other.unary).max() < 1e-10
    _, d = bf.value_and_gradient(theta, np.zeros(6, int), loss="univariate_logistic", inference="mean_field(n_iter=3)")
    assert [group.kind for group in d.groups] == ["tied", "kernel"]
    assert d.groups[0].tables.shape == (3, 3)


def test_which_filter():
    y, x = np.mgrid[:30, :40]
    grid = np.stack([x, y], axis=-1).reshape(-1, 2) * [0.5, 2.0]
    axes = axes_of(grid)
    assert axes.shape == (30, 40) and axes.columns == (1, 0) and axes.steps == (2.0, 0.5)
    assert axes_of(grid + RNG.normal(0, 0.1, grid.shape)) is None
    assert axes_of(grid[:-1]) is None
    assert choose("auto", grid, np.array([1.0, 4.0])) == "grid"
    assert choose("auto", grid, np.array([1.5, 4.0])) == "lattice"
    assert choose("auto", grid[:FEW_POINTS], np.array([1.0, 4.0])) == "exact"


def test_grid_filter_in_units_of_the_features():
    y, x = np.mgrid[:5, :6]
    points = np.stack([x, y], axis=-1).reshape(-1, 2) * [0.5, 2.0]
    graph, unary = bf.Graph(labels=[3] * 30), RNG.normal(size=(30, 3))
    how = {"loss": "univariate_logistic", "inference": "mean_field(n_iter=3)"}
    found = []
    for name in ("exact", "grid"):
        theta = bf.Potentials(graph, unary, groups=[bf.Kernel(points, 2.0, [0.6, 2.1], filter=name)])
        found.append(bf.value_and_gradient(theta, np.arange(30) % 3, **how)[1].vector())
    assert np.abs(found[0] - found[1]).max() < 5e-3  # what is cut off beyond 4 bandwidths


@pytest.mark.parametrize(
    ("kernel", "message"),
    [
        (bf.Kernel(POINTS, bandwidths=0.0), r"groups\[0\]: bandwidths must be positive numbers, received 0 for feature 0"),
        (bf.Kernel(POINTS, bandwidths=[1.0, -2.0]), "received -2 for feature 1"),
        (bf.Kernel(POINTS, bandwidths=[1.0, np.nan]), "received nan for feature 1"),
        (bf.Kernel(POINTS, bandwidths=[1.0, 1.0, 1.0]), "2 features need one bandwidth or 2"),
        (bf.Kernel(POINTS, FULL + np.triu(FULL, 1)), r"must be symmetric, received -0.8 at \[0, 1\] and -0.4 at \[1, 0\]"),
        (bf.Kernel(POINTS, np.eye(2)), r"of 3 labels is a number, \(3,\) or \(3, 3\)"),
        (bf.Kernel(POINTS, np.nan), "finite"),
        (bf.Kernel(POINTS, weight=np.inf), "weight of a kernel must be a finite number"),
        (
            bf.Kernel(np.where(np.arange(12).reshape(6, 2) == 5, np.nan, POINTS)),
            "features hold NaN or infinity, first in row 2",
        ),
        (bf.Kernel(POINTS[:5]), "one row for each of 6 variables, received 5"),
        (bf.Kernel(POINTS[:, 0]), r"shape \(n, d\)"),
        (bf.Kernel(np.zeros((6, 17)), filter="lattice"), "at most 16 features, received 17"),
        (bf.Kernel(POINTS, filter="fast"), "filter must be one of"),
        (bf.Kernel(POINTS, bandwidths="a"), "bandwidths must be real numbers"),
        (bf.Kernel(POINTS, bandwidths=None), "bandwidths must be real numbers"),
        (bf.Kernel(POINTS, bandwidths=[[1], [1, 2]]), "bandwidths must be an array; its rows differ in length"),
        (bf.Kernel([[1, 2], [3]]), "features must be an array; its rows differ in length"),
        (bf.Kernel(POINTS, self_terms="no"), "self_terms of a kernel must be True or False, received 'no'"),
        (bf.Kernel(POINTS, normalisation="rows"), "normalisation must be None or one of symmetric, before, after"),
    ],
)
def test_bad_input(kernel, message):
    with pytest.raises(InputError, match=message):
        potentials(kernel)


def test_more_bad_input():
    with pytest.raises(InputError, match="one label count"):
        bf.Potentials(bf.Graph(labels=[2, 3]), [[0, 0], [0, 0, 0]], groups=[bf.Kernel(POINTS[:2])])
    with pytest.raises(InputError, match="groups must hold 1 entries"):
        bf.Potentials(EDGES, UNARY, groups=[bf.Kernel(POINTS)])
    with pytest.raises(InputError, match="needs the points of a regular grid"):
        bf.infer(potentials(bf.Kernel(POINTS, filter="grid")), "mean_field(n_iter=1)")
    wide = bf.Potentials(bf.Graph(labels=[3] * 600), np.zeros((600, 3)), groups=[bf.Kernel(np.zeros((600, 2)))])
    assert wide.pairs_written_out().graph.n_factors == 600 * 599 // 2
    many = bf.Graph(labels=[3] * 9000)
    with pytest.raises(InputError, match="too many to write out"):
        bf.Potentials(many, np.zeros((9000, 3)), groups=[bf.Kernel(np.zeros((9000, 2)))]).pairs_written_out()
    with pytest.raises(InputError, match="at most 16 features"):
        bf.Potentials(many, np.zeros((9000, 3)), groups=[bf.Kernel(np.zeros((9000, 17)))])
