"""What every inference method must do, whoever wrote it: the public contracts, and more for those of the package."""

import re
import sys
import warnings

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from numba.core.registry import CPUDispatcher

import backfield as bf
from backfield import Graph
from backfield.inference.base import ExactInference
from backfield.inference.message_passing.families import MessagePassing
from backfield.registry import get, lookup, names
from backfield.testing import inference as contracts
from backfield.testing.contract import adapted, keep
from backfield.testing.inference import clamped, converging, vector
from backfield.testing.inference import require_exact as assert_exact
from backfield.testing.inference import require_probabilities as assert_normalised
from backfield.testing.models import forbid
from tests.contracts import strategies
from tests.models import enumerate_model, random_graph, random_paths, random_potentials, random_tree

NAMES = names("inference")
#: Methods that refuse most graphs, and graphs that they take.
ONLY = {"chain": random_paths}

pytestmark = pytest.mark.filterwarnings("ignore::backfield.ConvergenceWarning")
each_method = pytest.mark.parametrize("name", NAMES)
each_exact_on_trees = pytest.mark.parametrize(
    "name", [name for name in NAMES if issubclass(lookup("inference", name), ExactInference | MessagePassing)]
)


@pytest.mark.parametrize("contract", contracts.CONTRACTS, ids=lambda contract: contract.__name__)
@each_method
def test_contract(name, contract):
    keep(contract, get("inference", name))


def is_a(name, kind):
    return issubclass(lookup("inference", name), kind)


def sampled(name):
    return contracts.sampled(get("inference", name))


def method_for(name, **wanted):
    """The method with its own defaults, and what is wanted of them where it has such a parameter."""
    return adapted(get("inference", name), **wanted)


def model(name, seed, scale=1.0, tree=False, **kwargs):
    rng = np.random.default_rng(seed)
    draw = ONLY.get(name, random_tree if tree else random_graph)
    return random_potentials(draw(rng, **kwargs), rng, scale)


@each_method
def test_spec_round_trip_with_lists(name):
    method = get("inference", name)
    other = {"n_iter": 7, "tol": 1e-4, "damping": 0.25, "rho": [0.5, 0.25], "order": [1, 0], "seed": 5, "memory": 100}
    changed = adapted(method, **other)
    assert get("inference", repr(changed)) == changed
    assert get("inference", lookup("inference", name)) == method


@each_exact_on_trees
def test_exact_on_trees(name):
    for seed in range(60):
        theta = model(name, seed, np.random.default_rng(seed).choice([0.1, 1, 10]), tree=True)
        assert_exact(bf.infer(theta, method_for(name, n_iter=2)), theta)


@each_exact_on_trees
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_huge_potentials_on_trees(name, dtype):
    for seed in range(12):
        theta = model(name, seed, 1.0, tree=True).astype(dtype)
        values = theta.vector()
        values[np.random.default_rng(seed).random(len(values)) < 0.3] *= 1e4
        run = bf.infer(theta.like(values), method_for(name, n_iter=2), dtype=dtype)
        assert_exact(run, theta.like(values), 1e-9 if dtype == "float64" else 2e-3)


@each_exact_on_trees
@pytest.mark.parametrize("scale", [1.0, 1e4])
def test_forbidden_labels_on_trees(name, scale):
    done = 0
    for seed in range(40):
        theta = forbid(model(name, seed, scale, tree=True), np.random.default_rng(seed), 0.12)
        if theta is not None:
            run = bf.infer(theta, method_for(name, n_iter=2))
            assert_exact(run, theta, 1e-9)
            assert (run.marginals.vector()[theta.vector() == -np.inf] == 0).all()
            done += 1
    assert done >= 10


@pytest.mark.parametrize("name", [name for name in NAMES if lookup("inference", name).factorised])
def test_a_forbidden_start_says_so(name):
    """Only the uniform start of a factorised method can be impossible where the model is not."""
    said = []
    for seed in range(60):
        theta = forbid(model(name, seed), np.random.default_rng(seed), 0.3)
        if theta is not None:
            try:
                bf.infer(theta, name)
            except bf.InputError as error:
                said.append(str(error))
    assert said
    assert all("uniform start forbids every label" in message for message in said)


@each_exact_on_trees
def test_observed_on_trees(name):
    for seed in range(25):
        rng = np.random.default_rng(seed)
        theta = model(name, seed, tree=not is_a(name, ExactInference))
        labels = np.where(rng.random(theta.graph.n_variables) < 0.4, rng.integers(theta.graph.labels), -1)
        assert_exact(bf.infer(theta, method_for(name, n_iter=2), observed=labels), clamped(theta, labels))


@each_method
def test_observing_nothing_on_a_grid_changes_nothing(name):
    theta = random_potentials(Graph.grid(1, 5) if name in ONLY else Graph.grid(3, 4), np.random.default_rng(0))
    method = method_for(name, n_iter=3, n_samples=20)
    free = np.full(theta.graph.n_variables, -1)
    for observed in (free, np.ones(theta.unary.shape, dtype=bool)):
        np.testing.assert_array_equal(vector(bf.infer(theta, method, observed)), vector(bf.infer(theta, method)))


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
def test_observing_part_of_a_grid(name):
    """What is left is no grid: settings that ask for its kernels or its order mean the usual ones then."""
    if name in ONLY:
        pytest.skip(f"{name} takes no grids")
    theta = random_potentials(Graph.grid(3, 3), np.random.default_rng(0))
    observed = np.array([-1, 1, -1, 0, -1, -1, 1, -1, -1])
    run = bf.infer(theta, converging(get("inference", name), damping=0.0, schedule="lattice", family="lattice"), observed)
    plain = bf.infer(theta, converging(get("inference", name), damping=0.0), observed)
    np.testing.assert_allclose(vector(run), vector(plain), rtol=0, atol=0 if sampled(name) else 1e-9)


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


@pytest.mark.parametrize("name", [name for name in NAMES if name not in ONLY])
@settings(max_examples=25, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(theta=strategies.potentials())
def test_any_graph(name, theta):
    log_z, mu = enumerate_model(theta)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", bf.ConvergenceWarning)
        run = bf.infer(theta, method_for(name, n_iter=10, n_samples=10, burn_in=5))
    assert_normalised(run)
    if is_a(name, ExactInference):
        assert_exact(run, theta)
    if run.bound == "lower":
        assert run.log_partition <= log_z + 1e-9 * max(1, abs(log_z))


@pytest.mark.parametrize(
    "name", [name for name in NAMES if is_a(name, ExactInference | MessagePassing) and name not in ONLY]
)
@settings(max_examples=40, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(theta=strategies.potentials(of=strategies.trees(), forbidden=True))
def test_any_tree_with_forbidden_configurations(name, theta):
    run = bf.infer(theta, method_for(name, n_iter=2))
    log_z, mu = enumerate_model(theta)
    assert abs(run.log_partition - log_z) <= 1e-10 * max(1, abs(log_z))
    np.testing.assert_allclose(run.marginals.vector(), mu.vector(), rtol=0, atol=1e-10)
