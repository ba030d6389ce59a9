"""The parts of the other rooms keep to the public contracts."""

import subprocess
import sys

import pytest

from backfield import testing
from backfield.registry import names
from tests.oracles.rows import PACKAGES


@pytest.mark.parametrize("name", names("losses"))
def test_loss(name):
    testing.check_loss(name)


@pytest.mark.parametrize("name", names("objectives"))
def test_objective(name):
    testing.check_objective(name)


@pytest.mark.parametrize("name", names("gradients"))
def test_gradient(name):
    testing.check_gradient(name)


@pytest.mark.parametrize("name", names("decoders"))
def test_decoder(name):
    testing.check_decoder(name)


@pytest.mark.parametrize("name", ["linear", "constant", "zero", "plus_minus"])  # others need modules or labels
def test_energy(name):
    testing.check_energy(name)


@pytest.mark.parametrize("name", names("map_solvers"))
def test_map_solver(name):
    testing.check_map_solver(name)


@pytest.mark.parametrize("name", ["zero", "constant", "linear", "boosted_trees", "mlp"])
def test_oracle(name):
    if name in PACKAGES:
        pytest.importorskip(PACKAGES[name])
    testing.check_oracle(name)


@pytest.mark.parametrize("name", ["lbfgs", "sgd", "ascent", "restarts"])  # others need more than value and gradient
def test_learner(name):
    testing.check_learner(name)


def test_checks_need_no_test_packages():
    code = """
import sys
sys.modules["pytest"] = sys.modules["hypothesis"] = None
import backfield.testing
backfield.testing.check_decoder("max_marginal")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
