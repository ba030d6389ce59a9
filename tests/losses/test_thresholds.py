"""How many variables to call positive for a good F-measure."""

import itertools

import numpy as np
import pytest

import backfield as bf
from backfield.decoders import BalancedThreshold, ExpectedF, SampledThreshold
from backfield.errors import InputError
from backfield.losses import _thresholds as rule


def f_measure(y, o):
    total = y.sum() + o.sum()
    return 1.0 if total == 0 else 2 * (y * o).sum() / total


def brute_force(p, o):
    """Return the expected F of the choice ``o`` over all labelings of independent variables."""
    value = 0.0
    for y in itertools.product([0, 1], repeat=len(p)):
        y = np.array(y)
        value += np.prod(np.where(y, p, 1 - p)) * f_measure(y, o)
    return value


@pytest.mark.parametrize("seed", range(4))
def test_expected_f_against_enumeration(seed):
    p = np.random.default_rng(seed).uniform(size=7) ** (1 + seed)
    best = max(brute_force(p, np.array(o)) for o in itertools.product([0, 1], repeat=7))
    found = rule.expected_f(p)
    order = rule.ranking(p)
    for k in range(8):
        o = np.zeros(7)
        o[order[:k]] = 1
        np.testing.assert_allclose(found[k], brute_force(p, o), atol=1e-12)
    np.testing.assert_allclose(found.max(), best, atol=1e-12)


def test_probabilities_of_zero_and_one():
    assert rule.expected_f(np.array([1.0, 0.0, 1.0]))[2] == pytest.approx(1)
    assert rule.expected_count(np.zeros(5)) == 0 and rule.expected_f(np.zeros(5))[0] == 1
    assert rule.expected_count(np.ones(5)) == 5


def test_many_variables(monkeypatch):
    p = np.random.default_rng(0).beta(0.4, 1.0, size=900)
    exact = rule.expected_f(p)
    monkeypatch.setattr(rule, "_NODES", 900)
    np.testing.assert_allclose(rule.expected_f(p), exact, atol=1e-9)
    monkeypatch.setattr(rule, "_LARGE", 100)
    np.testing.assert_allclose(rule.expected_f(p), exact, atol=5e-5)


def test_samples_lead_to_the_expected_count():
    p = np.random.default_rng(1).uniform(size=12)
    samples = rule.independent_samples(p, 200_000, 0)
    expected = rule.expected_f(p)
    assert expected[rule.sampled_count(p, samples)] > expected.max() - 1e-3


def model(seed=0, n=9):
    rng = np.random.default_rng(seed)
    graph = bf.Graph.from_edges([(i, (i + 1) % n) for i in range(n)], n, labels=2)
    return bf.Potentials(graph, rng.normal(size=(n, 2)), rng.normal(size=(n, 2, 2)))


def test_decoders():
    theta = model()
    mu = bf.infer(theta, "exact").marginals
    b = mu.unary[:, 1]
    balanced = BalancedThreshold().decode(theta, mu)
    assert balanced.sum() == 4 and b[balanced == 1].min() >= b[balanced == 0].max()
    outputs = np.arange(9) < 6
    some = BalancedThreshold().decode(theta, mu, outputs)
    assert some[:6].sum() == 3
    np.testing.assert_array_equal(some[6:], b[6:] > 0.5)
    assert ExpectedF().decode(theta, mu).sum() == rule.expected_count(b)
    sampled = SampledThreshold(n_samples=500).decode(theta, mu)
    assert abs(int(sampled.sum()) - rule.expected_count(b)) <= 2
    np.testing.assert_array_equal(sampled, SampledThreshold(n_samples=500).decode(theta, mu))
    assert BalancedThreshold().decode(theta, mu, np.zeros(9, bool)).shape == (9,)


def test_bad_input():
    with pytest.raises(InputError, match="n_samples"):
        SampledThreshold(n_samples=0)
    theta = bf.Potentials(bf.Graph.chain(3, labels=3), np.zeros((3, 3)), np.zeros((2, 3, 3)))
    with pytest.raises(InputError, match="binary"):
        ExpectedF().decode(theta, bf.infer(theta, "chain").marginals)
    for wrong in ("f_measure(temperature=0)", "l1(temperature=0)", "f_measure(threshold='x')", "f_measure(n_samples=0)"):
        with pytest.raises(InputError, match="must be"):
            bf.value_and_gradient(model(), np.zeros(9, int), loss=wrong, inference="loopy_bp")


@pytest.mark.parametrize("threshold", ["balanced", "expected", "sampled"])
@pytest.mark.parametrize("inference", ["exact", "loopy_bp(n_iter=7)", "mean_field(n_iter=4)"])
def test_gradients(threshold, inference):
    loss = f"f_measure(threshold='{threshold}', temperature=0.3)"
    for seed in range(3):
        theta = model(seed)
        labels = np.random.default_rng(seed).integers(-1, 2, size=9)
        _, gradient = bf.value_and_gradient(theta, labels, loss=loss, inference=inference)
        direction = theta.like(np.random.default_rng(9).normal(size=len(theta.vector())))
        h = 1e-5
        ends = [theta.like(theta.vector() + s * h * direction.vector()) for s in (-1, 1)]
        low, high = (bf.value_and_gradient(end, labels, loss=loss, inference=inference)[0] for end in ends)
        assert gradient.vector() @ direction.vector() == pytest.approx((high - low) / (2 * h), abs=1e-7)


def test_hessian_vector_products():
    theta, labels = model(), np.array([0, 1, 1, -1, 0, 1, 0, 0, 1])
    direction = theta.like(np.random.default_rng(3).normal(size=len(theta.vector())))
    h = 1e-5
    for loss in ("f_measure(threshold='expected')", "f_measure", "l1", "mse"):
        hv = bf.hessian_vector(theta, labels, direction, loss=loss, inference="loopy_bp(n_iter=6)")
        ends = [theta.like(theta.vector() + s * h * direction.vector()) for s in (-1, 1)]
        low, high = (
            bf.value_and_gradient(end, labels, loss=loss, inference="loopy_bp(n_iter=6)")[1].vector() for end in ends
        )
        np.testing.assert_allclose(hv.vector(), (high - low) / (2 * h), atol=1e-7)


def roles(seed=0, count=6):
    """Examples whose inputs and outputs differ from one to the next."""
    rng = np.random.default_rng(seed)
    theta = model(seed)
    X, Y = [], []
    for k in range(count):
        y = rng.integers(0, 2, size=9)
        y[k % 9] = 1
        role = rng.permutation(9) % 3  # input, hidden, output
        role[k % 9] = 2
        X.append(bf.Sample(theta.graph, np.ones((9, 1)), None, np.arange(9), np.arange(9), np.where(role == 0, y, -1)))
        X[-1].outputs = role == 2
        Y.append(np.where(role == 2, y, -1))
    return X, Y


@pytest.mark.parametrize("decoder", ["balanced_threshold", "expected_f", "sampled_threshold", "map", "max_marginal"])
def test_estimators_decode_what_the_inputs_leave(decoder):
    X, Y = roles()
    settings = {"inference": "loopy_bp(n_iter=10)", "loss": "f_measure", "learner": "lbfgs(max_iter=3)", "guard": False}
    crf = bf.GraphCRF(decoder=decoder, **settings)
    predictions = crf.fit(X, Y).predict(X)
    for sample, labels in zip(X, predictions, strict=True):
        np.testing.assert_array_equal(labels[sample.observed >= 0], sample.observed[sample.observed >= 0])
        assert set(labels) <= {0, 1}
        if decoder == "balanced_threshold":
            assert labels[sample.outputs].sum() == sample.outputs.sum() // 2
    given = X[0].observed.copy()
    given[0] = 2
    X[0].observed = given
    with pytest.raises(InputError, match="observed"):
        crf.predict(X)


def test_no_positive_anywhere():
    X, Y = roles()
    with pytest.raises(InputError, match="positives"):
        bf.GraphCRF(loss="f_measure").fit(X, [np.where(y == 1, 0, y) for y in Y])
    with pytest.raises(InputError, match="hidden"):
        bf.GraphCRF(loss="f_measure").fit(X, [np.full(9, -1) for _ in Y])


def test_soft_keeps_the_shape_where_inputs_are_observed():
    X, Y = roles()
    crf = bf.GraphCRF(decoder="soft", learner="lbfgs(max_iter=2)").fit(X, Y)
    probabilities = crf.predict(X)[0]
    assert probabilities.shape == (9, 2)
    np.testing.assert_allclose(probabilities, crf.predict_proba(X)[0], atol=1e-6)
