"""Sequences that make their examples when asked: the same fit as a list, one example in memory at a time."""

import threading
from collections.abc import Sequence

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

import backfield as bf
from backfield.estimators._assembly import KEPT_VARIABLES, GraphCache


class Counting(Sequence):
    """A sequence that counts the entries that are alive."""

    def __init__(self, values):
        self.values, self.alive, self.most, self.asked = values, 0, 0, 0
        self.lock = threading.Lock()

    def __len__(self):
        return len(self.values)

    def __getitem__(self, k):
        array = np.array(self.values[k]).view(_Tracked)
        array.owner = self
        with self.lock:
            self.asked += 1
            self.alive += 1
            self.most = max(self.most, self.alive)
        return array


class _Tracked(np.ndarray):
    owner = None

    def __del__(self):
        if self.owner is not None:
            with self.owner.lock:
                self.owner.alive -= 1


def images(n=12, seed=0):
    rng = np.random.default_rng(seed)
    X = [rng.normal(size=(6 + k % 3, 7, 3)).astype(np.float32) for k in range(n)]
    return X, [(x[:, :, 0] > 0).astype(np.int64) - (x[:, :, 1] > 1.5) for x in X]


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_a_lazy_sequence_gives_the_same_weights_and_is_never_held(n_jobs):
    X, Y = images()
    lazy = Counting(X)
    options = {"learner": "lbfgs(max_iter=5)", "n_jobs": n_jobs}
    first = bf.GridCRF(**options).fit(X, Y)
    second = bf.GridCRF(**options).fit(lazy, Y)
    assert first.weights_.tobytes() == second.weights_.tobytes()
    assert lazy.asked > 5 * len(X)
    assert lazy.most <= n_jobs + 1  # the next one may be made before the last one is dropped
    for mine, theirs in zip(first.predict(X), second.predict(lazy), strict=True):
        np.testing.assert_array_equal(mine, theirs)
    assert first.score(X, Y) == second.score(lazy, Counting(Y))


def test_a_memory_mapped_array_is_lazy(tmp_path):
    rng = np.random.default_rng(1)
    X = rng.normal(size=(8, 5, 6, 2)).astype(np.float32)
    Y = (X[..., 0] > 0).astype(np.int64)
    np.save(tmp_path / "x.npy", X)
    np.save(tmp_path / "y.npy", Y)
    mapped = [np.load(tmp_path / f"{name}.npy", mmap_mode="r") for name in "xy"]
    options = {"learner": "sgd(epochs=2)", "start": "zero"}
    assert (bf.GridCRF(**options).fit(*mapped).weights_ == bf.GridCRF(**options).fit(list(X), list(Y)).weights_).all()


def test_lazy_chains_and_graphs():
    rng = np.random.default_rng(2)
    X = [rng.normal(size=(3 + k % 4, 3)) for k in range(10)]
    Y = [(x[:, 0] > 0).astype(int) + (x[:, 1] > 0) for x in X]
    chain = {"learner": "lbfgs(max_iter=8)"}
    ours, theirs = (bf.ChainCRF(**chain).fit(data, Y) for data in (Lists(X), X))
    np.testing.assert_allclose(ours.weights_, theirs.weights_, atol=1e-8)  # the list takes the path of stacked chains
    words = [[{f"w{int(v > 0)}": 1.0, "bias": 1.0} for v in x[:, 0]] for x in X]
    sparse = {**chain, "unary": "observed_linear"}
    ours, theirs = (bf.ChainCRF(**sparse).fit(data, Y) for data in (Lists(words), words))
    assert ours.feature_names_ == theirs.feature_names_
    np.testing.assert_allclose(ours.weights_, theirs.weights_, atol=1e-8)
    samples = [bf.Sample(bf.Graph.chain(len(x), labels=3), x) for x in X]
    ours, theirs = (bf.GraphCRF(learner="lbfgs(max_iter=5)").fit(data, Y) for data in (Lists(samples), samples))
    assert ours.weights_.tobytes() == theirs.weights_.tobytes()


class Lists(Sequence):
    def __init__(self, values):
        self.values = values

    def __len__(self):
        return len(self.values)

    def __getitem__(self, k):
        return self.values[k]


def test_errors_name_the_example():
    X, Y = images(4)
    X[2] = X[2][:, :, :2]
    with pytest.raises(bf.InputError, match=r"example 2: nodes of type 0 have 2 features; earlier ones have 3"):
        bf.GridCRF().fit(Lists(X), Y)
    X, Y = images(4)
    X[3][0, 0, 0] = np.nan
    with pytest.raises(bf.InputError, match="example 3: features hold NaN"):
        bf.GridCRF().fit(Lists(X), Y)
    with pytest.raises(bf.InputError, match=r"example 1: labels have shape .1, 41. and the image .7, 7.; sizes must agree"):
        bf.GridCRF().fit(Lists(X), [np.zeros((6, 7), int)] + [np.zeros((1, 41), int)] * 3)
    with pytest.raises(bf.InputError, match="X must be a sequence of examples, received int"):
        bf.GridCRF().fit(3, Y)
    with pytest.raises(bf.InputError, match="needs X in memory"):
        bf.GridCRF(unary=bf.Classifier(LogisticRegression())).fit(Lists(images(4)[0]), Y)


def test_graphs_of_many_sizes_are_not_all_kept():
    cache = GraphCache()
    for k in range(1, 30):
        cache.get(k, lambda k=k: bf.Graph.grid(128, 128 + k))
    assert sum(graph.n_variables for graph in cache._latest) <= KEPT_VARIABLES
    held = cache.get(100, lambda: bf.Graph.grid(2, 2))
    assert cache.get(100, lambda: bf.Graph.grid(2, 2)) is held
