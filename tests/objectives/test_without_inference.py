"""Pseudolikelihood and piecewise likelihood against plain conditionals and closed forms."""

import numpy as np
import pytest
from scipy.special import logsumexp

import backfield as bf
from tests.gradients.differences import GRAPHS, check, example
from tests.models import enumerate_model

OWN = ["pseudolikelihood", "pseudolikelihood(patch=2)", "pseudolikelihood(patch=100)", "piecewise"]


def value_of(theta, labels, loss, **more):
    return bf.value_and_gradient(theta, labels, loss=loss, **more)[0]


def without_hidden(theta, labels):
    """Drop hidden variables and every factor that touches one."""
    known = np.flatnonzero(labels >= 0)
    number = {int(i): k for k, i in enumerate(known)}
    pairs = [(s, t) for s, t in zip(theta.graph.factors, theta.factors, strict=True) if all(int(i) in number for i in s)]
    graph = bf.Graph(theta.graph.labels[known], [[number[int(i)] for i in scope] for scope, _ in pairs])
    return bf.Potentials(graph, [theta.unary[i] for i in known], [table for _, table in pairs]), labels[known]


def conditionals(theta, labels, w=None):
    """- sum_i w_i log p(x_i | all others), from whole labelings."""
    total = 0.0
    for i, count in enumerate(theta.graph.labels):
        scores = []
        for x in range(count):
            moved = labels.copy()
            moved[i] = x
            scores.append(theta.score(moved))
        total += (1 if w is None else w[i]) * (logsumexp(scores) - scores[labels[i]])
    return total


@pytest.mark.parametrize("hidden", [False, True])
def test_pseudolikelihood(hidden):
    for graph in GRAPHS.values():
        theta, labels = example(graph)
        if not hidden:
            labels[0] = 0
        rest, known = without_hidden(theta, labels)
        assert value_of(theta, labels, "pseudolikelihood") == pytest.approx(conditionals(rest, known))
        w = np.random.default_rng(0).random(graph.n_variables)
        expected = conditionals(rest, known, w[labels >= 0])
        assert value_of(theta, labels, "pseudolikelihood", weights=w) == pytest.approx(expected)
        each = [w[i] * np.arange(1, count + 1) for i, count in enumerate(graph.labels)]
        weights = each if graph.n_labels is None else np.array(each)
        expected = conditionals(rest, known, (w * (1 + labels))[labels >= 0])
        assert value_of(theta, labels, "pseudolikelihood", weights=weights) == pytest.approx(expected)


@pytest.mark.parametrize("hidden", [False, True])
def test_one_patch_over_everything_is_the_likelihood(hidden):
    for graph in GRAPHS.values():
        theta, labels = example(graph)
        if not hidden:
            labels[0] = 0
        rest, known = without_hidden(theta, labels)
        expected = enumerate_model(rest)[0] - rest.score(known)
        assert value_of(theta, labels, "pseudolikelihood(patch=100)") == pytest.approx(expected)


def test_patches_cover_every_variable_once():
    """Patches of two on a path 0-1-2-3: p(x_0, x_1 | x_2) p(x_2, x_3 | x_1)."""
    theta, labels = example(bf.Graph.chain(4, labels=3))
    labels[0] = 2
    total = 0.0
    for patch in ((0, 1), (2, 3)):
        given = labels.copy()
        given[list(patch)] = -1
        total += bf.infer(theta, "brute_force", observed=given).log_partition - theta.score(labels)
    assert value_of(theta, labels, "pseudolikelihood(patch=2)") == pytest.approx(total)


@pytest.mark.parametrize("hidden", [False, True])
def test_piecewise(hidden):
    for graph in GRAPHS.values():
        theta, labels = example(graph)
        if not hidden:
            labels[0] = 0
        expected = sum(logsumexp(row) - row[x] for row, x in zip(theta.unary, labels, strict=True) if x >= 0)
        for scope, table in zip(graph.factors, theta.factors, strict=True):
            x = tuple(labels[list(scope)])
            expected += logsumexp(table) - table[x] if min(x) >= 0 else 0
        assert value_of(theta, labels, "piecewise") == pytest.approx(expected)


def test_piecewise_is_below_the_likelihood():
    """The pieces' partition functions bound A from above ([D13] §4.1.5)."""
    for graph in GRAPHS.values():
        theta, labels = example(graph)
        labels[0] = 0
        assert value_of(theta, labels, "piecewise") >= enumerate_model(theta)[0] - theta.score(labels) - 1e-9


@pytest.mark.parametrize("loss", OWN)
def test_gradients(loss):
    for graph in GRAPHS.values():
        theta, labels = example(graph)
        observed = np.full_like(labels, -1)
        observed[-1] = labels[-1]
        check(theta, labels, 1e-6, loss=loss)
        check(theta, np.maximum(labels, 0), 1e-6, loss=loss, observed=observed)
        if loss in ("pseudolikelihood", "piecewise"):
            w = np.random.default_rng(0).random(graph.n_variables)
            check(theta, labels, 1e-6, loss=loss, weights=w)
            check(theta, labels, 1e-6, loss=loss, weights=w, observed=observed)


@pytest.mark.parametrize("loss", OWN)
def test_observed_inputs_are_fixed(loss):
    """The value is that of the model in which the inputs' labels have been filled in."""
    for graph in GRAPHS.values():
        theta, labels = example(graph)
        observed = np.full_like(labels, -1)
        observed[1] = labels[1]
        where = bf.graph.conditioning.Restriction(graph, bf.graph.labeling.as_labeling(graph, observed).allowed)
        reduced, _ = where.reduce(theta)
        expected = value_of(reduced, labels[where.kept_variables], loss)
        unlabelled = np.where(observed >= 0, -1, labels)
        for given in (labels, unlabelled):  # an input's own label changes nothing
            assert value_of(theta, given, loss, observed=observed) == pytest.approx(expected)


def test_observed_sets_leave_fewer_labels():
    theta, labels = example(GRAPHS["mixed"])
    labels[:] = [0, 2, 1, 3, 0]
    observed = [np.ones(count, bool) for count in theta.graph.labels]
    observed[1][0] = observed[3][1] = False
    values = theta.vector()
    values[[2, 8]] = -np.inf  # the entries of label 0 of variable 1 and label 1 of variable 3
    for loss in ("pseudolikelihood", "pseudolikelihood(patch=100)"):
        expected = value_of(theta.like(values), labels, loss)
        assert value_of(theta, labels, loss, observed=observed) == pytest.approx(expected)
        check(theta, labels, 1e-6, loss=loss, observed=observed)


def test_all_observed():
    theta, labels = example(GRAPHS["grid"])
    labels[0] = 0
    for loss in OWN:
        value, d_theta = bf.value_and_gradient(theta, labels, loss=loss, observed=labels)
        assert value == 0
        assert not d_theta.vector().any()


def test_refusals():
    theta, labels = example(GRAPHS["grid of 3 labels"])
    allowed = np.tile([True, True, False], (len(labels), 1))
    for loss in ("pseudolikelihood", "piecewise"):
        with pytest.raises(bf.InputError, match=f"{loss} takes one label per variable or -1, not sets; use a logistic loss"):
            value_of(theta, allowed, loss)
        with pytest.raises(bf.InputError, match=f"{loss} computes its own gradient, so implicit does not apply"):
            value_of(theta, labels, loss, gradient="implicit")
    with pytest.raises(bf.InputError, match="takes weights for patch=1 only"):
        value_of(theta, labels, "pseudolikelihood(patch=2)", weights=np.ones(len(labels)))
    with pytest.raises(bf.InputError, match="patch must be an integer >= 1, received 0"):
        value_of(theta, labels, "pseudolikelihood(patch=0)")


def test_impossible_labels():
    theta, labels = example(GRAPHS["grid"])
    values = theta.vector()
    values[2 * 3 + labels[3]] = -np.inf
    for loss in OWN:
        with pytest.raises(bf.InputError, match="the labels have probability zero"):
            value_of(theta.like(values), labels, loss)
