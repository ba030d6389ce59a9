"""Gradient ascent with a fixed step: limit cycles, what is kept, the trace."""

import numpy as np
import pytest

import backfield as bf
from backfield.errors import InputError
from backfield.learners import Ascent
from backfield.learners.ascent import _is_closed
from backfield.registry import get
from tests.learners.problems import Function, Info, Logistic, same_trace


class Quantised(Logistic):
    """The perceptron: a direction that is piecewise constant, without an objective."""

    def value_and_gradient(self, w, batch=None, seed=0):
        wrong = self.y * (self.x @ w) <= 0
        seen = super().value_and_gradient(w, batch, seed)
        return seen._replace(value=wrong.sum(), gradient=-(self.x.T @ (self.y * wrong)) / len(self.y), errors=wrong.mean())


def test_spec_and_bad_parameters():
    learner = get("learners", "ascent(max_iter=3, keep='votes')")
    assert learner == Ascent(max_iter=3, keep="votes") and get("learners", repr(learner)) == learner
    for wrong in ({"max_iter": -1}, {"step_size": 0.0}, {"keep": "all"}, {"closeness": 1.0}, {"cycles": -1}, {"window": 1}):
        with pytest.raises(InputError, match=f"ascent: {next(iter(wrong))} must be"):
            Ascent(**wrong)


def test_a_smooth_problem_converges():
    problem = Logistic(l2=0.05)
    fit = Ascent(max_iter=5000, step_size=2.0, keep="last", tol=1e-8).fit(problem, np.zeros(8))
    assert fit.converged and "vanished" in fit.message
    np.testing.assert_allclose(fit.w, problem.optimum(), atol=1e-5)


def test_a_limit_cycle_ends_the_fit_with_the_fewest_errors():
    problem = Quantised()
    fit = Ascent(max_iter=3000, step_size=0.1).fit(problem, np.zeros(8))
    assert fit.converged and "limit cycle" in fit.message
    errors = [row["error"] for row in fit.trace]
    assert problem.value_and_gradient(fit.w).errors == min(errors)
    assert fit.trace[-1]["loops"] >= 2
    assert set(fit.trace[0]) >= {"w", "gradient", "error", "truncated", "loops"}
    np.testing.assert_allclose(
        np.array(fit.trace[1]["w"]), np.array(fit.trace[0]["w"]) - 0.1 * np.array(fit.trace[0]["gradient"])
    )


def test_votes_are_a_mean_of_the_parameters():
    problem = Quantised()
    fit = Ascent(max_iter=50, step_size=0.1, keep="votes", cycles=0).fit(problem, np.zeros(8))
    votes = np.array([1 - row["error"] for row in fit.trace])
    expected = np.average([row["w"] for row in fit.trace], axis=0, weights=votes)
    np.testing.assert_allclose(fit.w, expected, rtol=1e-12)


def test_closed_loops():
    circle = np.array([[np.cos(a), np.sin(a)] for a in np.linspace(0, 2 * np.pi, 30)])
    assert _is_closed(circle, 0.1, 10) and not _is_closed(circle[:25], 0.1, 10)
    assert _is_closed(np.array([[0.0], [1.0], [0.0]]), 0.1, 2)
    line = np.arange(9.0)[:, None]
    assert not _is_closed(line, 0.1, 2)
    assert not _is_closed(np.zeros((5, 2)), 0.1, 2)
    zigzag = np.array([[k % 2, 0.01 * k] for k in range(40)])
    assert _is_closed(zigzag, 0.1, 2) and not _is_closed(zigzag, 0.1, 20)


def test_without_errors_the_lowest_objective_is_kept():
    f = Function(lambda w: (float(w @ w), 2.5 * w), 2)  # steps of 2.5 grow
    fit = Ascent(max_iter=5, step_size=1.0).fit(f, np.ones(2))
    np.testing.assert_array_equal(fit.w, np.ones(2))


def test_resuming_gives_the_same_bits(tmp_path):
    whole = Ascent(max_iter=40, step_size=0.1, cycles=0).fit(Quantised(), np.zeros(8))
    file = tmp_path / "fit.checkpoint"
    learner = Ascent(max_iter=40, step_size=0.1, cycles=0)
    learner.fit(Quantised(), np.zeros(8), checkpoint=file, callbacks=[lambda i, w, row: i == 17])
    rest = learner.fit(Quantised(), np.zeros(8), checkpoint=file, resume=True)
    assert same_trace(whole.trace, rest.trace)
    np.testing.assert_array_equal(whole.w, rest.w)


def test_a_direction_that_is_not_finite():
    with pytest.raises(InputError, match="step_size"):
        Ascent().fit(Function(lambda w: (0.0, np.full(2, np.nan)), 2), np.zeros(2))
    assert Info  # the problems' own kind


def checkerboard(seed=0):
    rng = np.random.default_rng(seed)
    graph = bf.Graph.grid(8, 8, labels=2)
    y = (np.indices((8, 8)).sum(0) % 2).ravel()
    return bf.Sample(graph, (y - 0.5 + 0.8 * rng.normal(size=64))[:, None]), y


def test_negative_interactions_are_truncated_and_counted():
    sample, y = checkerboard()
    params = {"unary": "plus_minus", "pairwise": "plus_minus", "gradient": None, "l2": 0.0, "start": "zero"}
    crf = bf.GraphCRF(loss="saddle_point(solver='graph_cut(truncate=True)')", learner="ascent(max_iter=30)", **params)
    crf.fit([sample], [y])
    assert max(row["truncated"] for row in crf.trace_) == 2 * 8 * 7  # all pairs repel on a checkerboard
    assert len(crf.weights_) == 3


def test_bp_stops_when_the_ranking_is_stable():
    sample, y = checkerboard()
    params = {"unary": "plus_minus", "pairwise": "plus_minus", "gradient": None, "l2": 0.0}
    fits = [
        bf.GraphCRF(loss=loss, inference="loopy_bp(n_iter=60)", learner="ascent(max_iter=10, cycles=0)", **params)
        for loss in ("maximum_marginal", "maximum_marginal(stable=3)")
    ]
    full, stable = (crf.fit([sample], [y]).trace_ for crf in fits)
    assert sum(row["sweeps"] for row in stable) < 0.3 * sum(row["sweeps"] for row in full)
    assert [row["error"] for row in stable] == [row["error"] for row in full]


def shapes_field(**changes):
    """Return a small field with contrast on its edges, and noisy images of discs."""
    rng = np.random.default_rng(0)
    graph = bf.Graph.grid(9, 9, labels=2)
    rows, columns = np.indices((9, 9))
    X, y = [], []
    for k in range(3):
        mask = ((rows - 4) ** 2 + (columns - 3 - k) ** 2 < 8).astype(np.int64)
        image = mask + rng.normal(0, 0.6, mask.shape)
        contrast = np.concatenate([np.abs(np.diff(image, axis=1)).ravel(), np.abs(np.diff(image, axis=0)).ravel()])
        X.append(bf.Sample(graph, image.reshape(-1, 1), contrast[:, None]))
        y.append(mask.ravel())
    shared = {
        "unary": "plus_minus",
        "pairwise": "plus_minus",
        "inference": "loopy_bp",
        "gradient": None,
        "l2": 0.0,
        "start": "zero",
    }
    return bf.GraphCRF(**{**shared, **changes}), X, y


def test_contrastive_divergence_draws_fresh_noise_in_each_iteration():
    crf, X, y = shapes_field(loss="contrastive_divergence", learner="ascent(max_iter=1, step_size=1e-12, keep='last')")
    trace = crf.fit(X, y).trace_
    assert trace[0]["gradient"] != trace[1]["gradient"]  # the weights are the same to twelve digits
    again = crf.fit(X, y).trace_
    assert [row["gradient"] for row in again] == [row["gradient"] for row in trace]


@pytest.mark.parametrize("step_size", [0.5, 20.0])
def test_projected_models_have_no_repulsive_coupling(step_size):
    loss = "saddle_point(solver='graph_cut(truncate=True)')"
    learner = f"ascent(max_iter=30, cycles=0, step_size={step_size}, projection='supermodular')"
    crf, X, y = shapes_field(loss=loss, learner=learner)
    assert all(row["truncated"] == 0 for row in crf.fit(X, y).trace_)
    crf.set_params(learner=learner.replace(", projection='supermodular'", "")).fit(X, y)
    if step_size == 20.0:
        assert any(row["truncated"] for row in crf.trace_)  # the projection had something to do


def test_the_projection_is_the_nearest_point_of_the_cone():
    from backfield.learners._projection import _into_cone

    rng = np.random.default_rng(1)
    corners = np.array([[0.2, 1.0], [3.0, 1.0]])
    for w in rng.normal(size=(200, 2)) * 3:
        found = _into_cone(corners, w)
        assert (corners @ found >= 0).all()
        inside = np.abs(rng.normal(size=(50, 2))) @ np.linalg.inv(corners).T  # points of the cone
        assert (np.linalg.norm(inside - w, axis=1) >= np.linalg.norm(found - w) - 1e-5).all()
    assert not _into_cone(np.array([[1.0], [-1.0]]), np.array([2.0])).any()


@pytest.mark.parametrize("loss", ["saddle_point(solver='graph_cut(truncate=True)')", "maximum_marginal"])
def test_lemma_1_errors_bound_the_direction(loss):
    """[K05] Lemma 1: |J(theta)| <= (R + 2 Q d) N_E, with the errors of the inference that the direction uses."""
    crf, X, y = shapes_field(loss=loss, learner="ascent(max_iter=40, step_size=2.0, cycles=0)")
    crf.fit(X, y)
    size = max(np.linalg.norm(np.r_[1.0, row]) for sample in X for row in sample.node_features)
    pair = max(np.linalg.norm(np.r_[1.0, row]) for sample in X for row in sample.factor_features)
    bound = size + 2 * pair * 4  # each pair counts once here, so that 2 Q d is generous
    checked = 0
    for row in crf.trace_:
        gradient = np.array(row["gradient"])
        assert np.linalg.norm(gradient[:2]) + np.linalg.norm(gradient[2:]) <= bound * row["error"] + 1e-12
        checked += row["error"] > 0
    assert checked > 10
