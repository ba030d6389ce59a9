"""A package outside the tree, installed by pip: its parts work from Python and from the shell, and pass the checks."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import backfield

TOY = Path(__file__).parent / "toy_package"
ROOT = Path(backfield.__file__).parents[1]


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """A folder into which pip has installed the toy package."""
    pytest.importorskip("setuptools")
    folder = tmp_path_factory.mktemp("toy")
    shutil.copytree(TOY, folder / "source")
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation", "--no-index"]
    command += ["--disable-pip-version-check", "--target", str(folder / "site"), str(folder / "source")]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return folder / "site"


def run(site, *arguments):
    path = os.pathsep.join([str(ROOT), str(site)])
    return subprocess.run(
        [sys.executable, *map(str, arguments)], capture_output=True, text=True, env={**os.environ, "PYTHONPATH": path}
    )


def shell(site, *arguments):
    return run(site, "-m", "backfield", *arguments)


def test_from_python(site):
    code = """
import sys
import backfield as bf
import numpy as np
rng = np.random.default_rng(0)
X = [rng.normal(size=(8, 8, 1)) for _ in range(3)]
Y = [(x[..., 0] > 0).astype(int) for x in X]
assert "toy_fields" not in sys.modules
crf = bf.GridCRF(loss="focal(gamma=1.0)", inference="parallel_mean_field(n_iter=3)", learner="lbfgs(max_iter=10)").fit(X, Y)
print(crf.score(X, Y) > 0.9, "toy_fields" in sys.modules)
"""
    done = run(site, "-c", code)
    assert done.stdout == "True True\n", done.stderr


def test_the_checks_pass(site):
    code = "from backfield.testing import *; check_loss('focal'); check_inference('parallel_mean_field')"
    done = run(site, "-W", "error::RuntimeWarning", "-c", code.replace("*", "check_inference, check_loss"))
    assert done.returncode == 0, done.stderr


def test_from_the_shell(site, tmp_path):
    done = shell(site, "list", "losses")
    assert done.returncode == 0 and "focal" in done.stdout and "gamma=2.0" in done.stdout, done.stderr
    assert "parallel_mean_field" in shell(site, "list").stdout
    done = shell(site, "gradcheck", "--loss", "focal", "--inference", "parallel_mean_field(n_iter=3)", "--json")
    assert done.returncode == 0 and json.loads(done.stdout)["passed"], done.stderr
    rng = np.random.default_rng(0)
    X = rng.normal(size=(3, 6, 6, 1))
    np.savez(tmp_path / "data.npz", images=X, masks=(X[..., 0] > 0).astype(int))
    setting = ["--loss", "focal", "--inference", "parallel_mean_field(n_iter=2)", "--learner", "lbfgs(max_iter=5)"]
    done = shell(site, "fit", tmp_path / "data.npz", "--model", "grid", *setting, "-o", tmp_path / "model.bf")
    assert done.returncode == 0, done.stderr
    done = shell(site, "evaluate", tmp_path / "model.bf", tmp_path / "data.npz", "--json")
    assert done.returncode == 0 and json.loads(done.stdout), done.stderr
    done = shell(tmp_path, "evaluate", tmp_path / "model.bf", tmp_path / "data.npz", "--json")
    assert done.returncode == 2 and "no 'parallel_mean_field'" in done.stderr and "plugin" in done.stderr


def test_its_command(site):
    assert "toy" in shell(site, "--help").stdout
    assert shell(site, "toy", "--times", "2").stdout == "focal, parallel_mean_field\n" * 2
