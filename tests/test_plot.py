"""Plots and the tables of notebooks."""

import numpy as np
import pytest

import backfield as bf

pytest.importorskip("matplotlib").use("Agg")


@pytest.fixture(scope="module")
def grid():
    rng = np.random.default_rng(0)
    X = [rng.normal(size=(8, 6, 2)) for _ in range(3)]
    y = [np.where(x[..., 0] > 0, 7, 3) for x in X]
    return bf.GridCRF(learner="lbfgs(max_iter=5)").fit(X, y), X, y


@pytest.fixture(scope="module")
def chain():
    X = [[{"word": w, "bias": 1.0} for w in text.split()] for text in ("the cat sat", "a dog ran off", "the dog sat")]
    y = [["D", "N", "V"], ["D", "N", "V", "P"], ["D", "N", "V"]]
    return bf.ChainCRF(learner="lbfgs(max_iter=5)").fit(X, y), X, y


def _image(ax):
    return ax.get_images()[0].get_array()


def test_prediction_marginals_uncertainty_and_truth(grid):
    crf, X, y = grid
    axes = crf.plot(X[0], y[0])
    assert [ax.get_title() for ax in axes] == ["prediction", "truth", "marginals", "uncertainty"]
    proba = crf.predict_proba([X[0]])[0].astype(np.float64)
    np.testing.assert_allclose(_image(axes[2]), proba[..., 1])
    entropy = -(proba * np.log(proba)).sum(axis=-1) / np.log(2)
    np.testing.assert_allclose(_image(axes[3]), entropy, atol=1e-12)
    drawn = _image(axes[1])
    assert (drawn == drawn[y[0] == 7][0]).all(axis=-1)[y[0] == 7].all()
    assert [text.get_text() for text in axes[0].get_legend().get_texts()] == ["3", "7"]


def test_sequences(chain):
    crf, X, y = chain
    axes = crf.plot(X[1], y[1])
    assert len(axes) == 4
    assert _image(axes[2]).shape == (4, 4)
    assert [tick.get_text() for tick in axes[2].get_yticklabels()] == ["D", "N", "P", "V"]


def test_results_draw_themselves():
    rng = np.random.default_rng(0)
    theta = bf.Potentials(bf.Graph.grid(4, 5, labels=3), rng.normal(size=(20, 3)), rng.normal(size=(31, 3, 3)))
    run = bf.infer(theta, "mean_field")
    assert run.shaped().shape == (4, 5, 3)
    assert _image(run.plot()).shape == (4, 5, 3)
    line = bf.infer(bf.Potentials(bf.Graph([2, 2, 2], [(0, 1), (1, 2)]), np.zeros((3, 2)), np.zeros((2, 2, 2))), "exact")
    assert _image(bf.plot.marginals(line)).shape == (2, 3)
    ragged = bf.infer(bf.Potentials(bf.Graph([2, 3], [(0, 1)]), [np.zeros(2), np.zeros(3)], [np.zeros((2, 3))]), "exact")
    with pytest.raises(bf.InputError, match="different numbers of labels"):
        ragged.plot()


def test_calibration_is_that_of_the_metrics(grid):
    crf, X, y = grid
    ax = bf.plot.calibration(crf, X, y, name="field")
    found = bf.metrics.evaluate(y, crf.predict(X), crf.classes_, crf.predict_proba(X)).calibration
    used = found.share > 0
    np.testing.assert_allclose(ax.lines[1].get_ydata(), found.accuracy[used])
    assert f"field: ECE {found.error:.3f}" in ax.get_legend().get_texts()[0].get_text()
    n_lines = len(ax.lines)
    assert bf.plot.calibration(crf, X, y, ax=ax) is ax
    assert len(ax.lines) == n_lines + 1


def test_trace_and_weights(grid, chain):
    crf, *_ = grid
    ax = bf.plot.trace(crf)
    assert len(ax.lines[0].get_ydata()) == len(crf.trace_)
    with pytest.raises(bf.InputError, match="no 'nothing'; it holds"):
        bf.plot.trace(crf, "nothing")
    bars = bf.plot.weights(chain[0], n=5)
    assert len(bars.patches) == 5
    names = [tick.get_text() for tick in bars.get_yticklabels()]
    assert all(": " in name for name in names)
    widths = np.array([abs(bar.get_width()) for bar in bars.patches])
    np.testing.assert_allclose(np.sort(widths), np.sort(np.abs(chain[0].weights_))[-5:])


def test_arrays_and_wrong_ones():
    mu = np.full((3, 4, 5, 3), 1 / 3)
    assert _image(bf.plot.marginals(mu)).shape == (4, 5, 3)
    np.testing.assert_allclose(_image(bf.plot.uncertainty(mu)), 1.0)
    assert _image(bf.plot.labels(np.array([[0, 1], [-1, 2]]))).shape == (2, 2, 3)
    with pytest.raises(bf.InputError, match="probabilities"):
        bf.plot.marginals(np.array([[2.0, -1.0]]))
    with pytest.raises(bf.InputError, match="3 labels, but 2 names"):
        bf.plot.marginals(mu, names=["a", "b"])
    with pytest.raises(bf.InputError, match="labels are integers"):
        bf.plot.labels([[0.5]])


def test_tables_of_notebooks(grid):
    crf, *_ = grid
    assert "fitted" in crf._repr_html_()
    assert "3, 7" in crf._repr_mimebundle_()["text/html"]
    assert "fitted" not in bf.GridCRF()._repr_html_()
    graph = bf.Graph.grid(2, 3, labels=2)
    assert "2 x 3" in graph._repr_html_()
    theta = bf.Potentials(graph, np.zeros((6, 2)), np.zeros((7, 2, 2)))
    assert "Tables" in theta._repr_html_()
    assert "log Z" in bf.infer(theta, "tree_reweighted")._repr_html_()
