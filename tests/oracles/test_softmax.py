import numpy as np
import pytest

from backfield.oracles import objective
from backfield.oracles._softmax import BiasedLogistic, threads
from tests.oracles.rows import reference_loss, rows, softmax


@pytest.mark.parametrize("n_classes", [2, 3, 5])
@pytest.mark.parametrize("soft", [False, True])
def test_loss_and_gradient_are_those_of_the_formula(n_classes, soft):
    rng = np.random.default_rng(1)
    x, y, bias = rows(n=301, n_classes=n_classes)
    labels = softmax(rng.normal(size=bias.shape)) if soft else y
    weight, scores = rng.random(301), rng.normal(size=bias.shape)
    weight[5] = 0
    value, d_scores = BiasedLogistic.of(labels, bias, weight).gradient(scores)
    assert value == pytest.approx(reference_loss(scores, labels, bias, weight), rel=1e-12)
    target = labels if soft else np.eye(n_classes)[y]
    expected = (weight / weight.sum())[:, None] * (softmax(scores + bias) - target)
    np.testing.assert_allclose(d_scores, expected, atol=1e-15)


def test_huge_biases_neither_overflow_nor_lose_the_answer():
    bias = np.array([[0.0, 1e5], [1e5, 0.0], [-1e300, 1e300]])
    labels = np.array([0, 0, 1])
    assert objective(np.zeros((3, 2)), labels, bias) == pytest.approx(1e5 / 3)


def test_gradients_of_weights_and_leaves_follow_from_those_of_scores():
    rng = np.random.default_rng(2)
    for n_classes in (2, 4):
        x, y, bias = rows(n=20000, n_classes=n_classes)
        problem = BiasedLogistic.of(y, bias, rng.random(20000))
        w = rng.normal(size=(n_classes, 4))
        extended = np.column_stack([x, np.ones(len(x))])
        value, d_scores = problem.gradient(extended @ w.T)
        with threads(2) as pool:
            got = problem.linear_gradient(x, w, pool)
        assert got[0] == pytest.approx(value, rel=1e-12)
        np.testing.assert_allclose(got[1], d_scores.T @ extended, atol=1e-12)

        columns = 1 if n_classes == 2 else n_classes
        leaves = rng.integers(0, 7, size=(len(x), columns)).astype(np.int32)
        v = rng.normal(size=7)
        scores = np.column_stack([-v[leaves[:, 0]] / 2, v[leaves[:, 0]] / 2]) if n_classes == 2 else v[leaves]
        value, d_scores = problem.gradient(scores)
        d_sums = d_scores[:, 1:] if n_classes == 2 else d_scores
        got = problem.leaf_gradient(leaves, v)
        assert got[0] == pytest.approx(value, rel=1e-12)
        np.testing.assert_allclose(got[1], np.bincount(leaves.ravel(), d_sums.ravel(), 7), atol=1e-12)
