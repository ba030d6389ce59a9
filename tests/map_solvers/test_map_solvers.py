import itertools

import numpy as np
import pytest

import backfield as bf
from backfield import Graph, InputError, Potentials, Tied
from backfield.graph.graph import union
from backfield.map_solvers import BruteForce, Icm, MaxProduct, Viterbi
from backfield.map_solvers._order import message_order, order_of
from backfield.map_solvers.auto import solve
from backfield.map_solvers.icm import icm
from backfield.map_solvers.viterbi import _chain_links, _solve_forest, fix_each
from tests.models import random_graph, random_potentials, random_tree

INF = np.inf
EXACT = ["brute_force", "viterbi", "max_product"]


def enumerate_best(theta):
    """Return the largest value of all labelings."""
    states = itertools.product(*[range(count) for count in theta.graph.labels])
    return max(theta.score(np.array(state)) for state in states)


def forbid(theta, rng, share):
    """Forbid some entries, so that one labeling stays possible."""
    keep = rng.integers(0, theta.graph.labels)
    values = np.where(rng.random(len(theta.vector())) < share, -INF, theta.vector())
    trial = theta.like(values)
    layout = theta.graph.layout
    unary = layout.var_ptr[:-1] + keep
    trial.unary_flat[unary] = theta.unary_flat[unary]
    for c, scope in enumerate(theta.graph.factors):
        entry = layout.table_ptr[c] + sum(layout.stride[layout.scope_ptr[c] + a] * keep[i] for a, i in enumerate(scope))
        trial.factors_flat[entry] = theta.factors_flat[entry]
    return trial


def random_forest(rng):
    """Two trees side by side, an isolated variable among them."""
    a, b = random_tree(rng, n_max=4), random_tree(rng, n_max=4)
    shift = a.n_variables + 1
    factors = [tuple(scope) for scope in a.factors] + [tuple(np.array(scope) + shift) for scope in b.factors]
    return Graph([*a.labels, 2, *b.labels], factors)


def check(theta, result, value):
    assert result.value == theta.score(result.labels)
    assert result.value == pytest.approx(value, rel=1e-12, abs=1e-12)
    assert result.labels.dtype == np.int64 and result.labels.shape == (theta.graph.n_variables,)


@pytest.mark.parametrize("seed", range(100))
def test_exact_solvers_agree_on_trees_and_forests(seed):
    rng = np.random.default_rng(seed)
    graph = random_tree(rng) if seed % 3 else random_forest(rng)
    theta = random_potentials(graph, rng, scale=[1.0, 1e4][seed % 2])
    if seed % 4 >= 2:
        theta = forbid(theta, rng, 0.4)
    value = enumerate_best(theta)
    assert value > -INF
    for solver in EXACT:
        result = bf.find_map(theta, solver)
        check(theta, result, value)
        assert result.optimal


@pytest.mark.parametrize("seed", range(30))
def test_any_graph(seed):
    rng = np.random.default_rng(seed)
    theta = random_potentials(random_graph(rng), rng)
    if seed % 2:
        theta = forbid(theta, rng, 0.3)
    value = enumerate_best(theta)
    check(theta, BruteForce().solve(theta), value)
    for solver in (MaxProduct(), MaxProduct(damping=0.5), MaxProduct(schedule="flooding"), Icm(), Icm(n_restarts=5)):
        result = solver.solve(theta)
        assert result.value == theta.score(result.labels)
        assert result.value <= value + 1e-9
        assert result.optimal == (isinstance(solver, MaxProduct) and order_of(theta.graph).acyclic)


def test_max_product_is_mostly_right_with_cycles():
    right = 0
    for seed in range(40):
        rng = np.random.default_rng(seed)
        theta = random_potentials(Graph.grid(3, 3, 3), rng)
        right += MaxProduct().solve(theta).value == pytest.approx(BruteForce().solve(theta).value)
    assert right >= 32


def test_max_product_settles_on_grids_with_agreement():
    rng = np.random.default_rng(0)
    graph = Graph.grid(12, 15, 2)
    theta = Potentials(graph, rng.normal(size=(180, 2)), np.tile(0.5 * np.eye(2), (graph.n_factors, 1, 1)))
    result = MaxProduct().solve(theta)
    assert 1 < result.n_iter <= 100
    assert result.value >= Icm().solve(theta).value


@pytest.mark.parametrize("n_labels", [1, 2, 5, 26])
def test_chain_kernel_equals_forest_kernel(n_labels):
    rng = np.random.default_rng(n_labels)
    theta = bf.batch([random_potentials(Graph.chain(n, n_labels), rng) for n in (1, 4, 2, 7, 1)])
    theta = forbid(theta, rng, 0.2)
    assert _chain_links(theta.graph) is not None
    labels = np.empty(theta.graph.n_variables, dtype=np.int64)
    assert _solve_forest(theta, labels) == -1
    assert np.array_equal(Viterbi().solve(theta).labels, labels)


def test_chain_kernel_is_for_consecutive_chains_only():
    assert _chain_links(Graph.from_edges([(1, 0), (1, 2)])) is None
    assert _chain_links(Graph.from_edges([(0, 1), (0, 1)])) is None
    assert _chain_links(Graph.from_edges([(0, 1), (0, 2)])) is None
    assert _chain_links(Graph([2, 3], [(0, 1)])) is None
    assert np.array_equal(_chain_links(Graph.from_edges([(3, 4), (0, 1)], 6)), [1, -1, -1, 0, -1, -1])
    assert _chain_links(Graph.grid(1, 5)) is not None and _chain_links(Graph.grid(5, 1)) is not None


def test_ties_go_to_the_lowest_labels():
    for graph in (Graph.chain(5, 3), Graph([3, 2, 3, 2], [(0, 1, 2), (2, 3)]), Graph.grid(3, 3, 2), Graph([2, 2])):
        zero = Potentials.from_flat(
            graph, np.zeros(int(graph.layout.var_ptr[-1])), np.zeros(int(graph.layout.table_ptr[-1]))
        )
        for solver in ("brute_force", "max_product", "icm"):
            assert not bf.find_map(zero, solver).labels.any()
    # Either all zero or all one: the choices must fit together.
    agree = Potentials(Graph.chain(6), np.zeros((6, 2)), np.tile(np.eye(2), (5, 1, 1)))
    assert np.array_equal(Viterbi().solve(agree).labels, np.zeros(6))
    grid = Graph.grid(4, 4)
    agree = Potentials(grid, np.zeros((16, 2)), np.tile([[0, -INF], [-INF, 0]], (grid.n_factors, 1, 1)))
    assert MaxProduct().solve(agree).value == 0


def test_orders():
    rng = np.random.default_rng(0)
    for _ in range(50):
        graph = random_graph(rng)
        order = order_of(graph)
        assert sorted(order.variables) == list(range(graph.n_variables))
        assert sorted(message_order(graph)) == list(range(graph.n_slots))
        assert sorted(graph.layout.slot_factor[order.up]) == list(range(graph.n_factors))
    assert all(order_of(random_tree(rng)).acyclic for _ in range(20))
    assert not order_of(Graph.from_edges([(0, 1), (1, 0)])).acyclic
    assert not order_of(Graph([2, 2, 2], [(0, 1, 2), (2, 0)])).acyclic
    assert order_of(Graph.grid(1, 4)).acyclic and not order_of(Graph.grid(2, 2)).acyclic


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("solver", [*EXACT, "icm"])
def test_dtype(solver, dtype):
    theta = random_potentials(Graph.chain(4, 3), np.random.default_rng(0)).astype(dtype)
    before = theta.vector()
    result = bf.find_map(theta, solver, dtype=dtype)
    assert isinstance(result.value, float) and result.value == theta.score(result.labels)
    assert np.array_equal(theta.vector(), before)


@pytest.mark.parametrize("seed", range(30))
def test_icm_never_falls_below_its_start(seed):
    rng = np.random.default_rng(seed)
    theta = random_potentials(random_graph(rng), rng, scale=[1.0, 1e4][seed % 2])
    if seed % 3 == 0:
        theta = forbid(theta, rng, 0.2)
    start = rng.integers(0, theta.graph.labels)
    kept = start.copy()
    result = icm(theta, start)
    assert np.array_equal(start, kept)
    slack = 1e-12 * np.abs(theta.vector()[theta.vector() > -INF]).sum()
    assert result.value >= theta.score(start) - slack
    again = icm(theta, result.labels)
    assert np.array_equal(again.labels, result.labels) and again.n_iter == 1
    for i in range(theta.graph.n_variables):  # no single change is better
        for x in range(theta.graph.labels[i]):
            other = result.labels.copy()
            other[i] = x
            assert theta.score(other) <= result.value + slack


def test_icm_repairs_an_impossible_start():
    rng = np.random.default_rng(0)
    graph = Graph.grid(10, 10, 5)
    factors = rng.normal(size=(graph.n_factors, 5, 5))
    factors[:, np.arange(5), np.arange(5)] = -INF  # five colours: four neighbours always leave one
    theta = Potentials(graph, rng.normal(size=(100, 5)), factors)
    assert theta.score(np.zeros(100, dtype=int)) == -INF
    assert Icm(init="zero").solve(theta).value > -INF
    assert Icm().solve(theta).value > -INF


def test_icm_settings():
    theta = random_potentials(Graph.grid(6, 6, 3), np.random.default_rng(1))
    assert Icm(n_iter=0).solve(theta).value == theta.score(np.argmax(theta.unary, axis=1))
    assert Icm(n_iter=0, init="zero").solve(theta).value == theta.score(np.zeros(36, dtype=int))
    many, same = Icm(n_restarts=20).solve(theta), Icm(n_restarts=20).solve(theta)
    assert many.value >= Icm().solve(theta).value
    assert np.array_equal(many.labels, same.labels)
    with pytest.raises(InputError, match=r"start\[1\] is 3"):
        icm(theta, np.arange(36) * 3)
    with pytest.raises(InputError, match=r"start must be \(36,\) integers"):
        icm(theta, np.zeros(36))


@pytest.mark.parametrize("solver", EXACT)
def test_exact_solvers_refuse_impossible_models(solver):
    graph = Graph(labels=[2, 2, 2], factors=[(0, 1), (1, 2)])
    theta = Potentials(graph, np.zeros((3, 2)), [[[0, -INF], [0, -INF]], [[-INF, -INF], [0, 0]]])
    with pytest.raises(InputError, match="no configuration is possible"):
        bf.find_map(theta, solver)
    with pytest.raises(InputError, match="no configuration is possible"):
        bf.find_map(Potentials(Graph([2, 3, 2], [(0, 1), (1, 2)]), *_ragged_contradiction()), solver)


def _ragged_contradiction():
    unary = [np.zeros(2), np.zeros(3), np.zeros(2)]
    first = np.array([[0, -INF, -INF], [0, -INF, -INF]])
    second = np.array([[-INF, -INF], [0, 0], [0, 0]])
    return unary, [first, second]


def test_a_cycle_of_contradictions_is_seen_by_messages():
    cycle = Graph.from_edges([(0, 1), (1, 2), (2, 0)])
    factors = np.zeros((3, 2, 2))
    factors[0] = [[-INF, 0], [-INF, 0]]  # x_1 = 1
    factors[1] = [[0, 0], [-INF, 0]]  # then x_2 = 1
    factors[2] = [[0, 0], [-INF, -INF]]  # which is forbidden
    with pytest.raises(InputError, match="no configuration is possible"):
        MaxProduct().solve(Potentials(cycle, np.zeros((3, 2)), factors))


def test_refusals():
    grid = random_potentials(Graph.grid(5, 6), np.random.default_rng(0))
    with pytest.raises(InputError, match=r"viterbi needs a graph without cycles, and factor \d+ closes one; use"):
        Viterbi().solve(grid)
    with pytest.raises(InputError, match=f"enumerate {2**30} labelings and max_states is {2**22}"):
        BruteForce().solve(grid)
    with pytest.raises(InputError, match=r"about 10\^30"):
        BruteForce().solve(random_potentials(Graph.chain(100), np.random.default_rng(0)))
    assert BruteForce(max_states=4).solve(random_potentials(Graph.chain(2), np.random.default_rng(0))).optimal


@pytest.mark.parametrize(
    "spec",
    [
        "brute_force(max_states=0)",
        "max_product(n_iter=-1)",
        "max_product(tol=0)",
        "max_product(damping=1)",
        "max_product(schedule='lattice')",
        "icm(init='random')",
        "icm(n_restarts=-1)",
    ],
)
def test_bad_settings_are_refused(spec):
    with pytest.raises(InputError, match="must be"):
        bf.find_map(random_potentials(Graph.chain(2), np.random.default_rng(0)), spec)


@pytest.mark.parametrize("shared", [False, True])
def test_one_label_fixed_at_a_time(shared):
    """fix_each finds what solving the chain with that label alone allowed does."""
    rng = np.random.default_rng(0)
    graph = union([Graph.chain(n, 3) for n in (4, 1, 6, 2)])
    unary, table = rng.normal(size=(13, 3)), rng.normal(size=(3, 3))
    theta = Potentials(graph, unary, groups=[Tied(table)])
    theta = theta if shared else theta.written_out()
    best = Viterbi().solve(theta).labels
    variables, labels = np.repeat(np.arange(13), 3), np.tile(np.arange(3), 13)
    changes = fix_each(theta, best, variables, labels)
    for t, (v, label) in enumerate(zip(variables, labels, strict=True)):
        forced = unary.copy()
        forced[v, np.arange(3) != label] = -np.inf
        wanted = Viterbi().solve(theta.with_unary(forced.ravel())).labels
        found = best.copy()
        part = slice(changes.ptr[t], changes.ptr[t + 1])
        found[changes.where[part]] = changes.new[part]
        np.testing.assert_array_equal(found, wanted)
    assert fix_each(Potentials(Graph.grid(2, 2), np.zeros((4, 2)), np.zeros((4, 2, 2))), best, variables, labels) is None


def test_auto_is_exact_on_tiny_models():
    rng = np.random.default_rng(0)
    graph = bf.Graph.from_edges(list(itertools.combinations(range(6), 2)), n_variables=6, labels=3)
    theta = bf.Potentials(graph, rng.normal(size=(6, 3)), 3 * rng.normal(size=(15, 3, 3)))
    found = solve(theta)
    assert found.optimal
    np.testing.assert_array_equal(found.labels, bf.find_map(theta, "brute_force").labels)
