"""Sequences that are predicted together, the features that they have, and the dense rows of frequent ones."""

from collections import Counter

import numpy as np
import pytest
from scipy.sparse import csr_matrix

import backfield as bf
from backfield.energies.observed_linear import BoundLinear
from backfield.features.named import Named, feature_matrix, learn_columns


def data(count=70, seed=0):
    rng = np.random.default_rng(seed)
    X, Y = [], []
    for _ in range(count):
        words = rng.integers(0, 9, size=rng.integers(1, 7))
        X.append([{f"w{k}": 1.0, "b": 0.5} for k in words])
        tags = []
        for k in words:
            tags.append("B-P" if k < 3 else "I-P" if k < 5 and tags and tags[-1] != "O" else "O")
        Y.append(tags)
    return X, Y


@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("decoder", ["map", "max_marginal", "soft"])
@pytest.mark.parametrize("constraints", [None, "BIO"])
def test_together_as_one_by_one(order, decoder, constraints):
    X, Y = data()
    crf = bf.ChainCRF(decoder=decoder, constraints=constraints, order=order, learner="lbfgs(max_iter=5)").fit(X, Y)
    together, alone = crf.predict(X), [crf.predict([x])[0] for x in X]
    for a, b in zip(together, alone, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-12) if decoder == "soft" else np.testing.assert_array_equal(a, b)
    for a, b in zip(crf.predict_proba(X), [crf.predict_proba([x])[0] for x in X], strict=True):
        np.testing.assert_allclose(a, b, atol=1e-12)
    both = list(crf.predict_each(X))
    assert len(both) == len(X) and both[3][1].shape == (len(X[3]), len(crf.classes_))
    many = crf.set_params(n_jobs=2).predict(X)
    assert all(np.array_equal(a, b) for a, b in zip(many, together, strict=True))


def test_an_error_names_its_example():
    X, Y = data()
    crf = bf.ChainCRF(learner="lbfgs(max_iter=2)").fit(X, Y)
    with pytest.raises(bf.InputError, match="example 5"):
        crf.predict([*X[:5], [{"a": object()}], *X[5:]])


def test_arrays_together():
    rng = np.random.default_rng(0)
    X = [rng.normal(size=(n, 3)) for n in (4, 1, 6)]
    Y = [rng.integers(0, 3, size=len(x)) for x in X]
    crf = bf.ChainCRF(decoder="map").fit(X, Y)
    for a, x in zip(crf.predict(X), X, strict=True):
        np.testing.assert_array_equal(a, crf.predict([x])[0])


@pytest.mark.parametrize(
    "positions",
    [
        [{"a": 1.0, "b": 1.0}, {}, {"c": 1}],
        [{"a": 2.5}, {"b": True, "c": 1.0}],
        [{"a": "x", "n": {"m": 2, "l": ["p", "q"]}}, {"b": 1.0}],
        [{"a": "x", "b": "", "c": -1.0, "d": np.float32(2)}, {"a": "é", "b": 3}, {"a": False}],
        [{"a": np.str_("x")}, {1: 1.0}, {2: "x"}],
        [["a", "b"], ["c"], []],
        [["a", "b"], ("c",), {"d", "e"}, "f", {"g": 2}],
        [],
    ],
)
def test_named_features(positions):
    found = Named.of(positions, "=")
    names, values, columns = found.names(), found.values.tolist(), learn_columns([positions], "=")
    assert found.hashes.tolist() == [hash(name) for name in names]
    assert sum(found.sizes) == len(names) == len(values)
    matrix = feature_matrix(positions, columns, "=").toarray()
    expected, at = np.zeros((len(positions), len(columns))), 0
    for row, size in enumerate(found.sizes):
        for name, value in zip(names[at : at + size], values[at : at + size], strict=True):
            expected[row, columns[name]] += value
        at += size
    np.testing.assert_array_equal(matrix, expected)
    some = {name: number for number, name in enumerate(list(columns)[1:])}
    np.testing.assert_array_equal(feature_matrix(positions, some, "=").toarray(), expected[:, 1:])


def test_sequences_read_together_are_those_read_alone():
    rng = np.random.default_rng(1)
    X = [[{f"w{k}": 1.0, "v": 1.0 if number % 2 else 0.5} for k in rng.integers(0, 50, n)] for number, n in
         enumerate(rng.integers(1, 6, 600))]  # fmt: skip
    chain = bf.structures.Chain()
    names = chain.learn_names(X)
    for x, many in zip(X, chain.samples(X, names), strict=True):
        alone = chain.sample(x, names)
        assert many.shape == alone.shape and many.n_factors == alone.n_factors
        np.testing.assert_array_equal(many.node_features.toarray(), alone.node_features.toarray())
    assert chain.samples([*X, np.ones((2, 3))], names) is None


def test_an_error_in_training_names_its_example():
    X, Y = data()
    X[5] = [{"a": object()} for _ in X[5]]
    with pytest.raises(bf.InputError, match="example 5"):
        bf.ChainCRF().fit(X, Y)


def test_min_count():
    X, Y = data()
    X[0][0]["once"] = 1.0
    X[1][0]["twice"] = X[2][0]["twice"] = 1.0
    assert {"once", "twice"} <= set(bf.ChainCRF(learner="lbfgs(max_iter=1)").fit(X, Y).feature_names_)
    kept = bf.ChainCRF(min_count=2, learner="lbfgs(max_iter=1)").fit(X, Y)
    assert "once" not in kept.feature_names_ and "twice" in kept.feature_names_
    assert len(kept.predict(X)) == len(X)
    for wrong in (0, 1.5, True):
        with pytest.raises(bf.InputError, match="min_count must be"):
            bf.ChainCRF(min_count=wrong).fit(X, Y)


def test_dense_rows_are_the_same_sums():
    rng = np.random.default_rng(0)
    pattern = rng.random((40, 7)) < np.linspace(0.1, 1, 40)[:, None]
    ptr, labels = np.concatenate([[0], np.cumsum(pattern.sum(axis=1))]), np.nonzero(pattern)[1]
    energy, w = BoundLinear(ptr, labels), rng.normal(size=len(labels))
    whole = np.zeros((40, 7))
    whole[pattern] = w
    for rows in (1, 200):  # few rows have no dense ones
        x = csr_matrix(rng.random((rows, 40)) * (rng.random((rows, 40)) < 0.3))
        assert (energy._dense_rows(x, 7).n_rows > 0) == (rows == 200)
        np.testing.assert_allclose(energy.scores(w, x, 7, False), x @ whole, atol=1e-12)
        d = rng.normal(size=(rows, 7))
        np.testing.assert_allclose(energy.vjp(x, d, False), (x.T @ d)[pattern], atol=1e-12)


@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("constraints", [None, "BIO"])
def test_observed_constant(order, constraints, tmp_path):
    X, Y = data()
    Y[0] = [None if t == 1 else tag for t, tag in enumerate(Y[0])]
    params = {"unary": "observed_linear", "order": order, "constraints": constraints, "learner": "lbfgs(max_iter=4)"}
    crf = bf.ChainCRF(pairwise="observed_constant(min_count=3)", **params).fit(X, Y)
    for block, arity in zip(crf.layout_.factors, (2, 3), strict=False):
        counts = Counter(
            tuple(crf.classes_.tolist().index(tag) for tag in y[t : t + arity])
            for y in Y
            for t in range(len(y) - arity + 1)
            if None not in y[t : t + arity]
        )
        expected = sorted(int(np.ravel_multi_index(key, (3,) * arity)) for key, count in counts.items() if count >= 3)
        assert block.energy.places.tolist() == expected and 0 < len(expected) < 3**arity
    problem = crf.problem(X, Y)
    rng = np.random.default_rng(2)
    w, direction = rng.normal(size=(2, problem.n_weights))
    slope = np.diff([problem.value_and_gradient(w + s * direction).value for s in (-1e-5, 1e-5)])[0] / 2e-5
    assert abs(problem.value_and_gradient(w).gradient @ direction - slope) < 1e-7 * max(1, abs(slope))
    crf.save(tmp_path / "m.bf")
    for a, b in zip(crf.predict_proba(X), bf.load(tmp_path / "m.bf").predict_proba(X), strict=True):
        np.testing.assert_array_equal(a, b)


def test_rare_pairs_have_no_weight():
    X = [[{"a": 1.0, "b": 0.4}, {"a": 1.0}], [{"b": 0.4, "c": 2.0}, {"a": 1.0}]]
    crf = bf.ChainCRF(unary="observed_linear(min_count=0.8)", learner="lbfgs(max_iter=1)").fit(X, [["x", "y"], ["x", "y"]])
    energy = crf.layout_.unary[0].energy
    assert list(crf.feature_names_) == ["a", "b", "c"]
    assert energy.ptr.tolist() == [0, 2, 3, 4] and energy.labels.tolist() == [0, 1, 0, 0]
    few = bf.ChainCRF(unary="observed_linear(min_count=1.5)", learner="lbfgs(max_iter=1)").fit(X, [["x", "y"], ["x", "y"]])
    assert few.layout_.unary[0].energy.ptr.tolist() == [0, 1, 1, 2]
