"""Every way in which scikit-learn meets labels of one array per example."""

import numpy as np
import pytest
import sklearn
from scipy.sparse import csr_matrix
from sklearn.datasets import make_classification
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, KFold, cross_val_predict, cross_val_score, cross_validate
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import MinMaxScaler

import backfield as bf
from backfield.data.sequences import Ragged
from backfield.metrics import RaggedScorer, evaluate

CRF = bf.GridCRF(inference="tree_reweighted(n_iter=2)", learner="lbfgs(max_iter=4)", l2=1e-3)


def images(sizes=(4, 5, 6), count=12, seed=0):
    rng = np.random.default_rng(seed)
    X, y = [], []
    for k in range(count):
        side = sizes[k % len(sizes)]
        mask = (rng.random((side, side + 1)) < 0.5).astype(int)
        X.append(np.stack([mask + rng.normal(size=mask.shape), rng.normal(size=mask.shape)], axis=2))
        mask[0, 0] = -1
        y.append(mask)
    return X, y


def folds(X, y):
    """The metrics of each fold, the long way round."""
    for train, test in KFold(3).split(X):
        model = sklearn.clone(CRF).fit([X[k] for k in train], [y[k] for k in train])
        held = [X[k] for k in test]
        yield evaluate([y[k] for k in test], model.predict(held), model.classes_, model.predict_proba(held))


@pytest.mark.parametrize("sizes", [(4, 5, 6), (5,)])
def test_scoring_by_name_counts_labelled_variables(sizes):
    X, y = images(sizes)
    names = {"accuracy": 1, "neg_log_loss": -1, "neg_ece": -1, "mean_iou": 1, "f1_macro": 1, "jaccard_macro": 1}
    scores = cross_validate(CRF, X, y, cv=3, scoring=list(names), error_score="raise")
    attributes = ("accuracy", "log_loss", "ece", "mean_iou", "macro_f1", "mean_iou")
    for (name, sign), attribute in zip(names.items(), attributes, strict=True):
        wanted = [sign * getattr(found, attribute) for found in folds(X, y)]
        np.testing.assert_allclose(scores[f"test_{name}"], wanted, rtol=1e-12)


def test_grid_search_by_log_loss_finds_the_best():
    X, y = images()
    grid = {"l2": [1e-3, 1e3]}
    search = GridSearchCV(CRF, grid, cv=3, scoring="neg_log_loss", error_score="raise").fit(X, y)
    assert search.best_params_ == {"l2": 1e-3}
    by_hand = cross_val_score(CRF, X, y, cv=3, scoring=bf.metrics.neg_log_loss, error_score="raise")
    np.testing.assert_allclose(search.cv_results_["mean_test_score"][0], by_hand.mean())
    # The search itself is an estimator with structured outputs.
    assert cross_val_score(search, X, y, cv=2, scoring="accuracy", error_score="raise").shape == (2,)


def test_class_iou():
    X, y = images()
    found = cross_val_score(CRF, X, y, cv=3, scoring=bf.metrics.class_iou(1), error_score="raise")
    np.testing.assert_allclose(found, [metrics.iou[1] for metrics in folds(X, y)])
    with pytest.raises(bf.InputError, match="no class 7"):
        cross_val_score(CRF, X, y, cv=3, scoring=bf.metrics.class_iou(7), error_score="raise")


def test_other_estimators_are_scored_as_before():
    X, y = make_classification(n_samples=60, random_state=0)
    model = LogisticRegression().fit(X, y)
    for name in ("accuracy", "neg_log_loss", "f1_macro", "jaccard_macro"):
        scorer = sklearn.metrics.get_scorer(name)
        assert isinstance(scorer, RaggedScorer)
        plain = sklearn.metrics.make_scorer(scorer._score_func, response_method=scorer._response_method, **scorer._kwargs)
        assert scorer(model, X, y) == scorer._sign * plain(model, X, y)
    with pytest.raises(bf.InputError, match="one label array per example"):
        bf.metrics.neg_ece(model, X, y)


def test_chains_of_equal_length_are_no_multilabel_sets():
    rng = np.random.default_rng(1)
    y = rng.integers(0, 2, (8, 5))
    X = y[:, :, None] + rng.normal(size=(8, 5, 2))
    crf = bf.ChainCRF(learner="lbfgs(max_iter=3)").fit(list(X), list(y))
    assert sklearn.metrics.get_scorer("accuracy")(crf, list(X), y) == crf.score(list(X), list(y))


@pytest.mark.parametrize("sizes", [(4, 5, 6), (5,), (4, 4, 4, 4, 6)])
def test_cross_val_predict(sizes):
    X, y = images(sizes)
    found = cross_val_predict(CRF, X, y, cv=3)
    ours = bf.metrics.cross_val_predict(CRF, X, y, cv=3)
    assert len(found) == len(X)
    for one, other, truth in zip(found, ours, y, strict=True):
        assert one.shape == truth.shape
        np.testing.assert_array_equal(one, other)
    proba = bf.metrics.cross_val_predict(CRF, X, y, cv=3, method="predict_proba")
    assert all(p.shape == (*truth.shape, 2) for p, truth in zip(proba, y, strict=True))
    np.testing.assert_array_equal(proba[5].argmax(axis=2), found[5])


def test_cross_val_predict_cuts_weights_and_refuses_overlap():
    X, y = images(count=6)
    weights = {"sample_weight": np.array([1.0, 0, 0, 0, 0, 1])}
    weighted = bf.metrics.cross_val_predict(CRF, X, y, cv=2, method="predict_proba", params=weights)
    alone = sklearn.clone(CRF).fit(X[5:], y[5:]).predict_proba(X[:1])[0]
    np.testing.assert_allclose(weighted[0], alone, atol=0.2)
    with pytest.raises(bf.InputError, match="once"):
        bf.metrics.cross_val_predict(CRF, X, y, cv=[([0, 1], [2]), ([0, 1], [2])])


def test_weights_are_routed():
    X, y = images(count=9)
    weight = np.linspace(0, 1, 9)
    with sklearn.config_context(enable_metadata_routing=True):
        crf = sklearn.clone(CRF).set_fit_request(sample_weight=True)
        scorer = sklearn.metrics.get_scorer("accuracy").set_score_request(sample_weight=True)
        found = cross_val_score(crf, X, y, cv=3, scoring=scorer, params={"sample_weight": weight}, error_score="raise")
        own = crf.set_score_request(sample_weight=True)
        same = cross_val_score(own, X, y, cv=3, params={"sample_weight": weight}, error_score="raise")
        pipeline = Pipeline([("scale", bf.Scaled()), ("crf", crf)])
        assert len(pipeline.fit(X, y, sample_weight=weight).predict(X)) == 9
    np.testing.assert_allclose(found, same)
    wanted = []
    for train, test in KFold(3).split(X):
        model = sklearn.clone(CRF).fit([X[k] for k in train], [y[k] for k in train], weight[train])
        wanted.append(model.score([X[k] for k in test], [y[k] for k in test], weight[test]))
    np.testing.assert_allclose(found, wanted)


def test_ragged_is_a_list_whose_entries_join():
    one, two = Ragged([np.zeros(2), np.zeros(3)]), Ragged([np.ones(1)])
    joined = np.concatenate([one, two])
    assert joined.dtype == object
    assert [len(each) for each in joined] == [2, 3, 1]
    assert np.concatenate([Ragged([np.zeros((2, 2))]), Ragged([np.ones((2, 2))])]).shape == (2,)
    same = Ragged([np.zeros(2), np.ones(2)])
    assert np.stack(same).shape == np.shape(same) == np.asarray(same).shape == (2, 2)
    assert np.concatenate(same).tolist() == [0, 0, 1, 1]
    assert np.array_equal(Ragged([np.zeros(2)]), [np.zeros(2)])


def test_a_pipeline_scales_each_example():
    X, y = images()
    big = [x * [1000.0, 0.01] + 7 for x in X]
    pipeline = Pipeline([("scale", bf.Scaled()), ("crf", CRF)]).fit(big, y)
    plain = Pipeline([("scale", bf.Scaled()), ("crf", CRF)]).fit(X, y)
    for one, other in zip(pipeline.predict_proba(big), plain.predict_proba(X), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-4)
    rows = np.concatenate([x.reshape(-1, 2) for x in bf.Scaled().fit_transform(big)])
    np.testing.assert_allclose(rows.mean(axis=0), 0, atol=1e-9)
    np.testing.assert_allclose(rows.std(axis=0), 1)
    assert cross_val_score(pipeline, big, y, cv=2, scoring="neg_log_loss", error_score="raise").shape == (2,)
    search = GridSearchCV(pipeline, {"scale__scaler": [None, MinMaxScaler()], "crf__l2": [1e-3, 1.0]}, cv=2).fit(big, y)
    assert search.best_params_["crf__l2"] == 1e-3


def test_scaled_takes_every_form_of_example():
    rng = np.random.default_rng(0)
    features, edges = rng.normal(size=(4, 3)), np.ones((3, 1))
    graph = bf.Graph.chain(4, labels=2)
    sample = bf.Scaled().fit_transform([bf.Sample(graph, features, edges)])[0]
    np.testing.assert_allclose(sample.node_features.mean(axis=0), 0, atol=1e-12)
    assert sample.factor_features is edges
    image = bf.GridSample(rng.normal(size=(3, 4, 2)), np.ones((3, 3, 1)), np.ones((2, 4, 1)))
    scaled = bf.Scaled(MinMaxScaler()).fit_transform([image])[0]
    assert scaled.features.shape == (3, 4, 2)
    assert scaled.features.min() == 0 and scaled.features.max() == 1
    sparse = bf.Scaled().fit_transform([csr_matrix(features)])[0]
    np.testing.assert_allclose(sparse.toarray(), features / features.std(axis=0))
    with pytest.raises(bf.InputError, match="example 0: Scaled needs arrays of numbers"):
        bf.Scaled().fit([[{"word": "a"}]])
    with pytest.raises(bf.InputError, match="example 1 has 2 features; 3"):
        bf.Scaled().fit([features]).transform([features, features[:, :2]])


def test_set_output_reaches_the_scaler():
    pandas = pytest.importorskip("pandas")
    rng = np.random.default_rng(0)
    y = [rng.integers(0, 2, size) for size in (3, 4, 5)]
    X = [pandas.DataFrame({"a": each + rng.normal(size=len(each)), "b": 1.0 * each}) for each in y]
    crf = bf.ChainCRF(learner="lbfgs(max_iter=3)")
    pipeline = Pipeline([("scale", bf.Scaled()), ("crf", crf)]).set_output(transform="pandas").fit(X, y)
    assert isinstance(pipeline[0].transform(X)[0], pandas.DataFrame)
    assert len(pipeline.predict(X)) == 3
    crf = Pipeline([("features", bf.features.PixelFeatures()), ("scale", bf.Scaled()), ("crf", CRF)])
    images_, masks = images()
    shown = [(x[..., 0] - x[..., 0].min()) / np.ptp(x[..., 0]) for x in images_]
    assert len(crf.set_output(transform="pandas").fit(shown, masks).predict(shown)) == len(shown)
