"""Chains with transitions that cannot be."""

import itertools

import numpy as np
import pytest

import backfield as bf
from backfield.structures.constraints import rules

BIO = ["O", "B-PER", "I-PER", "B-LOC", "I-LOC"]


def valid_bio(tags):
    return all(not tag.startswith("I-") or (t > 0 and tags[t - 1] in (f"B-{tag[2:]}", tag)) for t, tag in enumerate(tags))


def valid_bioes(tags):
    open_span = None
    for tag in tags:
        kind, name = tag[0], tag[2:]
        if (kind in "IE") != (open_span is not None) or (kind in "IE" and name != open_span):
            return False
        open_span = name if kind in "BI" else None
    return open_span is None


def data(count=12, seed=0):
    rng, X, Y = np.random.default_rng(seed), [], []
    while len(X) < count:
        tags = rng.choice(BIO, size=rng.integers(1, 6)).tolist()
        if valid_bio(tags):
            Y.append(tags)
            X.append(rng.normal(size=(len(tags), 3)))
    return X, Y


@pytest.mark.parametrize(
    ("scheme", "labels", "valid"),
    [("BIO", BIO, valid_bio), ("BIOES", ["O", "B-X", "I-X", "E-X", "S-X", "B-Y", "E-Y"], valid_bioes)],
)
def test_schemes_allow_what_a_plain_check_allows(scheme, labels, valid):
    found = rules(scheme, np.array(labels))
    for n in (1, 2, 3):
        for y in itertools.product(range(len(labels)), repeat=n):
            broken = found.start[y[0]] or found.end[y[-1]] or any(found.table[a, b] for a, b in itertools.pairwise(y))
            assert broken != valid([labels[k] for k in y]), [labels[k] for k in y]


def brute_force(crf, x, valid):
    """log Z and marginals over valid labelings, by enumeration of the model without constraints."""
    w, classes = crf.weights_, crf.classes_
    count = len(classes)
    unary = x @ w[: 3 * count].reshape(3, count) + w[3 * count : 4 * count]
    table = w[4 * count :].reshape(count, count)
    scores = {
        y: sum(unary[t, k] for t, k in enumerate(y)) + sum(table[a, b] for a, b in itertools.pairwise(y))
        for y in itertools.product(range(count), repeat=len(x))
        if valid([classes[k] for k in y])
    }
    values = np.array(list(scores.values()))
    log_z = values.max() + np.log(np.exp(values - values.max()).sum())
    mu = np.zeros((len(x), count))
    for y, value in scores.items():
        mu[np.arange(len(x)), list(y)] += np.exp(value - log_z)
    return log_z, mu, max(scores, key=scores.get)


def test_marginals_and_predictions_against_enumeration():
    X, Y = data()
    crf = bf.ChainCRF(constraints="BIO", decoder="map", l2=1e-2).fit(X, Y)
    rng = np.random.default_rng(1)
    crf.weights_ = rng.normal(size=len(crf.weights_)) * 2
    for x in X[:6]:
        log_z, mu, best = brute_force(crf, x, valid_bio)
        np.testing.assert_allclose(crf.predict_proba([x])[0], mu, atol=1e-10)
        assert abs(crf.marginals(x).log_partition - log_z) < 1e-10
        assert crf.predict([x])[0].tolist() == crf.classes_[list(best)].tolist()
        assert valid_bio(crf.predict([x])[0].tolist())


@pytest.mark.parametrize("hidden", [False, True])
def test_gradient_of_the_constrained_likelihood(hidden):
    X, Y = data(30)
    if hidden:
        Y = [["" if t % 3 == 2 else tag for t, tag in enumerate(tags)] for tags in Y]
    problem = bf.ChainCRF(constraints="BIO", l2=1e-3).problem(X, Y)
    rng = np.random.default_rng(2)
    w, direction = rng.normal(size=(2, problem.n_weights))
    here = problem.value_and_gradient(w)
    step = 1e-5
    slope = (
        problem.value_and_gradient(w + step * direction).value - problem.value_and_gradient(w - step * direction).value
    ) / (2 * step)
    assert abs(here.gradient @ direction - slope) < 1e-7 * max(1, abs(slope))


def test_the_likelihood_is_that_of_enumeration():
    X, Y = data(20)
    crf = bf.ChainCRF(constraints="BIO", l2=0.0)
    problem = crf.problem(X, Y)
    crf.set_params(learner="lbfgs(max_iter=1)").fit(X, Y)
    w = np.random.default_rng(3).normal(size=problem.n_weights)
    crf.weights_ = w
    expected = 0.0
    for x, y in zip(X, Y, strict=True):
        theta = crf.potentials(x)
        expected += brute_force(crf, x, valid_bio)[0] - theta.score(np.searchsorted(crf.classes_, y))
    assert abs(problem.value_and_gradient(w).value - expected / sum(map(len, Y))) < 1e-10


def test_pairs_start_and_end():
    X = [np.ones((3, 1))] * 3
    Y = [["a", "b", "a"], ["b", "a", "a"], ["a", "a", "a"]]
    crf = bf.ChainCRF(constraints=[("b", "b"), ("b", None)], decoder="map").fit(X, Y)
    assert crf.predict_proba(X)[0][-1, 1] == 0
    only = bf.ChainCRF(constraints={"allowed": [("a", "b"), ("b", "a"), (None, "a")]}, decoder="map").fit(X[:1], Y[:1])
    assert only.predict(X)[0].tolist() == ["a", "b", "a"]
    np.testing.assert_allclose(only.predict_proba(X)[0], [[1, 0], [0, 1], [1, 0]])


def test_a_model_file_keeps_constraints(tmp_path):
    X, Y = data()
    for constraints in ("BIO", [("O", "I-PER"), (None, "I-LOC")]):
        crf = bf.ChainCRF(constraints=constraints).fit(X, Y)
        crf.save(tmp_path / "m.bf")
        again = bf.load(tmp_path / "m.bf")
        for p, q in zip(crf.predict_proba(X), again.predict_proba(X), strict=True):
            np.testing.assert_array_equal(p, q)


def test_labels_that_break_the_constraints_are_refused():
    with pytest.raises(bf.InputError, match=r"O -> I-PER at position 1 break"):
        bf.ChainCRF(constraints="BIO").fit([np.ones((2, 1))], [["O", "I-PER"]])
    with pytest.raises(bf.InputError, match="starts with I-PER"):
        bf.ChainCRF(constraints="BIO").fit([np.ones((2, 1))], [["I-PER", "O"]])
    with pytest.raises(bf.InputError, match="constraints are None"):
        bf.ChainCRF(constraints="IOB3").fit(*data())
    with pytest.raises(bf.InputError, match="name the label 'X'"):
        bf.ChainCRF(constraints=[("X", "O")]).fit(*data())
