"""The junction tree of probabilities: all marginals, those of variables alone, labels left out, zeros, refusals."""

import numpy as np
import pytest

import backfield as bf
from backfield.inference.exact.elimination import TooLargeError
from backfield.inference.exact.products import Products, Tables
from tests.models import enumerate_model, random_potentials


def model(seed, scale=2.0, zeros=0.0):
    """Up to ten variables of one to twelve labels, factors of up to four of them, some alone; some entries forbidden."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(2, 9))
    labels = rng.integers(1, 5, size=n)
    labels[0] = 12
    factors = [rng.choice(n, size=rng.integers(1, min(n, 4) + 1), replace=False) for _ in range(n + 2)]
    theta = random_potentials(bf.Graph(labels, [scope for scope in factors if len(scope) > 1]), rng, scale)
    safe = rng.integers(labels)
    for scope, table in zip(theta.graph.factors, theta.factors, strict=True):
        entry = table[tuple(safe[list(scope)])]
        table[rng.random(table.shape) < zeros] = -np.inf
        table[tuple(safe[list(scope)])] = entry
    return theta, safe


@pytest.mark.parametrize("zeros", [0.0, 0.4])
def test_marginals_are_those_of_enumeration(zeros):
    for seed in range(40):
        theta, _ = model(seed, zeros=zeros)
        log_z, mu = enumerate_model(theta)
        for variables_only in (False, True):
            products = Products(theta.graph, 2**20, variables_only=variables_only)
            value, found = products.run(products.tables(theta.unary_flat, theta.factors_flat))
            wanted = mu.unary_flat if variables_only else mu.vector()
            assert value == pytest.approx(log_z, abs=1e-11)
            np.testing.assert_allclose(found, wanted, atol=1e-12)


def test_labels_that_are_not_allowed_are_left_out():
    for seed in range(40):
        theta, safe = model(seed, zeros=0.2)
        rng = np.random.default_rng(seed)
        allowed = rng.random(len(theta.unary_flat)) < 0.5
        allowed[theta.graph.layout.var_ptr[:-1] + safe] = True
        without = theta.like(theta.vector())
        without.unary_flat[~allowed] = -np.inf
        log_z, mu = enumerate_model(without)
        products = Products(theta.graph, 2**20, allowed=allowed)
        found = products.run(products.tables(theta.unary_flat, theta.factors_flat))
        if found is None:
            assert allowed.sum() == theta.graph.n_variables
            continue
        assert found[0] == pytest.approx(log_z, abs=1e-11)
        np.testing.assert_allclose(found[1], mu.vector(), atol=1e-12)


def test_long_axes_are_cut_into_blocks():
    theta = random_potentials(bf.Graph([1500, 40, 30], [(0, 1), (2, 0), (1, 2)]), np.random.default_rng(0), 1.0)
    products = Products(theta.graph, 2**24)
    value, found = products.run(products.tables(theta.unary_flat, theta.factors_flat))
    run = bf.infer(theta, "exact")
    assert value == pytest.approx(run.log_partition, abs=1e-10)
    np.testing.assert_allclose(found, run.marginals.vector(), atol=1e-13)


def test_evidence_as_zeros():
    theta, safe = model(3)
    products = Products(theta.graph, 2**20)
    tables = products.tables(theta.unary_flat, theta.factors_flat)
    before = tables.values.copy()
    value, found = products.run(tables)
    np.testing.assert_array_equal(tables.values, before)  # the same tables serve again
    known = theta.like(theta.vector())
    start = theta.graph.layout.var_ptr[0]
    known.unary_flat[start + 1 : start + 12] = -np.inf
    values = tables.values.copy()
    values[start + 1 : start + 12] = 0
    other, _ = products.run(Tables(values, tables.constant))
    assert other == pytest.approx(enumerate_model(known)[0], abs=1e-11)


def test_what_is_refused():
    theta, _ = model(5)
    with pytest.raises(TooLargeError):
        Products(theta.graph, 3)
    with pytest.raises(TooLargeError):
        Products(theta.graph, 2**20, memory=64)
    nothing = theta.like(theta.vector())
    nothing.unary_flat[: theta.graph.labels[0]] = -np.inf
    products = Products(theta.graph, 2**20)
    assert products.run(products.tables(nothing.unary_flat, nothing.factors_flat)) is None
    tiny = bf.Potentials(bf.Graph([2, 2], [(0, 1)]), [[0, 0], [0, 0]], [[[-900.0, 0.0], [0.0, -np.inf]]])
    tiny.unary_flat[[1, 3]] = -600.0  # the best labels are e^-600 of the product of the maxima
    products = Products(tiny.graph, 2**20)
    assert products.run(products.tables(tiny.unary_flat, tiny.factors_flat)) is None
