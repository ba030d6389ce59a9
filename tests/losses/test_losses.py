"""Losses on marginals against their definitions, written out as loops, and against differences in mu."""

import itertools

import numpy as np
import pytest

import backfield as bf
from backfield.graph.labeling import as_labeling
from backfield.registry import get, lookup, names
from tests.gradients.differences import GRAPHS, along, takes
from tests.models import random_potentials

LOGISTIC = ["univariate_logistic", "clique_logistic"]


def random_marginals(graph, seed=0):
    """Any positive tables that sum to one; not consistent, as before convergence."""
    rng = np.random.default_rng([seed, graph.n_variables])
    theta = random_potentials(graph, rng)
    unary = [np.exp(row) / np.exp(row).sum() for row in theta.unary]
    return bf.Potentials(graph, unary, [np.exp(table) / np.exp(table).sum() for table in theta.factors])


def random_labels(graph, hidden=True):
    rng = np.random.default_rng([1, graph.n_variables])
    labels = rng.integers(0, graph.labels)
    labels[0] = -1 if hidden else labels[0]
    return labels


def random_sets(graph):
    """Singles, sets and hidden variables, mixed."""
    rng = np.random.default_rng([2, graph.n_variables])
    allowed = [rng.random(count) < 0.5 for count in graph.labels]
    for row in allowed:
        row[rng.integers(len(row))] = True
    return allowed


def evaluate(loss, mu, labels, weights=None):
    labeling = as_labeling(mu.graph, labels)
    return get("losses", loss).value_and_dmu(mu, labeling, None if weights is None else np.asarray(weights, float))


def tables(loss, mu, labels):
    """Yield the tables that a loss looks at, the entry that is right, and the variables: hidden ones left out."""
    if lookup("losses", loss.split("(")[0]).cliques:
        for scope, table in zip(mu.graph.factors, mu.factors, strict=True):
            if (labels[list(scope)] >= 0).all():
                yield table, tuple(labels[list(scope)]), list(scope)
    else:
        for i, table in enumerate(mu.unary):
            if labels[i] >= 0:
                yield table, (labels[i],), [i]


def plain(loss, mu, labels, weights=None):
    """The definitions of [D13] §4.2."""
    total = 0.0
    for table, right, scope in tables(loss, mu, labels):
        w = 1.0
        if weights is not None:
            w = np.mean([weights[i] if np.ndim(weights[i]) == 0 else weights[i][labels[i]] for i in scope])
        if "logistic" in loss:
            total -= w * np.log(table[right])
        elif "quadratic" in loss:
            truth = np.zeros_like(table)
            truth[right] = 1
            total += w * ((table - truth) ** 2).sum()
        elif table.size > 1:
            rivals = [table[x] for x in np.ndindex(table.shape) if x != right]
            total += w / (1 + np.exp(-15 * (max(rivals) - table[right])))
    return total


SUMS = [*LOGISTIC, "univariate_quadratic", "clique_quadratic", "smoothed_error", "clique_smoothed_error"]


@pytest.mark.parametrize("loss", SUMS)
def test_definition(loss):
    for graph in GRAPHS.values():
        mu = random_marginals(graph)
        rng = np.random.default_rng(3)
        for hidden in (False, True):
            labels = random_labels(graph, hidden)
            assert evaluate(loss, mu, labels)[0] == pytest.approx(plain(loss, mu, labels))
            w = rng.random(graph.n_variables)
            assert evaluate(loss, mu, labels, w)[0] == pytest.approx(plain(loss, mu, labels, w))
            each = [rng.random(count) for count in graph.labels]
            found = evaluate(loss, mu, labels, np.concatenate(each))[0]
            assert found == pytest.approx(plain(loss, mu, labels, each))


@pytest.mark.parametrize("loss", names("losses"))
@pytest.mark.parametrize("per_label", [None, False, True])
def test_derivative(loss, per_label):
    for graph in GRAPHS.values():
        if not takes(loss, graph):
            continue
        mu, labels = random_marginals(graph), random_labels(graph)
        rng = np.random.default_rng(4)
        w = None
        if per_label is not None:
            w = rng.random(int(graph.labels.sum()) if per_label else graph.n_variables)
        for given in [labels, random_sets(graph)] if loss in LOGISTIC and graph.n_labels is None else [labels]:
            _, d_mu = evaluate(loss, mu, given, w)
            direction = rng.normal(size=len(mu.vector()))
            slope = d_mu.unary_flat @ direction[: len(d_mu.unary_flat)]
            if d_mu.factors_flat.size:
                slope += d_mu.factors_flat @ direction[len(d_mu.unary_flat) :]
            measured = along(lambda t: evaluate(loss, mu.like(mu.vector() + t * direction), given, w)[0], 1e-6)
            assert slope == pytest.approx(measured, rel=1e-6, abs=1e-8)


@pytest.mark.parametrize("loss", LOGISTIC)
@pytest.mark.parametrize("per_label", [None, False, True])
def test_sets(loss, per_label):
    """The probability of the set, or of the product set, takes the place of that of the label."""
    for graph in GRAPHS.values():
        mu, allowed = random_marginals(graph), random_sets(graph)
        rng = np.random.default_rng(5)
        each = [rng.random(count) for count in graph.labels]
        w = np.ones(graph.n_variables)
        if per_label is False:
            w = np.array([row[0] for row in each])
        if per_label:
            w = np.array([row[mask].mean() for row, mask in zip(each, allowed, strict=True)])
        scopes = mu.graph.factors if loss == "clique_logistic" else [(i,) for i in range(graph.n_variables)]
        expected = 0.0
        for table, scope in zip(mu.factors if loss == "clique_logistic" else mu.unary, scopes, strict=True):
            if any(allowed[i].all() and len(allowed[i]) > 1 for i in scope):
                continue  # hidden
            inside = sum(table[x] for x in itertools.product(*[np.flatnonzero(allowed[i]) for i in scope]))
            expected -= np.mean([w[i] for i in scope]) * np.log(inside)
        given = allowed if graph.n_labels is None else np.array(allowed)
        weights = None if per_label is None else (np.concatenate(each) if per_label else w)
        assert evaluate(loss, mu, given, weights)[0] == pytest.approx(expected)


@pytest.mark.parametrize("loss", [name for name in names("losses") if not lookup("losses", name).sets])
def test_sets_are_refused_elsewhere(loss):
    graph = bf.Graph.chain(2, labels=3)
    theta = random_potentials(graph, np.random.default_rng(0))
    allowed = np.array([[True, True, False], [True, True, True]])
    with pytest.raises(bf.InputError, match=f"{loss} takes one label per variable or -1, not sets"):
        bf.value_and_gradient(theta, allowed, loss=loss, inference="exact")


@pytest.mark.parametrize("loss", LOGISTIC)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_stays_finite_where_a_marginal_is_zero(loss, dtype):
    graph = bf.Graph.chain(3)
    theta = bf.Potentials(graph, [[0, -np.inf], [0, 1], [1, 0]], np.zeros((2, 2, 2)))
    setting = {"loss": loss, "weights": [1e5, 1, 1], "dtype": dtype}
    for method in ("exact", "loopy_bp", "mean_field", "smoothed_lp"):
        value, d_theta = bf.value_and_gradient(theta, [1, 0, 1], inference=method, **setting)
        assert value > 1e5
        assert np.isfinite(d_theta.vector()).all()


def test_clique_losses_under_mean_field_use_products():
    for graph in GRAPHS.values():
        theta = random_potentials(graph, np.random.default_rng(6))
        labels = random_labels(graph)
        method = "mean_field(n_iter=4)"
        unary = bf.infer(theta, method).unary
        expected = -sum(
            np.log(unary[i][labels[i]]) for scope in graph.factors if (labels[list(scope)] >= 0).all() for i in scope
        )
        found, _ = bf.value_and_gradient(theta, labels, loss="clique_logistic", inference=method)
        assert found == pytest.approx(expected)


@pytest.mark.parametrize("loss", ["smoothed_error", "clique_smoothed_error"])
def test_smoothed_error_counts_errors(loss):
    """As alpha grows, the value becomes the number of variables or cliques that are wrong."""
    for graph in GRAPHS.values():
        mu, labels = random_marginals(graph), random_labels(graph)
        wrong = sum(table.argmax() != np.ravel_multi_index(x, table.shape) for table, x, _ in tables(loss, mu, labels))
        assert evaluate(f"{loss}(alpha=1e5)", mu, labels)[0] == pytest.approx(wrong, abs=1e-3)
    with pytest.raises(bf.InputError, match="alpha must be a positive number, received 0"):
        get("losses", f"{loss}(alpha=0)")


@pytest.mark.parametrize("loss", SUMS)
def test_nothing_known_is_nothing_lost(loss):
    for graph in GRAPHS.values():
        value, d_mu = evaluate(loss, random_marginals(graph), np.full(graph.n_variables, -1))
        assert value == 0
        assert not d_mu.vector().any()
