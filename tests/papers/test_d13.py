"""What the tables of [D13] share, on small images."""

import numpy as np
import pytest

import backfield as bf
from backfield_papers import Context, d13_fig7, reproduce
from backfield_papers import _d13 as d13
from tests.datasets.real import real_data


def _images(count, stride=1):
    rng = np.random.default_rng(0)
    full = [np.repeat(np.repeat(rng.integers(0, 2, (4, 5)), 5, 0), 5, 1) for _ in range(count)]
    full[0][0, :7] = -1
    y = [labels[stride // 2 :: stride, stride // 2 :: stride] for labels in full]
    X = [(labels + 0.3 * rng.normal(size=labels.shape))[..., None].astype(np.float32) for labels in y]
    return d13.Images(X, y, full, stride)


@pytest.mark.parametrize("stride", [1, 5])
def test_error_is_that_of_the_full_image(stride):
    images = _images(3, stride)
    model = bf.GridCRF(learner="lbfgs(max_iter=5)").fit(images.X, images.y)
    wrong = total = 0
    for marginals, truth in zip(model.predict_proba(images.X), images.full, strict=True):
        found = d13.decoded(marginals, truth.shape, stride)
        assert found.shape == truth.shape
        wrong, total = wrong + ((found != truth) & (truth >= 0)).sum(), total + (truth >= 0).sum()
    assert d13.error(model, images) == wrong / total
    if stride == 1:
        assert d13.error(model, images) == pytest.approx(1 - model.score(images.X, images.y))


def test_a_cell_can_start_from_the_weights_of_another():
    images = _images(2)
    first = d13.measured({"learner": "lbfgs(max_iter=3)"}, images, images)
    again = d13.measured({"learner": "lbfgs(max_iter=0)", "start": np.array(first["weights"])}, images, images)
    assert again["weights"] == first["weights"]
    assert again["test"] == first["test"]
    marginals = d13.unpacked(first["shown"])
    assert marginals.shape == (20, 25, 2)
    np.testing.assert_allclose(marginals.sum(-1), 1, atol=0.01)
    with pytest.raises(bf.InputError, match="start must be 12 finite weights"):
        bf.GridCRF(start=np.zeros(3)).fit(images.X, images.y)


def test_quick_figure_7():
    found, _ = reproduce("d13-fig7", Context(real_data("stanford_background"), quick=True))
    final = {row["method"]: row for row in found["rows"] if row["what"] == "final test error"}
    assert len(final) == 3
    assert all(0 < row["train"] < 0.3 for row in final.values())
    assert not any(row["converged"] or row["learning failed"] for row in final.values())  # stopped after five iterations
    assert {row["gradient - exact"] is None for row in final.values()} == {True, False}


def test_how_a_method_of_figure_7_ends():
    images = _images(2)
    found = d13_fig7._curve("tree_reweighted(n_iter=3)", "truncated", images, images, Context())
    assert found["converged"] and not found["failed"] and found["rises"] == 0
    assert found["points"][-1]["train"] < 0.1
    row = d13_fig7._final("truncated, 3 sweeps", found)
    assert row["iterations"] > 5 and row["exact gradient"] is None


def test_a_method_of_figure_7_that_gives_up(monkeypatch):
    """With a tolerance of 0 L-BFGS ends where no step lowers the objective; a loose threshold has a gradient of its own."""
    images = _images(2)
    monkeypatch.setattr(d13_fig7, "LEARNER", "lbfgs(max_iter=100000, tol=0.0)")
    inference = "tree_reweighted(n_iter=1000, tol=0.5)"
    found = d13_fig7._curve(inference, "backpropagation(tol=0.5)", images, images, Context())
    assert found["failed"] and not found["converged"]
    assert found["exact"] > 0 and found["apart"] > 0.1 * found["exact"]
    assert d13_fig7._final("x", found)["learning failed"]
