"""Several sweeps in one call are the same sweeps, whichever way they go through memory."""

import numpy as np
import pytest

import backfield as bf
from backfield._component import get
from tests.models import random_potentials

SHAPES = [(2, 2), (3, 70), (70, 3), (33, 47), (2, 900), (90, 90)]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("rho", [1.0, 0.5, 0.7])
def test_lattice_sweeps_that_follow_each_other(shape, rho):
    theta = random_potentials(bf.Graph.grid(*shape), np.random.default_rng(0))
    engine = get("inference", "tree_reweighted").replace(rho=rho, family="lattice").engine(theta)
    one_by_one = engine.init()
    for t in range(7):
        engine.sweep(one_by_one, t)
    for together in (1, 2, 3, engine.together):
        engine.together = together
        state = engine.init()
        engine.sweeps(state, 0, 7)
        np.testing.assert_array_equal(state, one_by_one)


@pytest.mark.parametrize("family", ["pairwise", "general", "log"])
def test_sweeps_of_other_families(family):
    theta = random_potentials(bf.Graph.grid(4, 5, labels=3), np.random.default_rng(0))
    engine = get("inference", "loopy_bp").replace(family=family, schedule="sequential").engine(theta)
    one_by_one, state = engine.init(), engine.init()
    for t in range(1, 6):
        engine.sweep(one_by_one, t)
    engine.sweeps(state, 1, 6)
    np.testing.assert_array_equal(state, one_by_one)
