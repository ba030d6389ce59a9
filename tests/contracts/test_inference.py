"""What every inference method must do, whoever wrote it: run over the registry."""

import contextlib
import dataclasses
import re
import sys
import warnings

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from numba.core.registry import CPUDispatcher

import backfield as bf
from backfield import Graph
from backfield.graph.conditioning import check_possible
from backfield.inference.base import ExactInference, IterativeInference
from backfield.inference.message_passing.families import MessagePassing
from backfield.registry import get, lookup, names
from tests.contracts import strategies
from tests.inference.test_exact import random_paths
from tests.models import enumerate_model, random_graph, random_potentials, random_tree

NAMES = names("inference")
BOUNDS = ("exact", "lower", "upper", "bethe", "none")
#: Methods that refuse most graphs, and graphs that they take.
ONLY = {"chain": random_paths}

pytestmark = pytest.mark.filterwarnings("ignore::backfield.ConvergenceWarning")
each_method = pytest.mark.parametrize("name", NAMES)


def fields(name):
    return {field.name for field in dataclasses.fields(lookup("inference", name))}


def is_a(name, kind):
    return issubclass(lookup("inference", name), kind)


def sampled(name):
    return not is_a(name, (ExactInference, IterativeInference))


def exact_on_trees(name):
    return is_a(name, (ExactInference, MessagePassing))


def method_for(name, **wanted):
    """The method with its own defaults, and what is wanted of them where it has such a parameter."""
    return get("inference", name).replace(**{key: value for key, value in wanted.items() if key in fields(name)})


def converging(name, **wanted):
    return method_for(name, **{"n_iter": 5000, "tol": 1e-11, "damping": 0.2, "n_samples": 500, **wanted})


def model(name, seed, scale=1.0, tree=False, **kwargs):
    rng = np.random.default_rng(seed)
    draw = ONLY.get(name, random_tree if tree else random_graph)
    return random_potentials(draw(rng, **kwargs), rng, scale)


def vector(run):
    return np.append(run.marginals.vector(), run.log_partition)


def assert_normalised(run, tolerance=1e-12):
    mu = run.marginals
    assert np.isfinite(mu.vector()).all() and np.isfinite(run.log_partition)
    assert mu.vector().min() >= 0
    sums = [np.sum(table) for table in [*mu.unary, *mu.factors]]
    np.testing.assert_allclose(sums, 1, rtol=0, atol=tolerance)


def assert_exact(run, theta, tolerance=1e-10):
    log_z, mu = enumerate_model(theta)
    assert abs(run.log_partition - log_z) <= tolerance * max(1, abs(log_z))
    np.testing.assert_allclose(run.marginals.vector(), mu.vector(), rtol=0, atol=tolerance)


@each_method
def test_result(name):
    theta = model(name, 3)
    method = method_for(name)
    run = bf.infer(theta, method)
    assert isinstance(run.log_partition, float) and isinstance(run.residual, float) and isinstance(run.n_iter, int)
    assert isinstance(run.converged, bool) and run.bound in BOUNDS
    assert run.marginals.graph is theta.graph and run.marginals.dtype == np.float64
    for got, given_ in ((run.unary, theta.unary), (run.factors, theta.factors)):
        assert [np.shape(table) for table in got] == [np.shape(table) for table in given_]
    assert bf.infer(theta, method, dtype="float32").marginals.dtype == np.float32
    if is_a(name, ExactInference):
        assert run.converged and run.bound == "exact"
    if sampled(name):
        assert run.log_partition_error >= 0
        np.testing.assert_array_equal(vector(bf.infer(theta, method)), vector(run))  # seeded


@each_method
def test_iterations_are_counted(name):
    if not is_a(name, IterativeInference):
        pytest.skip(f"{name} does not iterate")
    theta = model(name, 5)
    for n_iter in (0, 1, 4):
        run = bf.infer(theta, method_for(name, n_iter=n_iter))
        assert run.n_iter == n_iter
        assert_normalised(run)
    run = bf.infer(theta, converging(name))
    assert run.converged and len(run.residuals) == run.n_iter < 5000
    assert run.residual == run.residuals[-1] < 1e-11 <= min(run.residuals[:-1])
    with pytest.warns(bf.ConvergenceWarning, match=name):
        run = bf.infer(theta, method_for(name, n_iter=1, tol=1e-14))
    assert not run.converged and run.n_iter == 1


@each_method
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_normalised(name, dtype):
    tolerance = 1e-12 if dtype == "float64" else 2e-6
    for seed in range(20):
        for n_iter in (0, 3):
            method = method_for(name, n_iter=n_iter, n_samples=20)
            assert_normalised(bf.infer(model(name, seed, 3.0), method, dtype=dtype), tolerance)


@each_method
def test_exact_on_trees(name):
    if not exact_on_trees(name):
        pytest.skip(f"{name} is not exact on trees")
    for seed in range(60):
        theta = model(name, seed, np.random.default_rng(seed).choice([0.1, 1, 10]), tree=True)
        run = bf.infer(theta, method_for(name, n_iter=2))
        assert_exact(run, theta)


@each_method
def test_declared_bound(name):
    converged = 0
    for seed in range(40):
        theta = model(name, seed, 1.0)
        log_z, mu = enumerate_model(theta)
        run = bf.infer(theta, converging(name, tol=1e-9, n_samples=100))
        converged += run.converged
        slack = 1e-9 * max(1, abs(log_z))
        if run.bound == "exact":
            assert abs(run.log_partition - log_z) <= slack
            np.testing.assert_allclose(run.marginals.vector(), mu.vector(), rtol=0, atol=1e-10)
        elif run.bound == "lower":
            assert run.log_partition <= log_z + slack
        elif run.bound == "upper" and run.converged:
            assert run.log_partition >= log_z - 1e-7 - 6 * run.log_partition_error  # sampled: in expectation
    assert converged >= (0 if sampled(name) else 38)


@each_method
def test_shift_invariance(name):
    for seed in range(10):
        rng = np.random.default_rng(seed)
        theta = model(name, seed)
        run = bf.infer(theta, method_for(name, n_iter=3))
        tables = [table.copy() for table in [*theta.unary, *theta.factors]]
        constant = rng.normal() * 10
        tables[rng.integers(len(tables))] += constant
        n = theta.graph.n_variables
        shifted = bf.infer(bf.Potentials(theta.graph, tables[:n], tables[n:]), method_for(name, n_iter=3))
        tolerance = 0.02 if sampled(name) else 1e-11
        np.testing.assert_allclose(shifted.marginals.vector(), run.marginals.vector(), rtol=0, atol=tolerance)
        error = 10 * run.log_partition_error if sampled(name) else 1e-10
        assert abs(shifted.log_partition - run.log_partition - constant) <= error + 1e-10


def relabelled_variables(theta, rng):
    """The same model under other names and orientations, and where each number of the old one went."""
    graph = theta.graph
    name = rng.permutation(graph.n_variables)
    unary = [None] * graph.n_variables
    for i, table in enumerate(theta.unary):
        unary[name[i]] = table
    turns = [rng.permutation(len(scope)) for scope in graph.factors]
    scopes = [tuple(name[np.asarray(s)[turn]]) for s, turn in zip(graph.factors, turns, strict=True)]
    factors = [table.transpose(turn) for table, turn in zip(theta.factors, turns, strict=True)]
    new = bf.Potentials(Graph([len(table) for table in unary], scopes), unary, factors)

    def back(mu):
        tables = [mu.factors[c].transpose(np.argsort(turn)).ravel() for c, turn in enumerate(turns)]
        return np.concatenate([*[mu.unary[name[i]] for i in range(len(name))], *tables])

    return new, back


def relabelled_labels(theta, rng):
    graph = theta.graph
    turns = [rng.permutation(count) for count in graph.labels]
    unary = [table[turn] for table, turn in zip(theta.unary, turns, strict=True)]
    factors = [table[np.ix_(*[turns[i] for i in s])] for s, table in zip(graph.factors, theta.factors, strict=True)]

    def back(mu):
        inverse = [np.argsort(turn) for turn in turns]
        first = [table[turn] for table, turn in zip(mu.unary, inverse, strict=True)]
        second = [
            table[np.ix_(*[inverse[i] for i in s])].ravel() for s, table in zip(graph.factors, mu.factors, strict=True)
        ]
        return np.concatenate([*first, *second])

    return bf.Potentials(graph, unary, factors), back


@each_method
@pytest.mark.parametrize("relabelled", [relabelled_variables, relabelled_labels])
def test_permutation_equivariance(name, relabelled):
    # Weak potentials: one fixed point, so that the order of updates cannot matter at convergence.
    tolerance = 0.2 if sampled(name) else 1e-8
    for seed in range(8):
        theta = model(name, seed, 0.4)
        new, back = relabelled(theta, np.random.default_rng(100 + seed))
        run, other = bf.infer(theta, converging(name)), bf.infer(new, converging(name))
        np.testing.assert_allclose(back(other.marginals), run.marginals.vector(), rtol=0, atol=tolerance)
        error = 6 * (run.log_partition_error + other.log_partition_error) + 1e-8
        assert abs(run.log_partition - other.log_partition) <= error


@each_method
def test_labels_are_all_alike(name):
    """Not only at convergence: permuted labels permute the marginals of every iteration."""
    if sampled(name):
        pytest.skip(f"{name} draws other samples")
    theta = model(name, 11, 2.0)
    new, back = relabelled_labels(theta, np.random.default_rng(0))
    run, other = (bf.infer(part, method_for(name, n_iter=3)) for part in (theta, new))
    np.testing.assert_allclose(back(other.marginals), run.marginals.vector(), rtol=0, atol=1e-12)


@each_method
def test_batch_equals_loop(name):
    thetas = [model(name, seed, 1.0, n_max=4) for seed in range(6)]
    method = method_for(name, n_iter=3)
    runs = [bf.infer(theta, method) for theta in thetas]
    together = bf.infer(bf.batch(thetas), method)
    unary = np.concatenate([run.marginals.unary_flat for run in runs])
    factors = np.concatenate([run.marginals.factors_flat for run in runs])
    tolerance = 0.1 if sampled(name) else 1e-12
    np.testing.assert_allclose(together.marginals.vector(), np.append(unary, factors), rtol=0, atol=tolerance)
    error = 10 * sum(run.log_partition_error for run in [*runs, together]) + 1e-10
    assert abs(together.log_partition - sum(run.log_partition for run in runs)) <= error


def forbid(theta, rng, share):
    """Forbid some entries; None where that leaves nothing."""
    values = theta.vector()
    values[rng.random(len(values)) < share] = -np.inf
    new = theta.like(values)
    try:
        check_possible(new)
        log_z, _ = enumerate_possible(new)
    except bf.InputError:
        return None
    return new if np.isfinite(log_z) else None


def enumerate_possible(theta):
    with np.errstate(invalid="ignore"):
        return enumerate_model(theta)


@each_method
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("tree", [True, False])
def test_huge_potentials(name, dtype, tree):
    for seed in range(12):
        theta = model(name, seed, 1.0, tree=tree).astype(dtype)
        values = theta.vector()
        values[np.random.default_rng(seed).random(len(values)) < 0.3] *= 1e4
        theta = theta.like(values)
        run = bf.infer(theta, method_for(name, n_iter=2 if tree else 20, n_samples=20), dtype=dtype)
        assert_normalised(run, 1e-12 if dtype == "float64" else 2e-6)
        if is_a(name, ExactInference) or (tree and exact_on_trees(name)):
            assert_exact(run, theta, 1e-9 if dtype == "float64" else 2e-3)


def infer_unless_start_is_forbidden(theta, method):
    """Only the uniform start of a factorised method can be impossible where the model is not."""
    if not method.factorised:
        return bf.infer(theta, method)
    with contextlib.suppress(bf.InputError):
        return bf.infer(theta, method)
    with pytest.raises(bf.InputError, match="uniform start forbids every label"):
        bf.infer(theta, method)
    return None


@each_method
@pytest.mark.parametrize("tree", [True, False])
@pytest.mark.parametrize("scale", [1.0, 1e4])
def test_forbidden_configurations(name, tree, scale):
    done = refused = 0
    for seed in range(40):
        theta = forbid(model(name, seed, scale, tree=tree), np.random.default_rng(seed), 0.12)
        if theta is None:
            continue
        run = infer_unless_start_is_forbidden(theta, method_for(name, n_iter=2 if tree else 20, n_samples=20))
        if run is None:
            refused += 1
            continue
        assert_normalised(run)
        done += 1
        if exact_on_trees(name) and (tree or is_a(name, ExactInference)):
            assert_exact(run, theta, 1e-9)
            assert (run.marginals.vector()[theta.vector() == -np.inf] == 0).all()
    assert done >= 10 and refused <= done


@each_method
def test_inputs_are_left_alone(name):
    theta = model(name, 7, 2.0)
    before = theta.unary_flat.tobytes(), theta.factors_flat.tobytes()
    observed = np.full(theta.graph.n_variables, -1)
    observed[0] = 0
    kept = observed.copy()
    for dtype in ("float64", "float32"):
        bf.infer(theta, method_for(name, n_samples=20), dtype=dtype)
        bf.infer(theta, method_for(name, n_samples=20), observed=observed, dtype=dtype)
    assert before == (theta.unary_flat.tobytes(), theta.factors_flat.tobytes())
    np.testing.assert_array_equal(observed, kept)


@each_method
def test_spec_round_trip(name):
    method = get("inference", name)
    assert repr(method) == name and get("inference", repr(method)) == method
    cls = lookup("inference", name)
    other = {"n_iter": 7, "tol": 1e-4, "damping": 0.25, "rho": [0.5, 0.25], "order": [1, 0], "seed": 5, "memory": 100}
    changed = method.replace(**{key: value for key, value in other.items() if key in fields(name)})
    assert get("inference", repr(changed)) == changed
    assert get("inference", cls) == method and hash(repr(changed)) == hash(repr(get("inference", repr(changed))))


def restricted_enumeration(theta, labels):
    """Enumerate with all other labels of observed variables forbidden."""
    tables = [np.array(table) for table in theta.unary]
    for i, label in enumerate(labels):
        if label >= 0:
            tables[i] = np.where(np.arange(len(tables[i])) == label, tables[i], -np.inf)
    return enumerate_possible(bf.Potentials(theta.graph, tables, theta.factors))


@each_method
def test_observed(name):
    for seed in range(25):
        rng = np.random.default_rng(seed)
        theta = model(name, seed, 1.0, tree=exact_on_trees(name) and not is_a(name, ExactInference))
        graph = theta.graph
        labels = np.where(rng.random(graph.n_variables) < 0.4, rng.integers(graph.labels), -1)
        run = bf.infer(theta, method_for(name, n_iter=2, n_samples=100), observed=labels)
        assert_normalised(run)
        for i in np.flatnonzero(labels >= 0):
            np.testing.assert_allclose(run.unary[i], np.arange(graph.labels[i]) == labels[i], rtol=0, atol=1e-15)
        if exact_on_trees(name):
            log_z, mu = restricted_enumeration(theta, labels)
            assert abs(run.log_partition - log_z) < 1e-10
            np.testing.assert_allclose(run.marginals.vector(), mu.vector(), rtol=0, atol=1e-10)


@each_method
def test_observing_nothing_changes_nothing(name):
    theta = random_potentials(Graph.grid(1, 5), np.random.default_rng(0))
    if name not in ONLY:
        theta = random_potentials(Graph.grid(3, 4), np.random.default_rng(0))
    method = method_for(name, n_iter=3, n_samples=20)
    free = np.full(theta.graph.n_variables, -1)
    for observed in (free, np.ones(theta.unary.shape, dtype=bool)):
        np.testing.assert_array_equal(vector(bf.infer(theta, method, observed)), vector(bf.infer(theta, method)))


@each_method
def test_observing_part_of_a_grid(name):
    """What is left is no grid: settings that ask for its kernels or its order mean the usual ones then."""
    if name in ONLY:
        pytest.skip(f"{name} takes no grids")
    theta = random_potentials(Graph.grid(3, 3), np.random.default_rng(0))
    observed = np.array([-1, 1, -1, 0, -1, -1, 1, -1, -1])
    run = bf.infer(theta, converging(name, damping=0.0, schedule="lattice", family="lattice"), observed)
    plain = bf.infer(theta, converging(name, damping=0.0), observed)
    np.testing.assert_allclose(vector(run), vector(plain), rtol=0, atol=0 if sampled(name) else 1e-9)


@each_method
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_observing_everything(name, dtype):
    theta = model(name, 2)
    labels = np.random.default_rng(0).integers(theta.graph.labels)
    run = bf.infer(theta, method_for(name), observed=labels, dtype=dtype)
    assert run.marginals.dtype == dtype
    assert run.log_partition == pytest.approx(theta.score(labels), abs=1e-12 if dtype == "float64" else 1e-5)
    assert theta.dot(run.marginals) == pytest.approx(theta.score(labels))


@each_method
def test_float32_is_close(name):
    worst = 0.0
    for seed in range(15):
        theta = model(name, seed, 1.0)
        method = method_for(name, n_iter=5)
        run, low = bf.infer(theta, method), bf.infer(theta, method, dtype="float32")
        worst = max(worst, np.abs(run.marginals.vector() - low.marginals.vector()).max())
        error = 10 * run.log_partition_error + 1e-5 * max(1, abs(run.log_partition))
        assert abs(run.log_partition - low.log_partition) <= error
    assert worst < (0.1 if sampled(name) else 2e-6)


def kernels():
    """All compiled functions of the package, by name."""
    found = {}
    for module_name, module in list(sys.modules.items()):
        if module_name.startswith("backfield"):
            for key, value in vars(module).items():
                if isinstance(value, CPUDispatcher):
                    found[f"{module_name}.{key}"] = value
    return found


def same_kinds(rng):
    """Pairs of models that differ in size and in how they were made, not in kind."""
    edges = np.array([(0, 1), (1, 2), (2, 0), (3, 1)])

    def of(*graphs):
        return [random_potentials(graph, rng) for graph in graphs]

    def frozen(theta):
        tables = theta.unary.copy(), theta.factors.copy()
        for table in tables:
            table.flags.writeable = False
        return bf.Potentials(theta.graph, *tables)

    binary = of(
        Graph.from_edges(edges),
        Graph([2] * 5, [tuple(edge) for edge in edges]),
        Graph.from_edges(edges.astype(np.int32)),
    )
    binary += [bf.batch(binary[:2]), frozen(binary[0]), *of(Graph.from_edges(edges[:, ::-1]))]
    paths = [*of(Graph.chain(5), Graph([2, 2, 2, 2], [(3, 1), (1, 0)])), *of(Graph.from_edges([(0, 1)], 3))]
    mixed = of(
        Graph([2, 3, 2], [(0, 1), (0, 1, 2)]),
        Graph([3, 1, 2, 2], [(3, 2), (2, 0, 1), (0, 1, 2, 3)]),
    )
    mixed.append(bf.batch(mixed))
    grids = [*of(Graph.grid(3, 4), Graph.grid(5, 2)), frozen(*of(Graph.grid(4, 4)))]
    return {"binary": binary, "paths": paths, "mixed": mixed, "grids": grids}


def form(signature):
    """A signature without what must not make a difference: who may write, strides, integers given for numbers."""
    text = ", ".join("number" if str(arg) in ("int64", "float64") else str(arg) for arg in signature)
    return re.sub(r", [AF]\)", ", C)", text.replace("readonly ", ""))


@each_method
def test_one_compiled_signature(name):
    whole = {"damping": 0, "rho": 1, "eps": 1}  # integers where numbers are meant
    for kind, models in same_kinds(np.random.default_rng(0)).items():
        if name in ONLY and kind != "paths":
            continue
        for dtype in ("float64", "float32"):
            for theta in models:
                bf.infer(theta, method_for(name, n_iter=2, n_samples=2, burn_in=2), dtype=dtype)
                bf.infer(theta, method_for(name, n_iter=2, n_samples=2, burn_in=2, **whole), dtype=dtype)
    for key, function in kernels().items():
        if key.startswith("backfield.inference"):
            forms = [form(signature) for signature in function.signatures]
            twice = {text for text in forms if forms.count(text) > 1}
            assert not twice, f"{key} is compiled more than once for {twice}: {function.signatures}"


@each_method
def test_smallest_graphs(name):
    for graph in (Graph([1]), Graph([4]), Graph([2, 3, 1]), Graph.grid(1, 1), Graph.chain(1, 3), Graph.chain(2, 1)):
        theta = random_potentials(graph, np.random.default_rng(0))
        run = bf.infer(theta, method_for(name, n_iter=2))
        assert_normalised(run)
        assert len(run.unary) == graph.n_variables and len(run.factors) == graph.n_factors
        if not sampled(name) and name != "smoothed_lp":
            assert_exact(run, theta)


@each_method
@settings(max_examples=25, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(theta=strategies.potentials())
def test_any_graph(name, theta):
    if name in ONLY:
        return
    log_z, mu = enumerate_model(theta)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", bf.ConvergenceWarning)
        run = bf.infer(theta, method_for(name, n_iter=10, n_samples=10, burn_in=5))
    assert_normalised(run)
    if is_a(name, ExactInference):
        assert_exact(run, theta)
    if run.bound == "lower":
        assert run.log_partition <= log_z + 1e-9 * max(1, abs(log_z))


@pytest.mark.parametrize("name", [name for name in NAMES if exact_on_trees(name) and name not in ONLY])
@settings(max_examples=40, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(theta=strategies.potentials(of=strategies.trees(), forbidden=True))
def test_any_tree_with_forbidden_configurations(name, theta):
    run = bf.infer(theta, method_for(name, n_iter=2))
    log_z, mu = enumerate_possible(theta)
    assert abs(run.log_partition - log_z) <= 1e-10 * max(1, abs(log_z))
    np.testing.assert_allclose(run.marginals.vector(), mu.vector(), rtol=0, atol=1e-10)
