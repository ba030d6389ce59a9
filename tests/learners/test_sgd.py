"""Stochastic gradient descent: steps, schedules, averages, batches, early stopping."""

import numpy as np
import pytest

import backfield as bf
from backfield.errors import InputError
from backfield.learners import LBFGS, SGD, SGDState, step_seed
from backfield.registry import get
from tests.learners.problems import Function, Logistic, same_trace


def test_spec():
    learner = get("learners", "sgd(epochs=3, schedule='lambda', average=True)")
    assert learner == SGD(epochs=3, schedule="lambda", average=True)
    assert get("learners", repr(learner)) == learner and repr(SGD()) == "sgd"


@pytest.mark.parametrize(
    "wrong",
    [
        {"epochs": -1},
        {"batch_size": 0},
        {"step_size": 0.0},
        {"momentum": 1.0},
        {"schedule": "x"},
        {"optimizer": "x"},
        {"l2": -1},
    ],
)
def test_bad_parameters(wrong):
    with pytest.raises(InputError, match=f"sgd: {next(iter(wrong))} must be"):
        SGD(**wrong)


def test_momentum_and_adam_exclude_each_other():
    with pytest.raises(InputError, match="beta1"):
        SGD(optimizer="adam", momentum=0.9)


@pytest.mark.parametrize(
    "learner",
    [
        SGD(epochs=200, batch_size=60, step_size=1.0),
        SGD(epochs=100, batch_size=60, step_size=0.5, momentum=0.8),
        SGD(epochs=200, batch_size=5, step_size=0.5, schedule="inverse", decay=0.01, average=True),
        SGD(epochs=200, batch_size=5, step_size=0.5, schedule="sqrt", decay=0.01, average=True),
        SGD(epochs=200, batch_size=5, schedule="lambda", average=True),
        SGD(epochs=200, batch_size=5, step_size=0.5, schedule="cosine"),
        SGD(epochs=200, batch_size=5, step_size=0.05, optimizer="adam", schedule="inverse", average=True),
    ],
)
def test_comes_near_the_optimum(learner):
    problem = Logistic(l2=0.05)
    optimum = problem.optimum()
    best = problem.value_and_gradient(optimum).value
    fit = learner.fit(problem, np.zeros(8))
    assert fit.converged and problem.value_and_gradient(fit.w).value < best + 1e-4


def test_noise_in_the_gradient_is_averaged_out():
    problem = Logistic(l2=0.05, noise=0.1)
    best = problem.value_and_gradient(Logistic(l2=0.05).optimum()).value
    fit = SGD(epochs=200, batch_size=5, schedule="lambda", average=True).fit(problem, np.zeros(8))
    assert problem.value_and_gradient(fit.w).value < best + 1e-3


def test_takes_objectives_without_value():
    problem = Logistic(l2=0.05, integrable=False)
    fit = SGD(epochs=50, batch_size=10, step_size=0.5, average=True).fit(problem, np.zeros(8))
    assert np.abs(fit.w - Logistic(l2=0.05).optimum()).max() < 0.05


def test_plain_steps():
    h = np.array([1.0, 3.0])
    problem = Function(lambda w: (0.5 * w @ (h * w), h * w), 2)
    fit = SGD(epochs=3, step_size=0.1).fit(problem, np.ones(2))
    assert np.allclose(fit.w, (1 - 0.1 * h) ** 3, rtol=1e-14)
    fit = SGD(epochs=3, step_size=0.1, average=True).fit(problem, np.ones(2))
    assert np.allclose(fit.w, ((1 - 0.1 * h) ** 2 + (1 - 0.1 * h) ** 3) / 2, rtol=1e-14)
    w, v = np.ones(2), np.zeros(2)
    for t in range(3):
        v = 0.5 * v - 0.1 / (1 + 0.2 * t) * h * w
        w = w + v
    fit = SGD(epochs=3, step_size=0.1, momentum=0.5, schedule="inverse", decay=0.2).fit(problem, np.ones(2))
    assert np.allclose(fit.w, w, rtol=1e-14)


def test_adam_steps():
    h = np.array([1.0, 30.0])
    problem = Function(lambda w: (0.5 * w @ (h * w), h * w), 2)
    assert np.allclose(SGD(epochs=1, step_size=0.1, optimizer="adam").fit(problem, np.ones(2)).w, 0.9)
    w, m, v = np.ones(2), np.zeros(2), np.zeros(2)
    for t in range(1, 5):
        g = h * w
        m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
        w = w - 0.1 * (m / (1 - 0.9**t)) / (np.sqrt(v / (1 - 0.999**t)) + 1e-8)
    assert np.allclose(SGD(epochs=4, step_size=0.1, optimizer="adam").fit(problem, np.ones(2)).w, w, rtol=1e-12)


def test_rates():
    problem = Logistic(l2=0.25)
    assert SGD(step_size=0.3).rate(7, problem) == 0.3
    assert SGD(step_size=0.3, schedule="inverse", decay=0.5).rate(4, problem) == pytest.approx(0.1)
    assert SGD(step_size=0.3, schedule="sqrt", decay=2.0).rate(4, problem) == pytest.approx(0.1)
    cosine = SGD(step_size=0.3, schedule="cosine", epochs=2, batch_size=problem.n_examples)
    assert [cosine.rate(t, problem) for t in range(3)] == pytest.approx([0.3, 0.15, 0.0])
    with pytest.raises(InputError, match="number of steps"):
        cosine.step(problem, np.zeros(8), None, np.arange(2), 0)
    assert SGD(schedule="lambda").rate(0, problem) == pytest.approx(2.0)  # lambda = 2 l2, [S18] eq. (3)
    assert SGD(schedule="lambda", l2=0.5).rate(3, problem) == pytest.approx(0.25)
    with pytest.raises(InputError, match="needs l2 > 0"):
        SGD(schedule="lambda").fit(Logistic(l2=0.0), np.zeros(8))


def test_batches_and_seeds():
    problem = Logistic(n=11)
    SGD(epochs=3, batch_size=4).fit(problem, np.zeros(8), seed=5)
    assert [len(batch) for batch in problem.batches] == [4, 4, 3] * 3
    epochs = [np.concatenate(problem.batches[k : k + 3]) for k in (0, 3, 6)]
    assert all(sorted(epoch) == list(range(11)) for epoch in epochs)
    assert not np.array_equal(epochs[0], epochs[1])
    assert len(set(problem.seeds)) == 9 and problem.seeds == [step_seed(5, t) for t in range(9)]
    assert all(0 <= seed < 2**62 for seed in problem.seeds)
    assert not {step_seed(0, t) for t in range(1000)} & {step_seed(1, t) for t in range(1000)}


def test_same_seed_same_bytes():
    learner = SGD(epochs=3, batch_size=4, momentum=0.5, average=True)
    a, b, c = (learner.fit(Logistic(noise=0.1), np.zeros(8), seed=seed) for seed in (1, 1, 2))
    assert a.w.tobytes() == b.w.tobytes() != c.w.tobytes() and same_trace(a.trace, b.trace)


def test_trace():
    problem = Logistic()
    fit = SGD(epochs=4, batch_size=7, step_size=0.2, schedule="inverse").fit(problem, np.zeros(8))
    assert [row["iteration"] for row in fit.trace] == [1, 2, 3, 4]
    assert all(row["examples"] == 60 and row["sweeps"] == 60 for row in fit.trace)
    assert fit.trace[-1]["objective"] < fit.trace[0]["objective"]
    assert fit.trace[1]["step"] == pytest.approx(0.2 / (1 + 0.01 * 17))
    assert all(0 <= row["error"] <= 1 and row["gradient_norm"] > 0 for row in fit.trace)
    full = SGD(epochs=1, batch_size=100).fit(problem, np.zeros(8))
    assert full.trace[0]["objective"] == pytest.approx(np.log(2))
    assert len(SGD(epochs=0).fit(problem, np.zeros(8)).trace) == 0


def test_step_is_what_fit_does():
    problem, learner = Logistic(n=10), SGD(epochs=2, batch_size=3, momentum=0.3)
    fit = learner.fit(problem, np.zeros(8), seed=4)
    w, state = np.zeros(8), None
    for batch in list(problem.batches):
        w, state = learner.step(problem, w, state, batch, 4)
    assert np.array_equal(fit.w, learner.answer(w, state)) and state.t == 8
    with pytest.raises(InputError, match="empty mini-batch"):
        learner.step(problem, w, state, np.zeros(0, dtype=int), 0)
    with pytest.raises(InputError, match="of 10"):
        learner.step(problem, w, state, np.array([3, 10]), 0)


def test_average_in_steps_is_over_all_steps():
    problem, learner = Logistic(), SGD(average=True)
    w, state, seen = np.zeros(8), SGDState(), []
    for t in range(5):
        w, state = learner.step(problem, w, state, np.array([t]), 0)
        seen.append(w)
    assert np.allclose(learner.answer(w, state), np.mean(seen, axis=0), rtol=1e-13)


def test_projection_after_every_step():
    problem = Logistic()
    seen = []
    problem.projection = lambda w: np.clip(w, -0.1, 0.2)
    true = problem.value_and_gradient
    problem.value_and_gradient = lambda w, batch=None, seed=0: (seen.append(w), true(w, batch, seed))[1]
    fit = SGD(epochs=5, batch_size=10, step_size=0.5, average=True).fit(problem, np.ones(8))
    assert np.min(seen) >= -0.1 and np.max(seen) == 0.2 and fit.w.max() <= 0.2
    assert fit.converged and "projection" not in fit.message


def test_early_stopping_and_callbacks():
    train, validation = Logistic(n=20, d=15, l2=0.0), Logistic(n=500, d=15, l2=0.0, seed=1)
    learner = SGD(epochs=500, batch_size=5, step_size=1.0, patience=4)
    fit = learner.fit(train, np.zeros(15), validation=validation)
    values = [row["validation"] for row in fit.trace]
    best = int(np.argmin(values))
    assert len(values) == best + 5 < 500 and fit.converged
    assert validation.value_and_gradient(fit.w).value == values[best]
    stopped = learner.fit(train, np.zeros(15), callbacks=[lambda i, w, row: np.bool_(i == 2)])
    assert len(stopped.trace) == 2 and not stopped.converged


def test_early_stopping_by_error_where_there_is_no_value():
    validation = Logistic(n=200, seed=1, integrable=False)
    fit = SGD(epochs=30, batch_size=5, patience=3).fit(Logistic(), np.zeros(8), validation=validation)
    assert min(row["validation"] for row in fit.trace) == validation.value_and_gradient(fit.w).errors


def test_validation_without_value_or_error():
    with pytest.raises(InputError, match="validation problem"):
        LBFGS().fit(Logistic(), np.zeros(8), validation=Function(lambda w: (0.0, w), 8, integrable=False))


def test_divergence_is_an_error():
    problem = Function(lambda w: (float(np.minimum(w @ w, 1e300)), 2 * w if abs(w[0]) < 1e3 else w * np.inf), 1)
    with pytest.raises(InputError, match="reduce step_size"):
        SGD(epochs=50, step_size=3.0).fit(problem, np.ones(1))


def test_no_examples():
    problem = Logistic()
    problem.n_examples = 0
    with pytest.raises(InputError, match="without examples"):
        SGD().fit(problem, np.zeros(8))


def noisy_grids(n=4, seed=0):
    rng = np.random.default_rng(seed)
    masks = [rng.integers(0, 2, (6, 6)) for _ in range(n)]  # no smoothness: free weights would turn repulsive
    return [mask[:, :, None] + rng.normal(size=(6, 6, 1)) for mask in masks], masks


def couplings(model):
    tables = [model.weights_[block.start : block.stop].reshape(-1, 4) for block in model.layout_.factors]
    return np.concatenate(tables) @ [1, -1, -1, 1]


DOUBLE_SGD = "sgd(epochs=10, batch_size=2, schedule='lambda', average=True{})"


@pytest.mark.parametrize("loss", ["perturb_and_map", "marginal_perturb_and_map", "max_margin"])
def test_double_sgd_keeps_models_supermodular(loss):
    X, masks = noisy_grids()
    model = bf.GridCRF(loss=f"{loss}(solver='graph_cut')", l2=0.05, start="zero", decoder="map", dtype="float64")
    model.set_params(learner=DOUBLE_SGD.format(", projection='supermodular'")).fit(X, masks)
    assert couplings(model).min() >= 0
    again = bf.GridCRF(**{**model.get_params(deep=False), "n_jobs": 3}).fit(X, masks)
    assert np.array_equal(model.weights_, again.weights_)  # noise and all


def test_without_a_projection_the_cut_names_the_edge():
    X, masks = noisy_grids()
    model = bf.GridCRF(loss="perturb_and_map(solver='graph_cut')", l2=0.05, start="zero", learner=DOUBLE_SGD.format(""))
    with pytest.raises(InputError, match=r"factor \d+ over variables \(\d+, \d+\) is not submodular"):
        model.fit(X, masks)


def test_where_a_projection_has_no_meaning():
    with pytest.raises(InputError, match="projection must be None or 'supermodular'"):
        SGD(projection="simplex")
    with pytest.raises(InputError, match="has no edges"):
        SGD(projection="supermodular").fit(Logistic(), np.zeros(8))
    rng = np.random.default_rng(0)
    chain = bf.ChainCRF(loss="max_margin", learner="sgd(projection='supermodular')")
    with pytest.raises(InputError, match="two labels"):
        chain.fit([rng.normal(size=(4, 2))], [[0, 1, 2, 0]])
