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


def test_the_bound_holds_within_four_errors_on_100_models():
    rng, below = np.random.default_rng(0), 0
    for _ in range(100):
        theta = submodular(rng)
        run = bf.infer(theta, "perturb_and_map(n_samples=200)")
        assert run.log_partition >= enumerate_model(theta)[0] - 4 * run.log_partition_error
        # An estimate of a bound is none: some lie below log Z.
        assert run.bound == "none" and run.upper == np.inf and run.extra["expectation"] == "an upper bound of log Z"
        below += run.log_partition < enumerate_model(theta)[0]
    assert below


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


# Soft targets: the right column of Table 1


def by_definition(theta, noise, labels, q, weights):
    """Sum of weighted [ A_G - B_G ] over all labels, by enumeration; soft terms given what is known."""
    every = np.array(list(np.ndindex(*theta.graph.labels)))
    z = noise.reshape(len(labels), -1)
    value = np.array([theta.score(y) for y in every])
    moved = value + z[np.arange(len(labels)), every].sum(axis=1)
    total = 0.0
    given = (every[:, labels >= 0] == labels[labels >= 0]).all(axis=1)
    of_known = z[labels >= 0, labels[labels >= 0]].sum()  # no noise on what is given
    for d in range(len(labels)):
        for k in range(theta.graph.labels[d]):
            here = every[:, d] == k
            if labels[d] == k:
                total += weights[d, k] * (moved.max() - (moved[here].max() - z[d, k]))
            elif labels[d] < 0:
                best = moved[given].max() - of_known
                total += weights[d, k] * q[d, k] * (best - (moved[here & given].max() - of_known - z[d, k]))
    return total


@pytest.mark.parametrize("loss", ["marginal_perturb_and_map", *OBJECTIVES[2:5]])
@pytest.mark.parametrize("known", [0, 4, 9])
def test_soft_targets_equal_their_definition(loss, known):
    from backfield.inference.sampling.perturb_and_map import gumbel

    rng = np.random.default_rng(10 + known)
    theta = submodular(rng)
    q = rng.dirichlet([1, 1], 9)
    labels = np.full(9, -1)
    labels[rng.permutation(9)[:known]] = 1
    q[labels == 1] = [0, 1]
    weights = rng.random((9, 2)) + 0.5
    value, d_theta = bf.value_and_gradient(theta, q, loss=loss, weights=weights, seed=3)
    assert value == pytest.approx(by_definition(theta, gumbel(theta, 3, 0), labels, q, weights))
    direction = rng.normal(size=len(theta.vector()))

    def moved(step):
        there = theta.like(theta.vector() + step * direction)
        return bf.value_and_gradient(there, q, loss=loss, weights=weights, seed=3)[0]

    assert (moved(1e-6) - moved(-1e-6)) / 2e-6 == pytest.approx(d_theta.vector() @ direction, rel=1e-5, abs=1e-6)


def test_certain_probabilities_are_labels_and_unit_weights_are_none():
    rng = np.random.default_rng(11)
    theta = submodular(rng)
    labels = rng.integers(0, 2, 9)
    plain = bf.value_and_gradient(theta, labels, loss="marginal_perturb_and_map")
    for q, weights in ((np.eye(2)[labels], None), (labels, np.ones(9)), (np.eye(2)[labels], np.ones((9, 2)))):
        other = bf.value_and_gradient(theta, q, loss="marginal_perturb_and_map", weights=weights)
        assert other[0] == pytest.approx(plain[0])
        assert np.allclose(other[1].vector(), plain[1].vector())


def test_more_labels_and_larger_factors():
    rng = np.random.default_rng(12)
    for graph in (bf.Graph([3, 3, 3], [(0, 1), (1, 2)]), bf.Graph([2, 3, 2], [(0, 1), (0, 1, 2)])):
        theta = random_potentials(graph, rng)
        q = [rng.dirichlet(np.ones(count)) for count in graph.labels]
        values = [
            bf.value_and_gradient(theta, q, loss=f"marginal_perturb_and_map(solver='{solver}')", seed=4)
            for solver in ("brute_force", "max_product(n_iter=200)" if graph.arity is None else "viterbi")
        ]
        assert values[0][0] == pytest.approx(values[1][0])
        assert np.allclose(values[0][1].vector(), values[1][1].vector())


def test_probabilities_that_are_none():
    theta = submodular(np.random.default_rng(8))
    for wrong in (np.full((9, 2), 0.6), np.full((9, 3), 1 / 3), np.full((9, 2), np.nan)):
        with pytest.raises(bf.InputError, match=r"labels\[0\] must be 2 probabilities that sum to 1"):
            bf.value_and_gradient(theta, wrong, loss="marginal_perturb_and_map")
    with pytest.raises(bf.InputError, match="takes labels, not probabilities"):
        bf.value_and_gradient(theta, np.full((9, 2), 0.5), loss="max_margin")
