"""Parts from files, modules and installed packages: found by name, refused in one sentence, paid for only when needed."""

import multiprocessing
import os
import pickle
import subprocess
import sys
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np
import pytest

import backfield as bf
from backfield import plugins
from backfield.registry import get, lookup, names
from tests.plugins.conftest import LOSS

ROOT = Path(bf.__file__).parents[1]


def python(code, **environment):
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_file_brings_a_part(loss_file):
    plugins.load(loss_file)
    part = get("losses", "nothing_lost(scale=2.0)")
    assert repr(part) == "nothing_lost(scale=2.0)" and type(part).__module__ == "backfield.plugins.zero"
    theta = bf.Potentials(bf.Graph.chain(3), np.zeros((3, 2)), np.zeros((2, 2, 2)))
    value, d_theta = bf.value_and_gradient(theta, [0, 1, 1], loss="nothing_lost", inference="exact")
    assert value == 0 and not d_theta.vector().any()


def test_twice_is_once(loss_file, monkeypatch):
    first = plugins.load(loss_file)
    monkeypatch.chdir(loss_file.parent)
    assert plugins.load("zero.py") is first and first.COUNT == 1


def test_the_environment_names_files_and_modules(loss_file, monkeypatch, tmp_path):
    (tmp_path / "toy_module.py").write_text(LOSS.replace("nothing_lost", "from_a_module"))
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv(plugins.ENVIRONMENT, os.pathsep.join([str(loss_file), "toy_module", ""]))
    assert lookup("losses", "from_a_module").__module__ == "toy_module"
    assert get("losses", "nothing_lost").scale == 1
    assert {"nothing_lost", "from_a_module"} <= set(names("losses"))


def test_an_installed_package_brings_a_part(install):
    install("toy", {"toy_parts": LOSS}, {plugins.PARTS: {"parts": "toy_parts"}})
    assert "toy_parts" not in sys.modules
    assert get("losses", "univariate_logistic") and "toy_parts" not in sys.modules
    crf = bf.GridCRF(loss="nothing_lost(scale=3.0)")
    assert crf.get_params()["loss__scale"] == 3 and "toy_parts" in sys.modules


def test_two_packages_may_call_their_entry_points_alike(install):
    for k in (1, 2):
        text = LOSS.replace("nothing_lost", f"loss_{k}")
        install(f"toy{k}", {f"toy_parts_{k}": text}, {plugins.PARTS: {"parts": f"toy_parts_{k}"}})
    assert {"loss_1", "loss_2"} <= set(names("losses"))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("import nowhere_to_be_found", ["ModuleNotFoundError", "nowhere_to_be_found"]),
        ("def f(:", ["SyntaxError"]),
        ("1 / 0", ["ZeroDivisionError"]),
        ("raise SystemExit(3)", ["SystemExit"]),
        (LOSS.replace("nothing_lost", "mse"), ["'mse' in losses is taken by backfield.losses.decoded.MSE", "another"]),
    ],
)
def test_a_plugin_that_fails_is_one_sentence(text, words, install, tmp_path, monkeypatch):
    (tmp_path / "broken.py").write_text(text)
    with pytest.raises(bf.InputError, match=r"the plugin .*broken\.py") as error:
        plugins.load(tmp_path / "broken.py")
    assert all(word in str(error.value) for word in words)
    install("toy", {"toy_broken": text}, {plugins.PARTS: {"parts": "toy_broken"}})
    assert get("losses", "mse") and lookup("losses", "mse").__module__.startswith("backfield.")
    for _ in range(2):  # it does not become right by being asked again
        with pytest.raises(bf.InputError, match="the plugin parts of the installed package toy") as error:
            get("losses", "from_the_toy")
        assert all(word in str(error.value) for word in words)


def test_files_of_one_name(loss_file, tmp_path):
    other = tmp_path / "other" / "zero.py"
    other.parent.mkdir()
    other.write_text("")
    plugins.load(loss_file)
    with pytest.raises(bf.InputError, match=r"two plugins have the file name zero.py.*rename one"):
        plugins.load(other)
    with pytest.raises(bf.InputError, match=r"there is no plugin file .*none\.py"):
        plugins.load(tmp_path / "none.py")
    with pytest.raises(bf.InputError, match="the plugin toy_none cannot be imported: ModuleNotFoundError"):
        plugins.load("toy_none")


def test_one_file_under_two_names(loss_file, monkeypatch):
    """As when a script imports a module that BACKFIELD_PLUGINS names for its workers."""
    monkeypatch.syspath_prepend(str(loss_file.parent))
    (loss_file.parent / "toy_script.py").write_text("import zero")
    plugins.load("toy_script")
    assert lookup("losses", "nothing_lost").__module__ == "zero"
    plugins.load(loss_file)
    assert lookup("losses", "nothing_lost").__module__ == "backfield.plugins.zero"
    del sys.modules["zero"]


def test_an_unknown_part_says_that_a_plugin_may_be_missing(loss_file):
    with pytest.raises(bf.InputError, match=r"no 'nothing_lost' in losses; known: .*plugin missing"):
        get("losses", "nothing_lost")


def test_ordinary_runs_load_no_plugin(install):
    site = install("toy", {"toy_parts": "raise RuntimeError"}, {plugins.PARTS: {"parts": "toy_parts"}})
    code = """
import sys, numpy as np, backfield as bf
X = [np.random.default_rng(0).normal(size=(4, 4, 1))]
Y = [(X[0][..., 0] > 0).astype(int)]
bf.GridCRF(learner="lbfgs(max_iter=1)").fit(X, Y).get_params()
theta = bf.Potentials(bf.Graph.chain(3), np.zeros((3, 2)), np.zeros((2, 2, 2)))
bf.find_map(theta, "viterbi"), bf.value_and_gradient(theta, [0, 1, 1], loss="pseudolikelihood")
print("toy_parts" in sys.modules)
try:
    bf.infer(theta, "unknown")
except bf.InputError as error:
    print(error)
"""
    out = python(code, PYTHONPATH=f"{ROOT}{os.pathsep}{site}").splitlines()
    assert out[0] == "False"
    assert out[1] == "the plugin parts of the installed package toy cannot be imported: RuntimeError"


def unpickled(data):
    part, engine = pickle.loads(data)
    return repr(part), type(engine).__module__


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_processes_that_unpickle(method, loss_file, monkeypatch):
    """BACKFIELD_PLUGINS reaches them, and nothing else is needed, for parts and for other classes of the file."""
    monkeypatch.setenv(plugins.ENVIRONMENT, str(loss_file))
    module = plugins.load(loss_file)
    data = pickle.dumps((get("losses", "nothing_lost(scale=2.0)"), module.Engine()))
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context(method)) as pool:
        assert pool.submit(unpickled, data).result() == ("nothing_lost(scale=2.0)", "backfield.plugins.zero")
    code = f"import pickle; print(pickle.loads({data!r})[0])"
    assert python(code, BACKFIELD_PLUGINS=str(loss_file)) == "nothing_lost(scale=2.0)\n"


def test_a_model_file_runs_no_code_of_its_own(loss_file, tmp_path):
    """A model names parts; those that are not known here are asked for, never taken from the file."""
    X = [np.random.default_rng(0).normal(size=(4, 4, 1))]
    Y = [(X[0][..., 0] > 0).astype(int)]
    plugins.load(loss_file)
    bf.GridCRF(loss="nothing_lost", learner="lbfgs(max_iter=1)").fit(X, Y).save(tmp_path / "model.bf")
    code = f"""
import numpy as np, backfield as bf
crf = bf.load({str(tmp_path / "model.bf")!r})
X = [np.zeros((4, 4, 1))]
crf.predict(X)  # which asks for no loss
try:
    crf.fit(X, [np.zeros((4, 4), int)])
except bf.InputError as error:
    print(error)
"""
    assert "no 'nothing_lost' among losses and objectives" in python(code) and "plugin missing" in python(code)
    assert "plugin missing" not in python(code, BACKFIELD_PLUGINS=str(loss_file))
