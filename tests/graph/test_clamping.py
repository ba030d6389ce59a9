"""Clamping: fixed variables are independent in theta', and all maps have the adjoints that they should have."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backfield import Graph, Potentials
from backfield.graph import clamping
from backfield.graph.clamping import clamp_of
from backfield.graph.conditioning import evidence
from tests.contracts import strategies
from tests.models import enumerate_model, random_potentials


@st.composite
def clamped(draw):
    """Potentials in which some variables have one possible label, others a set of them."""
    theta = draw(strategies.potentials())
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    rows = np.split(theta.unary_flat, np.cumsum(theta.graph.labels)[:-1])
    for row in rows:
        if rng.random() < 0.5:
            row[rng.permutation(len(row))[: rng.integers(1, len(row) + 1) - 1]] = -np.inf
    return theta


@settings(max_examples=80, deadline=None, derandomize=True)
@given(clamped())
def test_the_clamped_model_is_the_same_model(theta):
    """log Z and marginals of theta' are those of theta once the fixed variables, free in theta', are counted out."""
    clamp = clamp_of(theta)
    if clamp is None:
        assert not ((theta.unary_flat == -np.inf).any() and (theta.graph.labels == 2).all())
        return
    plain = clamp.apply(theta)
    log_z, mu = enumerate_model(theta)
    free_log_z, free_mu = enumerate_model(plain)
    assert free_log_z - np.log(theta.graph.labels[clamp.variables]).sum() == pytest.approx(log_z)
    np.testing.assert_allclose(clamp.expand(free_mu).vector(), mu.vector(), rtol=0, atol=1e-12)
    free = np.ones(theta.graph.n_variables, dtype=bool)
    free[clamp.variables] = False
    for c, scope in enumerate(theta.graph.factors):  # a factor with at most one free variable says nothing any more
        if free[list(scope)].sum() <= 1:
            table = plain.factors_flat[slice(*theta.graph.layout.table_ptr[c : c + 2])]
            assert (table == 0).all()


@settings(max_examples=60, deadline=None, derandomize=True)
@given(clamped())
def test_adjoints(theta):
    """<R theta, d> = <theta, R' d> and <E mu, d> = <mu, E' d>, up to what forbidden labels and fixed rows leave out."""
    clamp = clamp_of(theta)
    if clamp is None:
        return
    rng = np.random.default_rng(0)
    direction, moved = (theta.like(rng.normal(size=len(theta.vector()))) for _ in range(2))
    left = clamp.apply(moved).vector() @ direction.vector()
    right = moved.vector() @ clamp.adjoint(direction).vector()
    assert left == pytest.approx(right)
    mu, d_mu = (theta.like(rng.normal(size=len(theta.vector()))) for _ in range(2))
    pulled = clamp.expand_vjp(d_mu).vector() @ mu.vector()
    zero = clamp.expand(theta.like(np.zeros(len(mu.vector()))))  # what stays where mu is zero: the fixed rows
    assert pulled == pytest.approx((clamp.expand(mu).vector() - zero.vector()) @ d_mu.vector())


def test_what_is_fixed():
    graph = Graph([2, 3, 1, 2], [(0, 1), (1, 3)])
    theta = random_potentials(graph, np.random.default_rng(0))
    assert clamp_of(theta) is None  # one label of one is not fixed
    theta.unary[1][2] = -np.inf
    assert clamp_of(theta) is None  # nor is a set
    theta.unary[1][0] = theta.unary[3][0] = -np.inf
    clamp = clamp_of(theta)
    assert clamp.label.tolist() == [-1, 1, -1, 1] and sorted(clamp.factors) == [0, 1]
    plain = clamp.apply(theta)
    assert np.isfinite(plain.vector()).all()
    np.testing.assert_array_equal(plain.unary[0], theta.unary[0] + theta.factors[0][:, 1])


def test_forbidden_entries_of_forbidden_labels_do_not_matter():
    theta = Potentials(Graph.chain(2), [[0, -np.inf], [0, 0]], [[[0, 1], [-np.inf, -np.inf]]])
    plain = clamp_of(theta).apply(theta)
    assert plain.unary.tolist() == [[0, 0], [0, 1]] and (plain.factors == 0).all()


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.complex128])
def test_types_are_kept(dtype):
    theta = random_potentials(Graph.chain(3), np.random.default_rng(0)).astype(dtype)
    theta.unary_flat[0] = -np.inf
    clamp = clamp_of(theta)
    assert clamp.apply(theta).dtype == clamp.expand(theta).dtype == clamp.expand_vjp(theta).dtype == dtype


@pytest.mark.parametrize("graph", [Graph.grid(4, 5, labels=3), Graph.from_edges([[1, 0], [0, 2], [2, 1], [0, 1]], labels=2)])
def test_plan_of_pairs_equals_the_general_plan(graph):
    rng = np.random.default_rng(1)
    label = np.where(rng.random(graph.n_variables) < 0.5, rng.integers(0, graph.n_labels, graph.n_variables), -1)
    fixed = np.flatnonzero(label >= 0)
    plans = np.zeros((2, 2 * graph.n_slots, 10), np.int64)
    sizes = [
        fill(graph.layout, label, fixed, plan)
        for fill, plan in zip((clamping._fill_plan, clamping._fill_plan_of_pairs), plans, strict=True)
    ]
    touched = [c for c, scope in enumerate(graph.factors) if (label[scope] >= 0).any()]
    assert sizes == [len(touched)] * 2 and sorted(plans[0, : sizes[0], clamping.FACTOR]) == touched
    one_free = plans[:, :, clamping.OTHERS] > 0
    plans[:, :, clamping.ACROSS] *= one_free  # which only pairs with one free variable have
    np.testing.assert_array_equal(plans[0], plans[1])


def test_observed_labels_and_masks_fix_the_same():
    graph = Graph([2, 1, 3], [(0, 1), (1, 2)])
    by_label = evidence(graph, [1, 0, -1]).clamp
    by_mask = evidence(graph, [np.array([False, True]), np.array([True]), np.array([True, True, True])]).clamp
    assert by_label.label.tolist() == by_mask.label.tolist() == [1, -1, -1]
    assert evidence(Graph.chain(3), np.array([[True, True], [True, False], [True, True]])).clamp.label.tolist() == [
        -1,
        0,
        -1,
    ]
