"""l2="auto": scikit-learn's C = 1 on standardised features, whatever the units of the features are."""

import numpy as np
import pytest
from scipy.sparse import csr_matrix
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler

import backfield as bf
from backfield.training.weights import Spread

EXACT = {"learner": "lbfgs(max_iter=300, tol=1e-7)", "dtype": "float64", "inference": "tree_reweighted(n_iter=3)"}


def images(count=4, labels=3, seed=0):
    rng = np.random.default_rng(seed)
    y = [rng.integers(0, labels, (5 + k, 6)) for k in range(count)]
    X = [np.stack([each + rng.normal(size=each.shape), rng.normal(size=each.shape)], axis=2) for each in y]
    y[0][0, :2] = -1
    return X, y


def edges(X, scale=1.0):
    return [bf.GridSample(x, scale * np.abs(np.diff(x, axis=1)), scale * np.abs(np.diff(x, axis=0))) for x in X]


def test_without_edges_it_is_scikit_learn_with_c_one():
    X, y = images()
    crf = bf.GridCRF(pairwise="zero", l2="auto", **EXACT).fit(X, y)
    rows, labels = np.concatenate([x.reshape(-1, 2) for x in X]), np.concatenate([each.reshape(-1) for each in y])
    scaler = StandardScaler().fit(rows)
    plain = LogisticRegression(C=1.0, tol=1e-10, max_iter=5000).fit(scaler.transform(rows[labels >= 0]), labels[labels >= 0])
    found = np.concatenate([p.reshape(-1, 3) for p in crf.predict_proba(X)])
    np.testing.assert_allclose(found, plain.predict_proba(scaler.transform(rows)), atol=1e-4)


@pytest.mark.parametrize("shift", [0.0, 30.0])
def test_units_of_columns_do_not_change_the_fit(shift):
    X, y = images(2, labels=2)
    plain = bf.GridCRF(**EXACT).fit(edges(X), y).predict_proba(edges(X))
    other = edges([x * [1e4, 1e-3] for x in X])
    for each, x in zip(other, X, strict=True):
        each.horizontal, each.vertical = (1e3 * np.abs(np.diff(x, axis=axis)) for axis in (1, 0))
        each.features = each.features + [shift * 1e4, shift * 1e-3]
    found = bf.GridCRF(**EXACT).fit(other, y).predict_proba(other)
    for one, two in zip(found, plain, strict=True):
        np.testing.assert_allclose(one, two, atol=1e-5 if shift == 0 else 2e-3)
    if shift:
        return
    raw = bf.GridCRF(l2=1e-2, **EXACT).fit(edges(X), y).predict_proba(edges(X))
    scaled = bf.GridCRF(l2=1e-2, **EXACT).fit(other, y).predict_proba(other)
    assert max(np.abs(one - two).max() for one, two in zip(raw, scaled, strict=True)) > 1e-2


def test_more_examples_need_less():
    X, y = images()
    once, twice = bf.GridCRF().problem(X, y), bf.GridCRF().problem(X + X, y + y)
    np.testing.assert_allclose(once.penalty.r, 2 * twice.penalty.r)
    labelled = sum(int((each >= 0).sum()) for each in y)
    rows = np.concatenate([x.reshape(-1, 2) for x in X])
    np.testing.assert_allclose(once.penalty.r[:6:3], 0.5 / labelled * rows.astype(np.float32).var(axis=0), rtol=1e-5)
    np.testing.assert_allclose(once.penalty.r[6:9], 1e-6 * 0.5 / labelled)
    np.testing.assert_allclose(once.penalty.r[9:], 0.5 / labelled)


def test_parts_of_the_ridge_and_numbers_as_before():
    X, y = images()
    mixed = bf.GridCRF(l2={"unary": "auto", "pairwise": 0.25}).problem(X, y).penalty.r
    np.testing.assert_array_equal(mixed[:9], bf.GridCRF().problem(X, y).penalty.r[:9])
    np.testing.assert_array_equal(mixed[9:], 0.25)
    assert bf.GridCRF(l2=0.5).problem(X, y).penalty.r == 0.5
    uniform = bf.GridCRF(loss="max_margin", gradient=None, learner="frank_wolfe(epochs=2)").problem(X, y)
    assert uniform.penalty.r == 0.5 / sum(int((each >= 0).sum()) for each in y)
    for wrong in ("big", -1.0, {"edges": 1.0}, float("nan"), None):
        with pytest.raises(bf.InputError, match="l2 must be 'auto'"):
            bf.GridCRF(l2=wrong).problem(X, y)


def test_threads_do_not_matter():
    X, y = images(9)
    one, two = (bf.GridCRF(learner="lbfgs(max_iter=5)", n_jobs=jobs).fit(X, y) for jobs in (1, 3))
    np.testing.assert_array_equal(one.weights_, two.weights_)


def test_sparse_features_are_as_large_as_their_largest_value():
    rng = np.random.default_rng(0)
    rows = (rng.random((20, 4)) < 0.3) * np.array([1.0, 5.0, 1.0, 1.0])
    rows[:, 3] = 0
    rows[0, :3] = [1, 5, 1]
    problem = bf.ChainCRF().problem([csr_matrix(rows)], [rng.integers(0, 2, 20)])
    units = np.sqrt(problem.penalty.r[:8:2] * 2 * 20)
    np.testing.assert_allclose(units, [1, 5, 1, 1])


def test_spreads_add_up():
    rng = np.random.default_rng(0)
    rows = 1e4 + rng.normal(size=(50, 3)) * [1, 2, 0]
    joined = Spread.of(rows[:7]) + Spread.of(rows[7:20]) + Spread.of(rows[20:])
    np.testing.assert_allclose(joined.units()[:2], rows.std(axis=0)[:2], rtol=1e-9)
    assert joined.units()[2] == 1e4  # a constant column is as large as the constant
    np.testing.assert_allclose(joined.mean, rows.mean(axis=0))


def test_indicators_are_as_large_as_their_value():
    """A column of zeros and ones is a name: a rare one should not get a large weight because it is rare."""
    rng = np.random.default_rng(0)
    rows = np.column_stack([rng.random(500) < 0.02, -3.0 * (rng.random(500) < 0.5), rng.normal(size=500), rng.random(500)])
    parts = [Spread.of(rows[:7]), Spread.of(rows[7:300]), Spread.of(rows[300:])]
    np.testing.assert_allclose((parts[0] + parts[1] + parts[2]).units(), [1, 3, *rows[:, 2:].std(axis=0)])
