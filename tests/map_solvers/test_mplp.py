"""Dual decomposition against enumeration: bounds hold and fall, certificates are right."""

import numpy as np
import pytest

import backfield as bf
from backfield.map_solvers.mplp_rounding import move
from backfield.models import Model
from tests.models import random_graph, random_potentials, random_tree


def model(seed, zeros=0.0, draw=random_graph):
    rng = np.random.default_rng(seed)
    theta = random_potentials(draw(rng), rng, 1.0)
    safe = rng.integers(theta.graph.labels)
    for scope, table in zip(theta.graph.factors, theta.factors, strict=True):
        entry = table[tuple(safe[list(scope)])]
        table[rng.random(table.shape) < zeros] = -np.inf
        table[tuple(safe[list(scope)])] = entry
    return theta


@pytest.mark.parametrize("zeros", [0.0, 0.3])
def test_certificates_are_right(zeros):
    certified = 0
    for seed in range(100):
        theta = model(seed, zeros)
        best = bf.find_map(theta, "brute_force").value
        found = bf.find_map(theta, "mplp")
        assert found.value == pytest.approx(theta.score(found.labels))
        assert found.value <= best + 1e-9 and found.bound >= best - 1e-9
        assert found.gap >= 0
        if found.optimal:
            certified += 1
            assert found.value == pytest.approx(best, abs=1e-7) and found.gap == 0
    assert certified > 95


def test_bounds_fall_with_sweeps():
    theta = random_potentials(bf.Graph.grid(6, 6, labels=3), np.random.default_rng(0), 1.0)
    bounds = [bf.find_map(theta, f"mplp(n_iter={n}, tol=0.0)").bound for n in (1, 10, 20, 100, 400)]
    assert np.diff(bounds).max() <= 1e-9


@pytest.mark.parametrize("labels", [2, 3])
def test_cycles_close_gaps_that_are_left(labels):
    """Frustrated grids: the bounds of single factors leave gaps, those of cells few."""
    certified = [0, 0]
    for seed in range(20):
        theta = random_potentials(bf.Graph.grid(4, 4, labels=labels), np.random.default_rng(seed), 2.0)
        best = Model.from_potentials(theta).map_query()
        value = theta.score(np.array([int(state) for state in best.values()]))
        for k, spec in enumerate(("mplp(tighten=False)", "mplp")):
            found = bf.find_map(theta, spec)
            assert found.value <= value + 1e-9 and found.bound >= value - 1e-9
            certified[k] += found.optimal
    assert certified[1] > certified[0] and certified[1] >= 18


def test_tree_moves_never_lower_the_value_and_solve_trees():
    rng = np.random.default_rng(0)
    for draw in (random_graph, random_tree):
        for seed in range(20):
            theta = model(seed, draw=draw).written_out()
            labels = rng.integers(theta.graph.labels)
            before = theta.score(labels)
            for _ in range(3):
                move(theta.graph.layout, theta.unary_flat.copy(), theta.factors_flat.copy(),
                     rng.permutation(theta.graph.n_variables), labels)  # fmt: skip
                assert theta.score(labels) >= before - 1e-9
                before = theta.score(labels)


def test_trees_are_solved():
    for seed in range(30):
        theta = model(seed, draw=random_tree)
        assert bf.find_map(theta, "mplp").value == pytest.approx(bf.find_map(theta, "viterbi").value, abs=1e-7)


def test_other_solvers_have_gaps():
    theta = model(0)
    assert bf.find_map(theta, "brute_force").gap == 0
    assert bf.find_map(theta, "icm").gap in (0.0, np.inf)


@pytest.mark.parametrize("spec", ["mplp(n_iter=0)", "mplp(tol=-1)", "mplp(tol=2)", "mplp(tighten=2)"])
def test_bad_settings(spec):
    with pytest.raises(bf.InputError, match="mplp: "):
        bf.find_map(model(0), spec)
