"""The parts of the other rooms keep to the public contracts."""

import subprocess
import sys

import numpy as np
import pytest

import backfield as bf
from backfield import testing
from backfield.registry import get, lookup, names
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


ENERGIES = ["linear", "constant", "zero", "plus_minus", "potts", "given"]  # others need modules or labels


@pytest.mark.parametrize("name", ENERGIES)
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


RNG = np.random.default_rng(0)
IMAGES = [RNG.normal(size=size) for size in ((3, 4, 2), (3, 4, 2), (2, 5, 2))]
MIXED = bf.Graph([2, 3, 2], [(0, 1), (0, 1, 2)])


def edges(image):
    """Return edge features of an image."""
    height, width, _ = image.shape
    return RNG.normal(size=(height, width - 1, 2)), RNG.normal(size=(height - 1, width, 2))


VOLUMES = [RNG.normal(size=size) for size in ((2, 3, 4, 2), (2, 3, 4, 2), (3, 1, 2, 2))]

#: Structure -> examples.
EXAMPLES = {
    "grid(neighbours=8, contrast=True)": [IMAGES],
    "volume": [VOLUMES],
    "dense": [IMAGES, VOLUMES],
    "volume(neighbours=18, spacing=(1, 1, 5), contrast=True)": [VOLUMES],
    "volume(offsets=[(0, 0, 1), (1, 0, -1)])": [[volume[..., 0] for volume in VOLUMES]],
    "grid": [IMAGES, [bf.GridSample(image, *edges(image)) for image in IMAGES]],
    "chain": [[RNG.normal(size=(length, 2)) for length in (4, 4, 1)]],
    "chain(separator=':')": [[[{"word": "a"}, {"word": "b"}], [["a"], ["b", "c"]], [{"word": "a", "size": 2.0}]]],
    "graph": [[bf.Sample(MIXED, RNG.normal(size=(3, 2)), node_types=[0, 1, 0], factor_types=[0, 1]) for _ in range(2)]],
}


@pytest.mark.parametrize(("spec", "X"), [(spec, X) for spec, found in EXAMPLES.items() for X in found])
def test_structure(spec, X):
    structure = get("structures", spec)
    shapes = [structure.sample(x, structure.learn_names(X)).shape for x in X]
    y = [np.arange(np.prod(shape)).reshape(shape) % 2 for shape in shapes]
    testing.check_structure(spec, X, y)
    if "U" in structure.label_kinds:
        testing.check_structure(spec, X, [np.array(["A", "B"])[labels] for labels in y])


def test_every_structure_has_examples():
    ours = {name for name in names("structures") if lookup("structures", name).__module__.startswith("backfield.")}
    assert {get("structures", spec).name for spec in EXAMPLES} == ours


def test_checks_need_no_test_packages():
    code = """
import sys
sys.modules["pytest"] = sys.modules["hypothesis"] = None
import backfield.testing
backfield.testing.check_decoder("max_marginal")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
