"""The scikit-learn face: fitting, predicting, parameters, files, bad input."""

import itertools
import pickle

import numpy as np
import pytest
from scipy.sparse import csr_matrix
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, cross_val_score

import backfield as bf
from backfield.datasets import generated
from backfield.training.evaluators import General


def images(count=3, size=16, seed=0):
    data = generated.denoising(count, size=size, seed=seed, sd=2.0)
    X = [bf.GridSample(f, h, v) for f, h, v in zip(data.features, data.horizontal, data.vertical, strict=True)]
    return X, list(data.masks)


def easy_images(count=4, size=12):
    rng = np.random.default_rng(0)
    Y = images(count, size)[1]
    return [(y + 0.6 * rng.normal(size=y.shape))[:, :, None] for y in Y], Y


def chains(count=12, seed=0, labels=3):
    rng = np.random.default_rng(seed)
    X, Y = [], []
    for _ in range(count):
        y = rng.integers(labels, size=rng.integers(1, 7))
        X.append(np.eye(labels)[y] + rng.normal(size=(len(y), labels)))
        Y.append(y)
    return X, Y


@pytest.fixture(scope="module")
def fitted():
    X, Y = images()
    return bf.GridCRF(learner="lbfgs(max_iter=15)", dtype="float64").fit(X, Y), X, Y


def test_a_field_beats_the_independent_model(fitted):
    crf, X, Y = fitted
    alone = bf.GridCRF(pairwise="zero", learner="lbfgs(max_iter=15)", dtype="float64").fit(X, Y)
    assert crf.score(X, Y) > alone.score(X, Y) + 0.05
    assert [p.shape for p in crf.predict(X)] == [y.shape for y in Y]
    for p in crf.predict_proba(X):
        np.testing.assert_allclose(p.sum(axis=-1), 1)
    assert crf.trace_[-1]["objective"] < crf.trace_[0]["objective"]


def test_without_edges_it_is_logistic_regression():
    X, Y = chains()
    rows, labels = np.concatenate(X), np.concatenate(Y)
    crf = bf.ChainCRF(
        pairwise="zero", fit_intercept=False, l2=0.5 / len(rows), learner="lbfgs(max_iter=300, tol=1e-10)"
    ).fit(X, Y)
    other = LogisticRegression(C=1.0, fit_intercept=False, tol=1e-10, max_iter=1000).fit(rows, labels)
    ours = np.concatenate(crf.predict_proba(X))
    np.testing.assert_allclose(ours, other.predict_proba(rows), atol=1e-4)


def test_the_fast_path_of_chains_is_the_general_one():
    X, Y = chains()
    crf = bf.ChainCRF(learner="lbfgs(max_iter=1)").fit(X, Y)
    fast, general = crf.problem(X, Y), crf.problem(X, Y)
    assert fast.evaluator.runs.merge
    general.evaluator = General(general.task)
    w = np.random.default_rng(0).normal(size=fast.n_weights)
    a, b = fast.value_and_gradient(w), general.value_and_gradient(w)
    assert a.value == pytest.approx(b.value, rel=1e-12)
    np.testing.assert_allclose(a.gradient, b.gradient, atol=1e-12)


def test_the_same_bytes_for_any_number_of_threads():
    X, Y = images(5, 12)
    one, two = (bf.GridCRF(n_jobs=n, learner="lbfgs(max_iter=5)").fit(X, Y).weights_ for n in (1, 2))
    assert np.array_equal(one, two)


def test_gradient_of_the_problem_against_differences(fitted):
    crf, X, Y = fitted
    problem = crf.problem(X, Y)
    rng = np.random.default_rng(1)
    w = 0.3 * rng.normal(size=problem.n_weights)
    v = rng.normal(size=problem.n_weights)
    numeric = (problem.value_and_gradient(w + 1e-6 * v).value - problem.value_and_gradient(w - 1e-6 * v).value) / 2e-6
    assert problem.value_and_gradient(w).gradient @ v == pytest.approx(numeric, rel=1e-6)


def test_sparse_and_dict_features_agree_with_dense_ones():
    X, Y = chains()
    dicts = [[{str(k): float(v) for k, v in enumerate(row)} for row in x] for x in X]
    sparse = [csr_matrix(x) for x in X]
    settings = {"learner": "lbfgs(max_iter=30)", "l2": 1e-3}
    dense = bf.ChainCRF(**settings).fit(X, Y)
    np.testing.assert_allclose(bf.ChainCRF(**settings).fit(sparse, Y).weights_, dense.weights_, atol=1e-6)
    np.testing.assert_allclose(bf.ChainCRF(**settings).fit(dicts, Y).weights_, dense.weights_, atol=1e-6)
    full = bf.ChainCRF(unary="linear", fit_intercept=False, **settings).fit(sparse, Y)
    seen = bf.ChainCRF(unary="observed_linear", fit_intercept=False, **settings).fit(sparse, Y)
    assert len(seen.weights_) <= len(full.weights_)
    np.testing.assert_allclose(
        np.concatenate(seen.predict_proba(sparse)), np.concatenate(full.predict_proba(sparse)), atol=1e-3
    )


def test_texts_as_values_of_features():
    X, Y = chains(labels=2)
    texts = [[{"word": "ab"[int(row[0] > row[1])], "bias": True} for row in x] for x in X]
    numbers = [[{f"word={position['word']}": 1, "bias": 1.0} for position in x] for x in texts]
    crf, same = (bf.ChainCRF(learner="lbfgs(max_iter=20)").fit(x, Y) for x in (texts, numbers))
    np.testing.assert_array_equal(crf.weights_, same.weights_)
    assert set(crf.feature_names_) == {"word=a", "word=b", "bias"}
    assert len(crf.predict([[{"word": "never seen"}]])[0]) == 1
    with pytest.raises(bf.InputError, match="example 1: values of features must be numbers or strings"):
        bf.ChainCRF().fit([texts[0], [{"word": object()}]], [Y[0], [0]])


def test_text_labels():
    X, Y = chains()
    names = np.array(["O", "B-x", "I-x"])
    crf = bf.ChainCRF(learner="lbfgs(max_iter=20)").fit(X, [names[y] for y in Y])
    assert set(np.concatenate(crf.predict(X))) <= set(names)
    assert crf.score(X, [names[y].tolist() for y in Y]) > 0.6


def test_graphs_with_types_and_different_label_counts():
    rng = np.random.default_rng(2)
    graph = bf.Graph([2, 2, 3], [(0, 1), (1, 2)])
    X = [bf.Sample(graph, rng.normal(size=(3, 2)), node_types=[0, 0, 1], factor_types=[0, 1]) for _ in range(6)]
    Y = [np.array([0, 1, rng.integers(3)]) for _ in range(6)]
    crf = bf.GraphCRF(inference="loopy_bp(n_iter=2)", learner="lbfgs(max_iter=20)", dtype="float64").fit(X, Y)
    assert crf.score(X, Y) > 0.6
    given = crf.marginals(X[0], given=np.array([1, -1, -1]))
    np.testing.assert_allclose(given.unary[0], [0, 1])


@pytest.mark.parametrize("shape", [(1, 1), (1, 5), (4, 1)])
def test_grids_with_few_edges_or_none(shape):
    rng = np.random.default_rng(0)
    X, Y = [rng.normal(size=(*shape, 2)) for _ in range(4)], [rng.integers(2, size=shape) for _ in range(4)]
    crf = bf.GridCRF(learner="lbfgs(max_iter=5)", n_labels=2).fit(X, Y)
    assert [p.shape for p in crf.predict_proba(X)] == [(*shape, 2)] * 4


def test_hidden_labels_weights_and_explicit_classes():
    X, Y = images(2, 10)
    Y[0] = Y[0].astype(int)
    Y[0][:3] = -1
    crf = bf.GridCRF(n_labels=3, learner="lbfgs(max_iter=3)", class_weight={1: 2.0}).fit(X, Y, sample_weight=[1.0, 0.5])
    assert crf.classes_.tolist() == [0, 1, 2]
    assert crf.predict_proba(X)[0].shape == (10, 10, 3)


def test_scikit_learn_habits(fitted):
    crf, X, Y = fitted
    assert clone(crf).get_params() == crf.get_params()
    assert crf.get_params()["inference__n_iter"] == "auto"
    other = clone(crf).set_params(inference__n_iter=7, l2=0.1)
    assert other.inference == "tree_reweighted(n_iter=7)" and other.l2 == 0.1
    again = pickle.loads(pickle.dumps(crf))
    assert np.array_equal(again.predict(X)[0], crf.predict(X)[0])
    search = GridSearchCV(bf.GridCRF(learner="lbfgs(max_iter=2)"), {"inference__n_iter": [1, 2]}, cv=2).fit(X, Y)
    assert search.best_params_["inference__n_iter"] in (1, 2)
    assert len(cross_val_score(bf.GridCRF(learner="lbfgs(max_iter=2)"), X, Y, cv=3)) == 3
    with pytest.raises(bf.InputError, match="no parameter"):
        clone(crf).set_params(inference__nonsense=1)


def test_files(fitted, tmp_path):
    crf, X, _ = fitted
    path = tmp_path / "model.bf"
    crf.save(path)
    again = bf.load(path)
    assert again.get_params() == crf.get_params()
    assert np.array_equal(again.predict_proba(X)[0], crf.predict_proba(X)[0])
    data = path.read_bytes()
    for damaged in (data[: len(data) // 2], b"junk" * 10, b"", data[:8] + b"x" * 50):
        path.write_bytes(damaged)
        with pytest.raises(bf.InputError, match=r"model\.bf"):
            bf.load(path)
    with pytest.raises(bf.InputError, match="cannot write"):
        crf.save(tmp_path / "nowhere" / "model.bf")
    with pytest.raises(bf.InputError, match="not fitted"):
        bf.GridCRF().save(path)


def test_a_field_on_a_classifier():
    X, Y = easy_images()
    crf = bf.GridCRF(unary=bf.Classifier(LogisticRegression()), learner="lbfgs(max_iter=20)").fit(X, Y)
    assert crf.score(X, Y) > 0.85
    assert crf.get_params()["unary__cv"] == 5


def test_resume_gives_the_weights_of_an_unbroken_fit(tmp_path):
    X, Y = images(2, 12)
    settings = {"learner": "lbfgs(max_iter=12, tol=1e-12)", "dtype": "float64"}
    whole = bf.GridCRF(**settings).fit(X, Y).weights_
    path = tmp_path / "checkpoint"

    def stop(iteration, w, row):
        if iteration == 6:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        bf.GridCRF(**settings).fit(X, Y, checkpoint=path, callbacks=[stop])
    np.testing.assert_allclose(bf.GridCRF(**settings).fit(X, Y, checkpoint=path, resume=True).weights_, whole, atol=1e-8)


def test_partial_fit_answers_with_the_average_and_goes_on_from_the_last_step():
    X, Y = images(4)
    learner = "sgd(step_size=0.5, average=True)"
    whole = bf.GridCRF(learner=learner).partial_fit(X, Y, classes=[0, 1])
    parts = bf.GridCRF(learner=learner).partial_fit(X[:3], Y[:3], classes=[0, 1]).partial_fit(X[3:], Y[3:])
    np.testing.assert_array_equal(parts.weights_, whole.weights_)
    w, state = whole._fitted.step
    np.testing.assert_array_equal(whole.weights_, state.mean)
    assert not np.array_equal(whole.weights_, w)
    fitted = bf.GridCRF(learner="sgd(epochs=2)").fit(X, Y)
    before = fitted.weights_.copy()
    assert not np.array_equal(fitted.partial_fit(X, Y).weights_, before)


def test_partial_fit_learns():
    X, Y = easy_images()
    crf = bf.GridCRF(learner="sgd(step_size=0.3)", dtype="float64")
    for _ in range(15):
        crf.partial_fit(X, Y, classes=[0, 1])
    assert crf.score(X, Y) > 0.8


@pytest.mark.parametrize("oracle", ["linear", "boosted_trees", "mlp(n_epochs=2)"])
def test_models_with_oracles_are_saved_without_code(oracle, tmp_path):
    pytest.importorskip({"b": "lightgbm", "m": "torch"}.get(oracle[0], "numpy"))
    X, Y = images(2, 12)
    settings = {"learner": "oracle_descent(n_rounds=2)", "inference": "smoothed_lp(n_iter=5)"}
    crf = bf.GridCRF(unary=oracle, pairwise=oracle, **settings).fit(X, Y)
    crf.save(tmp_path / "m.bf")
    again = bf.load(tmp_path / "m.bf")
    np.testing.assert_allclose(again.predict_proba(X)[0], crf.predict_proba(X)[0], atol=1e-6)


def test_functions_through_oracles():
    X, Y = images(3, 16)
    settings = {"learner": "oracle_descent(n_rounds=8)", "inference": "smoothed_lp(n_iter=30)"}
    crf = bf.GridCRF(unary="linear", pairwise="linear", **settings).fit(X, Y)
    values = [row["objective"] for row in crf.trace_]
    assert all(b <= a + 1e-9 for a, b in itertools.pairwise(values))
    assert crf.score(X, Y) > 0.55
    with pytest.raises(bf.InputError, match="oracle_descent"):
        bf.GridCRF(unary="mlp").fit(X, Y)


@pytest.mark.parametrize("oracle", ["linear", "boosted_trees(min_fraction=0.1)", "mlp(batch=30)"])
def test_oracles_on_chains_of_sparse_features(oracle):
    pytest.importorskip({"b": "lightgbm", "m": "torch"}.get(oracle[0], "numpy"))
    rng = np.random.default_rng(0)
    Y = [rng.integers(0, 3, 8) for _ in range(12)]
    X = [[{"length": float(rng.random()), f"word {label}": 1.0} for label in y] for y in Y]
    settings = {"learner": "oracle_descent(n_rounds=20)", "inference": "smoothed_lp(n_iter=20)"}
    crf = bf.ChainCRF(unary=oracle, pairwise="constant", **settings).fit(X, Y)
    assert crf.score(X, Y) > 0.9


def test_sparse_features_that_would_not_fit_are_refused(monkeypatch):
    monkeypatch.setattr("backfield.learners.oracle_descent.MAX_DENSE", 1000)
    X, Y = [[{f"word {k}": 1.0} for k in range(20)]] * 2, [np.arange(20) % 2] * 2
    with pytest.raises(bf.InputError, match="oracle 'linear' takes dense features: 40 rows of 20 features"):
        bf.ChainCRF(learner="oracle_descent").fit(X, Y)


BAD = [
    (lambda X, Y: ([], []), "no examples"),
    (lambda X, Y: (X, Y[:1]), "2 examples but 1 labelings"),
    (lambda X, Y: (X, [Y[0], Y[1][:5]]), "sizes must agree"),
    (lambda X, Y: ([X[0].features, X[1].features[None]], Y), "shape"),
    (lambda X, Y: ([X[0].features, np.full((8, 8, 1), np.nan)], Y), "NaN"),
    (lambda X, Y: ([X[0].features, np.zeros((8, 8, 2))], Y), "features"),
    (lambda X, Y: (X, [np.full((8, 8), -1)] * 2), "all labels are hidden"),
    (lambda X, Y: (X, [Y[0].astype(float), Y[1]]), "integers"),
    (lambda X, Y: ([["a"], ["b"]], Y), "image"),
]


@pytest.mark.parametrize(("damage", "message"), BAD)
def test_bad_input(damage, message):
    X, Y = images(2, 8)
    with pytest.raises(bf.InputError, match=message):
        bf.GridCRF(learner="lbfgs(max_iter=1)").fit(*damage(X, Y))


@pytest.mark.parametrize("l2", [-1, np.nan, np.inf, "much", None, {"unary": -1.0}, {"edges": 1.0}])
def test_a_ridge_that_is_none(l2):
    with pytest.raises(
        bf.InputError, match=r"l2 must be 'auto', a finite number >= 0 or \{'unary': a, 'pairwise': b\}, received "
    ):
        bf.GridCRF(l2=l2).fit(*easy_images(2))


def test_a_ridge_may_be_a_whole_number():
    X, Y = easy_images(2)
    whole, real = (bf.GridCRF(l2=l2, learner="lbfgs(max_iter=3)").fit(X, Y) for l2 in (1, 1.0))
    np.testing.assert_array_equal(whole.weights_, real.weights_)


def test_an_unknown_class_is_refused(fitted):
    crf, X, Y = fitted
    with pytest.raises(bf.InputError, match="not among the classes"):
        crf.score(X[:1], [Y[0] + 5])
