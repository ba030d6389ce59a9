"""Potentials: shapes, flat storage, scores."""

import numpy as np
import pytest
from hypothesis import given, settings

from backfield import Graph, Potentials
from tests.contracts import strategies
from tests.models import random_potentials

MIXED = Graph([2, 3, 2], [(0, 1), (2, 0, 1)])


def test_uniform_tables_are_arrays():
    unary, tables = np.arange(6.0).reshape(3, 2), np.arange(8.0).reshape(2, 2, 2)
    theta = Potentials(Graph.chain(3), unary, tables)
    assert theta.unary.shape == (3, 2) and theta.factors.shape == (2, 2, 2)
    np.testing.assert_array_equal(theta.vector(), [*range(6), *range(8)])
    listed = Potentials(Graph.chain(3), list(unary), [table.tolist() for table in tables])
    np.testing.assert_array_equal(listed.vector(), theta.vector())
    assert Potentials(Graph([2] * 3, [(0, 1, 2)]), unary, tables[None]).factors.shape == (1, 2, 2, 2)


def test_other_tables_are_lists():
    theta = random_potentials(MIXED, np.random.default_rng(0))
    assert [table.shape for table in theta.unary] == [(2,), (3,), (2,)]
    assert [table.shape for table in theta.factors] == [(2, 3), (2, 2, 3)]
    same = Potentials(MIXED, theta.unary, theta.factors)
    np.testing.assert_array_equal(same.vector(), theta.vector())
    # One label count, two arities: unary is an array, factors a list.
    theta = random_potentials(Graph([2] * 3, [(0, 1), (0, 1, 2)]), np.random.default_rng(0))
    assert theta.unary.shape == (3, 2) and isinstance(theta.factors, list)


@pytest.mark.parametrize("factors", [(), [], None, np.empty(0), np.empty((0, 2, 2))])
def test_no_factors(factors):
    theta = Potentials(Graph([2, 2]), np.zeros((2, 2)), factors)
    assert len(theta.factors) == 0 and theta.dtype == np.float64
    assert len(Potentials(Graph([2, 3]), [[0, 0], [0, 0, 0]], []).factors) == 0


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_types_are_kept(dtype):
    theta = Potentials(Graph.chain(2), np.zeros((2, 2), dtype), np.zeros((1, 2, 2), dtype))
    assert theta.dtype == dtype and theta.unary.dtype == theta.factors.dtype == dtype
    assert theta.astype(dtype) is theta
    assert theta.astype(np.float64).dtype == np.float64
    assert Potentials(Graph([2]), np.zeros((1, 2), dtype)).dtype == dtype


@pytest.mark.parametrize("dtype", [np.int8, np.uint64, np.float16, np.longdouble, ">f8"])
def test_other_numbers_become_doubles(dtype):
    theta = Potentials(Graph.chain(2), np.ones((2, 2), dtype), np.ones((1, 2, 2), np.float32))
    assert theta.dtype == np.dtype(np.float64) and theta.dtype.isnative
    np.testing.assert_array_equal(theta.vector(), np.ones(8))


def test_any_memory_layout():
    rng = np.random.default_rng(0)
    unary, tables = rng.normal(size=(3, 2)), rng.normal(size=(2, 2, 2))
    expected = Potentials(Graph.chain(3), unary, tables).vector()
    frozen = unary.copy()
    frozen.flags.writeable = False
    for odd in (np.asfortranarray(unary), np.repeat(unary, 2, axis=1)[:, ::2], unary[::-1].copy()[::-1], frozen):
        theta = Potentials(Graph.chain(3), odd, np.asfortranarray(tables))
        np.testing.assert_array_equal(theta.vector(), expected)
        assert theta.unary_flat.flags.c_contiguous and theta.unary_flat.flags.writeable


def test_minus_infinity_is_legal():
    theta = Potentials(Graph.chain(2), [[0, -np.inf], [0, 0]], np.full((1, 2, 2), -np.inf))
    assert theta.unary[0, 1] == -np.inf
    assert theta.dot(theta.like(np.array([1.0, 0, 0.5, 0.5, 0, 0, 0, 0]))) == 0  # 0 * -inf = 0
    assert theta.score(np.array([1, 0])) == -np.inf


@settings(max_examples=40, deadline=None, derandomize=True)
@given(strategies.potentials())
def test_score(theta):
    graph = theta.graph
    labels = np.random.default_rng(0).integers(graph.labels)
    expected = sum(theta.unary[i][labels[i]] for i in range(graph.n_variables))
    expected += sum(table[tuple(labels[list(scope)])] for scope, table in zip(graph.factors, theta.factors, strict=True))
    assert theta.score(labels) == pytest.approx(expected)


@settings(max_examples=40, deadline=None, derandomize=True)
@given(strategies.potentials())
def test_vector_and_back(theta):
    back = theta.like(theta.vector())
    np.testing.assert_array_equal(back.vector(), theta.vector())
    for mine, other in zip([*theta.unary, *theta.factors], [*back.unary, *back.factors], strict=True):
        np.testing.assert_array_equal(mine, other)
    assert theta.dot(theta) == pytest.approx((theta.vector() ** 2).sum())


def test_tables_are_views():
    theta = random_potentials(MIXED, np.random.default_rng(0))
    theta.factors[1][1, 1, 2] = 7.0
    assert theta.factors_flat[6 + 11] == 7.0
    assert repr(theta) == "Potentials(Graph(3 variables, 2 factors), float64)"
