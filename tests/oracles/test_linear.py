import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from backfield.oracles import Constant, Linear, OracleTask
from tests.oracles.rows import rows, softmax


@pytest.mark.parametrize("n_classes", [2, 3, 5])
def test_without_bias_it_is_logistic_regression(n_classes):
    x, y, bias = rows(n=800, n_classes=n_classes)
    x = np.column_stack([x, np.ones(len(x))])
    c = 0.5
    # sklearn: |w|^2 / 2 + C sum of losses; with two classes it penalises w = 2 w_1 once, we w_1 and w_0 = -w_1.
    l2 = 1 / (2 * c * len(x)) * (2 if n_classes == 2 else 1)
    f = Linear(l2=l2, fit_intercept=False, max_iter=1000, tol=1e-9).fit(OracleTask(x, y, 0 * bias))
    reference = LogisticRegression(C=c, fit_intercept=False, tol=1e-10, max_iter=5000).fit(x, y)
    p = softmax(f.scores(x))
    np.testing.assert_allclose(p, reference.predict_proba(x), atol=1e-6)
    w = f.weights[1:] - f.weights[:1] if n_classes == 2 else f.weights
    np.testing.assert_allclose(w, reference.coef_, atol=1e-4)


@pytest.mark.parametrize("n_classes", [2, 4])
@pytest.mark.parametrize("margin", [0, 10])
def test_with_bias_the_gradient_vanishes(n_classes, margin):
    rng = np.random.default_rng(0)
    x, y, bias = rows(n=2000, n_classes=n_classes, margin=margin)
    x *= [1, 100, 0.01]
    weight = rng.random(2000)
    f = Linear(l2=1e-4, max_iter=1000, tol=1e-8).fit(OracleTask(x, y, bias, weight))
    extended = np.column_stack([x, np.ones(2000)])
    residual = (weight / weight.sum())[:, None] * (softmax(f.scores(x) + bias) - np.eye(n_classes)[y])
    gradient = residual.T @ extended + 2e-4 * f.weights
    assert np.abs(gradient / np.sqrt(np.mean(extended**2, axis=0))).max() < 1e-6
    np.testing.assert_allclose(f.weights.sum(axis=0), 0, atol=1e-10)


def test_going_on_from_the_optimum_stays_there():
    x, y, bias = rows()
    f = Linear().fit(OracleTask(x, y, bias))
    g = Linear(max_iter=1).fit(OracleTask(x, y, bias, start=f))
    np.testing.assert_allclose(f.weights, g.weights, atol=1e-4)


def test_constants_without_bias_are_log_frequencies():
    _, y, bias = rows(n=5000)
    f = Constant(l2=0).fit(OracleTask(np.empty((5000, 0)), y, 0 * bias))
    expected = np.log(np.bincount(y))
    np.testing.assert_allclose(f.values, expected - expected.mean(), atol=1e-5)


@pytest.mark.parametrize("size", [1.0, 50.0, 1000.0])
def test_constants_cancel_a_common_bias(size):
    _, y, _ = rows(n=5000)
    common = size * np.array([1.0, -0.5, 0.25])
    f = Constant(l2=0).fit(OracleTask(np.empty((5000, 0)), y, np.tile(common, (5000, 1))))
    expected = np.log(np.bincount(y)) - common
    np.testing.assert_allclose(f.values, expected - expected.mean(), atol=1e-4)


def test_constants_are_optimal_with_a_bias_for_each_row():
    x, y, bias = rows(n=5000, margin=10)
    f = Constant(l2=0).fit(OracleTask(x, y, bias))
    p = softmax(f.scores(x) + bias)
    np.testing.assert_allclose(p.mean(axis=0), np.bincount(y) / 5000, atol=1e-6)
