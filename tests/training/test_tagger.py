"""The evaluator of taggers computes what the general one does."""

import numpy as np
import pytest

import backfield as bf
from backfield.data.sequences import Joined
from backfield.training.evaluators import General, Tagger
from backfield.training.evaluators.tagger import _Block, _LinearBlock

LABELS = ["O", "B-X", "I-X", "B-Y", "I-Y"]


def sentences(rng, n=40, values=False):
    """Return named features, some with every label and some with one, and labels that keep BIO."""
    X, Y = [], []
    for _ in range(n):
        tags, features = [], []
        for t in range(rng.integers(1, 9)):
            inside = [tags[-1].replace("B-", "I-")] * 3 if t and tags[-1] != "O" else []
            tags.append(str(rng.choice(["O", "B-X", "B-Y", *inside])))
            names = ["bias", f"tag={tags[-1]}", *(f"w{k}" for k in rng.integers(0, 60, 4))]
            features.append({name: round(rng.normal(), 2) if values else 1.0 for name in names})
        X.append(features)
        Y.append(tags)
    return X, Y


def arrays(rng, n=40, n_labels=5):
    """Return dense features of sequences, some of one position, and labels."""
    Y = [rng.integers(0, n_labels, rng.integers(1, 9)) for _ in range(n)]
    means = rng.normal(size=(n_labels, 7))
    return [means[y] + rng.normal(size=(len(y), 7)) for y in Y], Y


def problems(X, Y, **params):
    crf = bf.ChainCRF(unary="observed_linear", fit_intercept=False, l2=0.01, learner="lbfgs(max_iter=1)", **params).fit(X, Y)
    fast, general = crf.problem(X, Y), crf.problem(X, Y)
    general.evaluator = General(general.task)
    return fast, general


@pytest.mark.parametrize("values", [False, True])
@pytest.mark.parametrize("pairwise", ["linear", "observed_constant", "zero"])
@pytest.mark.parametrize("constraints", [None, "BIO"])
@pytest.mark.parametrize("size", [0.3, 3.0, 60.0, 1e3])
def test_equals_the_general_evaluator(values, constraints, size, pairwise):
    rng = np.random.default_rng(0)
    fast, general = problems(*sentences(rng, values=values), constraints=constraints, pairwise=pairwise)
    assert type(fast.evaluator) is Tagger
    w = size * rng.normal(size=fast.n_weights)  # 1e3: potentials that only logarithms are safe for
    for batch in (None, np.array([3, 0, 17]), np.arange(9)):
        a, b = fast.value_and_gradient(w, batch), general.value_and_gradient(w, batch)
        assert a.value == pytest.approx(b.value, rel=1e-11) and a.errors == b.errors
        np.testing.assert_allclose(a.gradient, b.gradient, atol=1e-11 * max(1, size))


@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("pairwise", ["linear", "zero"])
@pytest.mark.parametrize("size", [0.3, 3.0, 1e3])
def test_dense_features_equal_the_general_evaluator(size, pairwise, intercept):
    rng = np.random.default_rng(0)
    X, Y = arrays(rng)
    crf = bf.ChainCRF(fit_intercept=intercept, pairwise=pairwise, l2=0.01, learner="lbfgs(max_iter=1)").fit(X, Y)
    fast, general = crf.problem(X, Y), crf.problem(X, Y)
    general.evaluator = General(general.task)
    assert type(fast.evaluator) is Tagger
    w = size * rng.normal(size=fast.n_weights)
    for batch in (None, np.array([3, 0, 17]), np.arange(9)):
        a, b = fast.value_and_gradient(w, batch), general.value_and_gradient(w, batch)
        assert a.value == pytest.approx(b.value, rel=1e-11) and a.errors == b.errors
        np.testing.assert_allclose(a.gradient, b.gradient, atol=1e-11 * max(1, size))


@pytest.mark.parametrize("few", [0, 2**12])
def test_many_dense_features_and_few_have_the_numbers_of_the_general_evaluator(monkeypatch, few):
    monkeypatch.setattr("backfield.training.evaluators.tagger._FEW", few)
    rng = np.random.default_rng(6)
    X, Y = arrays(rng)
    crf = bf.ChainCRF(l2=0.01, learner="lbfgs(max_iter=1)").fit(X, Y)
    fast, general = crf.problem(X, Y), crf.problem(X, Y)
    general.evaluator = General(general.task)
    w = rng.normal(size=fast.n_weights)
    a, b = fast.value_and_gradient(w), general.value_and_gradient(w)
    kinds = {type(block) for blocks in fast.evaluator.kept.values() for block in blocks}
    assert kinds == {_LinearBlock if few else _Block}
    assert a.value == pytest.approx(b.value, rel=1e-13) and a.errors == b.errors
    np.testing.assert_allclose(a.gradient, b.gradient, atol=1e-13)


@pytest.mark.parametrize("together", [1, 3, 16])
def test_chunks_of_one_call_have_the_bytes_of_each_alone(monkeypatch, together):
    monkeypatch.setattr("backfield.training.evaluators.tagger._TOGETHER", together)
    monkeypatch.setattr("backfield.training.evaluators.tagger._POSITIONS", 40)
    rng = np.random.default_rng(8)
    X, Y = arrays(rng, n=90)
    crf = bf.ChainCRF(l2=0.01, learner="lbfgs(max_iter=1)").fit(X, Y)
    evaluator, other = crf.problem(X, Y).evaluator, crf.problem(X, Y).evaluator
    w = rng.normal(size=evaluator.task.n_weights)
    w[0] = 1e3  # some blocks hold potentials that only logarithms are safe for
    parts = [np.arange(0, 20), np.arange(20, 50), np.arange(60, 90), np.array([3, 1])]
    several, alone = list(evaluator.chunks(parts, w, 0)), [other.chunk(each, w, 0) for each in parts]
    for a, b in zip(several, alone, strict=True):
        assert a.value == b.value and a.wrong == b.wrong and a.gradient.tobytes() == b.gradient.tobytes()


def test_features_that_nobody_may_write_are_read():
    rng = np.random.default_rng(7)
    X, Y = arrays(rng, n=1)
    X = [np.asfortranarray(X[0])]
    X[0].flags.writeable = False
    problem = bf.ChainCRF(n_labels=5, l2=0.01, learner="lbfgs(max_iter=1)").fit(X, Y).problem(X, Y)
    assert type(problem.evaluator) is Tagger
    w = rng.normal(size=problem.n_weights)
    found = problem.value_and_gradient(w).gradient
    general = General(problem.task).chunk(np.arange(1), w, 0).gradient / len(Y[0]) + 2 * 0.01 * w
    np.testing.assert_allclose(found, general, atol=1e-13)


def test_sequences_end_to_end_are_those_one_by_one(monkeypatch):
    rng = np.random.default_rng(4)
    X, Y = arrays(rng, n=90)
    joined = bf.ChainCRF(learner="lbfgs(max_iter=3)").fit(X, Y)
    problem = joined.problem(X, Y)
    assert isinstance(problem.task.examples, Joined)
    monkeypatch.setattr("backfield.structures.chain.Chain.join", lambda *_: None)
    alone = bf.ChainCRF(learner="lbfgs(max_iter=3)", n_jobs=2).fit(X, Y)
    other = alone.problem(X, Y)
    assert type(other.evaluator) is Tagger and isinstance(other.task.examples, list)
    assert joined.weights_.tobytes() == alone.weights_.tobytes()
    assert problem.fingerprint() == other.fingerprint()
    assert problem.task.labelled.tolist() == other.task.labelled.tolist()


@pytest.mark.parametrize("wrong", ["nan", "width", "length", "label", "text"])
def test_what_is_wrong_with_one_of_many_sequences_is_said_of_that_one(wrong):
    X, Y = arrays(np.random.default_rng(5))
    crf = bf.ChainCRF(n_labels=5)
    if wrong == "nan":
        X[7][0, 3] = np.nan
    if wrong == "width":
        X[7] = X[7][:, :3]
    if wrong == "length":
        Y[7] = np.append(Y[7], 0)
    if wrong == "label":
        Y[7][0] = 5
    if wrong == "text":
        X[7] = X[7].astype(str)
    with pytest.raises(bf.InputError, match="example 7"):
        crf.fit(X, Y)


def test_blocks_are_cut_anywhere_and_threads_change_nothing(monkeypatch):
    monkeypatch.setattr("backfield.training.evaluators.tagger._POSITIONS", 7)
    rng = np.random.default_rng(1)
    X, Y = sentences(rng, n=90)
    fast, general = problems(X, Y)
    w = rng.normal(size=fast.n_weights)
    a, b = fast.value_and_gradient(w), general.value_and_gradient(w)
    assert sum(map(len, fast.evaluator.kept.values())) > 20
    np.testing.assert_allclose(a.gradient, b.gradient, atol=1e-12)
    other, _ = problems(X, Y, n_jobs=3)
    assert other.value_and_gradient(w).gradient.tobytes() == a.gradient.tobytes()


def test_weights_that_are_not_finite_are_too_long_a_step():
    fast, _ = problems(*sentences(np.random.default_rng(2)))
    for bad in (np.nan, np.inf, 1e308):
        assert fast.value_and_gradient(np.full(fast.n_weights, bad)).value == np.inf


@pytest.mark.parametrize("change", ["hidden", "sets", "float32", "margin", "weights", "order"])
def test_other_models_go_elsewhere(change):
    X, Y = sentences(np.random.default_rng(3))
    if change == "hidden":
        Y[0][0] = ""
    if change == "sets":
        Y[0] = [{"O", "B-X"}] * len(Y[0])
    params = {"float32": {"dtype": "float32"}, "margin": {"loss": "max_margin"}, "order": {"order": 2}}.get(change, {})
    crf = bf.ChainCRF(unary="observed_linear", fit_intercept=False, learner="lbfgs(max_iter=1)", **params)
    if change == "weights":
        found = crf.fit(X, Y, sample_weight=np.linspace(1, 2, len(X))).weights_
        assert np.isfinite(found).all()
    elif change == "margin":
        assert type(crf.set_params(learner="sgd(epochs=1)").fit(X, Y).problem(X, Y).evaluator) is General
    else:
        assert type(crf.fit(X, Y).problem(X, Y).evaluator) is General
