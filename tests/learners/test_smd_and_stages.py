"""Stochastic meta-descent, staged training, random restarts, and the second derivatives of problems."""

import numpy as np
import pytest

import backfield as bf
from backfield.errors import InputError
from backfield.learners import SMD, Restarts, Stages
from backfield.registry import get
from tests.learners.problems import Function, Info, same_trace
from tests.losses.test_thresholds import roles

H = np.diag([1.0, 3.0, 0.5]) + 0.2


class Quadratic(Function):
    """1/2 w·Hw - sum w with its second derivative."""

    def __init__(self):
        super().__init__(lambda w: (0.5 * w @ H @ w - w.sum(), H @ w - 1), 3)
        self.objective_info = Info("quadratic")

    def hessian_vector(self, w, v, batch=None, seed=0):
        return self.value_and_gradient(w), H @ v


def test_smd_reproduces_the_published_recursion():
    eta0, mu, lam = 0.1, 0.3, 0.9
    w, eta, v = np.array([1.0, -2.0, 0.5]), np.full(3, eta0), np.zeros(3)
    start = w.copy()
    for _ in range(30):
        g = H @ w - 1
        eta = eta * np.maximum(0.5, 1 - mu * g * v)
        v_next = lam * v - eta * (g + lam * (H @ v))
        w, v = w - eta * g, v_next
    fit = SMD(epochs=30, eta0=eta0, mu=mu, lambda_=lam).fit(Quadratic(), start)
    np.testing.assert_allclose(fit.w, w, rtol=1e-12)
    assert np.ptp(eta) > 0.01  # the gains have moved, each its own way


def test_smd_with_no_meta_step_is_gradient_descent():
    fit = SMD(epochs=10, eta0=0.1, mu=0.0).fit(Quadratic(), np.zeros(3))
    w = np.zeros(3)
    for _ in range(10):
        w = w - 0.1 * (H @ w - 1)
    np.testing.assert_allclose(fit.w, w, rtol=1e-12)


def test_bad_parameters():
    for wrong in ({"eta0": 0.0}, {"mu": -1.0}, {"lambda_": 1.5}, {"epochs": -1}):
        with pytest.raises(InputError, match=f"smd: {next(iter(wrong))}"):
            SMD(**wrong)
    with pytest.raises(InputError, match="second derivatives"):
        SMD().fit(Function(lambda w: (0.0, w), 2), np.zeros(2))
    assert get("learners", repr(SMD(lambda_=0.5))) == SMD(lambda_=0.5)


def test_smd_goes_on_from_a_checkpoint(tmp_path):
    whole = SMD(epochs=12).fit(Quadratic(), np.ones(3))
    file = tmp_path / "smd"
    SMD(epochs=12).fit(Quadratic(), np.ones(3), checkpoint=file, callbacks=[lambda i, w, row: i == 5])
    rest = SMD(epochs=12).fit(Quadratic(), np.ones(3), checkpoint=file, resume=True)
    np.testing.assert_array_equal(rest.w, whole.w)
    assert same_trace(rest.trace, whole.trace)


def crf(**params):
    shared = {"inference": "loopy_bp(n_iter=8)", "loss": "mse", "dtype": "float64", "l2": 1e-3, "start": "zero"}
    return bf.GraphCRF(**{**shared, **params})


@pytest.fixture
def problem():
    """The problem that an estimator makes of examples with inputs, outputs and hidden variables."""

    def problem_of(loss):
        return crf(loss=loss, learner="lbfgs(max_iter=1)").problem(*roles())

    return problem_of


@pytest.mark.parametrize(
    "loss", ["mse", "l1", "f_measure", "hybrid(share=0.3)", "surrogate_likelihood", "univariate_logistic"]
)
def test_hessian_vector_products_of_a_problem(problem, loss):
    function = problem(loss)
    rng = np.random.default_rng(0)
    w, v = rng.normal(size=(2, function.n_weights))
    seen, product = function.hessian_vector(w, v)
    h = 1e-5
    if loss != "surrogate_likelihood":  # there the gradient is that of converged inference, the product of the sweeps
        low, high = (function.value_and_gradient(w + s * h * v).gradient for s in (-1, 1))
        np.testing.assert_allclose(product, (high - low) / (2 * h), atol=1e-7)
        np.testing.assert_allclose(seen.gradient, function.value_and_gradient(w).gradient, atol=1e-10)
        assert seen.value == pytest.approx(function.value_and_gradient(w).value, abs=1e-12)
    else:
        low, high = (function.hessian_vector(w + s * h * v, v)[0].gradient for s in (-1, 1))
        np.testing.assert_allclose(product, (high - low) / (2 * h), atol=1e-7)


def test_smd_learns(problem):
    function = problem("mse")
    fit = SMD(epochs=20, eta0=0.5).fit(function, np.zeros(function.n_weights))
    assert fit.trace[-1]["objective"] < 0.8 * fit.trace[0]["objective"]


def test_stages_pass_from_loss_to_loss():
    hybrid = "hybrid(first='f_measure', second='mse', share=0.5)"
    learner = Stages(["lbfgs(max_iter=3)", "lbfgs(max_iter=4)", "lbfgs(max_iter=5)"], ["surrogate_likelihood", hybrid, None])
    assert get("learners", repr(learner)) == learner
    estimator = crf(loss="f_measure", learner=repr(learner)).fit(*roles())
    stages = [row["stage"] for row in estimator.trace_]
    assert stages == sorted(stages) and set(stages) == {1, 2, 3}
    assert estimator.message_.startswith("stage 3")
    last = [row["objective"] for row in estimator.trace_ if row["stage"] == 3]
    assert last[-1] <= last[0]


def test_stages_and_checkpoints(tmp_path):
    spec = "stages(['lbfgs(max_iter=3)', 'sgd(epochs=4)'], losses=['surrogate_likelihood', None])"
    whole = crf(learner=spec).fit(*roles())
    file = tmp_path / "fit"
    crf(learner=spec).fit(
        *roles(), checkpoint=file, callbacks=[lambda i, w, row: row["stage"] == 2 and row["iteration"] >= 5]
    )
    rest = crf(learner=spec).fit(*roles(), checkpoint=file, resume=True)
    np.testing.assert_array_equal(rest.weights_, whole.weights_)


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ("stages([])", "list of specs"),
        ("stages(['lbfgs'], losses=['mse', None])", "1 learners and 2 losses"),
        ("stages(['lbfgs', 'sgd'], losses=[None, 'pseudo_marginal'])", "must end in a loss that can be differentiated"),
        ("stages(['lbfgs', 'ascent'], losses=[None, 'saddle_point'])", "must end in a loss that can be differentiated"),
        ("stages(['lbfgs', 'sgd'], losses=[None, 'balanced_threshold'])", "there is no 'balanced_threshold'"),
        ("stages(['restarts'])", "starts from its own"),
        ("restarts('restarts')", "starts from its own"),
        ("restarts(n=0)", "n must be"),
    ],
)
def test_bad_stages(spec, words):
    with pytest.raises(InputError, match=words):
        get("learners", spec)


def test_stages_end_in_the_loss_of_the_problem():
    with pytest.raises(InputError, match="must end in a loss"):
        crf(loss="pseudo_marginal", gradient=None, learner="stages(['sgd'])").fit(*roles())


def test_the_best_of_random_starts_is_kept():
    double = Function(lambda w: (float(((w**2 - 1) ** 2 + 0.3 * w).sum()), 4 * w * (w**2 - 1) + 0.3), 2)
    fit = Restarts("lbfgs", n=8).fit(double, np.zeros(2))
    assert (fit.w < 0).all() and "of 8" in fit.message
    assert {row["start"] for row in fit.trace} == set(range(1, 9))
    values = [Restarts("lbfgs", n=8).fit(double, np.zeros(2)).w for _ in range(2)]
    np.testing.assert_array_equal(*values)


def test_restarts_in_an_estimator():
    estimator = crf(learner="restarts('lbfgs(max_iter=2)', n=2)").fit(*roles())
    assert estimator.message_.startswith("start")


def test_bad_mixtures():
    with pytest.raises(InputError, match="share"):
        get("losses", "hybrid(share=2)")
    with pytest.raises(InputError, match="do not mix"):
        get("losses", "hybrid(first='f_measure', second='univariate_logistic')")
