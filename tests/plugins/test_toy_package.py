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
from backfield.data.formats import write_npz

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


def session(site, *commands):
    """Run commands one after the other in one process, which saves starting it; return what each printed."""
    code = """
import contextlib, io, json, sys
from backfield.cli.app import run
said = []
for arguments in json.loads(sys.argv[1]):
    with contextlib.redirect_stdout(io.StringIO()) as out:
        code = run(arguments)
    if code:
        sys.exit(code)
    said.append(out.getvalue())
print(json.dumps(said))
"""
    done = run(site, "-c", code, json.dumps([list(map(str, command)) for command in commands]))
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


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


def test_its_structure_from_python(site):
    code = """
import backfield as bf
import numpy as np
rng = np.random.default_rng(0)
X = [rng.normal(size=(n, 2)) for n in (7, 8, 8)]
Y = [(x[:, 0] > 0).astype(int) for x in X]
parts = {"loss": "focal", "inference": "parallel_mean_field(n_iter=3)", "learner": "lbfgs(max_iter=20)"}
crf = bf.CRF(structure="ring(reach=2)", **parts).fit(X, Y)
print(crf.score(X, Y), crf.structure_, crf.predict(X)[0].shape, crf.potentials(X[0]).graph.n_factors)
class RingCRF(bf.CRF, structure="ring"):
    "The same with a name."
print(RingCRF(reach=2, **parts).fit(X, Y).score(X, Y))
"""
    done = run(site, "-c", code)
    assert done.stdout == "1.0 ring(reach=2) (7,) 14\n1.0\n", done.stderr


def test_the_checks_pass(site):
    code = """
import numpy as np
from backfield.testing import check_inference, check_loss, check_structure
check_loss("focal")
check_inference("parallel_mean_field")
X = [np.random.default_rng(n).normal(size=(n, 2)) for n in (5, 6)]
for spec in ("ring", "ring(reach=2)"):
    check_structure(spec, X + X, [(x[:, 0] > 0).astype(int) for x in X + X])
"""
    done = run(site, "-W", "error::RuntimeWarning", "-c", code)
    assert done.returncode == 0, done.stderr


def test_from_the_shell(site, tmp_path):
    done = shell(site, "list", "losses")
    assert done.returncode == 0 and "focal" in done.stdout and "gamma=2.0" in done.stdout, done.stderr
    assert "parallel_mean_field" in shell(site, "list").stdout
    assert "reach=1" in shell(site, "list", "structures").stdout
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


def rings(path, sizes):
    """Write an .npz with one ring of each size; return their labels."""
    rng = np.random.default_rng(0)
    X = [rng.normal(size=(size, 2)) for size in sizes]
    y = [(x[:, 0] > 0).astype(int) for x in X]
    write_npz(path, {"X": X, "y": y})
    return y


@pytest.mark.parametrize("sizes", [(6, 6, 6, 6), (6, 7, 6, 5)], ids=["stacked", "of several sizes"])
def test_its_structure_from_the_shell(site, tmp_path, sizes):
    y = rings(tmp_path / "rings.npz", sizes)
    data, model, found = (tmp_path / name for name in ("rings.npz", "model.bf", "found.npz"))
    setting = ["--loss", "focal", "--inference", "parallel_mean_field(n_iter=2)", "--learner", "lbfgs(max_iter=20)"]
    fitted, _, score, packed, _, again = session(
        site,
        ["fit", data, "--model", "ring(reach=2)", *setting, "-o", model],
        ["predict", model, data, "--proba", "-o", found],
        ["evaluate", model, data, "--json"],
        ["pack", data, "--like", model, "-o", tmp_path / "packed", "--n-jobs", 1],
        ["fit", tmp_path / "packed", *setting, "-o", tmp_path / "other.bf"],
        ["evaluate", tmp_path / "other.bf", tmp_path / "packed", "--json"],
    )
    assert "4 rings, " in fitted and "labelled beads" in fitted
    file = np.load(found)
    predicted = file["y"] if "y" in file else [file[f"y_{k}"] for k in range(len(sizes))]
    assert all(np.array_equal(a, b) for a, b in zip(predicted, y, strict=True))
    assert json.loads(score)["accuracy"] == json.loads(again)["accuracy"] == 1
    assert "4 rings in 1 shards" in packed
    assert json.loads((tmp_path / "packed" / "index.json").read_text())["kind"] == "ring(reach=2)"


def test_its_structure_compared(site, tmp_path):
    rings(tmp_path / "rings.npz", (6, 7, 6, 5))
    parts = ["--learning", "focal", "--inference", "parallel_mean_field(n_iter=2)", "--learner", "lbfgs(max_iter=5)"]
    done = shell(site, "compare", tmp_path / "rings.npz", "--model", "ring(reach=2)", *parts, "--json")
    assert done.returncode == 0 and json.loads(done.stdout)["test"] == 1, done.stderr


def test_wrong_data_for_its_structure(site, tmp_path):
    rings(tmp_path / "rings.npz", (6, 2))
    done = shell(site, "fit", tmp_path / "rings.npz", "--model", "ring", "-o", tmp_path / "model.bf")
    assert done.returncode == 2 and "example 1: a ring must have shape (T, F) with T > 2, received (2, 2)" in done.stderr
    done = shell(tmp_path, "fit", tmp_path / "rings.npz", "--model", "ring", "-o", tmp_path / "model.bf")
    assert done.returncode == 2 and "there is no 'ring' in structures" in done.stderr and "plugin" in done.stderr


def test_its_command(site):
    assert "toy" in shell(site, "--help").stdout
    assert shell(site, "toy", "--times", "2").stdout == "focal, parallel_mean_field, ring\n" * 2
