"""Quick runs of the tables and figures of [K05] and [S11], and what they are made of."""

import numpy as np
import pytest

import backfield as bf
from backfield.graph.conditioning import Evidence
from backfield.graph.labeling import as_labeling
from backfield.objectives import Target, get_objective, make_setting
from backfield_papers import Context, k05_fig1, reproduce
from backfield_papers import _random_models as models
from backfield_papers._model_problem import L2, LIKELIHOOD, ModelProblem
from backfield_papers.s11_tables import compared


@pytest.mark.filterwarnings("ignore::backfield.ConvergenceWarning")
@pytest.mark.parametrize(
    "name", ["k05-table1", "k05-fig1", "s11-table3", "s11-table5", "s11-fig1", "s11-strength", "s11-smd"]
)
def test_quick_runs(name, tmp_path):
    found, outcome = reproduce(name, Context(quick=True, kept=tmp_path / "cells"))
    assert found["settings"]["quick"] and found["rows"]
    assert all(np.isfinite(row["ours"]) for row in found["rows"])
    for file, draw in outcome.pictures.items():
        draw(tmp_path / file)
        assert (tmp_path / file).read_bytes()[:4] == b"\x89PNG"


def test_where_an_ascent_settles():
    t = np.arange(1000)
    slowly = 1 - np.exp(-t / 100)
    both = np.stack([slowly, 5 + 0 * t], axis=1)
    at = k05_fig1.settled(both)
    assert at is not None and abs(slowly[at] - 1) < 0.011 and abs(slowly[at - 1] - 1) > 0.009
    assert k05_fig1.settled(both + 0.005 * np.sin(t)[:, None]) is not None  # a small cycle within the band
    assert k05_fig1.settled(both + 0.1 * np.sin(t)[:, None]) is None
    assert k05_fig1.settled(np.stack([t / 100], axis=1)) is None


def test_gradients_of_a_random_model():
    truth = models.random_truth(models.Sizes(9, 14), 0, 20)
    problem = ModelProblem(truth.edges, truth.train, 5)
    rng = np.random.default_rng(0)
    w, v = rng.normal(size=(2, problem.n_weights))
    for loss in ("mse", "l1", "f_measure"):
        function = problem.minimising(loss)
        low, high = (function.value_and_gradient(w + s * 1e-5 * v).value for s in (-1, 1))
        assert function.value_and_gradient(w).gradient @ v == pytest.approx((high - low) / 2e-5, abs=1e-7)


def test_second_derivatives_of_a_random_model():
    truth = models.random_truth(models.Sizes(9, 14), 0, 20)
    problem = ModelProblem(truth.edges, truth.train, 5).minimising("mse")
    w, v = np.random.default_rng(0).normal(size=(2, problem.n_weights))
    seen, curved = problem.hessian_vector(w, v)
    np.testing.assert_array_equal(seen.gradient, problem.value_and_gradient(w).gradient)
    values = [problem.value_and_gradient(w + t * v).value for t in (-1e-3, 0, 1e-3)]
    assert v @ curved == pytest.approx((values[0] - 2 * values[1] + values[2]) / 1e-6, rel=1e-3)


def test_samples_of_a_model_are_examples_with_observed_inputs():
    """Against the plain way: one example after the other, inputs observed, through the objective."""
    truth = models.random_truth(models.Sizes(12, 30), 0, 20)
    problem = ModelProblem(truth.edges, truth.train, 6)
    w = np.random.default_rng(0).normal(size=problem.n_weights)
    graph = bf.Graph.from_edges(truth.edges, 12, labels=2)
    theta = bf.Potentials.from_flat(graph, np.zeros(24), w)
    batch = np.arange(3, 15)
    for loss in ("mse", "l1", "f_measure", LIKELIHOOD):
        value, gradient = 0.0, np.zeros_like(w)
        method = problem.inference.replace("tol=0.0001", "tol=None")
        plain = problem._like(inference=method).minimising(loss)
        for k in batch:
            target = Target(
                as_labeling(graph, truth.train.labels[k]),
                Evidence(graph, as_labeling(graph, truth.train.observed[k]).allowed),
            )
            setting = make_setting(get_objective(loss), method, None)
            part, d_theta = get_objective(loss).value_and_dtheta(theta, target, setting)
            value, gradient = value + part / len(batch), gradient + d_theta.factors_flat / len(batch)
        found = plain.value_and_gradient(w, batch)
        assert found.value == pytest.approx(value + L2 * w @ w, abs=1e-10)
        np.testing.assert_allclose(found.gradient, gradient + 2 * L2 * w, rtol=0, atol=1e-10)


def test_mismatched_edges():
    truth = models.random_truth(models.Sizes(12, 20), 0, 2)
    edges = models.mismatched(truth, 0.2, 0)
    same = {tuple(edge) for edge in edges} & {tuple(edge) for edge in truth.edges}
    assert len(edges) == 20 and len(same) == 16


def test_wins_and_permutations():
    found = compared([0.0, 1.0, 0.0, 0.0], [1.0, 1.0, 2.0, -1.0])
    assert found["wins"] == "2-1-1"
    assert compared([0.0] * 4, [1.0] * 4)["p"] == 1 / 16
