"""MultiLabelCRF against enumeration, scikit-learn's logistic regression, and bad input."""

import itertools

import numpy as np
import pytest
from scipy.sparse import csr_matrix
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, cross_val_predict, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import backfield as bf
from backfield.estimators.label_tree import LabelTree, strongest_pairs
from backfield.estimators.multi_label import _Likelihood


def enumerated(u, pairs, couplings, known=None):
    """The reference: log Z, marginals of labels and pairs, best labels."""
    states = np.array(list(itertools.product([0, 1], repeat=u.shape[1])))
    both = states[:, pairs[:, 0]] * states[:, pairs[:, 1]]
    scores = u @ states.T + both @ couplings
    if known is not None:
        possible = ((known[:, None] == states[None]) | (known[:, None] < 0)).all(axis=2)
        scores = np.where(possible, scores, -np.inf)
    log_z = np.log(np.exp(scores).sum(axis=1))
    p = np.exp(scores - log_z[:, None])
    return log_z, p @ states, p @ both, states[scores.argmax(axis=1)]


@pytest.mark.parametrize("share", [0.0, 0.15, 0.3, 0.5, 1.0])
@pytest.mark.parametrize("seed", range(6))
def test_sums_are_those_of_enumeration(share, seed):
    rng = np.random.default_rng(seed)
    pairs = np.array([pair for pair in itertools.combinations(range(7), 2) if rng.random() < share], dtype=int)
    pairs = pairs.reshape(-1, 2)
    u, couplings = 2 * rng.normal(size=(5, 7)), 2 * rng.normal(size=len(pairs))
    known = rng.integers(-1, 2, size=u.shape)
    tree = LabelTree(7, pairs)
    for given in (None, known):
        log_z, labels, both, best = enumerated(u, pairs, couplings, given)
        found = tree.sums(u, couplings, given)
        np.testing.assert_allclose(found.log_z, log_z, rtol=1e-10)
        np.testing.assert_allclose(found.labels, labels, atol=1e-10)
        np.testing.assert_allclose(found.pairs, both, atol=1e-10)
        if given is None:
            np.testing.assert_array_equal(tree.best(u, couplings), best)


def test_many_labels_get_a_tree_and_more_while_sums_are_cheap():
    information = np.random.default_rng(0).random((30, 30))
    information += information.T
    tree, more = strongest_pairs(information, 2), strongest_pairs(information, 5)
    assert len(tree) == 29 and LabelTree(30, tree).width == 2
    assert len(more) > 29 and LabelTree(30, more).width <= 5
    assert {tuple(pair) for pair in tree} <= {tuple(pair) for pair in more}
    long = np.stack([np.arange(1999), np.arange(1, 2000)], axis=1)
    assert LabelTree(2000, long).sums(np.zeros((1, 2000)), np.zeros(1999)).log_z == pytest.approx(2000 * np.log(2))
    with pytest.raises(bf.InputError, match=r"2\^20 entries"):
        LabelTree(20, np.stack(np.triu_indices(20, 1), axis=1))


def data(n=300, seed=0, noise=1.0):
    """Labels of which the second copies the first and the third excludes it."""
    rng = np.random.default_rng(seed)
    first = rng.integers(0, 2, n)
    Y = np.stack([first, first, 1 - first, rng.integers(0, 2, n)], axis=1)
    X = np.concatenate([Y + noise * rng.normal(size=Y.shape), rng.normal(size=(n, 2))], axis=1)
    return X, Y


@pytest.mark.parametrize("hidden", [0.0, 0.4])
def test_the_gradient_is_that_of_the_value(hidden):
    X, Y = data(20)
    rng = np.random.default_rng(1)
    Y = np.where(rng.random(Y.shape) < hidden, -1, Y)
    problem = _Likelihood(X, Y, LabelTree(4, np.array([(0, 1), (1, 2), (0, 3)])), rng.random(20), 0.01)
    w = rng.normal(size=problem.n_weights)
    found = problem.value_and_gradient(w).gradient
    for k in range(len(w)):
        step = np.eye(len(w))[k] * 1e-5
        value = [problem.value_and_gradient(w + sign * step).value for sign in (1, -1)]
        assert found[k] == pytest.approx((value[0] - value[1]) / 2e-5, abs=1e-7)


def test_without_pairs_it_is_logistic_regression_with_c_one():
    X, Y = data()
    model = bf.MultiLabelCRF(pairs="none", learner="lbfgs(max_iter=500, tol=1e-9)").fit(X, Y)
    rows = StandardScaler().fit_transform(X)
    for k in range(4):
        plain = LogisticRegression(C=1.0, tol=1e-10, max_iter=2000).fit(rows, Y[:, k])
        np.testing.assert_allclose(model.predict_proba(X)[:, k], plain.predict_proba(rows)[:, 1], atol=2e-4)


def test_couplings_share_what_labels_know():
    X, Y = data()
    test, truth = data(seed=1)
    alone, joint = bf.MultiLabelCRF(pairs="none").fit(X, Y), bf.MultiLabelCRF().fit(X, Y)
    assert joint.couplings_[0, 1] > 1 and joint.couplings_[0, 2] < -1
    assert joint.log_likelihood(test, truth).mean() > alone.log_likelihood(test, truth).mean() + 0.3
    given = np.full(truth.shape, -1)
    given[:, 0] = truth[:, 0]
    p = joint.predict_proba(test, given=given)
    assert ((p[:, 1] > 0.5) == truth[:, 1]).mean() > 0.97
    np.testing.assert_allclose(p[:, 0], truth[:, 0], atol=1e-12)
    assert p.max() <= 1
    best = joint.set_params(decoder="map").predict(test)
    assert (joint.log_likelihood(test, best) >= joint.log_likelihood(test, truth) - 1e-12).all()


def test_scales_and_shifts_of_columns_do_not_matter_and_sparse_is_dense():
    X, Y = data(80)
    exact = "lbfgs(max_iter=500, tol=1e-10)"
    plain = bf.MultiLabelCRF(learner=exact).fit(X, Y).predict_proba(X)
    other = X * [1e-3, 1, 1e4, 1, 2, 3] + [5, 0, 1, 0, 0, 100]
    np.testing.assert_allclose(bf.MultiLabelCRF(learner=exact).fit(other, Y).predict_proba(other), plain, atol=1e-5)
    ones = (X > 0.5).astype(float)
    ones[0] = 1
    sparse = bf.MultiLabelCRF(learner=exact).fit(csr_matrix(ones), Y)
    assert sparse.predict_proba(csr_matrix(ones)).shape == Y.shape
    scaled = bf.MultiLabelCRF(learner=exact).fit(csr_matrix(ones * 7), Y).predict_proba(csr_matrix(ones * 7))
    np.testing.assert_allclose(sparse.predict_proba(csr_matrix(ones)), scaled, atol=1e-5)


def test_missing_labels_are_summed_over():
    X, Y = data(400)
    part = Y.astype(float)
    part[np.random.default_rng(0).random(Y.shape) < 0.3] = np.nan
    model = bf.MultiLabelCRF().fit(X, part)
    minus = bf.MultiLabelCRF().fit(X, np.where(np.isnan(part), -1, part).astype(int))
    np.testing.assert_array_equal(model.coef_, minus.coef_)
    test, truth = data(seed=3)
    assert model.score(test, truth) > 0.5
    assert model.log_likelihood(test, np.full(truth.shape, -1)) == pytest.approx(np.zeros(len(truth)), abs=1e-12)


def test_scikit_learn_takes_it_for_a_multilabel_classifier():
    X, Y = data(60)
    model = make_pipeline(StandardScaler(), bf.MultiLabelCRF())
    assert cross_val_score(model, X, Y, cv=3, scoring="f1_macro", error_score="raise").shape == (3,)
    assert cross_val_score(model, X, Y, cv=3, scoring="accuracy", error_score="raise").min() > 0.3
    assert cross_val_predict(model, X, Y, cv=3).shape == Y.shape
    search = GridSearchCV(bf.MultiLabelCRF(), {"l2": ["auto", 10.0], "pairs": ["tree", "none"]}, cv=2).fit(X, Y)
    assert search.best_params_ == {"l2": "auto", "pairs": "tree"}
    assert repr(clone(bf.MultiLabelCRF(l2=0.1))) == "MultiLabelCRF(l2=0.1)"


def test_files(tmp_path):
    X, Y = data(60)
    model = bf.MultiLabelCRF(decoder="map").fit(X, Y)
    model.save(tmp_path / "model.bf")
    again = bf.load(tmp_path / "model.bf")
    np.testing.assert_array_equal(again.predict_proba(X), model.predict_proba(X))
    np.testing.assert_array_equal(again.predict(X), model.predict(X))
    assert again.get_params() == model.get_params()
    again.save(tmp_path / "again.bf")
    assert (tmp_path / "again.bf").read_bytes() == (tmp_path / "model.bf").read_bytes()
    content = bytearray((tmp_path / "model.bf").read_bytes())
    content[-9] ^= 1
    (tmp_path / "damaged.bf").write_bytes(content)
    with pytest.raises(bf.InputError, match="damaged"):
        bf.load(tmp_path / "damaged.bf")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"Y": [[0, 2, 0, 0]] * 10}, "holds 2 in row 0, column 1"),
        ({"Y": [0] * 10}, r"shape \(n, K\)"),
        ({"Y": [[-1, -1]] * 10}, "no label is known"),
        ({"Y": [[0, 1]] * 9}, "10 rows and y 9"),
        ({"l2": -1.0}, "l2 must be 'auto'"),
        ({"pairs": [(0, 9)]}, "pairs must be different pairs"),
        ({"pairs": "some"}, "pairs must be 'auto'"),
        ({"decoder": "best"}, "decoder must be"),
        ({"sample_weight": np.zeros(10)}, "sample_weight must be 10"),
    ],
)
def test_bad_input_is_refused(change, message):
    X, Y = data(10)
    params = {key: value for key, value in change.items() if key in ("l2", "pairs", "decoder")}
    with pytest.raises(bf.InputError, match=message):
        bf.MultiLabelCRF(**params).fit(X, change.get("Y", Y), change.get("sample_weight"))
