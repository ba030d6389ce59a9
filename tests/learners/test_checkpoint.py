"""Checkpoints: a fit that was stopped anywhere and resumed equals an unbroken one, bit for bit."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

import backfield as bf
from backfield.errors import InputError
from backfield.learners import LBFGS, SGD
from backfield.learners._checkpoint import read_checkpoint, write_checkpoint
from tests.learners.problems import Function, Logistic, same_trace

LEARNERS = {
    "lbfgs": LBFGS(max_iter=25, gtol=0.0, history=4),
    "lbfgs_doubling": LBFGS(max_iter=8, gtol=0.0, history=3, doubling_first=10),
    "sgd": SGD(epochs=5, batch_size=7),
    "sgd_all": SGD(epochs=5, batch_size=7, momentum=0.7, schedule="sqrt", average=True),
    "sgd_adam": SGD(epochs=5, batch_size=7, optimizer="adam", average=True),
}
each_learner = pytest.mark.parametrize("name", LEARNERS)
START = np.full(8, 0.3)


class Stop(Exception):
    pass


def interrupt_at(problem, call, error=KeyboardInterrupt):
    """Raise in the middle of an evaluation."""
    true = problem.value_and_gradient

    def evaluate(w, batch=None, seed=0):
        if problem.calls == call:
            raise error
        return true(w, batch, seed)

    problem.value_and_gradient = evaluate
    return problem


@each_learner
@pytest.mark.parametrize("call", [3, 10, 14, 17])
def test_interrupted_and_resumed(name, call, tmp_path):
    learner, path = LEARNERS[name], tmp_path / "fit.ckpt"
    whole = learner.fit(Logistic(noise=0.0), START, seed=3)
    with pytest.raises(KeyboardInterrupt):
        learner.fit(interrupt_at(Logistic(), call), START, seed=3, checkpoint=path, checkpoint_iterations=1000)
    problem = Logistic()
    resumed = learner.fit(problem, np.zeros(8), seed=3, checkpoint=path, resume=True)
    assert resumed.w.tobytes() == whole.w.tobytes()
    assert same_trace(resumed.trace, whole.trace)
    assert (resumed.converged, resumed.message) == (whole.converged, whole.message)
    seconds = [row["seconds"] for row in resumed.trace]
    assert seconds == sorted(seconds)
    assert not list(tmp_path.glob(".*"))


@each_learner
def test_stopped_by_a_callback_and_resumed(name, tmp_path):
    learner, path = LEARNERS[name], tmp_path / "fit.ckpt"
    whole = learner.fit(Logistic(noise=0.1 if "sgd" in name else 0.0), START)
    for after in range(1, 4):
        learner.fit(
            Logistic(noise=0.1 if "sgd" in name else 0.0),
            START,
            checkpoint=path,
            resume=after > 1,
            callbacks=[lambda i, w, row, after=after: i >= after],
        )
    resumed = learner.fit(Logistic(noise=0.1 if "sgd" in name else 0.0), START, checkpoint=path, resume=True)
    assert resumed.w.tobytes() == whole.w.tobytes() and same_trace(resumed.trace, whole.trace)


@pytest.mark.parametrize("learner", [LBFGS(gtol=0.0, patience=3), SGD(epochs=300, batch_size=5, step_size=1.0, patience=3)])
def test_early_stopping_resumed(learner, tmp_path):
    path = tmp_path / "fit.ckpt"
    validation = Logistic(n=500, d=15, l2=0.0, seed=1)
    whole = learner.fit(Logistic(n=20, d=15, l2=1e-6), np.zeros(15), validation=validation)
    call = len(whole.trace) // 2
    options = {"validation": validation, "checkpoint": path}
    with pytest.raises(KeyboardInterrupt):
        learner.fit(interrupt_at(Logistic(n=20, d=15, l2=1e-6), call), np.zeros(15), **options)
    resumed = learner.fit(Logistic(n=20, d=15, l2=1e-6), np.zeros(15), resume=True, **options)
    assert resumed.w.tobytes() == whole.w.tobytes() and same_trace(resumed.trace, whole.trace)


SCRIPT = """
import sys
import numpy as np
from backfield.registry import get
from tests.learners.problems import Logistic
learner = get("learners", sys.argv[1])
learner.fit(Logistic(pause=0.02, stop=16), np.full(8, 0.3), seed=3, checkpoint=sys.argv[2], checkpoint_seconds=0.0)
"""


@pytest.mark.parametrize("name", ["lbfgs", "lbfgs_doubling", "sgd_all"])
def test_killed_and_resumed(name, tmp_path):
    """A real SIGKILL in the middle of a fit."""
    learner, path = LEARNERS[name], tmp_path / "fit.ckpt"
    root = Path(__file__).parents[2]
    process = subprocess.Popen([sys.executable, "-c", SCRIPT, repr(learner), str(path)], cwd=root)
    try:
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline and process.poll() is None:
            if path.exists() and _progress(path) >= 4:
                break
            time.sleep(0.01)
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert process.returncode == -signal.SIGKILL
    assert read_checkpoint(path)[1]["outcome"] is None
    whole = learner.fit(Logistic(), START, seed=3)
    problem = Logistic()
    resumed = learner.fit(problem, START, seed=3, checkpoint=path, resume=True)
    assert np.abs(resumed.w - whole.w).max() <= 1e-12
    assert same_trace(resumed.trace, whole.trace)


def _progress(path):
    state = read_checkpoint(path)[1]["state"]
    return state["iteration"] if "iteration" in state else state["t"]


@each_learner
def test_finished_fit_is_not_run_again(name, tmp_path):
    learner, path = LEARNERS[name], tmp_path / "fit.ckpt"
    whole = learner.fit(Logistic(), START, checkpoint=path)
    problem = Logistic()
    again = learner.fit(problem, START, checkpoint=path, resume=True)
    assert problem.calls == 0 and again.w.tobytes() == whole.w.tobytes() and again.trace == whole.trace
    assert (again.converged, again.message) == (whole.converged, whole.message)


def test_checkpoints_do_not_change_the_fit(tmp_path):
    for learner in LEARNERS.values():
        whole = learner.fit(Logistic(), START)
        written = learner.fit(Logistic(), START, checkpoint=tmp_path / "fit.ckpt", checkpoint_seconds=0.0)
        assert written.w.tobytes() == whole.w.tobytes()


def test_missing_file_starts_anew(tmp_path):
    path = tmp_path / "fit.ckpt"
    fit = LBFGS().fit(Logistic(), START, checkpoint=path, resume=True)
    assert fit.message.startswith(f"no checkpoint at {path}: started from scratch; ") and fit.converged and path.exists()
    with pytest.raises(InputError, match="resume=True needs checkpoint="):
        LBFGS().fit(Logistic(), START, resume=True)


def test_other_fits_are_refused(tmp_path):
    path = tmp_path / "fit.ckpt"
    LBFGS().fit(Logistic(), START, checkpoint=path)
    options = {"checkpoint": path, "resume": True}
    with pytest.raises(InputError, match="has spec 'lbfgs' and this fit has 'lbfgs\\(history=5\\)'"):
        LBFGS(history=5).fit(Logistic(), START, **options)
    with pytest.raises(InputError, match="has n_weights 8 and this fit has 3"):
        LBFGS().fit(Logistic(d=3), np.zeros(3), **options)
    with pytest.raises(InputError, match="n_examples"):
        LBFGS().fit(Logistic(n=61), START, **options)
    with pytest.raises(InputError, match="seed"):
        LBFGS().fit(Logistic(), START, seed=1, **options)
    with pytest.raises(InputError, match="objective"):
        LBFGS().fit(Function(lambda w: (0.0, w), 8), START, **options)
    other = Logistic()
    other.fingerprint = lambda: {"examples": "other data"}
    with pytest.raises(InputError, match=r"has examples .* and this fit has 'other data'"):
        LBFGS().fit(other, START, **options)


@pytest.mark.parametrize("kind", ["empty", "text", "cut", "bit", "header", "foreign", "version"])
def test_damaged_or_foreign_files_are_refused(kind, tmp_path):
    path = tmp_path / "fit.ckpt"
    LBFGS().fit(Logistic(), START, checkpoint=path)
    data = bytearray(path.read_bytes())
    if kind == "empty":
        data = b""
    elif kind == "text":
        data = b"hello, this is not a checkpoint at all\n" * 20
    elif kind == "cut":
        data = data[: len(data) // 2]
    elif kind == "bit":
        data[-5] ^= 1
    elif kind == "header":
        data[100] ^= 64
    elif kind == "version":
        data = data.replace(b'"version":"2"', b'"version":"9"')
    path.write_bytes(data)
    if kind == "foreign":
        save_file({"w": np.zeros(8)}, path)
    before = path.read_bytes()
    with pytest.raises(InputError) as error:
        LBFGS().fit(Logistic(), START, checkpoint=path, resume=True)
    assert str(path) in str(error.value) and "\n" not in str(error.value)
    assert path.read_bytes() == before


def test_unwritable_paths(tmp_path):
    problem = Logistic()
    for path in (tmp_path / "no" / "fit.ckpt", tmp_path):
        with pytest.raises(InputError, match="cannot be written"):
            LBFGS().fit(problem, START, checkpoint=path)
    assert problem.calls == 0


@pytest.mark.skipif(os.name != "posix" or os.geteuid() == 0, reason="root may write everywhere")
def test_folder_without_permission(tmp_path):
    tmp_path.chmod(0o500)
    with pytest.raises(InputError, match="Permission denied"):
        LBFGS().fit(Logistic(), START, checkpoint=tmp_path / "fit.ckpt")


@contextlib.contextmanager
def largest_file(size):
    """Let the system refuse files beyond a size, as a full disk does."""
    resource = pytest.importorskip("resource")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        yield lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize("size", [1000, 4096])  # the probe fails; the probe passes and the first checkpoint fails
def test_full_disk_at_the_start(size, tmp_path):
    path = tmp_path / "fit.ckpt"
    path.write_bytes(b"old")
    d = 1000
    with largest_file(size) as limit:
        limit()
        with pytest.raises(InputError, match="cannot be written: File too large"):
            LBFGS().fit(Function(lambda w: (w @ w, 2 * w), d), np.ones(d), checkpoint=path)
    assert path.read_bytes() == b"old" and list(tmp_path.iterdir()) == [path]


def test_full_disk_later(tmp_path):
    """The fit continues with a warning; the old checkpoint is whole and can be resumed."""
    path = tmp_path / "fit.ckpt"
    learner = LEARNERS["lbfgs"]
    whole = learner.fit(Logistic(), START)
    with largest_file(1000) as limit:

        def fill(iteration, w, row):
            if iteration == 10:
                limit()

        with pytest.warns(
            UserWarning, match="cannot be written: File too large; make room .* last checkpoint .* can be resumed"
        ):
            fit = learner.fit(Logistic(), START, checkpoint=path, checkpoint_iterations=1, callbacks=[fill])
    assert fit.w.tobytes() == whole.w.tobytes()
    assert _progress(path) == 9
    assert learner.fit(Logistic(), START, checkpoint=path, resume=True).w.tobytes() == whole.w.tobytes()


def test_any_error_leaves_a_checkpoint(tmp_path):
    path = tmp_path / "fit.ckpt"
    whole = LEARNERS["lbfgs"].fit(Logistic(), START)
    with pytest.raises(Stop):
        LEARNERS["lbfgs"].fit(interrupt_at(Logistic(), 8, Stop), START, checkpoint=path)
    assert _progress(path) > 3
    assert LEARNERS["lbfgs"].fit(Logistic(), START, checkpoint=path, resume=True).w.tobytes() == whole.w.tobytes()


def test_interrupted_while_writing(tmp_path, monkeypatch):
    path = tmp_path / "fit.ckpt"
    write_checkpoint(path, {"w": np.zeros(3)}, {"a": 1.5})

    def interrupted(handle):
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", interrupted)
    with pytest.raises(KeyboardInterrupt):
        write_checkpoint(path, {"w": np.ones(3)}, {"a": 2.5})
    arrays, content = read_checkpoint(path)
    assert not arrays["w"].any() and content == {"a": 1.5} and list(tmp_path.iterdir()) == [path]


def _images(seed=0):
    rng = np.random.default_rng(seed)
    X = [rng.normal(size=(6, 7, 2)) for _ in range(5)]
    return X, [(x[..., 0] > 0).astype(int) for x in X]


CHANGES = {
    "examples": lambda X, Y: (([*X[:-1], X[-1] + 1e-9], Y), {}, {}),
    "labels": lambda X, Y: ((X, [*Y[:-1], 1 - Y[-1]]), {}, {}),
    "weights of examples": lambda X, Y: ((X, Y), {}, {"sample_weight": [2, 1, 1, 1, 1]}),
    "l2": lambda X, Y: ((X, Y), {"l2": 0.5}, {}),
    "inference": lambda X, Y: ((X, Y), {"inference": "tree_reweighted(n_iter=6)"}, {}),
    "gradient": lambda X, Y: ((X, Y), {"gradient": "perturbation"}, {}),
    "objective": lambda X, Y: ((X, Y), {"loss": "surrogate_likelihood"}, {}),
    "dtype": lambda X, Y: ((X, Y), {"dtype": "float32"}, {}),
    "energies": lambda X, Y: ((X, Y), {"pairwise": "constant"}, {}),
    "n_chunks": lambda X, Y: ((X, Y), {}, {"n_chunks": 2}),
    "validation": lambda X, Y: ((X, Y), {}, {"validation": (X[:2], Y[:2])}),
}


@pytest.mark.parametrize("what", CHANGES)
def test_other_data_or_settings_are_refused_by_name(what, tmp_path):
    def model(**settings):
        return bf.GridCRF(**{"learner": "lbfgs(max_iter=4)", "dtype": "float64", **settings})

    path, (X, Y) = tmp_path / "fit.ckpt", _images()
    whole = model().fit(X, Y, checkpoint=path)
    before = path.read_bytes()
    data, settings, options = CHANGES[what](X, Y)
    with pytest.raises(InputError, match=f"the checkpoint .* has {what} .* and this fit has .*; they do not match"):
        model(**settings).fit(*data, checkpoint=path, resume=True, **options)
    assert path.read_bytes() == before
    again = model(n_jobs=2).fit([x.copy() for x in X], Y, checkpoint=path, resume=True)
    assert again.weights_.tobytes() == whole.weights_.tobytes()


def test_a_checkpoint_of_another_version_is_refused(tmp_path, monkeypatch):
    path, (X, Y) = tmp_path / "fit.ckpt", _images()
    bf.GridCRF(learner="lbfgs(max_iter=2)").fit(X, Y, checkpoint=path)
    monkeypatch.setattr("backfield.training.fingerprint.__version__", "99")
    with pytest.raises(InputError, match=r"has version '.*' and this fit has '99'"):
        bf.GridCRF(learner="lbfgs(max_iter=2)").fit(X, Y, checkpoint=path, resume=True)


def test_the_command_line_refuses_to_resume_with_other_data(tmp_path, capsys):
    from backfield.cli.app import run

    for name, seed in (("one", 0), ("two", 1)):
        X, Y = _images(seed)
        np.savez(tmp_path / f"{name}.npz", images=np.stack(X), masks=np.stack(Y))
    options = ["--checkpoint", str(tmp_path / "c"), "-o", str(tmp_path / "m.bf"), "--learner", "lbfgs(max_iter=3)"]
    assert run(["fit", str(tmp_path / "one.npz"), "--model", "grid", *options]) == 0
    capsys.readouterr()
    assert run(["fit", str(tmp_path / "two.npz"), "--model", "grid", *options, "--resume"]) == 2
    assert "has examples" in capsys.readouterr().err
    assert run(["fit", str(tmp_path / "one.npz"), "--model", "grid", *options, "--resume", "--l2", "0.5"]) == 2
    assert "and this fit has '0.5'" in capsys.readouterr().err
