"""brute_force, exact and chain against plain enumeration, difference quotients, and the UAI 2014 models."""

import json
import math
import os
from pathlib import Path

import numpy as np
import pytest

import backfield as bf
from backfield import Graph, InputError, Potentials
from backfield.graph import batch
from backfield.inference import BruteForce, Chain, Exact
from backfield.inference.exact.elimination import HOPELESS, Adjacency, eliminate, in_order
from backfield.inference.exact.order_kernels import FILL, GIVEN, SIZE, WEIGHTED_FILL, greedy, neighbours
from backfield.inference.exact.tied_chains import tied_chains
from tests.models import enumerate_model, random_graph, random_paths, random_potentials

METHODS = [BruteForce(), Exact(), Chain()]
NAMES = [method.name for method in METHODS]
DATA = Path(os.environ.get("BACKFIELD_DATA", Path(__file__).parents[3] / "shared" / "data")) / "uai2014"
#: A part of the 25, of all families; the others take longer (all pass).
UAI_MODELS = [
    *("Alchemy_11", "DBN_11", "Grids_11", "Pedigree_12", "Pedigree_13"),
    *("Promedus_13", "Promedus_16", "Promedus_29", "Segmentation_15"),
]


def graph_for(method, rng):
    if not isinstance(method, Chain):
        return random_graph(rng, arity_max=4)
    if rng.random() < 0.5:
        return random_paths(rng)
    return Graph.chain(int(rng.integers(1, 7)), int(rng.integers(1, 5)))


def with_forbidden(theta, rng, share):
    values = theta.vector()
    values[rng.random(len(values)) < share] = -np.inf
    return theta.like(values)


def assert_equal(method, theta, tolerance=1e-10):
    log_z, mu = enumerate_model(theta)
    run = method.infer(theta)
    assert run.bound == "exact" and run.converged
    assert abs(run.log_partition - log_z) <= tolerance * max(1, abs(log_z))
    np.testing.assert_allclose(run.marginals.vector(), mu.vector(), rtol=0, atol=tolerance)


def possible(theta):
    states = np.ndindex(*theta.graph.labels)
    return any(theta.score(np.array(state)) > -np.inf for state in states)


@pytest.mark.parametrize("method", METHODS, ids=NAMES)
def test_equals_enumeration(method):
    for seed in range(200):
        rng = np.random.default_rng(seed)
        assert_equal(method, random_potentials(graph_for(method, rng), rng, scale=rng.choice([0.1, 1, 10])))


@pytest.mark.parametrize("method", METHODS, ids=NAMES)
@pytest.mark.parametrize("scale", [1, 100])
def test_forbidden_configurations(method, scale):
    impossible = 0
    for seed in range(100):
        rng = np.random.default_rng(seed)
        theta = with_forbidden(random_potentials(graph_for(method, rng), rng, scale), rng, 0.15)
        if possible(theta):
            assert_equal(method, theta)
        else:
            impossible += 1
            with pytest.raises(InputError, match="no configuration is possible"):
                method.infer(theta)
    assert impossible > 0


@pytest.mark.parametrize("method", METHODS, ids=NAMES)
def test_huge_potentials(method):
    for seed in range(50):
        rng = np.random.default_rng(seed)
        assert_equal(method, random_potentials(graph_for(method, rng), rng, scale=1e4))
    # All that matters is small beside what cancels.
    signs = rng.choice([-1, 1], size=(7, 1, 1))
    tables = 1e4 * signs * np.array([[1, -1], [-1, 1]])
    assert_equal(method, Potentials(Graph.chain(8), rng.normal(size=(8, 2)), tables))


def derivative(function, theta, direction, step=1e-5):
    values, move = theta.vector(), step * direction.vector()
    return (function(theta.like(values + move)) - function(theta.like(values - move))) / (2 * step)


@pytest.mark.parametrize("method", METHODS, ids=NAMES)
def test_vjp(method):
    for seed in range(30):
        rng = np.random.default_rng(seed)
        theta = random_potentials(graph_for(method, rng), rng)
        u, v = random_potentials(theta.graph, rng), random_potentials(theta.graph, rng)
        found = method.vjp(theta, u)
        expected = derivative(lambda at: method.marginals(at)[1].vector(), theta, u)
        np.testing.assert_allclose(found.vector(), expected, rtol=0, atol=1e-6)
        assert abs(found.dot(v) - method.vjp(theta, v).dot(u)) < 1e-11
        only_unary = Potentials.from_flat(theta.graph, u.unary_flat, np.empty(0))
        padded = Potentials.from_flat(theta.graph, u.unary_flat, 0 * u.factors_flat)
        np.testing.assert_array_equal(method.vjp(theta, only_unary).vector(), method.vjp(theta, padded).vector())


@pytest.mark.parametrize("method", METHODS, ids=NAMES)
def test_vjp_with_forbidden_and_huge(method):
    for seed in range(60):
        rng = np.random.default_rng(seed)
        theta = with_forbidden(random_potentials(graph_for(method, rng), rng, rng.choice([1, 300])), rng, 0.1)
        if not possible(theta):
            continue
        u = random_potentials(theta.graph, rng)
        found = method.vjp(theta, u).vector()
        assert (found[theta.vector() == -np.inf] == 0).all()
        np.testing.assert_allclose(found, BruteForce().vjp(theta, u).vector(), rtol=0, atol=1e-10)
        # A direction that is infinite where nothing can move changes nothing.
        wild = u.like(np.where(theta.vector() == -np.inf, np.inf, u.vector()))
        np.testing.assert_array_equal(method.vjp(theta, wild).vector(), found)


@pytest.mark.parametrize("method", METHODS, ids=NAMES)
@pytest.mark.parametrize("forbidden", [0.0, 0.05])
def test_complex_step(method, forbidden):
    for seed in range(15):
        rng = np.random.default_rng(seed)
        theta = with_forbidden(random_potentials(graph_for(method, rng), rng), rng, forbidden)
        if not possible(theta):
            continue
        u, v = random_potentials(theta.graph, rng), random_potentials(theta.graph, rng)
        shifted = theta.like(theta.vector() + 1e-20j * v.vector())
        second = method.vjp(shifted, u).vector().imag / 1e-20
        expected = derivative(lambda at: method.vjp(at, u).vector(), theta, v)
        np.testing.assert_allclose(second, expected, rtol=0, atol=1e-6)
        log_z, mu = method.marginals(shifted)
        assert mu.dtype == np.complex128
        assert abs(log_z.imag / 1e-20 - method.marginals(theta)[1].dot(v)) < 1e-10
        np.testing.assert_allclose(mu.vector().imag / 1e-20, method.vjp(theta, v).vector(), rtol=0, atol=1e-10)


@pytest.mark.parametrize("method", METHODS, ids=NAMES)
def test_float32(method):
    rng = np.random.default_rng(0)
    theta = random_potentials(Graph.chain(6, 3), rng).astype("float32")
    mu = method.infer(theta).marginals
    assert mu.dtype == np.float32 and method.vjp(theta, mu).dtype == np.float32
    np.testing.assert_allclose(mu.vector(), enumerate_model(theta)[1].vector(), atol=1e-6)


@pytest.mark.parametrize("method", METHODS, ids=NAMES)
def test_inputs_are_left_alone(method):
    rng = np.random.default_rng(0)
    for scale in (1, 1e3):
        theta = random_potentials(Graph.chain(5, 3), rng, scale)
        d_mu = random_potentials(theta.graph, rng)
        before = theta.vector(), d_mu.vector()
        method.infer(theta)
        method.vjp(theta, d_mu)
        np.testing.assert_array_equal(theta.vector(), before[0])
        np.testing.assert_array_equal(d_mu.vector(), before[1])


@pytest.mark.parametrize("method", METHODS, ids=NAMES)
def test_permutation_of_variables(method):
    for seed in range(20):
        rng = np.random.default_rng(seed)
        theta = random_potentials(graph_for(method, rng), rng)
        n = theta.graph.n_variables
        new = rng.permutation(n)  # variable i becomes new[i]
        old = np.argsort(new)
        graph = Graph(theta.graph.labels[old], [tuple(new[list(scope)]) for scope in theta.graph.factors])
        moved = Potentials(graph, [theta.unary[i] for i in old], list(theta.factors))
        run, other = method.infer(theta), method.infer(moved)
        assert abs(run.log_partition - other.log_partition) < 1e-12
        np.testing.assert_allclose(run.marginals.factors_flat, other.marginals.factors_flat, rtol=0, atol=1e-12)
        for i in range(n):
            np.testing.assert_allclose(run.unary[i], other.unary[new[i]], rtol=0, atol=1e-12)


@pytest.mark.parametrize("method", METHODS, ids=NAMES)
def test_observed(method):
    for seed in range(40):
        rng = np.random.default_rng(seed)
        theta = random_potentials(graph_for(method, rng), rng)
        observed = np.array([rng.integers(-1, count) for count in theta.graph.labels])
        unary = [np.copy(row) for row in theta.unary]
        for i in np.flatnonzero(observed >= 0):
            unary[i][np.arange(len(unary[i])) != observed[i]] = -np.inf
        log_z, mu = enumerate_model(Potentials(theta.graph, unary, list(theta.factors)))
        run = bf.infer(theta, method, observed=observed)
        assert abs(run.log_partition - log_z) < 1e-10
        np.testing.assert_allclose(run.marginals.vector(), mu.vector(), rtol=0, atol=1e-10)


@pytest.mark.parametrize("method", METHODS, ids=NAMES)
def test_only_one_configuration(method):
    theta = Potentials(Graph([1, 1, 1], [(0, 1), (1, 2)]), [[1.0], [2.0], [3.0]], [[[4.0]], [[5.0]]])
    run = method.infer(theta)
    assert run.log_partition == 15
    assert (run.marginals.vector() == 1).all()
    assert (method.vjp(theta, theta).vector() == 0).all()
    with pytest.raises(InputError, match="no configuration"):
        method.infer(theta.like(np.array([0, 0, 0, 0, -np.inf])))


@pytest.mark.parametrize("method", METHODS, ids=NAMES)
def test_spec(method):
    run = bf.infer(random_potentials(Graph.chain(4), np.random.default_rng(0)), method.name)
    assert run.bound == "exact" and run.converged and repr(method) == method.name


def test_contradiction_of_three():
    differ = np.array([[-np.inf, 0], [0, -np.inf]])
    theta = Potentials(Graph([2, 2, 2], [(0, 1), (1, 2), (2, 0)]), np.zeros((3, 2)), [differ] * 3)
    for method in (BruteForce(), Exact()):
        with pytest.raises(InputError, match="no configuration is possible"):
            bf.infer(theta, method)


# -- brute_force


def test_too_many_states():
    theta = random_potentials(Graph.chain(40), np.random.default_rng(0))
    with pytest.raises(InputError, match=f"{2**40:,} labelings"):
        BruteForce().infer(theta)
    with pytest.raises(InputError, match="max_states must be"):
        BruteForce(max_states=0)


def test_sums_over_many_states_keep_their_digits():
    theta = random_potentials(Graph.grid(4, 5), np.random.default_rng(0))
    run, other = BruteForce().infer(theta), Exact().infer(theta)
    assert abs(run.log_partition - other.log_partition) < 1e-13
    np.testing.assert_allclose(run.marginals.vector(), other.marginals.vector(), rtol=0, atol=1e-14)


# -- exact


def test_budget():
    rng = np.random.default_rng(0)
    theta = random_potentials(Graph.grid(30, 30), rng)
    with pytest.raises(InputError, match=rf"a table of {2**31:,} entries \({2**34:,} bytes\) over 31 variables"):
        Exact().infer(theta)
    with pytest.raises(InputError, match="a table of at least"):
        Exact().infer(random_potentials(Graph.grid(60, 60), rng))
    small = random_potentials(Graph.grid(4, 5), rng)
    with pytest.raises(InputError, match=r"in all, but memory=1,000 bytes"):
        Exact(memory=1000).infer(small)
    with pytest.raises(InputError, match="memory must be"):
        Exact(memory=0.5)


def test_blocks_give_the_same_numbers():
    rng = np.random.default_rng(1)
    for graph in (Graph.grid(4, 12), random_graph(rng, 40, 3, 3, 50), Graph.chain(50, 4)):
        theta, d_mu = random_potentials(graph, rng), random_potentials(graph, rng)
        run, d_theta = Exact().infer(theta), Exact().vjp(theta, d_mu)
        blocks = set()
        for memory in np.geomspace(2e2, 1e6, 40).astype(int).tolist():
            try:
                again = Exact(memory=memory).infer(theta)
            except InputError:
                continue
            program = graph.compiled(("junction_tree", memory // 8), lambda: None)
            assert 8 * program.size <= memory
            blocks.add(len(program.block_ptr) - 1)
            assert again.log_partition == run.log_partition
            np.testing.assert_array_equal(again.marginals.vector(), run.marginals.vector())
            np.testing.assert_array_equal(Exact(memory=2 * memory).vjp(theta, d_mu).vector(), d_theta.vector())
        assert 1 in blocks and max(blocks) > 1


def test_agrees_with_chain_on_long_chains():
    rng = np.random.default_rng(0)
    theta = random_potentials(random_paths(rng, n_max=400, labels_max=5), rng, 3)
    d_mu = random_potentials(theta.graph, rng)
    run, other = Exact().infer(theta), Chain().infer(theta)
    assert abs(run.log_partition - other.log_partition) < 1e-9
    np.testing.assert_allclose(run.marginals.vector(), other.marginals.vector(), rtol=0, atol=1e-12)
    found = Exact().vjp(theta, d_mu).vector()
    np.testing.assert_allclose(found, Chain().vjp(theta, d_mu).vector(), rtol=0, atol=1e-11)


@pytest.mark.parametrize("rule", [FILL, SIZE, WEIGHTED_FILL])
def test_greedy_orders_take_the_least(rule):
    for seed in range(20):
        rng = np.random.default_rng(seed)
        labels = rng.integers(2, 5, size=15).tolist()
        scopes = [rng.choice(15, size=rng.integers(2, 4), replace=False).tolist() for _ in range(20)]
        near = [{u for scope in scopes if v in scope for u in scope} - {v} for v in range(15)]
        order = Adjacency.of(labels, scopes).greedy(np.zeros(15, dtype=np.int64), rule, HOPELESS)
        sizes = []
        for v, around in zip(order.order, order.separators, strict=True):
            keys = {u: _key(rule, labels, near, u) for u in near_left(near)}
            assert keys[v] == min(keys.values()) and around == sorted(near[v])
            sizes.append(math.prod(labels[w] for w in (v, *near[v])))
            for u in near[v]:
                near[u] = (near[u] | near[v]) - {u, v}
            near[v] = None
        assert (order.entries, order.largest) == (sum(sizes), max(sizes))
        again = in_order(labels, scopes, order.order.tolist())
        assert again.separators == order.separators and again.entries == order.entries


def _key(rule, labels, near, v):
    size = math.prod(labels[w] for w in (v, *near[v]))
    missing = [(a, b) for a in near[v] for b in near[v] if a < b and b not in near[a]]
    fill = sum(labels[a] * labels[b] for a, b in missing) if rule == WEIGHTED_FILL else len(missing)
    return (size, fill, v) if rule == SIZE else (fill, size, v)


def near_left(near):
    return [v for v, around in enumerate(near) if around is not None]


def test_orders_of_lattices_are_about_as_wide_as_the_shorter_side():
    graph = Graph.grid(16, 18)  # min-fill alone: 2^25
    order = eliminate(graph.labels.tolist(), graph.factors.tolist())
    assert order.largest <= 2**18 < HOPELESS
    assert sorted(order.order) == list(range(16 * 18))


# -- chain


@pytest.mark.parametrize(
    ("graph", "what"),
    [
        (Graph([2] * 4, [(0, 1), (0, 2), (0, 3)]), "variable 0 has 3 neighbours"),
        (Graph([2] * 5, [(0, 1), (2, 3), (3, 4), (4, 2)]), "variable 2 lies on a cycle"),
        (Graph([2] * 3, [(0, 1, 2)]), "factor 0 has 3 variables"),
        (Graph([2] * 4, [(0, 1), (1, 2, 3)]), "factor 1 has 3 variables"),
    ],
)
def test_chain_refuses_other_graphs(graph, what):
    with pytest.raises(InputError, match=f"{what}; use 'exact' or 'loopy_bp'"):
        Chain().infer(random_potentials(graph, np.random.default_rng(0)))


def test_batch_of_chains_is_a_loop():
    rng = np.random.default_rng(0)
    parts = [random_potentials(Graph.chain(int(n), 5), rng, scale) for n, scale in [(1, 1), (4, 200), (7, 1), (2, 5)]]
    runs = [Chain().infer(part) for part in parts]
    whole = Chain().infer(batch(parts))
    assert abs(whole.log_partition - sum(run.log_partition for run in runs)) < 1e-9
    np.testing.assert_allclose(whole.unary, np.concatenate([run.unary for run in runs]), rtol=0, atol=1e-12)
    np.testing.assert_allclose(whole.factors, np.concatenate([run.factors for run in runs]), rtol=0, atol=1e-12)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("scale", [1, 15, 500])
def test_tied_chains(dtype, scale):
    rng = np.random.default_rng(0)
    lengths, n_labels = [3, 1, 8, 5] * 20, 4
    table = (scale * rng.normal(size=(n_labels, n_labels))).astype(dtype)
    if scale == 500:
        table[1, 2] = -np.inf
    unary = [(scale * rng.normal(size=(n, n_labels))).astype(dtype) for n in lengths]
    log_z, mu, pairs = tied_chains(np.concatenate(unary), np.cumsum([0, *lengths]), table)
    assert mu.dtype == pairs.dtype == dtype
    runs = [
        Exact().infer(Potentials(Graph.chain(n, n_labels), one, [table] * (n - 1)).astype("float64"))
        for n, one in zip(lengths, unary, strict=True)
    ]
    tolerance = 1e-11 if dtype == "float64" else 1e-4
    np.testing.assert_allclose(log_z, [run.log_partition for run in runs], rtol=tolerance, atol=tolerance)
    np.testing.assert_allclose(mu, np.concatenate([run.unary for run in runs]), atol=tolerance)
    total = sum(run.factors.sum(axis=0) for run in runs)
    np.testing.assert_allclose(pairs, total, rtol=0, atol=100 * tolerance)


def test_tied_chains_refuse_wrong_shapes():
    with pytest.raises(InputError, match="unary"):
        tied_chains(np.zeros((3, 2)), np.array([0, 3]), np.zeros((3, 3)))
    with pytest.raises(InputError, match="ptr"):
        tied_chains(np.zeros((3, 2)), np.array([0, 2]), np.zeros((2, 2)))


# -- known answers


@pytest.mark.parametrize("name", UAI_MODELS)
def test_uai_models(name):
    uai = pytest.importorskip("backfield.data.formats.uai", exc_type=ImportError)
    if not (DATA / "index.json").exists():
        pytest.skip(f"no UAI models in {DATA}; set BACKFIELD_DATA to the folder that holds uai2014")
    known = {row["name"]: row for row in json.loads((DATA / "index.json").read_text())}[name]
    theta = uai.read_uai(DATA / f"{name}.uai")
    observed = uai.read_evidence(DATA / f"{name}.uai.evid", theta.graph.n_variables)
    run = bf.infer(theta, "exact", observed=observed)
    assert run.log_partition / math.log(10) == pytest.approx(known["log10Z_exact_recomputed"], rel=1e-9)
    for found, expected in zip(run.unary, uai.read_mar(DATA / f"{name}.uai.MAR"), strict=True):
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize("rule", [FILL, SIZE, WEIGHTED_FILL, GIVEN])
def test_orders_are_the_same_interpreted_and_compiled(rule):
    rng = np.random.default_rng(rule)
    for n in (1, 6, 25):
        scopes = [rng.choice(n, size=min(n, 3), replace=False) for _ in range(n)]
        ptr, scope = np.cumsum([0, *map(len, scopes)]), np.concatenate(scopes)
        rows = [run(n, ptr, scope) for run in (neighbours.function, neighbours.kernel)]
        args = (
            rng.integers(2, 5, n).astype(float),
            *rows[0],
            rng.integers(0, 2, n),
            rng.permutation(n),
            np.ones(n),
            rule,
            1e9,
        )
        for a, b in zip(*rows, strict=True):
            assert (a == b).all()
        for a, b in zip(greedy.function(*args), greedy.kernel(*args), strict=True):
            assert np.array_equal(a, b)


def test_neighbours_are_sorted_sets():
    rng = np.random.default_rng(0)
    for n in (1, 5, 40):
        scopes = [[], *(rng.choice(n, size=rng.integers(0, min(n, 4) + 1), replace=False) for _ in range(n)), [n - 1]]
        ptr, near = neighbours.kernel(n, np.cumsum([0, *map(len, scopes)]), np.concatenate(scopes).astype(np.int64))
        for v in range(n):
            wanted = {int(u) for scope in scopes if v in scope for u in scope} - {v}
            assert near[ptr[v] : ptr[v + 1]].tolist() == sorted(wanted)


def test_huge_tables_are_given_up_without_a_warning():
    labels, leaves = [4] * 600, [(0, k) for k in range(1, 600)]
    assert isinstance(Adjacency.of(labels, leaves).in_order(range(600), HOPELESS), int)
