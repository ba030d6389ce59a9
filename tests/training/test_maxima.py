"""The fast path of maxima over chains computes what the general one does."""

import numpy as np
import pytest
from scipy.sparse import csr_matrix

import backfield as bf
from backfield.training.evaluators import General

LOSSES = ["max_margin", "perturb_and_map(n_samples=2)", "marginal_perturb_and_map(n_samples=2)"]
UNREDUCED = "marginal_perturb_and_map(reduction=False)"


def chains(seed=0, n=21):
    rng = np.random.default_rng(seed)
    X = [rng.normal(size=(rng.integers(1, 7), 4)) for _ in range(n)]
    return X, [rng.integers(0, 3, len(x)) for x in X]


def problem_of(X, Y, **options):
    return bf.ChainCRF(learner="sgd(epochs=0)", n_labels=3, **options).problem(X, Y)


@pytest.mark.parametrize("loss", [*LOSSES, UNREDUCED])
@pytest.mark.parametrize("pairwise", ["linear", "zero"])
def test_equals_the_general_path(loss, pairwise):
    X, Y = chains()
    fast = problem_of(X, Y, loss=loss, pairwise=pairwise, l2=1e-2)
    assert fast.evaluator.runs.merge
    slow = fast.over(fast.task.examples, fast.task.labelled)
    slow.evaluator = General(slow.task)
    w = np.random.default_rng(1).normal(size=fast.n_weights)
    for batch in (None, np.array([3, 0, 20]), np.arange(17)):
        mine, theirs = (each.value_and_gradient(w, batch, seed=7) for each in (fast, slow))
        assert mine.value == pytest.approx(theirs.value, rel=1e-12)
        assert np.allclose(mine.gradient, theirs.gradient, rtol=1e-10, atol=1e-12)


def test_applies_only_where_it_is_the_same():
    X, Y = chains()
    hidden = [y.copy() for y in Y]
    hidden[0][0] = -1
    assert n_runs(problem_of(X, Y, loss="max_margin")) == 1
    assert n_runs(problem_of(X, hidden, loss="max_margin")) == 2
    assert n_runs(problem_of(X, Y, loss="max_margin", class_weight={0: 2.0})) == len(X)
    assert not problem_of(X, Y, loss="max_margin(solver='icm')").evaluator.runs.merge


def n_runs(problem):
    return len(list(problem.evaluator.labelled(np.arange(problem.n_examples))))


def test_threads_do_not_change_the_result():
    X, Y = chains()
    learner = "sgd(epochs=3, batch_size=16, schedule='lambda', average=True)"
    first, second = (
        bf.ChainCRF(loss="marginal_perturb_and_map", learner=learner, n_labels=3, n_jobs=n).fit(X, Y) for n in (1, 3)
    )
    assert np.array_equal(first.weights_, second.weights_)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("loss", LOSSES)
def test_sparse_features_and_two_labels(loss, dtype):
    rng = np.random.default_rng(3)
    X = [csr_matrix(rng.normal(size=(rng.integers(1, 7), 4))) for _ in range(21)]
    Y = [rng.integers(0, 2, x.shape[0]) for x in X]
    crf = bf.ChainCRF(learner="sgd(epochs=0)", n_labels=2, loss=loss, dtype=dtype).fit(X, Y)
    fast, slow = crf.problem(X, Y), crf.problem(X, Y)
    assert fast.evaluator.runs.merge
    slow.evaluator = General(slow.task)
    w = rng.normal(size=fast.n_weights)
    mine, theirs = (each.value_and_gradient(w, seed=7) for each in (fast, slow))
    tolerance = 1e-10 if dtype == "float64" else 1e-5
    assert mine.value == pytest.approx(theirs.value, rel=tolerance)
    assert np.allclose(mine.gradient, theirs.gradient, rtol=tolerance, atol=tolerance)
