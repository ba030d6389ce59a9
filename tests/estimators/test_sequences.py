"""Answers about whole sequences against enumeration."""

import itertools

import numpy as np
import pytest

import backfield as bf

LABELS = ["B-P", "I-P", "O", "S-P"]


def model(constraints=None, seed=0, n_features=2):
    rng = np.random.default_rng(seed)
    X = [rng.normal(size=(4, n_features)), rng.normal(size=(1, n_features))]
    crf = bf.ChainCRF(constraints=constraints, decoder="map", learner="lbfgs(max_iter=1)")
    crf.fit([*X, np.ones((4, n_features))], [["B-P", "I-P", "O", "B-P"], ["O"], ["B-P", "S-P", "S-P", "S-P"]])
    crf.weights_ = 1.5 * rng.normal(size=len(crf.weights_))
    return crf, X


def enumerated(crf, x):
    """{labels: probability} of all possible labelings."""
    theta = crf.potentials(x)
    every = itertools.product(range(len(crf.classes_)), repeat=len(x))
    scores = {y: theta.score(np.array(y)) for y in every}
    scores = {y: score for y, score in scores.items() if score > -np.inf}
    top = max(scores.values())
    total = sum(np.exp(score - top) for score in scores.values())
    return {tuple(crf.classes_[k] for k in y): np.exp(score - top) / total for y, score in scores.items()}


def spans(y):
    """The spans of a labeling, by a plain reading of its tags."""
    found, start = set(), None
    for t, tag in enumerate([*y, "O"]):
        goes_on = tag[0] in "IE" and start is not None
        if start is not None and not goes_on:
            found.add((start, t, tuple(y[start:t])))
            start = None
        if tag[0] in "BIES" and not goes_on:
            start = t
        if tag[0] in "ES":
            found.add((start, t + 1, tuple(y[start : t + 1])))
            start = None
    return found


cases = pytest.mark.parametrize("constraints", [None, "BIO", [("O", "O"), (None, "S-P")]])


@cases
def test_k_best(constraints):
    crf, X = model(constraints)
    for x in X:
        exact = sorted(enumerated(crf, x).items(), key=lambda item: -item[1])
        for k in (1, 5, 1000):
            found = crf.predict_best([x], k=k)[0]
            assert len(found) == min(k, len(exact))
            np.testing.assert_allclose([p for _, p in found], [p for _, p in exact[:k]], atol=1e-10)
            assert [tuple(y) for y, _ in found[:5]] == [y for y, _ in exact[: min(k, 5)]]
        assert tuple(crf.predict([x])[0]) == exact[0][0]


@cases
def test_spans(constraints):
    seen = 0
    for seed in range(6):
        crf, X = model(constraints, seed)
        for x in X:
            every = enumerated(crf, x)
            found = crf.predict_spans([x])[0]
            best = max(every, key=every.get)
            assert {(s.start, s.stop) for s in found} == {(start, stop) for start, stop, _ in spans(best)}
            for s in found:
                this = (s.start, s.stop, best[s.start : s.stop])
                expected = sum(p for y, p in every.items() if this in spans(y))
                assert abs(s.probability - expected) < 1e-10
                assert s.label == "P"
                seen += 1
    assert seen > 5


@cases
def test_entropy(constraints):
    crf, X = model(constraints)
    expected = [-sum(p * np.log(p) for p in enumerated(crf, x).values() if p > 0) for x in X]
    np.testing.assert_allclose(crf.entropy(X), expected, atol=1e-10)


@cases
def test_samples(constraints):
    crf, X = model(constraints)
    drawn = crf.sample(X[:1], n=4000, random_state=1)[0]
    every = enumerated(crf, X[0])
    counts = {y: 0 for y in every}
    for y in drawn:
        counts[tuple(y)] += 1  # a labeling that cannot be is a KeyError
    worst = max(abs(counts[y] / 4000 - p) / np.sqrt(p * (1 - p) / 4000 + 1e-9) for y, p in every.items() if p > 1e-3)
    assert worst < 5
    np.testing.assert_array_equal(drawn, crf.sample(X[:1], n=4000, random_state=1)[0])


def test_large_scores():
    crf, X = model()
    crf.weights_ = 1000 * crf.weights_
    (_, first), (_, second) = crf.predict_best(X[:1], k=2)[0]
    assert abs(first + second - 1) < 1e-10 and crf.entropy(X[:1])[0] >= 0


@pytest.mark.parametrize("k", [0, 1.5, True])
def test_bad_k(k):
    crf, X = model()
    with pytest.raises(bf.InputError, match="integer"):
        crf.predict_best(X, k=k)


def named_spans(y):
    """(start, stop, name, labels) of the spans of a labeling: a tag goes on with the one before where that is open."""
    out, before = [], ("O", "")
    for t, label in enumerate(y):
        tag, name = (label[0], label[2:]) if label[1:2] in ("-", "_") else ("O", "")
        if tag in "IE" and before[0] in "BI" and before[1] == name:
            out[-1][1] = t + 1
        elif tag != "O":
            out.append([t, t + 1, name])
        before = (tag, name)
    return {(start, stop, name, tuple(y[start:stop])) for start, stop, name in out}


@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("constraints", [None, "BIO", "BIOES"])
def test_labels_of_any_scheme(order, constraints):
    rng, seen = np.random.default_rng(order), 0
    for labels in (["B-P", "I-P", "E-P", "O"], ["S_Q", "I-P", "B-P", "X"], ["B-P", "E_Q", "B_Q", "S-P"]):
        X = [rng.normal(size=(n, 2)) for n in (4, 1, 3)]
        crf = bf.ChainCRF(order=order, constraints=constraints, decoder="map", learner="lbfgs(max_iter=1)")
        crf.fit(X, [[set(labels[:3]), *[None] * 3], [None], [set(labels[1:]), *[None] * 2]])
        crf.weights_ = 2 * rng.normal(size=len(crf.weights_))
        for x in X:
            every = enumerated(crf, x)
            best = max(every, key=every.get)
            found = crf.predict_spans([x])[0]
            assert {(s.start, s.stop, s.label) for s in found} == {each[:3] for each in named_spans(best)}
            for s in found:
                this = (s.start, s.stop, s.label, best[s.start : s.stop])
                assert abs(s.probability - sum(p for y, p in every.items() if this in named_spans(y))) < 1e-10
                seen += 1
            ranked = sorted(every.values(), reverse=True)
            np.testing.assert_allclose([p for _, p in crf.predict_best([x], k=9)[0]], ranked[:9], atol=1e-10)
    assert seen > 5
