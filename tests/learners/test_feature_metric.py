"""lbfgs in the metric of the features: the curvature it knows, fewer iterations to the same optimum, the same bits again."""

import numpy as np
import pytest
from scipy.sparse import csr_matrix
from sklearn.base import clone

from backfield.energies import Constant, Linear, Network
from backfield.errors import InputError
from backfield.estimators import ChainCRF, GridCRF
from backfield.learners import LBFGS
from backfield.learners.lbfgs import feature_metric

PLAIN = ", precondition=False"


def images(n=6, side=8, seed=0):
    """Features that are correlated and of very different scales."""
    rng = np.random.default_rng(seed)
    mixing = rng.normal(size=(5, 5)) @ np.diag([30.0, 3.0, 1.0, 0.3, 0.03])
    x = [rng.normal(size=(side, side, 5)) for _ in range(n)]
    y = [(each[..., 0] + each[..., 1] + rng.logistic(size=(side, side)) > 0).astype(int) for each in x]
    return [each @ mixing for each in x], y


def fit(x, y, learner, **settings):
    settings = {"start": "zero", "dtype": "float64", "l2": 1e-3, **settings}
    return GridCRF(learner=learner, **settings).fit(x, y)


def test_is_the_inverse_of_the_second_derivative_of_binary_logistic_regression():
    x, y = images()
    seen = []

    class Spy(LBFGS):
        def minimise(self, problem, w, run, restored):
            seen.append(problem)
            return super().minimise(problem, w, run, restored)

    fit(x, y, Spy(max_iter=1), unary="plus_minus", pairwise="zero", loss="surrogate_likelihood", inference="exact")
    (problem,) = seen
    for direction in np.eye(problem.n_weights):
        _, product = problem.hessian_vector(np.zeros(problem.n_weights), direction)
        assert feature_metric(problem)(product) == pytest.approx(direction, abs=1e-6)


@pytest.mark.parametrize("loss", ["univariate_logistic", "surrogate_likelihood"])
def test_same_optimum_in_half_the_iterations(loss):
    x, y = images()
    plain, preconditioned = (
        fit(x, y, f"lbfgs(max_iter=500, gtol=1e-7, precondition={flag})", loss=loss) for flag in (False, True)
    )
    assert plain.weights_ == pytest.approx(preconditioned.weights_, abs=1e-4)
    assert len(preconditioned.trace_) < len(plain.trace_) / 2


def test_same_bits_for_any_number_of_threads_and_after_a_stop(tmp_path):
    x, y = images(12)
    learner = "lbfgs(max_iter=12, doubling_first=3)"
    whole = fit(x, y, learner)
    assert np.array_equal(whole.weights_, fit(x, y, learner, n_jobs=2).weights_)
    crf = GridCRF(learner=learner, start="zero", dtype="float64", l2=1e-3)
    crf.fit(x, y, checkpoint=tmp_path / "c", callbacks=[lambda iteration, w, row: iteration == 5])
    crf.fit(x, y, checkpoint=tmp_path / "c", resume=True)
    assert np.array_equal(whole.weights_, crf.weights_)


def test_sparse_features_are_as_dense_ones():
    rng = np.random.default_rng(0)
    x = [rng.normal(size=(9, 6)) * np.logspace(-2, 2, 6) * (rng.uniform(size=(9, 6)) < 0.5) for _ in range(20)]
    y = [(each[:, 0] * 100 + each[:, 5] / 100 > 0).astype(int) for each in x]
    crf = ChainCRF(learner="lbfgs(max_iter=8)", l2=1e-3, start="zero")
    dense = clone(crf).fit(x, y).weights_
    assert crf.fit([csr_matrix(each) for each in x], y).weights_ == pytest.approx(dense, abs=1e-9)


def test_gram():
    dense = np.random.default_rng(0).normal(size=(7, 3))
    rows = np.column_stack([dense, np.ones(7)])
    assert Linear().gram(dense, True) == pytest.approx(rows.T @ rows)
    assert Linear().gram(dense, False) == pytest.approx(dense.T @ dense)
    assert Linear().gram(csr_matrix(dense), True) == pytest.approx(rows.T @ rows)
    assert Linear().gram(np.ones((2, 600)), True) is None
    assert Constant().gram(dense, True) == pytest.approx(np.array([[7.0]]))


def test_models_with_a_network_or_many_features_keep_their_metric():
    torch = pytest.importorskip("torch")
    x, y = images(2)
    torch.manual_seed(0)
    settings = {"unary": Network(torch.nn.Linear(5, 2).double())}
    assert np.array_equal(*(fit(x, y, f"lbfgs(max_iter=5{flag})", **settings).weights_ for flag in ("", PLAIN)))
    wide = [np.random.default_rng(0).normal(size=(8, 8, 600)) for _ in x]
    assert np.array_equal(*(fit(wide, y, f"lbfgs(max_iter=5{flag})").weights_ for flag in ("", PLAIN)))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_huge_and_redundant_features(dtype):
    x, y = images(4)
    more = [np.concatenate([each, each, 1e18 + 0 * each[..., :1], 0 * each[..., :1]], axis=-1) for each in x]
    few, many = (fit(each, y, "lbfgs(max_iter=20)", dtype=dtype, l2=0.0).trace_[-1]["objective"] for each in (x, more))
    assert many == pytest.approx(few, rel=5e-3)


@pytest.mark.filterwarnings("error")
def test_squares_that_overflow_leave_the_plain_metric():
    assert not np.isfinite(Linear().gram(np.full((3, 2), 1e160), True)).all()
    x, y = images(2)
    x = [1e160 * each for each in x]
    assert np.array_equal(*(fit(x, y, f"lbfgs(max_iter=2{flag})").weights_ for flag in ("", PLAIN)))


def test_bad_input():
    with pytest.raises(InputError, match="lbfgs: precondition must be True or False, received 'yes'"):
        LBFGS(precondition="yes")
