"""Observed and forbidden labels stay in the graph, with its own rho and order, in every family of every method."""

import itertools

import numpy as np
import pytest

import backfield as bf
from backfield import Graph, Potentials
from backfield.inference.clamped import ClampedEngine
from backfield.inference.message_passing.log import LogEngine
from backfield.registry import get
from tests.gradients.differences import along, check
from tests.models import enumerate_model, random_potentials

GRAPHS = {
    "grid": Graph.grid(4, 5),
    "grid of 3 labels": Graph.grid(3, 4, labels=3),
    "chain": Graph.chain(7, 3),
    "copies": bf.batch([bf.Potentials(Graph.chain(3), np.zeros((3, 2)), np.zeros((2, 2, 2)))] * 8).graph,
    "mixed": Graph([2, 3, 2, 3, 4, 2], [(0, 1), (1, 2), (0, 2, 3), (3, 4), (1, 3, 4), (0, 4), (4, 5), (2, 5)]),
}
#: Method, and the module of the kernels that it must run on for each graph.
FAMILIES = {
    "tree_reweighted(n_iter=4)": ["lattice", "pairwise", "pairwise", "pairwise", "general"],
    "tree_reweighted(n_iter=4, family='general')": ["general"] * 5,
    "tree_reweighted(n_iter=4, family='log')": ["log"] * 5,
    "loopy_bp(n_iter=3, schedule='flooding')": ["pairwise", "pairwise", "pairwise", "copies", "general"],
    "loopy_bp(n_iter=3, damping=0.3)": ["pairwise", "pairwise", "pairwise", "pairwise", "general"],
    "mean_field(n_iter=4)": ["lattice", "general", "general", "general", "general"],
    "smoothed_lp(n_iter=4, eps=1.0)": ["lattice", "pairwise", "pairwise", "pairwise", "general"],
    "smoothed_lp(n_iter=4, eps=0.5, family='general')": ["general"] * 5,
}
CASES = [(spec, name, place) for spec, places in FAMILIES.items() for name, place in zip(GRAPHS, places, strict=True)]
each_case = pytest.mark.parametrize(("spec", "name", "place"), CASES, ids=[f"{s}-{n}" for s, n, _ in CASES])


def some_labels(graph, rng, share=0.4):
    """Labels of some variables, -1 for the others; at least two are free."""
    labels = np.array([rng.integers(count) for count in graph.labels])
    labels[rng.random(len(labels)) > share] = -1
    labels[:2] = -1
    labels[2] = 1
    return labels


def forbidding(theta, labels):
    """Theta with -inf unaries for all but the known labels."""
    rows = [row.copy() for row in theta.unary]
    for i in np.flatnonzero(labels >= 0):
        rows[i][np.arange(len(rows[i])) != labels[i]] = -np.inf
    return Potentials(theta.graph, rows, theta.factors)


@each_case
def test_equals_forbidden_unaries_in_the_kernels_of_the_free_run(spec, name, place):
    rng = np.random.default_rng(0)
    theta = random_potentials(GRAPHS[name], rng)
    labels = some_labels(theta.graph, rng)
    method, clamped = get("inference", spec), forbidding(theta, labels)
    engine = method.bind(clamped)
    assert isinstance(engine, ClampedEngine) and type(engine.inner).__module__.endswith("." + place)
    assert type(engine.inner) is type(method.bind(theta))
    run, other = bf.infer(theta, method, observed=labels), bf.infer(clamped, method)
    np.testing.assert_array_equal(run.marginals.vector(), other.marginals.vector())
    assert run.log_partition == other.log_partition
    for i in np.flatnonzero(labels >= 0):
        np.testing.assert_array_equal(run.unary[i], np.arange(theta.graph.labels[i]) == labels[i])
    for scope, table in zip(theta.graph.factors, run.factors, strict=True):
        known = tuple(slice(None) if labels[i] < 0 else labels[i] for i in scope)
        rest = table.copy()
        rest[known] = 0
        assert (rest == 0).all() and table.sum() == pytest.approx(1)


def plain_run(theta, method, labels, n_iter):
    """Messages in the log domain with -inf unaries as they are, those of observed senders started at their limit."""
    engine = method.replace(family="log").engine(forbidding(theta, labels))
    assert isinstance(engine, LogEngine)
    layout, state = theta.graph.layout, engine.init()
    for k, i in enumerate(layout.scope):
        c = layout.slot_factor[k]
        scope = layout.scope[layout.scope_ptr[c] : layout.scope_ptr[c + 1]]
        if all(labels[j] >= 0 for j in scope if j != i):
            entry = tuple(slice(None) if j == i else labels[j] for j in scope)
            limit = theta.factors[c][entry] / engine.rho[c]
            state[layout.msg_ptr[k] : layout.msg_ptr[k + 1]] = limit - np.logaddexp.reduce(limit)
    for t in range(n_iter):
        engine.sweep(state, t)
    mu = engine.marginals(state)
    return mu, engine.log_partition(mu)


@pytest.mark.parametrize("n_iter", [0, 1, 4])
@pytest.mark.parametrize("name", GRAPHS)
def test_equals_plain_messages_with_forbidden_labels(name, n_iter):
    """Against a run that knows nothing of clamping, after any number of sweeps."""
    rng = np.random.default_rng(1)
    theta = random_potentials(GRAPHS[name], rng)
    labels = some_labels(theta.graph, rng)
    slots = rng.permutation(theta.graph.n_slots).tolist()
    for wanted in ({}, {"damping": 0.3}, {"schedule": "flooding"}, {"rho": 0.7}, {"order": slots}):
        method = get("inference", "tree_reweighted").replace(n_iter=n_iter, **wanted)
        mu, log_partition = plain_run(theta, method, labels, n_iter)
        run = bf.infer(theta, method, observed=labels)
        np.testing.assert_allclose(run.marginals.vector(), mu.vector(), rtol=0, atol=1e-12)
        assert run.log_partition == pytest.approx(log_partition, rel=1e-12)


@pytest.mark.parametrize("spec", FAMILIES)
def test_sets_of_labels(spec):
    """A set is kept as -inf in the same graph, forbidden labels get exactly zero, and on trees the answer is exact."""
    for name in ("grid of 3 labels", "mixed", "chain"):
        rng = np.random.default_rng(2)
        theta = random_potentials(GRAPHS[name], rng)
        allowed = [rng.random(count) < 0.7 for count in theta.graph.labels]
        for row in allowed:
            row[rng.integers(len(row))] = True
        rows = [np.where(keep, row, -np.inf) for keep, row in zip(allowed, theta.unary, strict=True)]
        run, other = bf.infer(theta, spec, observed=allowed), bf.infer(Potentials(theta.graph, rows, theta.factors), spec)
        np.testing.assert_array_equal(run.marginals.vector(), other.marginals.vector())
        assert run.log_partition == other.log_partition
        for keep, row in zip(allowed, run.unary, strict=True):
            assert (row[~keep] == 0).all() and row.sum() == pytest.approx(1)
        if name == "chain" and "loopy" not in spec and "tree" in spec:
            log_z, mu = enumerate_model(Potentials(theta.graph, rows, theta.factors))
            assert run.log_partition == pytest.approx(log_z, rel=1e-12)
            np.testing.assert_allclose(run.marginals.vector(), mu.vector(), rtol=0, atol=1e-12)


def test_sets_of_labels_stay_with_the_products_of_probabilities():
    theta = random_potentials(Graph.grid(3, 4, labels=3), np.random.default_rng(0))
    theta.unary[2, 1] = theta.unary[5, 0] = -np.inf
    for family in ("auto", "pairwise", "general", "log"):
        method = get("inference", "tree_reweighted").replace(family=family, n_iter=3)
        place = "pairwise" if family == "auto" else family
        assert type(method.bind(theta)).__module__.endswith("." + place)
        run, log = method.infer(theta), method.replace(family="log").infer(theta)
        np.testing.assert_allclose(run.marginals.vector(), log.marginals.vector(), rtol=0, atol=1e-13)
        assert run.unary[2, 1] == run.unary[5, 0] == 0


@pytest.mark.parametrize("spec", FAMILIES)
def test_all_observed(spec):
    for name, seed in itertools.product(("grid", "mixed"), range(3)):
        rng = np.random.default_rng(seed)
        theta = random_potentials(GRAPHS[name], rng)
        labels = np.array([rng.integers(count) for count in theta.graph.labels])
        run = bf.infer(theta, spec, observed=labels)
        assert run.log_partition == pytest.approx(theta.score(labels))
        assert np.concatenate([row.argmax(keepdims=True) for row in run.unary]).tolist() == labels.tolist()


@pytest.mark.filterwarnings("ignore::backfield.ConvergenceWarning")
def test_bounds_hold_given_labels():
    """Mean field from below, TRW with the graph's own rho from above."""
    for seed in range(40):
        rng = np.random.default_rng(seed)
        graph = Graph.grid(3, 4) if seed % 2 else GRAPHS["mixed"]
        theta = random_potentials(graph, rng, 1.5)
        labels = some_labels(graph, rng)
        log_z = bf.infer(theta, "brute_force", observed=labels).log_partition
        assert bf.infer(theta, "mean_field(n_iter=3)", observed=labels).log_partition <= log_z + 1e-9
        run = bf.infer(theta, "tree_reweighted(n_iter=3000, tol=1e-9, damping=0.3)", observed=labels)
        assert run.converged and run.bound == "upper" and run.log_partition >= log_z - 1e-7


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_types(dtype):
    theta = random_potentials(Graph.grid(4, 5), np.random.default_rng(0), 3.0)
    labels = some_labels(theta.graph, np.random.default_rng(0))
    run, exact = (bf.infer(theta, "tree_reweighted(n_iter=5)", labels, dtype=kind) for kind in (dtype, "float64"))
    assert run.marginals.dtype == dtype
    np.testing.assert_allclose(run.marginals.vector(), exact.marginals.vector(), rtol=0, atol=2e-5)


@each_case
def test_gradients_through_sweeps(spec, name, place):
    """Truncated, against differences: marginals of variables and of factors, and the clamped log Z."""
    if name == "copies":
        pytest.skip("the union of chains: differences of 80 numbers say nothing that the chain does not")
    rng = np.random.default_rng(3)
    theta = random_potentials(GRAPHS[name], rng)
    observed = some_labels(theta.graph, rng)
    labels = np.array([rng.integers(count) for count in theta.graph.labels])
    labels[observed >= 0] = observed[observed >= 0]
    labels[0] = -1
    for loss in ("univariate_logistic", "clique_logistic", "surrogate_likelihood"):
        check(theta, labels, 1e-6, loss=loss, inference=spec, gradient="truncated", observed=observed)


STRATEGIES = ["implicit", "implicit(system='explicit')", "backpropagation(tol=1e-10)", "perturbation"]


@pytest.mark.parametrize("gradient", STRATEGIES)
@pytest.mark.parametrize("method", ["tree_reweighted", "mean_field", "smoothed_lp(eps=0.5)"])
def test_gradients_at_convergence(method, gradient):
    """Equal to the truncated one, with observed inputs and with a set of labels."""
    if "explicit" in gradient and method != "tree_reweighted":
        pytest.skip("the explicit system describes message passing")
    spec = get("inference", method).replace(n_iter=3000, tol=1e-13)
    for name in ("grid", "mixed"):
        rng = np.random.default_rng(4)
        theta = random_potentials(GRAPHS[name], rng, 0.5)
        labels = np.array([rng.integers(count) for count in theta.graph.labels])
        observed = [np.ones(count, bool) for count in theta.graph.labels]
        observed[1] = np.arange(len(observed[1])) == labels[1]
        observed[4] = np.arange(len(observed[4])) >= min(labels[4], len(observed[4]) - 2)
        setting = {"loss": "clique_logistic", "inference": spec, "observed": observed}
        truncated, found = (
            bf.value_and_gradient(theta, labels, gradient=strategy, **setting)[1].vector()
            for strategy in ("truncated", gradient)
        )
        np.testing.assert_allclose(found, truncated, rtol=0, atol=1e-5 * np.abs(truncated).max())


@pytest.mark.parametrize("loss", ["univariate_logistic", "surrogate_likelihood"])
def test_hessian_vector(loss):
    for name in ("grid", "mixed"):
        rng = np.random.default_rng(5)
        theta = random_potentials(GRAPHS[name], rng, 0.5)
        labels = np.array([rng.integers(count) for count in theta.graph.labels])
        observed = np.full_like(labels, -1)
        observed[[1, 3]] = labels[[1, 3]]
        direction = rng.normal(size=len(theta.vector()))
        setting = {"loss": loss, "inference": "tree_reweighted(n_iter=3)", "observed": observed}
        found = bf.hessian_vector(theta, labels, theta.like(direction), **setting).vector()

        def gradient(t, theta=theta, labels=labels, direction=direction, setting=setting):
            moved = theta.like(theta.vector() + t * direction)
            return bf.value_and_gradient(moved, labels, gradient="truncated", **setting)[1].vector()

        np.testing.assert_allclose(found, along(gradient, 1e-4), rtol=0, atol=1e-7)
