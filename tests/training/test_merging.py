"""Examples of a chunk in one call give the numbers of one call for each, whatever the objective and the inference."""

import copy
import warnings

import numpy as np
import pytest

import backfield as bf
from backfield.graph.stacking import by_factor, form, stack
from backfield.inference.message_passing import tree_reweighted
from backfield.inference.message_passing.tree_reweighted import counting_numbers, from_trees
from backfield.losses.logistic import UnivariateLogistic
from backfield.structures.constraints import Forbidden
from backfield.training import merging
from backfield.training.evaluators import General
from backfield.training.problem import Problem

INFERENCE = "tree_reweighted(n_iter=3)"


def graphs(rng, n=23, labels=3, edge_features=2, extra=None):
    X, Y = [], []
    for _ in range(n):
        size = int(rng.integers(1, 7))
        pairs = np.stack(np.triu_indices(size, 1), axis=1)
        edges = pairs[rng.random(len(pairs)) < 0.6]
        graph = bf.Graph.from_edges(edges, size, labels)
        features = rng.normal(size=(len(edges), edge_features)) if edge_features else None
        more = {} if extra is None else extra(rng, graph)
        X.append(bf.Sample(graph, rng.normal(size=(size, 4)), features, **more))
        Y.append(rng.integers(0, labels, size))
    return X, Y


def one_by_one(problem):
    other = copy.copy(problem)
    other.evaluator = type(problem.evaluator)(problem.task)
    assert not other.evaluator.runs.merge
    return other


def check(problem, tolerance=1e-10, n_runs=None, seed=0):
    assert problem.evaluator.runs.merge
    found = list(problem.evaluator.labelled(np.arange(problem.n_examples)))
    assert sorted(k for run in found for k in run.numbers) == np.flatnonzero(problem.task.labelled).tolist()
    assert len(found) < problem.n_examples if n_runs is None else len(found) == n_runs
    w = np.random.default_rng(seed).normal(size=problem.n_weights)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        mine, theirs = (each.value_and_gradient(w, seed=3) for each in (problem, one_by_one(problem)))
    assert mine.value == pytest.approx(theirs.value, rel=tolerance)
    np.testing.assert_allclose(mine.gradient, theirs.gradient, rtol=0, atol=tolerance * np.abs(theirs.gradient).max())
    np.testing.assert_equal((mine.errors, mine.sweeps), (theirs.errors, theirs.sweeps))


def problem_of(X, Y, estimator=bf.GraphCRF, **options):
    return estimator(**{"inference": INFERENCE, "dtype": "float64", "l2": 1e-2} | options).problem(X, Y)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"inference": "tree_reweighted(n_iter=4, rho=0.5, damping=0.3, schedule='monotonic')"},
        {"inference": "loopy_bp(n_iter=3, schedule='flooding')"},
        {"inference": "mean_field(n_iter=3)"},
        {"inference": "smoothed_lp(n_iter=3)"},
        {"inference": "exact"},
        {"inference": "exact", "loss": "surrogate_likelihood"},
        {"loss": "surrogate_likelihood"},
        {"loss": "surrogate_likelihood", "gradient": "truncated"},
        {"loss": "clique_logistic"},
        {"loss": "univariate_quadratic"},
        {"loss": "smoothed_error"},
        {"loss": "pseudolikelihood"},
        {"loss": "pseudolikelihood(patch=3)"},
        {"loss": "piecewise"},
        {"gradient": "truncated(memory=200)"},
        {"pairwise": "potts"},
        {"class_weight": {0: 2.0}},
    ],
    ids=repr,
)
@pytest.mark.parametrize("hide", [0.0, 0.3])
def test_graphs(options, hide):
    rng = np.random.default_rng(0)
    X, Y = graphs(rng, edge_features=0 if "pairwise" in options else 2)
    Y = [np.where(rng.random(len(y)) < hide, -1, y) for y in Y]
    Y[5][:] = -1  # says nothing, and is left out
    check(problem_of(X, Y, **options))


@pytest.mark.parametrize("case", ["observed", "weights", "per label"])
def test_what_examples_bring(case):
    def extra(rng, graph):
        n = graph.n_variables
        if case == "observed":
            observed = np.full(n, -1)
            observed[0] = rng.integers(3) if rng.random() < 0.5 else -1
            return {"observed": observed}
        return {"weights": rng.random(n if case == "weights" else (n, 3))}

    rng = np.random.default_rng(1)
    X, Y = graphs(rng, extra=extra)
    if case == "observed":
        Y = [np.where(x.observed >= 0, x.observed, y) for x, y in zip(X, Y, strict=True)]
    check(problem_of(X, Y))


@pytest.mark.parametrize("loss", ["univariate_logistic", "surrogate_likelihood"])
def test_weights_of_examples(loss):
    rng = np.random.default_rng(2)
    X, Y = graphs(rng)
    weight = rng.choice([0.5, 1.0, 2.0], len(X))
    problem = problem_of(X, Y, loss=loss)
    for example, each in zip(problem.task.examples, weight, strict=True):
        example.weight = float(each)
    check(problem, n_runs=1 if loss == "univariate_logistic" else None)
    task = problem.task
    check(Problem(task.examples, task.layout, task.objective, task.setting, coupled=False))


def test_label_sets_types_and_mixed_arities():
    rng = np.random.default_rng(3)
    X, Y = [], []
    for k in range(15):
        graph = bf.Graph([2, 3, 2, 3], [(0, 1), (1, 2, 3), (0, 2)][: 1 + k % 3])
        types = np.array([0, 1, 2])[: graph.n_factors]
        X.append(bf.Sample(graph, rng.normal(size=(4, 3)), None, np.array([0, 1, 0, 1]), types))
        Y.append(rng.integers(0, [2, 3, 2, 3]))
    check(problem_of(X, Y), n_runs=1)
    X, Y = graphs(rng)
    check(problem_of(X, [(np.arange(3) == y[:, None]) | (rng.random((len(y), 3)) < 0.3) for y in Y]))


@pytest.mark.parametrize("neighbours", [4, 8])
@pytest.mark.parametrize("labels", [2, 3])
@pytest.mark.parametrize(
    "options",
    [{}, {"contrast": True, "spacing": (1, 2)}, {"inference": "mean_field(n_iter=3)"}, {"loss": "clique_logistic"}],
    ids=repr,
)
def test_images_of_one_size(neighbours, labels, options):
    rng = np.random.default_rng(4)
    sizes = [(5, 6)] * merging.IMAGES + [(7, 3)] * merging.IMAGES + [(4, 4)]
    X = [rng.normal(size=(*size, 2)) for size in sizes]
    Y = [rng.integers(-1, labels, size) for size in sizes]
    check(problem_of(X, Y, bf.GridCRF, neighbours=neighbours, n_labels=labels, **options), n_runs=3)


@pytest.mark.parametrize(
    ("method", "neighbours", "labels", "n_runs"),
    [("mean_field(n_iter=3)", 4, 2, 3), ("mean_field(n_iter=3)", 8, 2, 1), ("mean_field(n_iter=3)", 4, 3, 1)]
    + [("tree_reweighted(n_iter=3)", 4, 2, 1)],
)
def test_a_few_images_are_not_worth_the_kernels_of_a_stack(method, neighbours, labels, n_runs):
    """Messages have one set of kernels for images and stacks of them."""
    rng = np.random.default_rng(4)
    X = [rng.normal(size=(5, 6, 2)) for _ in range(3)]
    Y = [rng.integers(0, labels, (5, 6)) for _ in X]
    problem = problem_of(X, Y, bf.GridCRF, neighbours=neighbours, n_labels=labels, inference=method)
    assert len(list(problem.evaluator.labelled(np.arange(3)))) == n_runs


def test_volumes_and_float32():
    rng = np.random.default_rng(5)
    X = [rng.normal(size=(3, 4, 5, 2)) for _ in range(4)]
    Y = [rng.integers(0, 2, (3, 4, 5)) for _ in X]
    check(problem_of(X, Y, bf.VolumeCRF), n_runs=1)
    check(problem_of(X, Y, bf.VolumeCRF, dtype="float32"), tolerance=1e-5, n_runs=1)


@pytest.mark.parametrize("loss", ["surrogate_likelihood", "univariate_logistic"])
@pytest.mark.parametrize("constraints", [None, "BIO"])
def test_chains_with_weights_and_constraints(loss, constraints):
    rng = np.random.default_rng(6)
    X = [rng.normal(size=(rng.integers(1, 7), 3)) for _ in range(20)]
    Y = [np.array(["O", "B-X", "I-X"])[np.minimum(np.cumsum(rng.random(len(x)) < 0.4), 2)] for x in X]
    options = {"inference": "exact" if constraints is None else "chain", "loss": loss, "constraints": constraints}
    check(problem_of(X, Y, bf.ChainCRF, **options))
    weighted = problem_of(X, Y, bf.ChainCRF, **options)
    for example in weighted.task.examples[::2]:
        example.weight = 3.0
    check(weighted)


def test_second_derivatives():
    X, Y = graphs(np.random.default_rng(7))
    problem = problem_of(X, Y)
    w, direction = np.random.default_rng(8).normal(size=(2, problem.n_weights))
    (mine, product), (theirs, other) = (each.hessian_vector(w, direction) for each in (problem, one_by_one(problem)))
    assert mine.value == pytest.approx(theirs.value, rel=1e-10) and mine.sweeps == theirs.sweeps
    np.testing.assert_allclose(product, other, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize(
    "options",
    [
        {"inference": "tree_reweighted(n_iter=50, tol=1e-4)"},
        {"inference": "brute_force"},
        {"inference": "tree_reweighted(n_iter=50, tol=1e-6)", "gradient": "implicit"},
        {"gradient": "backpropagation"},
        {"loss": "f_measure"},
        {"loss": "saddle_point"},
        {"loss": "max_margin"},
        {"loss": "contrastive_divergence"},
    ],
    ids=repr,
)  # fmt: skip
def test_what_is_not_a_sum_of_its_parts_goes_one_by_one(options):
    X, Y = graphs(np.random.default_rng(9), labels=2)
    assert not problem_of(X, Y, **options).evaluator.runs.merge


def test_parts_say_it_themselves():
    class Whole(UnivariateLogistic, name="whole_for_a_test"):
        per_example = True

    X, Y = graphs(np.random.default_rng(9), labels=2)
    assert not problem_of(X, Y, loss=Whole()).evaluator.runs.merge


def test_an_error_names_the_variable_of_its_example():
    X, Y = graphs(np.random.default_rng(10), n=12)
    problem = problem_of(X, Y, loss="surrogate_likelihood")
    broken = problem.task.examples[7]
    broken.forbidden = Forbidden(np.arange(3 * broken.graph.n_variables), np.zeros(9, dtype=bool))
    with pytest.raises(bf.InputError) as merged:
        problem.value_and_gradient(np.zeros(problem.n_weights))
    with pytest.raises(bf.InputError) as alone:
        one_by_one(problem).value_and_gradient(np.zeros(problem.n_weights))
    assert str(merged.value) == str(alone.value)


def test_runs_are_of_bounded_size_and_kept_within_a_budget(monkeypatch):
    X, Y = graphs(np.random.default_rng(11), n=30)
    whole = problem_of(X, Y)
    assert len(list(whole.evaluator.labelled(np.arange(30)))) == 1
    value = whole.value_and_gradient(np.zeros(whole.n_weights)).value
    monkeypatch.setattr(merging, "MOST", 300)
    monkeypatch.setattr(merging, "KEPT", 1000)
    bounded = problem_of(X, Y)
    found = list(bounded.evaluator.labelled(np.arange(30)))
    assert len(found) > 3 and bounded.evaluator.runs.n_bytes <= 1000
    for run in found:
        sizes = [merging.work(bounded.task.examples[k].graph) for k in run.numbers]
        assert len(sizes) == 1 or sum(sizes) <= 300
    assert bounded.value_and_gradient(np.zeros(whole.n_weights)).value == pytest.approx(value, rel=1e-12)


def test_the_same_bytes_for_any_number_of_threads(monkeypatch):
    monkeypatch.setattr(merging, "LEAST", 200)
    X, Y = graphs(np.random.default_rng(12), n=60)
    settings = {"inference": INFERENCE, "dtype": "float64", "learner": "lbfgs(max_iter=4)"}
    one, three = (bf.GraphCRF(n_jobs=n, **settings).fit(X, Y).weights_ for n in (1, 3))
    assert one.tobytes() == three.tobytes()


def test_a_fit_ends_at_the_same_objective(monkeypatch):
    X, Y = graphs(np.random.default_rng(13))
    settings = {"inference": INFERENCE, "dtype": "float64", "learner": "lbfgs(max_iter=200, tol=1e-9)"}
    merged = bf.GraphCRF(**settings).fit(X, Y).trace_[-1]["objective"]
    monkeypatch.setattr(General, "of", classmethod(lambda cls, task: cls(task)))
    assert merged == pytest.approx(bf.GraphCRF(**settings).fit(X, Y).trace_[-1]["objective"], rel=1e-7)


def test_equal_graphs_share_one_object_and_rho_is_computed_once(monkeypatch):
    calls = []
    monkeypatch.setattr(tree_reweighted, "from_trees", lambda graph: calls.append(graph) or from_trees(graph))
    rng = np.random.default_rng(14)
    pairs = np.stack(np.triu_indices(5, 1), axis=1)
    kinds = [pairs, pairs[::-1], pairs[:6]]
    X = [bf.Sample(bf.Graph.from_edges(kinds[k % 3], 5, 2), rng.normal(size=(5, 2))) for k in range(30)]
    Y = [rng.integers(0, 2, 5) for _ in X]
    problem = problem_of(X, Y)
    problem.value_and_gradient(np.zeros(problem.n_weights))
    assert len({id(example.graph) for example in problem.task.examples}) == 3
    assert len(calls) == 3


def test_a_stack_has_the_rho_of_its_members():
    rng = np.random.default_rng(15)
    members = [x.graph for x in graphs(rng)[0]]
    stacked = stack(members)
    assert counting_numbers(stacked, "trees").tobytes() == from_trees(stacked).tobytes()
    grids = [bf.Graph.grid(3, 4, neighbours=8)] * 3
    deep = stack(grids)
    assert deep.lattice.shape == (3, 3, 4) and deep.n_factors == 3 * grids[0].n_factors
    assert np.array_equal(by_factor(deep, [np.arange(g.n_factors) for g in grids]).reshape(-1)[:9], [*range(9)])
    colours = grids[0].lattice.colours()
    assert np.array_equal(deep.lattice.colours(), np.tile(colours, 3))
    assert form(bf.Graph.grid(2, 2, labels=[2, 3, 2, 2])) is None and form(members[0]) == form(members[1])


def test_digests_tell_graphs_apart():
    grid = bf.Graph.grid(2, 3)
    plain = bf.Graph.from_edges(grid.factors, 6)
    others = [
        grid,
        plain,
        bf.Graph.grid(3, 2),
        bf.Graph.from_edges(grid.factors[::-1], 6),
        bf.Graph.from_edges(grid.factors, 7),
    ]
    others += [bf.Graph.from_edges(grid.factors, 6, [2, 2, 2, 2, 2, 3]), bf.Graph.from_edges(grid.factors, 6, 3)]
    assert len({each.digest for each in others}) == len(others)
    assert bf.Graph.from_edges(grid.factors, 6).digest == plain.digest


def test_examples_of_large_features_stay_alone(monkeypatch):
    """Packed images are read one at a time: several in memory would break the bound on it."""
    rng = np.random.default_rng(0)
    X = [rng.normal(size=(5, 6, 2)) for _ in range(merging.IMAGES)]
    Y = [rng.integers(0, 2, (5, 6)) for _ in X]
    problem = problem_of(X, Y, bf.GridCRF)
    assert len(list(problem.evaluator.labelled(np.arange(len(X))))) == 1
    monkeypatch.setattr(merging, "LARGE", 100)
    problem = problem_of(X, Y, bf.GridCRF)
    assert len(list(problem.evaluator.labelled(np.arange(len(X))))) == len(X)
