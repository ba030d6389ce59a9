"""Names are imported when they are asked for: stubs are complete, and a start imports no more than it needs."""

import ast
import importlib
import json
import subprocess
import sys
from pathlib import Path

import pytest

import backfield
from backfield.lazy_names import homes

ROOT = Path(backfield.__file__).parent
STUBS = sorted(ROOT.rglob("__init__.pyi"))


def test_a_stub_has_one_name_in_each_line():
    for stub in STUBS:
        body = [node for node in ast.parse(stub.read_text()).body if isinstance(node, ast.ImportFrom)]
        assert {alias.asname: node.module for node in body for alias in node.names} == homes(package_of(stub))


def package_of(stub):
    return ".".join(["backfield", *stub.parent.relative_to(ROOT).parts])


@pytest.mark.parametrize("package", [package_of(stub) for stub in STUBS])
def test_every_name_of_a_stub_is_there(package):
    module = importlib.import_module(package)
    assert set(module.__all__) == set(homes(package)) and set(module.__all__) <= set(dir(module))
    for name in module.__all__:
        assert getattr(module, name) is not None
    with pytest.raises(AttributeError, match=f"module '{package}' has no attribute 'nonsense'"):
        module.nonsense


@pytest.mark.parametrize("room", [stub.parent for stub in STUBS if (stub.parent / "base.py").exists()], ids=lambda p: p.name)
def test_a_stub_names_all_parts_of_its_room(room):
    """A part that no stub names would be found only where somebody has imported its module."""
    found = set()
    for path in set(room.rglob("*.py")) - {ROOT / "structures" / "kernel_specs.py"}:  # which is a room of its own
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef) and any(keyword.arg == "name" for keyword in node.keywords):
                found.add(node.name)
    assert found and found <= set(homes(f"backfield.{room.name}"))


def test_modules_are_attributes():
    code = (
        "import backfield as bf; print(bf.losses.base.Loss.room, bf.inference.message_passing.__name__, bf.datasets.conll)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.startswith("losses backfield.inference.message_passing <module"), done.stderr


def test_a_grid_needs_neither_other_learners_nor_other_methods():
    code = """
import json, sys
import numpy as np
import backfield as bf
X = [np.random.default_rng(0).normal(size=(4, 4, 1))]
bf.GridCRF(learner="lbfgs(max_iter=2)", inference="tree_reweighted(n_iter=2)").fit(X, [(X[0][..., 0] > 0).astype(int)])
print(json.dumps([name for name in sys.modules if name.startswith("backfield.")]))
"""
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    imported = json.loads(done.stdout)
    for other in (
        "learners.sgd",
        "inference.sampling.gibbs",
        "map_solvers.mplp",
        "oracles.mlp",
        "datasets.horses",
        "models",
    ):
        assert f"backfield.{other}" not in imported
