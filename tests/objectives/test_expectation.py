"""PMA, MMA, SPA and CD: what stands for the expectation, less the labels ([K05])."""

import numpy as np
import pytest

import backfield as bf
from backfield.graph.labeling import one_hot
from backfield.inference.sampling.gibbs import gibbs_chain
from backfield.registry import lookup
from tests.gradients.differences import GRAPHS, check, example

METHOD = "tree_reweighted(n_iter=20)"


def indicators(graph, labels):
    return np.concatenate(one_hot(graph, labels))


def most_probable(run):
    return np.array([row.argmax() for row in run.unary])


def known(theta, labels):
    labels = labels.copy()
    labels[0] = 0
    return theta, labels


@pytest.mark.parametrize("method", [METHOD, "mean_field", "exact", "gibbs(n_samples=50)"])
def test_pseudo_marginal(method):
    for graph in GRAPHS.values():
        theta, labels = known(*example(graph))
        run = bf.infer(theta, method)
        value, d_theta = bf.value_and_gradient(theta, labels, loss="pseudo_marginal", inference=method)
        assert value == (most_probable(run) != labels).sum()
        np.testing.assert_allclose(d_theta.vector(), run.marginals.vector() - indicators(graph, labels), atol=1e-12)


def test_maximum_marginal():
    for graph in GRAPHS.values():
        theta, labels = known(*example(graph))
        best = most_probable(bf.infer(theta, METHOD))
        value, d_theta = bf.value_and_gradient(theta, labels, loss="maximum_marginal", inference=METHOD)
        assert value == (best != labels).sum()
        np.testing.assert_array_equal(d_theta.vector(), indicators(graph, best) - indicators(graph, labels))


@pytest.mark.parametrize("loss", ["pseudo_marginal", "maximum_marginal"])
def test_hidden_variables_are_clamped_out(loss):
    for graph in GRAPHS.values():
        theta, labels = example(graph)
        free, clamped = bf.infer(theta, METHOD), bf.infer(theta, METHOD, observed=labels)
        value, d_theta = bf.value_and_gradient(theta, labels, loss=loss, inference=METHOD)
        if loss == "pseudo_marginal":
            expected = free.marginals.vector() - clamped.marginals.vector()
        else:
            expected = indicators(graph, most_probable(free)) - indicators(graph, most_probable(clamped))
        np.testing.assert_allclose(d_theta.vector(), expected, atol=1e-12)
        assert value == ((most_probable(free) != labels) & (labels >= 0)).sum()


def test_saddle_point():
    for graph in GRAPHS.values():
        theta, labels = known(*example(graph))
        best = bf.find_map(theta, "brute_force")
        value, d_theta = bf.value_and_gradient(theta, labels, loss="saddle_point(solver='brute_force')")
        assert value == pytest.approx(best.value - theta.score(labels))
        assert value >= 0
        np.testing.assert_array_equal(d_theta.vector(), indicators(graph, best.labels) - indicators(graph, labels))
        check(theta, labels, 1e-6, loss="saddle_point(solver='brute_force')")


def test_saddle_point_with_hidden_and_observed_variables():
    for graph in GRAPHS.values():
        theta, labels = example(graph)
        observed = np.full_like(labels, -1)
        observed[-1] = labels[-1]
        check(theta, labels, 1e-6, loss="saddle_point(solver='brute_force')", observed=observed)


def test_automatic_solver_is_exact_where_one_is():
    for name in ("tree", "lone"):
        theta, labels = known(*example(GRAPHS[name]))
        value, _ = bf.value_and_gradient(theta, labels, loss="saddle_point")
        assert value == pytest.approx(bf.find_map(theta, "brute_force").value - theta.score(labels))


@pytest.mark.parametrize("k", [1, 5])
def test_contrastive_divergence(k):
    for graph in GRAPHS.values():
        theta, labels = known(*example(graph))
        sample = gibbs_chain(theta, labels, k, 3)
        value, d_theta = bf.value_and_gradient(theta, labels, loss=f"contrastive_divergence(k={k})", seed=3)
        assert value == (sample != labels).sum()
        np.testing.assert_array_equal(d_theta.vector(), indicators(graph, sample) - indicators(graph, labels))


def test_contrastive_divergence_nears_the_likelihood_gradient():
    theta, labels = known(*example(GRAPHS["cycle"]))
    directions = [
        bf.value_and_gradient(theta, labels, loss="contrastive_divergence(k=20)", seed=seed)[1].vector()
        for seed in range(2000)
    ]
    _, likelihood = bf.value_and_gradient(theta, labels, loss="surrogate_likelihood", inference="exact")
    np.testing.assert_allclose(np.mean(directions, axis=0), likelihood.vector(), atol=0.05)


def test_who_has_an_objective():
    """[K05] §7.2: of the four only SPA is the gradient of something."""
    for name in ("pseudo_marginal", "maximum_marginal", "contrastive_divergence"):
        assert not lookup("objectives", name).integrable
    assert lookup("objectives", "saddle_point").integrable


def test_refusals():
    theta, labels = example(GRAPHS["grid"])
    with pytest.raises(bf.InputError, match=r"contrastive_divergence starts at the labels.*use pseudo_marginal"):
        bf.value_and_gradient(theta, labels, loss="contrastive_divergence")
    with pytest.raises(bf.InputError, match="k must be an integer >= 1, received 0"):
        bf.value_and_gradient(theta, labels, loss="contrastive_divergence(k=0)")
    for loss in ("pseudo_marginal", "maximum_marginal"):
        with pytest.raises(bf.InputError, match=f"{loss} needs inference="):
            bf.value_and_gradient(theta, labels, loss=loss)
        with pytest.raises(bf.InputError, match=f"{loss} computes its own gradient, so perturbation does not apply"):
            bf.value_and_gradient(theta, labels, loss=loss, inference="loopy_bp", gradient="perturbation")
    for loss in ("pseudo_marginal", "saddle_point", "contrastive_divergence"):
        with pytest.raises(bf.InputError, match=f"{loss} takes no weights per variable"):
            bf.value_and_gradient(theta, labels, loss=loss, inference="loopy_bp", weights=np.ones(len(labels)))
