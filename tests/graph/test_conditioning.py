"""Conditioning: the reduced model is the full one with labels forbidden, and its adjoint is the transpose."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backfield import Graph, InputError, Potentials
from backfield.graph.conditioning import Restriction, check_possible, evidence
from tests.contracts import strategies
from tests.models import enumerate_model, random_potentials


@st.composite
def restricted(draw):
    """Potentials and a mask that leaves every variable at least one label."""
    theta = draw(strategies.potentials())
    allowed = []
    for count in theta.graph.labels:
        row = np.array(draw(st.lists(st.booleans(), min_size=int(count), max_size=int(count))))
        row[draw(st.integers(0, int(count) - 1))] = True
        allowed.append(row)
    return theta, np.concatenate(allowed)


def forbidden(theta, allowed):
    unary = np.where(allowed, theta.unary_flat, -np.inf)
    return Potentials.from_flat(theta.graph, unary, theta.factors_flat)


@settings(max_examples=80, deadline=None, derandomize=True)
@given(restricted())
def test_equals_forbidding(case):
    theta, allowed = case
    restriction = Restriction(theta.graph, allowed)
    reduced, constant = restriction.reduce(theta)
    log_z, mu = enumerate_model(forbidden(theta, allowed))
    if reduced is None:
        assert constant == pytest.approx(log_z)
        full = restriction.expand(None)
    else:
        reduced_log_z, reduced_mu = enumerate_model(reduced)
        assert reduced_log_z + constant == pytest.approx(log_z)
        full = restriction.expand(reduced_mu)
    np.testing.assert_allclose(full.vector(), mu.vector(), rtol=0, atol=1e-12)


@settings(max_examples=40, deadline=None, derandomize=True)
@given(restricted())
def test_reduce_and_expand_are_adjoint(case):
    """<expand(m), d> = <m, expand_vjp(d)> + the constant's share, for any m and d."""
    theta, allowed = case
    restriction = Restriction(theta.graph, allowed)
    reduced, constant = restriction.reduce(theta)
    if reduced is None:
        return
    m = reduced.like(np.random.default_rng(0).normal(size=len(reduced.vector())))
    left = restriction.expand(m, constant=0.0).vector() @ theta.vector()
    assert left == pytest.approx(m.vector() @ restriction.expand_vjp(theta).vector())


def test_what_is_left():
    graph = Graph([2, 3, 2, 2], [(0, 1), (1, 2), (0, 2, 3), (0, 3)])
    restriction = evidence(graph, [1, -1, -1, -1]).restriction
    assert restriction.graph.labels.tolist() == [3, 2, 2]
    assert [tuple(map(int, scope)) for scope in restriction.graph.factors] == [(0, 1), (1, 2)]
    assert restriction.kept_factors.tolist() == [1, 2] and restriction.kept_variables.tolist() == [1, 2, 3]
    assert evidence(graph, [1, 0, 0, 0]).restriction.graph is None
    assert evidence(graph, [-1] * 4) is None and evidence(graph, None) is None
    np.testing.assert_array_equal(evidence(Graph([2, 2]), np.array([1, -1])).allowed, [False, True, True, True])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_types_are_kept(dtype):
    theta = random_potentials(Graph.chain(3), np.random.default_rng(0)).astype(dtype)
    restriction = Restriction(theta.graph, np.array([1, 0, 1, 1, 1, 1], dtype=bool))
    reduced, _ = restriction.reduce(theta)
    assert reduced.dtype == dtype and restriction.expand(reduced).dtype == dtype


def test_forbidden_entries_of_forbidden_labels_do_not_matter():
    theta = Potentials(Graph.chain(2), [[0, -np.inf], [0, 0]], [[[0, 1], [-np.inf, -np.inf]]])
    reduced, constant = Restriction(theta.graph, np.array([True, False, True, True])).reduce(theta)
    assert constant == 0 and reduced.unary.tolist() == [[0, 1]]


def test_check_possible():
    chain = Graph.chain(3)
    check_possible(Potentials(chain, np.full((3, 2), [0, -np.inf]), np.zeros((2, 2, 2))))
    with pytest.raises(InputError, match="variable 1 has no allowed label"):
        check_possible(Potentials(chain, [[0, 0], [-np.inf] * 2, [0, 0]], np.zeros((2, 2, 2))))
    with pytest.raises(InputError, match="factor 1 forbids everything"):
        check_possible(Potentials(chain, np.zeros((3, 2)), [np.zeros((2, 2)), np.full((2, 2), -np.inf)]))
    with pytest.raises(InputError, match="variable 2 has no allowed label"):
        check_possible(Potentials(Graph([2, 3, 2]), [[0, 0], [0, 0, 0], [-np.inf, -np.inf]]))


@settings(max_examples=40, deadline=None, derandomize=True)
@given(restricted())
def test_select_reads_what_expand_wrote(case):
    theta, allowed = case
    restriction = Restriction(theta.graph, allowed)
    reduced, _ = restriction.reduce(theta)
    if reduced is not None:
        np.testing.assert_array_equal(restriction.select(restriction.expand(reduced)).vector(), reduced.vector())
