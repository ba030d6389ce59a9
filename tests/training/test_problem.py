"""A problem: its evaluator, the share of memory of each thread, and what learners may ask of it."""

from dataclasses import dataclass

import numpy as np
import pytest

import backfield as bf
from backfield.gradients import truncated
from backfield.learners import LBFGS, SMD, FrankWolfe, OracleDescent, SelfTraining, Stages
from backfield.learners.base import NEEDS, Learner
from backfield.registry import names
from backfield.training.evaluators import General, Independent, general
from backfield.training.problem import Problem
from backfield.training.protocols import HasExamples, HasGram, HasHessianVector, HasOracle, HasValue, Minimisable
from tests.learners.problems import Logistic


def images(n=4, side=6, seed=0):
    rng = np.random.default_rng(seed)
    X = [rng.normal(size=(side, side, 2)) for _ in range(n)]
    return X, [(x[..., 0] > 0).astype(int) for x in X]


def problems_of(model, X, Y):
    """Return the problems that a fit makes."""
    seen = []

    class Spy(LBFGS):
        def minimise(self, problem, w, run, restored):
            seen.append(problem)
            return super().minimise(problem, w, run, restored)

    model.set_params(learner=Spy(max_iter=1)).fit(X, Y)
    return seen


@pytest.mark.parametrize("gradient", [None, "truncated", "truncated(memory=1000000)"])
@pytest.mark.parametrize("n_jobs", [1, 4])
def test_threads_share_the_memory_budget(gradient, n_jobs, monkeypatch):
    budget = 1_000_000 if gradient and "memory" in gradient else truncated.Truncated.memory
    given, true = [], truncated.Tape.__init__

    def watched(self, engine, method, memory):
        given.append(memory)
        true(self, engine, method, memory)

    monkeypatch.setattr(truncated.Tape, "__init__", watched)
    bf.GridCRF(gradient=gradient, n_jobs=n_jobs, learner="lbfgs(max_iter=1)", start="zero").fit(*images())
    assert set(given) == {budget // n_jobs}


def test_second_derivatives_share_it_too(monkeypatch):
    given, true = [], truncated.Tape.__init__

    def watched(self, engine, method, memory):
        given.append(memory)
        true(self, engine, method, memory)

    monkeypatch.setattr(truncated.Tape, "__init__", watched)
    bf.GridCRF(gradient=None, n_jobs=4, learner="smd(epochs=1)", start="zero", dtype="float64").fit(*images())
    assert set(given) == {truncated.Truncated.memory // 4}


def test_every_problem_of_examples_has_all_protocols():
    (problem,) = problems_of(bf.GridCRF(start="zero"), *images())
    for protocol in (Minimisable, HasValue, HasExamples, HasGram, HasHessianVector, HasOracle):
        assert isinstance(problem, protocol)
    assert isinstance(Logistic(), Minimisable) and not isinstance(Logistic(), HasGram | HasExamples | HasOracle)


def test_evaluators_are_chosen_by_what_they_declare():
    (general,) = problems_of(bf.GridCRF(), *images())
    assert type(general.evaluator) is General and general.evaluator.runs.merge
    (converging,) = problems_of(bf.GridCRF(inference="tree_reweighted(n_iter=50, tol=1e-5)"), *images())
    assert not converging.evaluator.runs.merge  # images would stop together
    independent = Problem(
        general.task.examples, general.task.layout, general.task.objective, general.task.setting, coupled=False
    )
    assert type(independent.evaluator) is Independent
    X = [x.reshape(-1, 2) for x in images()[0]]
    Y = [y.reshape(-1) for y in images()[1]]
    (chains,) = problems_of(bf.ChainCRF(), X, Y)
    (hidden,) = problems_of(bf.ChainCRF(), X, [np.where(np.arange(len(y)) == 3, -1, y) for y in Y])
    (marginal,) = problems_of(bf.ChainCRF(loss="univariate_logistic"), X, Y)
    (measured,) = problems_of(bf.ChainCRF(loss="f_measure"), X, Y)
    assert chains.evaluator.runs.merge and hidden.evaluator.runs.merge and marginal.evaluator.runs.merge
    assert not measured.evaluator.runs.merge  # one number per example
    other = chains.minimising(chains.objective_info)
    w = np.linspace(-1, 1, chains.n_weights)
    other.evaluator = General(other.task)
    assert other.value_and_gradient(w).value == pytest.approx(chains.value_and_gradient(w).value, rel=1e-12)


def test_no_learner_requires_what_nobody_can_explain():
    for name in names("learners"):
        assert set(_class(name).requires) <= set(NEEDS)


def _class(name):
    from backfield.registry import get

    return type(get("learners", name))


@pytest.mark.parametrize(
    ("learner", "problem", "words"),
    [
        (LBFGS(), Logistic(integrable=False), "lbfgs needs an objective with a value; logistic has a gradient"),
        (SMD(), Logistic(), "smd needs second derivatives, which logistic does not have; use sgd"),
        (FrankWolfe(), Logistic(), "frank_wolfe minimises max_margin, not logistic; use lbfgs or sgd"),
        (OracleDescent(), Logistic(), "oracle_descent needs a problem over labelled graphs, and logistic"),
        (SelfTraining(), Logistic(), "self_training needs a problem over labelled graphs, and logistic"),
        (Stages(["lbfgs", "lbfgs"], ["surrogate_likelihood", None]), Logistic(), "needs a problem over labelled graphs"),
    ],
)
def test_a_mismatch_is_refused_before_the_fit(learner, problem, words):
    with pytest.raises(bf.InputError, match=words) as error:
        learner.fit(problem, np.zeros(8))
    assert "\n" not in str(error.value) and problem.calls == 0


def test_a_learner_of_ones_own_declares_what_it_needs():
    @dataclass(frozen=True, repr=False)
    class Mine(Learner):
        name = "mine"
        requires = (HasGram, HasValue)

    with pytest.raises(bf.InputError, match="needs the second moments of features"):
        Mine().check(Logistic())


@pytest.mark.parametrize(("inference", "tied"), [("chain", True), ("loopy_bp", False)])
def test_binary_chains_are_tied_only_for_methods_that_run_on_one_table(inference, tied, monkeypatch):
    kinds, evaluate = [], general.evaluate

    def watched(objective, theta, target, setting):
        kinds.append(theta.shared is not None)
        return evaluate(objective, theta, target, setting)

    monkeypatch.setattr(general, "evaluate", watched)
    rng = np.random.default_rng(0)
    X = [rng.normal(size=(n, 2)) for n in (3, 5)]
    model = bf.ChainCRF(inference=inference, loss="surrogate_likelihood", learner="lbfgs(max_iter=1)")
    (problem,) = problems_of(model, X, [(x[:, 0] > 0).astype(int) for x in X])[-1:]
    task = problem.evaluator.task
    General(task).chunk(np.arange(2), np.ones(problem.n_weights), 0)
    assert kinds and kinds[-1] is tied
