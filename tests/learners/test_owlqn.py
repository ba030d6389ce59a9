"""OWL-QN against a plain proximal gradient method."""

import numpy as np
import pytest

import backfield as bf


def problem(l2=1e-2):
    rng = np.random.default_rng(0)
    X = [rng.normal(size=(6, 5)) for _ in range(10)]
    Y = [(x[:, 0] + 0.3 * rng.normal(size=6) > 0).astype(int) + (x[:, 1] > 0.5) for x in X]
    return X, Y, bf.ChainCRF(l2=l2).problem(X, Y)


def proximal_gradient(function, n_weights, l1, n_iter=4000, step=0.5):
    w = np.zeros(n_weights)
    for _ in range(n_iter):
        v = w - step * function.value_and_gradient(w).gradient
        w = np.sign(v) * np.maximum(np.abs(v) - step * l1, 0)
    return w


@pytest.mark.parametrize("l1", [0.0, 0.01, 0.05])
def test_the_minimum_is_that_of_a_plain_method(l1):
    X, Y, function = problem()
    expected = proximal_gradient(function, function.n_weights, l1)
    crf = bf.ChainCRF(l2=1e-2, learner=f"owlqn(l1={l1}, max_iter=500, tol=1e-9)").fit(X, Y)
    values = [function.value_and_gradient(w).value + l1 * np.abs(w).sum() for w in (crf.weights_, expected)]
    assert values[0] <= values[1] + 1e-9
    assert abs(crf.trace_[-1]["objective"] - values[0]) < 1e-12
    if l1 > 0:
        assert 0 < np.count_nonzero(crf.weights_) < len(crf.weights_)
        np.testing.assert_array_equal(crf.weights_ == 0, expected == 0)
        np.testing.assert_allclose(crf.weights_, expected, atol=1e-6)


def test_a_large_penalty_leaves_nothing():
    X, Y, _ = problem()
    crf = bf.ChainCRF(learner="owlqn(l1=10.0)").fit(X, Y)
    assert not crf.weights_.any() and crf.converged_


def test_negative_penalties_are_refused():
    with pytest.raises(bf.InputError, match="l1"):
        bf.ChainCRF(learner="owlqn(l1=-1.0)").fit(*problem()[:2])


def test_a_resumed_fit_is_the_same(tmp_path):
    X, Y, _ = problem()
    whole = bf.ChainCRF(learner="owlqn(l1=0.01, max_iter=12)").fit(X, Y)
    path = tmp_path / "c"
    bf.ChainCRF(learner="owlqn(l1=0.01, max_iter=12)").fit(X, Y, checkpoint=path, callbacks=[lambda i, w, row: i >= 5])
    again = bf.ChainCRF(learner="owlqn(l1=0.01, max_iter=12)").fit(X, Y, checkpoint=path, resume=True)
    np.testing.assert_array_equal(whole.weights_, again.weights_)
