"""The averaged perceptron and passive-aggressive learning, against plain versions."""

import itertools

import numpy as np
import pytest

import backfield as bf


def data(n=12, seed=0):
    rng = np.random.default_rng(seed)
    X = [rng.normal(size=(rng.integers(1, 5), 2)) for _ in range(n)]
    return X, [(x[:, 0] + 0.3 * rng.normal(size=len(x)) > 0).astype(int) for x in X]


def features(x, y):
    """f(y): sums of (x, 1) per label, and counts of pairs."""
    unary = np.zeros((3, 2))
    for row, label in zip(x, y, strict=True):
        unary[:, label] += [*row, 1.0]
    pairs = np.zeros((2, 2))
    for pair in itertools.pairwise(y):
        pairs[pair] += 1
    return np.concatenate([unary.ravel(), pairs.ravel()])


def plain(X, Y, epochs, step, scale):
    w, total, t = np.zeros(10), np.zeros(10), 0
    for epoch in range(epochs):
        for k in np.random.default_rng((0, epoch)).permutation(len(X)):
            x, y = X[k], Y[k]
            every = list(itertools.product([0, 1], repeat=len(x)))
            values = [w @ features(x, z) + scale * sum(a != b for a, b in zip(z, y, strict=True)) for z in every]
            best = every[int(np.argmax(values))]
            g = features(x, best) - features(x, y)
            if g.any():
                w = w - step(max(values) - w @ features(x, y), g @ g) * g
            t += 1
            total += w
    return total / t


@pytest.mark.parametrize(
    ("learner", "scale", "step"),
    [
        ("perceptron(epochs=3)", 0.0, lambda loss, square: 1.0),
        ("passive_aggressive(epochs=3, c=0.1)", 1.0, lambda loss, square: min(0.1, loss / square)),
        ("passive_aggressive(epochs=2, c=100.0)", 1.0, lambda loss, square: loss / square),
    ],
)
def test_against_a_plain_version(learner, scale, step):
    X, Y = data()
    crf = bf.ChainCRF(loss=f"max_margin(scale={scale})", learner=learner, l2=0.0, decoder="map").fit(X, Y)
    np.testing.assert_allclose(crf.weights_, plain(X, Y, crf.trace_[-1]["iteration"], step, scale), atol=1e-9)
    assert crf.score(X, Y) > 0.8


def test_an_epoch_without_a_move_ends_the_fit():
    X = [np.array([[1.0], [-1.0]])] * 3
    crf = bf.ChainCRF(loss="max_margin(scale=0.0)", learner="perceptron(epochs=50)", l2=0.0).fit(X, [[1, 0]] * 3)
    assert crf.converged_ and crf.trace_[-1]["iteration"] < 10


def test_resumed_as_unbroken(tmp_path):
    X, Y = data()
    whole = bf.ChainCRF(loss="max_margin", learner="passive_aggressive(epochs=4)", l2=0.0).fit(X, Y)
    part = bf.ChainCRF(loss="max_margin", learner="passive_aggressive(epochs=4)", l2=0.0)
    part.fit(X, Y, checkpoint=tmp_path / "c", callbacks=[lambda iteration, w, row: iteration == 2])
    np.testing.assert_array_equal(part.fit(X, Y, checkpoint=tmp_path / "c", resume=True).weights_, whole.weights_)


def test_refusals():
    X, Y = data()
    for params, match in (
        ({"l2": 0.1, "loss": "max_margin"}, "no penalty"),
        ({"l2": 0.0, "loss": "surrogate_likelihood"}, "max_margin"),
    ):
        with pytest.raises(bf.InputError, match=match):
            bf.ChainCRF(learner="perceptron", **params).fit(X, Y)
    for spec in ("perceptron(epochs=-1)", "passive_aggressive(c=0)", "perceptron(average=1)"):
        with pytest.raises(bf.InputError):
            bf.ChainCRF(learner=spec, loss="max_margin", l2=0.0).fit(X, Y)
