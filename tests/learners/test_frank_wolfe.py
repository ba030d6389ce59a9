"""Block-coordinate Frank-Wolfe: the optimum of the S-SVM, its certificate, and what it refuses."""

from itertools import product

import numpy as np
import pytest
from scipy.optimize import minimize

import backfield as bf
from backfield.learners import FrankWolfe
from backfield.registry import get
from tests.learners.problems import same_trace


def chains(n=6, length=3, seed=0):
    rng = np.random.default_rng(seed)
    X = [rng.normal(size=(length, 2)) for _ in range(n)]
    Y = [(x[:, 0] + 0.7 * rng.normal(size=length) > 0).astype(int) for x in X]
    return X, Y


def crf(learner, l2=0.02, **options):
    return bf.ChainCRF(loss="max_margin", learner=learner, l2=l2, decoder="map", n_labels=2, **options)


def problem_of(model, X, Y):
    """The problem that the estimator minimises."""
    return model.set_params(learner="sgd(epochs=0)").problem(X, Y)


def dual_optimum(problem):
    """The value of the dual over all labelings, by a general solver."""
    planes, owner = [], []
    for n, example in enumerate(problem.task.examples):
        truth = example.target.labeling.labels
        for labels in product(range(2), repeat=len(truth)):
            theta = bf.Potentials.from_flat(example.graph, *_indicators(example.graph, np.array(labels), truth))
            loss = (np.array(labels) != truth).sum() / problem.task.labelled.sum()
            planes.append(np.append(problem.task.layout.vjp(example, theta) / problem.task.labelled.sum(), loss))
            owner.append(n)
    planes, owner = np.array(planes), np.array(owner)

    def value(alpha):
        g, loss = alpha @ planes[:, :-1], alpha @ planes[:, -1]
        return g @ g / (4 * problem.l2) - loss, planes[:, :-1] @ g / (2 * problem.l2) - planes[:, -1]

    constraints = [{"type": "eq", "fun": lambda a, n=n: a[owner == n].sum() - 1} for n in range(problem.n_examples)]
    start = np.full(len(owner), 1 / 8)
    options = {"maxiter": 500, "ftol": 1e-12}
    bounds = [(0, 1)] * len(owner)
    found = minimize(value, start, jac=True, method="SLSQP", bounds=bounds, constraints=constraints, options=options)
    return -found.fun


def _indicators(graph, labels, truth):
    from backfield.graph.labeling import one_hot

    return [a - b for a, b in zip(one_hot(graph, labels), one_hot(graph, truth), strict=True)]


@pytest.mark.parametrize(
    "learner",
    [
        "frank_wolfe(epochs=1000, tol=1e-3)",
        "frank_wolfe(epochs=1000, tol=1e-3, sampling='uniform')",
        "frank_wolfe(epochs=1000, tol=1e-3, cache=5)",
        "frank_wolfe(epochs=1000, tol=1e-3, average=True)",
        "frank_wolfe(epochs=1000, tol=1e-3, batch_size=4)",
    ],
)
def test_the_gap_closes_at_the_optimum_of_a_quadratic_program(learner):
    X, Y = chains()
    model = crf(learner).fit(X, Y)
    problem = problem_of(crf(learner), X, Y)
    best = dual_optimum(problem)
    last = model.trace_[-1]
    value = problem.value_and_gradient(model.weights_).value
    assert model.converged_ and "within it of its minimum" in model.message_
    assert last["objective"] == pytest.approx(value, abs=1e-12)
    assert last["dual"] - 1e-9 <= best <= value + 1e-9
    assert value - best <= last["gap"] <= get("learners", learner).tol


def test_the_dual_never_falls():
    X, Y = chains(n=20, length=5, seed=1)
    for options in ("", ", cache=3", ", sampling='uniform'", ", batch_size=7", ", batch_size=50, cache=2"):
        trace = crf(f"frank_wolfe(epochs=30, tol=0{options})").fit(X, Y).trace_
        dual = [row["dual"] for row in trace]
        assert np.diff(dual).min() >= -1e-15
        assert all(row["objective"] >= row["dual"] for row in trace)
        assert sum(row["cached"] for row in trace) > 0 if "cache" in options else True


def images(seed, labels=2, n=3):
    rng = np.random.default_rng(seed)
    masks = [rng.integers(0, labels, (2, 2)).repeat(4, 0).repeat(4, 1) for _ in range(n)]
    return [np.eye(labels)[mask] + 0.6 * rng.normal(size=(8, 8, labels)) for mask in masks], masks


def test_grids_by_cuts_stay_submodular_and_certified():
    X, masks = images(0)
    spec = "frank_wolfe(epochs=300, tol=1e-2, cache=10, projection='supermodular')"
    model = bf.GridCRF(loss="max_margin(solver='graph_cut')", learner=spec, l2=0.01, decoder="map", dtype="float64")
    model.fit(X, masks)
    assert model.converged_ and model.score(X, masks) > 0.95
    for block in model.layout_.factors:
        tables = model.weights_[block.start : block.stop].reshape(-1, 4)
        assert (tables @ [1, -1, -1, 1]).min() >= -1e-12
    duals = [row["dual"] for row in model.trace_]
    assert np.diff(duals).min() >= -1e-15


def test_expansion_is_no_certificate():
    X, masks = images(1, labels=3)
    model = bf.GridCRF(loss="max_margin(solver='alpha_expansion')", learner="frank_wolfe(epochs=5)", l2=0.02, decoder="map")
    model.fit(X, masks)
    assert not model.converged_ and "no certificate" in model.message_
    assert model.score(X, masks) > 0.9


def test_graphs_with_weights_observed_and_unlabelled_examples():
    rng = np.random.default_rng(3)
    graph = bf.Graph.from_edges([(0, 1), (1, 2), (2, 0), (2, 3)], n_variables=4)
    X = [bf.Sample(graph, rng.normal(size=(4, 2)), weights=rng.random((4, 2)) + 0.1) for _ in range(8)]
    Y = [(x.node_features[:, 0] > 0).astype(int) for x in X]
    X[1].observed, Y[1] = np.array([Y[1][0], -1, -1, -1]), np.array([-1, *Y[1][1:]])
    Y[2] = np.full(4, -1)
    learner = "frank_wolfe(epochs=500, tol=1e-3, projection='supermodular')"
    model = bf.GraphCRF(loss="max_margin", learner=learner, l2=0.01, dtype="float64", decoder="map").fit(X, Y)
    assert model.converged_
    problem = problem_of(bf.GraphCRF(loss="max_margin", l2=0.01, dtype="float64"), X, Y)
    assert problem.value_and_gradient(model.weights_).value == pytest.approx(model.trace_[-1]["objective"])


def test_a_resumed_fit_is_the_same_fit(tmp_path):
    X, Y = chains(n=12, length=4, seed=2)
    learner = "frank_wolfe(epochs=12, tol=0, cache=3, average=True)"
    whole = crf(learner).fit(X, Y)
    kept = tmp_path / "kept"
    crf(learner).fit(X, Y, checkpoint=kept, callbacks=[lambda iteration, w, row: iteration == 7])
    resumed = crf(learner).fit(X, Y, checkpoint=kept, resume=True)
    assert np.array_equal(whole.weights_, resumed.weights_)
    assert same_trace(whole.trace_, resumed.trace_)


def test_threads_do_not_change_the_result():
    X, Y = chains(n=12, length=4, seed=2)
    for size in (1, 5):
        learner = f"frank_wolfe(epochs=6, tol=0, batch_size={size})"
        first, second = (crf(learner, n_jobs=n).fit(X, Y) for n in (1, 3))
        assert np.array_equal(first.weights_, second.weights_)


def test_subgradient_descent_comes_near_the_same_minimum():
    X, Y = chains(n=20, length=4, seed=4)
    exact = crf("frank_wolfe(epochs=1000, tol=1e-3)").fit(X, Y)
    rough = crf("sgd(epochs=300, batch_size=5, schedule='lambda', average=True)").fit(X, Y)
    problem = problem_of(crf("sgd"), X, Y)
    assert problem.value_and_gradient(rough.weights_).value < exact.trace_[-1]["dual"] + 0.01


def test_validation_stops_early():
    X, Y = chains(n=20, length=4, seed=5)
    model = crf("frank_wolfe(epochs=300, tol=0, patience=2)").fit(X[:10], Y[:10], validation=(X[10:], Y[10:]))
    assert len(model.trace_) < 300 and "validation" in model.message_


def test_refusals():
    X, Y = chains()
    wrongs = {"epochs": -1, "batch_size": 0, "sampling": "x", "projection": "x"}
    for name, value in wrongs.items():
        with pytest.raises(bf.InputError, match=f"frank_wolfe: {name} must be"):
            FrankWolfe(**{name: value})
    with pytest.raises(bf.InputError, match="minimises max_margin, not surrogate_likelihood"):
        bf.ChainCRF(learner="frank_wolfe").fit(X, Y)
    with pytest.raises(bf.InputError, match="l2 > 0"):
        crf("frank_wolfe", l2=0.0).fit(X, Y)
    hidden = [Y[0].copy(), *Y[1:]]
    hidden[0][1] = -1
    with pytest.raises(bf.InputError, match="some of example 0 are hidden"):
        crf("frank_wolfe").fit(X, hidden)
    with pytest.raises(bf.InputError, match="two labels"):
        bf.GridCRF(loss="max_margin", learner="frank_wolfe(projection='supermodular')").fit(*images(1, labels=3))
    features, masks = images(0)
    edges = [bf.GridSample(x, -np.ones((8, 7, 1)), np.ones((7, 8, 1))) for x in features]
    with pytest.raises(bf.InputError, match="edge features >= 0"):
        bf.GridCRF(loss="max_margin", learner="frank_wolfe(projection='supermodular')").fit(edges, masks)
