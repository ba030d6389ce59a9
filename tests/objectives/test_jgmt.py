"""Names of JGMT mean what they meant there, wherever a loss is named."""

import numpy as np
import pytest

import backfield as bf
from backfield.objectives import jgmt_alias
from tests.models import random_potentials

GRID = bf.Graph.grid(3, 3)


@pytest.mark.parametrize(
    ("name", "loss", "inference", "gradient"),
    [
        ("trunc_cl_trw_5", "clique_logistic", "tree_reweighted(n_iter=5)", "truncated"),
        ("trunc_cl_trwpll_5", "clique_logistic", "tree_reweighted(n_iter=5)", "truncated"),
        ("trunc_uquad_mnf_3", "univariate_quadratic", "mean_field(n_iter=3)", "truncated"),
        ("pert_ul_trw_1e5", "univariate_logistic", "tree_reweighted(n_iter=1000, tol=1e-05)", "perturbation"),
        ("pert/4_ul_trw_1e-5", "univariate_logistic", "tree_reweighted(n_iter=1000, tol=1e-05)", "perturbation(sides=4)"),
        ("bbp_cl_trw_1e-6", "clique_logistic", "tree_reweighted(n_iter=1000, tol=1e-06)", "backpropagation"),
        ("em_mnf_1e5", "surrogate_likelihood", "mean_field(n_iter=1000, tol=1e-05)", None),
        ("trunc_em_trw_10", "surrogate_likelihood", "tree_reweighted(n_iter=10)", "truncated"),
        ("pseudo", "pseudolikelihood", None, None),
    ],
)
def test_meaning(name, loss, inference, gradient):
    assert jgmt_alias(name) == (loss, inference, gradient)
    theta = random_potentials(GRID, np.random.default_rng(0), 0.5)
    labels = np.arange(9) % 2
    expected = bf.value_and_gradient(theta, labels, loss=loss, inference=inference, gradient=gradient)
    value, d_theta = bf.value_and_gradient(theta, labels, loss=name)
    assert value == expected[0]
    np.testing.assert_array_equal(d_theta.vector(), expected[1].vector())


def test_another_method_for_the_clamped_part():
    theta = random_potentials(GRID, np.random.default_rng(0), 0.5)
    labels = np.array([0, 1, -1, 1, 0, -1, -1, 1, 0])
    clamped = 'surrogate_likelihood(clamped="mean_field(n_iter=1000, tol=1e-05)")'
    expected, _ = bf.value_and_gradient(theta, labels, loss=clamped, inference="tree_reweighted(n_iter=1000, tol=1e-5)")
    assert bf.value_and_gradient(theta, labels, loss="em_trw/mnf_1e5")[0] == expected


def test_estimators_train_and_test_by_it(tmp_path):
    rng = np.random.default_rng(0)
    X = [rng.normal(size=(6, 6, 1)) for _ in range(3)]
    Y = [(x[..., 0] > 0).astype(int) for x in X]
    learner = "lbfgs(max_iter=5)"
    named = bf.GridCRF(loss="trunc_cl_trw_3", learner=learner).fit(X, Y)
    written = bf.GridCRF(
        loss="clique_logistic", inference="tree_reweighted(n_iter=3)", gradient="truncated", learner=learner
    ).fit(X, Y)
    np.testing.assert_array_equal(named.weights_, written.weights_)
    np.testing.assert_array_equal(named.predict_proba(X)[0], written.predict_proba(X)[0])
    assert named.get_params()["loss"] == "trunc_cl_trw_3"
    named.save(tmp_path / "model.bf")
    np.testing.assert_array_equal(bf.load(tmp_path / "model.bf").predict_proba(X)[0], named.predict_proba(X)[0])


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("trunc_xx_trw_5", "as a loss of JGMT"),
        ("trunc_cl_5", "as a loss of JGMT"),
        ("bbp_em_trw_1e5", "as a loss of JGMT"),
        ("trunc_cl_gibbs_5", "names the inference 'gibbs'; known are trw"),
        ("trunc_cl_trw_x", "must end in a number"),
        ("trunc_cl_trw_2.5", "number of sweeps"),
        ("em_trw_0", "tolerance"),
    ],
)
def test_wrong_names(name, message):
    with pytest.raises(bf.InputError, match=message):
        jgmt_alias(name)


def test_what_it_brings_is_not_given_again():
    theta = random_potentials(GRID, np.random.default_rng(0))
    with pytest.raises(bf.InputError, match=r"names inference and gradient, too.*loss='clique_logistic'"):
        bf.value_and_gradient(theta, np.zeros(9, int), loss="trunc_cl_trw_5", inference="exact")
    assert jgmt_alias("piecewise") is None  # has that name here
    assert jgmt_alias("pseudolikelihood") is None
