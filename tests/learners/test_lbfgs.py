"""L-BFGS: optima, economy, restarts, schedules."""

import itertools
import warnings

import numpy as np
import pytest
from scipy.optimize import minimize, rosen, rosen_der

from backfield.errors import InputError
from backfield.learners import LBFGS
from backfield.learners.base import dot
from backfield.registry import get
from tests.learners.problems import Function, Logistic, Softmax, quadratic, same_trace

ROW = {"iteration", "objective", "gradient_norm", "error", "step", "sweeps", "seconds", "examples"}


def rosenbrock(d):
    return Function(lambda w: (rosen(w), rosen_der(w)), d)


def scipy_evaluations(problem, w, gtol):
    """Return how often scipy's L-BFGS-B evaluates until an iterate has a gradient norm of gtol."""
    gradients, count = {}, []

    def function(w):
        seen = problem.value_and_gradient(w)
        gradients[w.tobytes()] = seen.gradient
        return seen.value, seen.gradient

    def stop(x):
        if np.linalg.norm(gradients[x.tobytes()]) <= gtol:
            count.append(len(gradients))
            raise StopIteration

    options = {"maxiter": 5000, "maxfun": 20000, "maxcor": 10, "ftol": 0, "gtol": 0}
    minimize(function, w, jac=True, method="L-BFGS-B", callback=stop, options=options)
    return count[0]


def test_spec():
    learner = get("learners", "lbfgs(max_iter=7, gtol=1e-4)")
    assert learner == LBFGS(max_iter=7, gtol=1e-4) and repr(learner) == "lbfgs(max_iter=7, gtol=0.0001)"
    assert repr(LBFGS()) == "lbfgs"


@pytest.mark.parametrize(
    "wrong", [{"max_iter": -1}, {"max_iter": 1.5}, {"tol": -1.0}, {"gtol": "x"}, {"history": 0}, {"tol": True}]
)
def test_bad_parameters(wrong):
    with pytest.raises(InputError, match=f"lbfgs: {next(iter(wrong))} must be"):
        LBFGS(**wrong)


def test_quadratic():
    problem, optimum = quadratic()
    fit = LBFGS(max_iter=1000, gtol=1e-8).fit(problem, np.zeros(30))
    assert fit.converged and np.abs(fit.w - optimum).max() < 1e-7


def test_equals_scipy():
    problem = Logistic()
    optimum = problem.optimum()
    fit = LBFGS(gtol=1e-9).fit(problem, np.zeros(8))
    assert fit.converged and np.abs(fit.w - optimum).max() < 1e-7


@pytest.mark.parametrize("d", [2, 30])
def test_rosenbrock(d):
    fit = LBFGS(max_iter=1000, gtol=1e-7).fit(rosenbrock(d), np.full(d, -1.0))
    assert fit.converged and np.abs(fit.w - 1).max() < 1e-6


@pytest.mark.parametrize(
    ("make", "gtol"),
    [
        (lambda: Logistic(200, 20, 1e-3), 1e-7),
        (lambda: Logistic(500, 100, 1e-4), 1e-7),
        (lambda: Logistic(500, 30, 1e-6), 1e-4),
        (Softmax, 1e-6),
        (lambda: quadratic(50)[0], 1e-4),
        (lambda: rosenbrock(30), 1e-6),
    ],
)
def test_as_economical_as_scipy(make, gtol):
    problem = make()
    w = np.full(problem.n_weights, 0.1)
    theirs = scipy_evaluations(problem, w, gtol)
    problem.calls = 0
    fit = LBFGS(max_iter=5000, gtol=gtol).fit(problem, w)
    assert fit.converged
    assert problem.calls <= 1.2 * theirs + 2


def test_trace():
    problem = Logistic()
    fit = LBFGS(max_iter=5).fit(problem, np.zeros(8))
    assert [row["iteration"] for row in fit.trace] == list(range(6))
    assert all(row.keys() >= ROW for row in fit.trace)
    assert fit.trace[0]["objective"] == pytest.approx(np.log(2)) and fit.trace[0]["step"] == 0
    assert all(a["objective"] > b["objective"] and a["seconds"] <= b["seconds"] for a, b in zip(fit.trace, fit.trace[1:]))
    assert sum(row["sweeps"] for row in fit.trace) == 60 * problem.calls
    assert sum(row["evaluations"] for row in fit.trace) == problem.calls
    assert not fit.converged and "max_iter=5" in fit.message
    last = problem.value_and_gradient(fit.w)
    assert fit.trace[-1]["objective"] == last.value and fit.trace[-1]["error"] == last.errors
    assert fit.trace[-1]["gradient_norm"] == pytest.approx(np.linalg.norm(last.gradient), rel=1e-12)


def test_stopping_rules():
    problem = Logistic()
    w = 100.0 * np.ones(8)
    relative = LBFGS(tol=1e-3).fit(problem, w)
    assert relative.converged
    assert relative.trace[-1]["gradient_norm"] <= 1e-3 * max(1, np.linalg.norm(relative.w))
    absolute = LBFGS(tol=1.0, gtol=1e-6).fit(problem, w)
    assert absolute.converged and absolute.trace[-1]["gradient_norm"] <= 1e-6
    again = LBFGS(gtol=1e-5).fit(problem, absolute.w)
    assert again.converged and len(again.trace) == 1 and np.array_equal(again.w, absolute.w)
    assert len(LBFGS(max_iter=0).fit(problem, w).trace) == 1


def test_start_is_not_changed():
    w = np.zeros(8)
    LBFGS().fit(Logistic(), w)
    assert not w.any()


def test_refuses_objectives_without_value():
    with pytest.raises(InputError) as error:
        LBFGS().fit(Logistic(integrable=False), np.zeros(8))
    assert str(error.value) == (
        "lbfgs needs an objective with a value; logistic has a gradient but no objective: use sgd or ascent"
    )


@pytest.mark.parametrize(("w", "says"), [(np.zeros(3), "shape"), (np.full(8, np.nan), "not finite")])
def test_refuses_bad_starts(w, says):
    with pytest.raises(InputError, match=says):
        LBFGS().fit(Logistic(), w)


def test_refuses_infinite_value_at_the_start():
    with pytest.raises(InputError, match="inf at the starting point"):
        LBFGS().fit(Function(lambda w: (np.inf, w), 2), np.ones(2))


@pytest.mark.parametrize("outside", [np.inf, np.nan])
def test_values_that_are_not_finite_are_too_long_a_step(outside):
    def barrier(w):
        if w[0] <= 0:
            return outside, np.full(1, outside)
        return w[0] - np.log(w[0]), 1 - 1 / w

    fit = LBFGS(gtol=1e-8).fit(Function(barrier, 1), np.array([0.01]))
    assert fit.converged and abs(fit.w[0] - 1) < 1e-7


def spoil(problem, when):
    """Give the gradient of some evaluations the wrong sign: its slope still passes the line search."""
    true = problem.value_and_gradient

    def spoilt(w, batch=None, seed=0):
        seen = true(w, batch, seed)
        return seen._replace(gradient=-seen.gradient) if problem.calls in when else seen

    problem.value_and_gradient = spoilt
    return problem


@pytest.mark.parametrize("when", [5, 8, 10])
def test_restarts_on_a_bad_direction(when):
    problem = spoil(Logistic(), {when})
    fit = LBFGS(gtol=1e-8).fit(problem, np.zeros(8))
    assert fit.converged and [row["restarted"] for row in fit.trace[1:]].count(True) == 1
    assert np.abs(fit.w - Logistic().optimum()).max() < 1e-6


def test_a_second_failure_in_a_row_ends():
    problem = spoil(Logistic(), set(range(8, 1000)))
    fit = LBFGS(gtol=1e-8).fit(problem, np.zeros(8))
    assert not fit.converged and "after a restart" in fit.message and problem.calls < 60
    assert np.isfinite(fit.w).all() and fit.trace[-1]["objective"] < fit.trace[0]["objective"]


def test_restart_at_the_first_step():
    fit = LBFGS(gtol=1e-8).fit(spoil(Logistic(), {1}), np.zeros(8))
    assert fit.converged and fit.trace[1]["restarted"]


def test_gradient_that_is_always_wrong():
    problem, _ = quadratic(5)
    f = problem.f
    problem.f = lambda w: (f(w)[0], -f(w)[1])
    fit = LBFGS().fit(problem, np.ones(5))
    assert not fit.converged and "the gradient is wrong" in fit.message
    assert problem.calls < 50 and np.array_equal(fit.w, np.ones(5))


@pytest.mark.parametrize("seed", range(3))
def test_values_with_rounding_of_float32(seed):
    """Values wrong by 1e-7 and gradients by 1e-8 do not keep the search from a small gradient."""
    exact = Softmax(seed=seed)

    def rounded(w):
        seen = exact.value_and_gradient(w)
        rng = np.random.default_rng(np.frombuffer(w.tobytes(), np.uint32))
        return seen.value * (1 + 1e-7 * rng.normal()), seen.gradient + 1e-8 * rng.normal(size=len(w))

    problem = Function(rounded, exact.n_weights)
    fit = LBFGS(max_iter=1000, gtol=1e-5).fit(problem, np.zeros(problem.n_weights))
    assert fit.converged and problem.calls < 1.5 * len(fit.trace)


def test_ends_when_rounding_has_won():
    exact = Softmax()

    def noisy(w):
        seen = exact.value_and_gradient(w)
        rng = np.random.default_rng(np.frombuffer(w.tobytes(), np.uint32))
        return seen.value * (1 + 1e-5 * rng.normal()), seen.gradient + 1e-3 * rng.normal(size=len(w))

    problem = Function(noisy, exact.n_weights)
    fit = LBFGS(max_iter=10000, gtol=1e-7).fit(problem, np.zeros(problem.n_weights))
    assert not fit.converged and "rounding errors dominate" in fit.message and problem.calls < 1000


def test_doubling_schedule():
    problem = Logistic(n=100)
    learner = LBFGS(max_iter=16, gtol=1e-12, doubling_first=12)
    assert learner.stages(100) == [(12, 16), (24, 8), (48, 4), (96, 2), (100, 1)]
    fit = learner.fit(problem, np.zeros(8), seed=3)
    rows = [(row["examples"], row["iteration"]) for row in fit.trace]
    assert rows[:18] == [(12, i) for i in range(17)] + [(24, 16)]
    assert [examples for examples, _ in rows] == [12] * 17 + [24] * 9 + [48] * 5 + [96] * 3 + [100] * 2
    batches = [np.arange(100) if batch is None else batch for batch in problem.batches]
    sizes = [len(batch) for batch in batches]
    assert sizes == sorted(sizes)
    assert all(set(a) <= set(b) for a, b in itertools.pairwise(batches))
    assert same_trace(fit.trace, learner.fit(problem, np.zeros(8), seed=3).trace)


def test_doubling_reaches_the_optimum():
    problem = Logistic(n=100)
    fit = LBFGS(max_iter=200, gtol=1e-8, doubling_first=10).fit(problem, np.zeros(8))
    assert fit.converged and np.abs(fit.w - problem.optimum()).max() < 1e-6
    assert LBFGS(doubling_first=100).stages(100) == [(100, 100)]
    assert LBFGS(max_iter=2, doubling_first=10).stages(90)[-1] == (90, 1)


def test_callbacks_stop_and_see():
    seen = []

    def callback(iteration, w, row):
        assert not w.flags.writeable
        seen.append((iteration, w.copy(), row["objective"]))
        return iteration == 3

    progress = []
    fit = LBFGS().fit(Logistic(), np.zeros(8), callbacks=[callback], progress=progress.append)
    assert [row[0] for row in seen] == [0, 1, 2, 3]
    assert np.array_equal(fit.w, seen[-1][1]) and not fit.converged and "callback" in fit.message
    assert [row["iteration"] for row in progress] == [0, 1, 2, 3] and progress[0]["total"] == 100


def test_early_stopping():
    train, validation = Logistic(n=20, d=15, l2=1e-6), Logistic(n=500, d=15, l2=0.0, seed=1)
    fit = LBFGS(patience=3).fit(train, np.zeros(15), validation=validation)
    values = [row["validation"] for row in fit.trace]
    best = int(np.argmin(values))
    assert fit.converged and len(values) == best + 4 and "validation" in fit.message
    assert validation.value_and_gradient(fit.w).value == values[best]


def test_constraints_are_told():
    problem = Logistic()
    problem.projection = lambda w: np.minimum(w, 0.1)
    fit = LBFGS().fit(problem, np.zeros(8))
    assert fit.w.max() <= 0.1 and not fit.converged and "projection" in fit.message


def test_stalls_do_not_hide_a_flat_valley():
    fit = LBFGS(gtol=1e-6).fit(Function(lambda w: (float(w[0] ** 4), 4 * w**3), 1), np.ones(1))
    assert fit.converged and abs(fit.w[0]) < 1e-2


def test_products_of_vectors_have_the_bits_of_numpy_and_overflow_in_silence():
    for n in (1, 7, 1000):
        a, b = np.random.default_rng(n).normal(size=(2, n))
        assert dot(a, b) == float(np.dot(a, b))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert dot(np.full(9, 1e300), np.full(9, 1e300)) == np.inf
        assert np.isnan(dot(np.array([np.inf]), np.zeros(1)))
