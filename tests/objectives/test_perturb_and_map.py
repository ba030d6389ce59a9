"""Perturb-and-MAP and margin objectives: bounds, and gradients under fixed noise."""

import numpy as np
import pytest

import backfield as bf
from tests.models import enumerate_model, random_potentials


def submodular(rng, rows=3, columns=3):
    theta = random_potentials(bf.Graph.grid(rows, columns), rng)
    strength = np.abs(rng.normal(size=theta.graph.n_factors))
    theta.factors[:] = 0
    theta.factors[:, 0, 0] = theta.factors[:, 1, 1] = strength
    return theta


def test_the_bound_holds_within_four_errors():
    rng = np.random.default_rng(0)
    for _ in range(20):
        theta = submodular(rng)
        run = bf.infer(theta, "perturb_and_map(n_samples=200)")
        assert run.log_partition >= enumerate_model(theta)[0] - 4 * run.log_partition_error
        assert run.bound == "upper"


def test_separable_models_are_tight_and_counted_right():
    rng = np.random.default_rng(1)
    theta = random_potentials(bf.Graph([2, 3, 4], []), rng)
    run = bf.infer(theta, "perturb_and_map(n_samples=4000)")
    log_z, mu = enumerate_model(theta)
    assert abs(run.log_partition - log_z) < 4 * run.log_partition_error
    assert np.abs(run.marginals.vector() - mu.vector()).max() < 0.04


def test_the_same_seed_gives_the_same_bytes():
    theta = submodular(np.random.default_rng(2))
    first, second = (bf.infer(theta, "perturb_and_map(n_samples=20, seed=3)") for _ in range(2))
    assert np.array_equal(first.marginals.vector(), second.marginals.vector())
    assert first.log_partition == second.log_partition


OBJECTIVES = [
    "perturb_and_map(n_samples=3)",
    "marginal_perturb_and_map(n_samples=2)",
    "marginal_perturb_and_map(reduction=False)",
    "marginal_perturb_and_map(dynamic=False)",
    "marginal_perturb_and_map(solver='brute_force')",
    "max_margin",
    "smoothed_max_margin(eps=0.5)",
]


@pytest.mark.parametrize("loss", OBJECTIVES)
def test_gradients_equal_differences_under_fixed_noise(loss):
    rng = np.random.default_rng(4)
    theta = submodular(rng)
    labels = rng.integers(0, 2, 9)
    labels[3] = -1
    direction = rng.normal(size=len(theta.vector()))

    def value(step):
        return bf.value_and_gradient(theta.like(theta.vector() + step * direction), labels, loss=loss, seed=5)[0]

    gradient = bf.value_and_gradient(theta, labels, loss=loss, seed=5)[1].vector()
    assert (value(1e-6) - value(-1e-6)) / 2e-6 == pytest.approx(gradient @ direction, rel=1e-5, abs=1e-6)


def test_switches_do_not_change_the_value():
    rng = np.random.default_rng(6)
    theta = submodular(rng)
    labels = rng.integers(0, 2, 9)
    values = [bf.value_and_gradient(theta, labels, loss=loss, seed=1) for loss in OBJECTIVES[2:5]]
    for value, d_theta in values[1:]:
        assert value == pytest.approx(values[0][0])
        assert np.allclose(d_theta.vector(), values[0][1].vector())


def test_margin_bounds_the_hamming_distance_of_the_map():
    rng = np.random.default_rng(7)
    for _ in range(10):
        theta = submodular(rng)
        labels = rng.integers(0, 2, 9)
        wrong = (bf.find_map(theta, "brute_force").labels != labels).sum()
        assert bf.value_and_gradient(theta, labels, loss="max_margin")[0] >= wrong - 1e-9


def test_refusals():
    theta = submodular(np.random.default_rng(8))
    with pytest.raises(bf.InputError, match="n_samples"):
        bf.infer(theta, "perturb_and_map(n_samples=0)")
    with pytest.raises(bf.InputError, match="no gradient through perturb_and_map"):
        bf.value_and_gradient(theta, np.zeros(9, int), loss="univariate_logistic", inference="perturb_and_map")
