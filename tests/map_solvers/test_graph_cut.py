import itertools

import numpy as np
import pytest
from scipy.sparse import csr_array
from scipy.sparse.csgraph import maximum_flow

import backfield as bf
from backfield import Graph, InputError, Potentials
from backfield.map_solvers import CutProblem, GraphCut

INF = np.inf


def some_graph(rng, n_max=8, side_max=3):
    """A small grid, or any edges: parallel, either way round, isolated variables, several components."""
    if rng.random() < 0.4:
        return Graph.grid(*rng.integers(1, side_max + 1, size=2))
    n = int(rng.integers(1, n_max + 1))
    count = int(rng.integers(0, 2 * n + 1)) if n > 1 else 0
    return Graph.from_edges(np.array([rng.choice(n, 2, replace=False) for _ in range(count)]).reshape(-1, 2), n)


def coupling(factors):
    return factors[:, 0, 0] + factors[:, 1, 1] - factors[:, 0, 1] - factors[:, 1, 0]


def submodular(graph, rng, scale=1.0):
    """Normal potentials, with label pairs that agree raised until every coupling is submodular."""
    factors = scale * rng.normal(size=(graph.n_factors, 2, 2))
    factors[:, 1, 1] += np.maximum(-coupling(factors), 0) * 1.5
    return Potentials(graph, scale * rng.normal(size=(graph.n_variables, 2)), factors)


def forbid(theta, rng, share=0.2):
    """Forbid disagreeing label pairs and some labels."""
    unary, factors = theta.unary.copy(), theta.factors.copy()
    for table in (factors[:, 0, 1], factors[:, 1, 0], unary[:, 0]):
        table[rng.random(len(table)) < share] = -INF
    for pair in ([0, 0], [1, 0]):  # a whole row or column
        chosen = rng.random(len(factors)) < share / 4
        factors[chosen, 0, 1] = -INF
        factors[chosen, pair[0], pair[1]] = -INF
    return Potentials(theta.graph, unary, factors)


def scores(theta):
    states = np.array(list(itertools.product(range(2), repeat=theta.graph.n_variables)))
    return states, np.array([theta.score(state) for state in states])


def scipy_value(theta, scale):
    """The best value by scipy's maximum flow on integer capacities; tables are split another way than in the solver."""
    n = theta.graph.n_variables
    unary, factors = np.rint(-scale * theta.unary).astype(int), np.rint(-scale * theta.factors).astype(int)
    constant = unary[:, 0].sum() + factors[:, 0, 0].sum()
    linear = unary[:, 1] - unary[:, 0]
    caps = np.zeros((n + 2, n + 2), dtype=np.int32)
    for (i, j), e in zip(theta.graph.factors if theta.graph.n_factors else [], factors, strict=True):
        linear[i] += e[1, 0] - e[0, 0]
        linear[j] += e[1, 1] - e[1, 0]
        caps[j, i] += e[0, 1] + e[1, 0] - e[0, 0] - e[1, 1]
    caps[n, :n], caps[:n, n + 1] = np.maximum(-linear, 0), np.maximum(linear, 0)
    cut = constant + np.minimum(linear, 0).sum() + maximum_flow(csr_array(caps), n, n + 1).flow_value
    return -cut / scale


def test_equals_scipy_on_500_random_graphs_and_lattices():
    rng = np.random.default_rng(0)
    for _ in range(500):
        graph = some_graph(rng, n_max=30, side_max=7)
        scale = 2.0 ** int(rng.integers(0, 12))
        theta = submodular(graph, rng, scale=3)
        theta = theta.like(np.rint(theta.vector() * scale) / scale)
        theta.factors[:, 0, 0] += np.maximum(-coupling(theta.factors), 0)
        run = GraphCut().solve(theta)
        assert run.value == pytest.approx(scipy_value(theta, scale), abs=1e-9)
        assert run.optimal and run.n_truncated == 0


@pytest.mark.parametrize("case", ["plain", "large", "forbidden", "float32"])
def test_equals_enumeration(case):
    rng = np.random.default_rng(1)
    for _ in range(60):
        theta = submodular(some_graph(rng), rng, scale=1e4 if case == "large" else 1.0)
        theta = forbid(theta, rng) if case == "forbidden" else theta
        theta = theta.astype(np.float32) if case == "float32" else theta
        before = theta.vector().copy()
        best = scores(theta)[1].max()
        if best == -INF:
            with pytest.raises(InputError, match="no labels are possible"):
                GraphCut().solve(theta)
            continue
        run = GraphCut().solve(theta)
        assert run.value == theta.score(run.labels)
        assert run.value == pytest.approx(best, rel=1e-5 if case == "float32" else 1e-11)
        assert run.labels.dtype == np.int64 and run.optimal
        np.testing.assert_array_equal(theta.vector(), before)


def test_grid_and_general_graph_agree():
    rng = np.random.default_rng(2)
    for rows, columns in [(1, 1), (1, 9), (9, 1), (2, 2), (17, 23)]:
        grid = Graph.grid(rows, columns)
        theta = submodular(grid, rng)
        same = Graph.from_edges(grid.factors, grid.n_variables) if grid.n_factors else Graph([2])
        again = GraphCut().solve(Potentials(same, theta.unary, theta.factors))
        run = GraphCut().solve(theta)
        np.testing.assert_array_equal(run.labels, again.labels)
        assert run.value == again.value


def test_find_map_and_spec():
    theta = submodular(Graph.grid(3, 3), np.random.default_rng(3))
    assert bf.find_map(theta, "graph_cut").value == bf.find_map(theta, "graph_cut(truncate=True)").value
    assert repr(GraphCut(truncate=True)) == "graph_cut(truncate=True)"


def test_ties_take_label_0():
    assert not GraphCut().solve(Potentials(Graph.grid(3, 4), np.zeros((12, 2)), np.zeros((17, 2, 2)))).labels.any()
    assert not GraphCut().solve(Potentials(Graph([2, 2]), np.zeros((2, 2)))).labels.any()


def test_parallel_factors_are_judged_by_their_sum():
    rng = np.random.default_rng(4)
    for _ in range(50):
        factors = rng.normal(size=(4, 2, 2))
        factors[3, 0, 0] += 0.1 - coupling(factors[[0, 1]]).sum() - coupling(factors[[2]] + factors[[3]]).sum()
        theta = Potentials(Graph.from_edges([[0, 1], [1, 0], [0, 1], [1, 0]], 3), rng.normal(size=(3, 2)), factors)
        assert GraphCut().solve(theta).value == pytest.approx(scores(theta)[1].max())
        one_way = theta.factors.copy()
        one_way[0, 0, 1] = -INF
        theta = Potentials(theta.graph, theta.unary, one_way)
        assert GraphCut().solve(theta).value == pytest.approx(scores(theta)[1].max())


def test_dynamic_equals_fresh_on_10_000_sequences_of_changes():
    rng = np.random.default_rng(5)
    for _ in range(200):
        theta = submodular(some_graph(rng, n_max=12, side_max=4), rng)
        n = theta.graph.n_variables
        problem = CutProblem(theta)
        unary, labels = theta.unary.copy(), problem.solve().labels
        for _ in range(50):
            for _ in range(int(rng.integers(1, 4))):
                index = rng.integers(0, n, size=rng.integers(1, n + 1))
                delta = rng.normal(size=len(index)) * rng.choice([0.1, 1, 10])
                problem.add_unary(index, delta)
                np.add.at(unary[:, 1], index, delta)
            changed = problem.resolve()
            fresh = GraphCut().solve(Potentials(theta.graph, unary, theta.factors))
            assert problem.value == pytest.approx(fresh.value, abs=1e-9)
            np.testing.assert_array_equal(problem.labels, fresh.labels)
            np.testing.assert_array_equal(changed, np.flatnonzero(labels != fresh.labels))
            labels = fresh.labels


def test_dynamic_cuts_of_an_image():
    rng = np.random.default_rng(6)
    theta = submodular(Graph.grid(40, 50), rng)
    problem = CutProblem(theta)
    problem.solve()
    for k in range(60):  # a few variables: trees are repaired; many: new trees on the old flow
        unary = theta.unary + rng.gumbel(size=theta.unary.shape) * (rng.random(2000) < [0.01, 0.1, 1][k % 3])[:, None]
        problem.set_unary(unary)
        problem.resolve()
        fresh = GraphCut().solve(Potentials(theta.graph, unary, theta.factors))
        np.testing.assert_array_equal(problem.labels, fresh.labels)


def test_dynamic_cuts_with_forbidden_labels():
    rng = np.random.default_rng(7)
    for _ in range(40):
        theta = forbid(submodular(some_graph(rng, n_max=6), rng), rng, 0.1)
        if scores(theta)[1].max() == -INF:
            continue
        problem = CutProblem(theta)
        problem.solve()
        unary = theta.unary.copy()
        for step in range(12):
            if step % 3 == 2:
                unary = np.where(unary == -INF, -INF, rng.normal(size=unary.shape))
                unary[0] = [-INF, 0] if rng.random() < 0.3 else unary[0]
                problem.set_unary(unary)
            else:  # grows beyond the number that stood for infinity at first
                index, delta = rng.integers(0, len(unary)), rng.normal() * 10.0**step
                problem.add_unary(index, delta)
                unary[index, 1] += delta
            now = Potentials(theta.graph, unary, theta.factors)
            best = scores(now)[1].max()
            if best == -INF:
                with pytest.raises(InputError, match="no labels are possible"):
                    problem.resolve()
                break
            problem.resolve()
            assert problem.value == pytest.approx(best, rel=1e-9, abs=1e-9)


def test_solve_many():
    rng = np.random.default_rng(8)
    for _ in range(30):
        theta = submodular(some_graph(rng, n_max=12, side_max=4), rng)
        n = theta.graph.n_variables
        problem = CutProblem(theta)
        index, deltas = rng.integers(0, n, size=20), rng.normal(size=20) * 3
        base = problem.solve().labels
        expected = []
        for i, delta in zip(index, deltas, strict=True):
            unary = theta.unary.copy()
            unary[i, 1] += delta
            expected.append(GraphCut().solve(Potentials(theta.graph, unary, theta.factors)).labels)
        expected = np.array(expected)
        np.testing.assert_array_equal(problem.solve_many(index, deltas), expected[np.arange(20), index])
        np.testing.assert_array_equal(problem.solve_many(index, deltas, returns="labels"), expected)
        np.testing.assert_array_equal(problem.solve_many(index, deltas, returns="count"), (expected != base).sum(axis=1))
        changes = problem.solve_many(index, deltas, returns="changed")
        for k in range(20):
            own = changes.where[changes.ptr[k] : changes.ptr[k + 1]]
            np.testing.assert_array_equal(np.sort(own), np.flatnonzero(expected[k] != base))
        np.testing.assert_array_equal(problem.labels, base)
        assert len(problem.resolve()) == 0 and problem.value == GraphCut().solve(theta).value


def test_solve_many_fixes_variables_with_inf():
    rng = np.random.default_rng(9)
    theta = submodular(Graph.grid(3, 3), rng)
    states, value = scores(theta)
    problem = CutProblem(theta)
    for label in range(2):
        labels = problem.solve_many(np.arange(9), [-INF, INF][label], returns="labels")
        for i in range(9):
            assert labels[i, i] == label
            assert theta.score(labels[i]) == pytest.approx(value[states[:, i] == label].max())


def test_fixed_variables_equal_fresh_cuts():
    """Weak couplings, where neighbours tell, and strong ones, where flow has to move; finite changes between them."""
    rng = np.random.default_rng(17)
    for _ in range(200):
        some = submodular(some_graph(rng, n_max=12, side_max=4), rng)
        theta = Potentials(some.graph, some.unary, 10 ** rng.uniform(-2, 1) * some.factors)
        n = theta.graph.n_variables
        index, deltas = rng.integers(0, n, size=12), rng.choice([INF, -INF, 1.0], size=12)
        expected = []
        for i, delta in zip(index, deltas, strict=True):
            unary = theta.unary.copy()
            unary[i] += (-INF, 0.0) if delta == INF else (0.0, delta)
            expected.append(GraphCut().solve(Potentials(theta.graph, unary, theta.factors)).labels)
        problem = CutProblem(theta)
        np.testing.assert_array_equal(problem.solve_many(index, deltas, returns="labels"), expected)
        fixed = np.isinf(deltas)
        for afresh in (True, False, True):  # the problem stays as it is
            changes = problem.fix_each(index[fixed], (deltas[fixed] > 0).astype(np.int64), afresh)
            labels = np.tile(problem.labels, (int(fixed.sum()), 1))
            labels[np.repeat(np.arange(len(labels)), np.diff(changes.ptr)), changes.where] ^= 1
            np.testing.assert_array_equal(labels, np.array(expected)[fixed].reshape(labels.shape))
            np.testing.assert_array_equal(changes.labels, deltas[fixed] > 0)


def test_many_changes_outgrow_the_first_buffer():
    n = 50
    theta = Potentials(Graph.chain(n), np.zeros((n, 2)), np.tile(np.eye(2), (n - 1, 1, 1)))
    problem = CutProblem(theta)
    count = problem.solve_many(np.arange(n), 3.0, returns="count")
    np.testing.assert_array_equal(count, n)
    assert problem.solve_many([], []).shape == (0,)


@pytest.mark.parametrize("forbidden", [False, True])
def test_min_marginals_equal_enumeration(forbidden):
    rng = np.random.default_rng(10)
    for _ in range(40):
        theta = submodular(some_graph(rng, n_max=7), rng)
        theta = forbid(theta, rng, 0.1) if forbidden else theta
        states, value = scores(theta)
        if value.max() == -INF:
            continue
        expected = [[value[states[:, i] == label].max() for label in range(2)] for i in range(states.shape[1])]
        problem = CutProblem(theta)
        np.testing.assert_allclose(problem.min_marginals(), expected, atol=1e-9)
        np.testing.assert_allclose(problem.min_marginals([0, 0]), [expected[0]] * 2, atol=1e-9)
        assert len(problem.resolve()) == 0


def test_stamps_start_again_before_they_overflow():
    rng = np.random.default_rng(11)
    theta = submodular(Graph.grid(6, 7), rng)
    problem = CutProblem(theta)
    problem.solve()
    problem._flow.clock[0] = (1 << 30) + 1
    problem.add_unary(0, 5.0)
    before = problem.labels
    changed = problem.resolve()
    assert problem._flow.clock[0] < 1000
    unary = theta.unary.copy()
    unary[0, 1] += 5
    fresh = GraphCut().solve(Potentials(theta.graph, unary, theta.factors)).labels
    np.testing.assert_array_equal(problem.labels, fresh)
    np.testing.assert_array_equal(changed, np.flatnonzero(fresh != before))


def test_tiny_and_huge_numbers_side_by_side():
    rng = np.random.default_rng(12)
    for scale in (1e-200, 1e-12, 1e12, 1e200):
        theta = submodular(Graph.grid(3, 3), rng)
        run = GraphCut().solve(theta.like(theta.vector() * scale))
        assert run.value == pytest.approx(scale * scores(theta)[1].max())
    theta = submodular(Graph.grid(3, 3), rng)
    theta.unary[0, 0] = theta.factors[0, 0, 1] = -1e15
    assert GraphCut().solve(theta).value == pytest.approx(scores(theta)[1].max(), abs=1e-9)


def test_truncation():
    rng = np.random.default_rng(13)
    for _ in range(60):
        graph = some_graph(rng)
        theta = Potentials(graph, rng.normal(size=(graph.n_variables, 2)), rng.normal(size=(graph.n_factors, 2, 2)))
        ends = np.sort(graph.factors, axis=1) if graph.n_factors else np.empty((0, 2))
        pairs = {tuple(pair): coupling(theta.factors[(ends == pair).all(axis=1)]).sum() for pair in ends}
        n_bad = sum(c < 0 for c in pairs.values())
        run = GraphCut(truncate=True).solve(theta)
        assert run.n_truncated == n_bad and run.optimal == (n_bad == 0)
        assert run.value == theta.score(run.labels) <= scores(theta)[1].max() + 1e-12
        if graph.n_factors == len(pairs):
            lowered = theta.factors.copy()
            lowered[:, [0, 1], [1, 0]] -= np.maximum(-coupling(lowered), 0)[:, None] / 2
            bound = scores(Potentials(graph, theta.unary, lowered))[1].max()
            assert run.value >= bound - 1e-12
        if n_bad:
            with pytest.raises(InputError, match=r"factor \d+ over variables .*truncate=True"):
                GraphCut().solve(theta)


def test_refusal_names_the_worst_edge():
    factors = np.zeros((3, 2, 2))
    factors[1, 0, 1], factors[2, 1, 0] = 1, 2.5
    theta = Potentials(Graph.from_edges([[0, 1], [1, 2], [3, 2]], 4), np.zeros((4, 2)), factors)
    with pytest.raises(InputError, match=r"factor 2 over variables \(3, 2\) .*one of 2 .* is 2\.5 below"):
        GraphCut().solve(theta)
    factors[:] = 0
    factors[3:], factors[0, 1, 1] = 0, -INF
    theta = Potentials(theta.graph, np.ones((4, 2)), factors)
    with pytest.raises(InputError, match=r"factor 0 over variables \(0, 1\) .* is inf below"):
        GraphCut().solve(theta)
    run = GraphCut(truncate=True).solve(theta)
    assert run.value == 4 and not run.optimal and run.n_truncated == 1
    grid = Potentials(Graph.grid(2, 2), np.zeros((4, 2)), np.tile(-np.eye(2), (4, 1, 1)))
    with pytest.raises(InputError, match=r"factor 0 over variables \(0, 1\) .*one of 4"):
        GraphCut().solve(grid)


def test_rounding_is_not_refused():
    theta = Potentials(Graph.grid(1, 2), np.zeros((2, 2)), [[[0.1, 0.3], [0.1, 0.3 - 1e-16]]])
    assert GraphCut().solve(theta).optimal


def test_bad_input():
    with pytest.raises(InputError, match=r"variable 1 has 3; use alpha_expansion"):
        GraphCut().solve(Potentials(Graph([2, 3], [(0, 1)]), [np.zeros(2), np.zeros(3)], [np.zeros((2, 3))]))
    with pytest.raises(InputError, match=r"factors of two variables; use max_product"):
        GraphCut().solve(Potentials(Graph([2] * 3, [(0, 1, 2)]), np.zeros((3, 2)), np.zeros((1, 2, 2, 2))))
    theta = Potentials(Graph.grid(1, 2), [[-INF, 0], [0, -INF]], [[[0, 0], [-INF, 0]]])
    with pytest.raises(InputError, match="no labels are possible"):
        GraphCut().solve(theta)
    theta = Potentials(Graph.grid(1, 2), [[-INF, -INF], [0, 0]], [[[0, 0], [0, 0]]])
    with pytest.raises(InputError, match=r"variable 0 has no label"):
        GraphCut().solve(theta)
    problem = CutProblem(submodular(Graph.grid(2, 2), np.random.default_rng(14)))
    for call, match in [
        (lambda: problem.add_unary(4, 1.0), r"variables must be 0 \.\. 3, received 4"),
        (lambda: problem.add_unary([0.5], 1.0), r"list of integers"),
        (lambda: problem.add_unary([0], [np.nan]), r"delta holds NaN"),
        (lambda: problem.add_unary([0], [INF]), r"infinite"),
        (lambda: problem.set_unary(np.zeros((3, 2))), r"shape \(4, 2\), received \(3, 2\)"),
        (lambda: problem.set_unary(np.full((4, 2), np.nan)), r"NaN"),
        (lambda: problem.solve_many([0], [1.0], returns="all"), r"received 'all'"),
    ]:
        with pytest.raises(InputError, match=match):
            call()
