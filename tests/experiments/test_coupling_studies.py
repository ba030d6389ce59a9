"""Quick runs of the tables and figures of [K05] and [S11], and what they are made of."""

import numpy as np
import pytest

from backfield.experiments import Context, reproduce
from backfield.experiments import _random_models as models
from backfield.experiments.s11_tables import compared


@pytest.mark.filterwarnings("ignore::backfield.ConvergenceWarning")
@pytest.mark.parametrize("name", ["k05-table1", "k05-fig1", "s11-table3", "s11-table5", "s11-fig1"])
def test_quick_runs(name, tmp_path):
    found, outcome = reproduce(name, Context(quick=True, partial=tmp_path / "cells"))
    assert found["settings"]["quick"] and found["rows"]
    assert all(np.isfinite(row["ours"]) for row in found["rows"])
    for file, draw in outcome.pictures.items():
        draw(tmp_path / file)
        assert (tmp_path / file).read_bytes()[:4] == b"\x89PNG"


def test_gradients_of_a_random_model():
    truth = models.random_truth(models.Sizes(9, 14), 0, 20)
    problem = models.ModelProblem(truth.edges, truth.train, 5)
    rng = np.random.default_rng(0)
    w, v = rng.normal(size=(2, problem.n_weights))
    for loss in ("mse", "l1", "f_measure"):
        function = problem.minimising(loss)
        low, high = (function.value_and_gradient(w + s * 1e-5 * v).value for s in (-1, 1))
        assert function.value_and_gradient(w).gradient @ v == pytest.approx((high - low) / 2e-5, abs=1e-7)


def test_mismatched_edges():
    truth = models.random_truth(models.Sizes(12, 20), 0, 2)
    edges = models.mismatched(truth, 0.2, 0)
    same = {tuple(edge) for edge in edges} & {tuple(edge) for edge in truth.edges}
    assert len(edges) == 20 and len(same) == 16


def test_wins_and_permutations():
    found = compared([0.0, 1.0, 0.0, 0.0], [1.0, 1.0, 2.0, -1.0])
    assert found["wins"] == "2-1-1"
    assert compared([0.0] * 4, [1.0] * 4)["p"] == 1 / 16
