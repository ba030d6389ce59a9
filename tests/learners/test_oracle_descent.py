"""oracle_descent: the value never rises, hidden labels, checkpoints, early stopping, and oracles that misbehave."""

import itertools
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

import backfield as bf
from backfield.datasets.generated import denoising
from backfield.learners._checkpoint import read_checkpoint
from backfield.oracles import Oracle, OracleFunction
from tests.learners.problems import same_trace

ORACLES = {
    "linear": ("linear", "linear"),
    "trees": ("boosted_trees(max_leaves=4)", "boosted_trees(max_leaves=4)"),
    "networks": ("mlp(hidden=9, n_epochs=2, batch=20)", "mlp(hidden=9, n_epochs=2, batch=20)"),
}
EXTRAS = {"linear": "numpy", "trees": "lightgbm", "networks": "torch"}


def images(n=3, size=12, seed=0):
    data = denoising(n, size=size, sd=2.0, seed=seed)
    return [bf.GridSample(*each) for each in zip(data.features, data.horizontal, data.vertical, strict=True)], data.masks


def model(unary="linear", pairwise="linear", n_rounds=6, **settings):
    learner = settings.pop("learner", f"oracle_descent(n_rounds={n_rounds}, tol=0.0)")
    settings = {"inference": "smoothed_lp(n_iter=25)"} | settings
    return bf.GridCRF(unary=unary, pairwise=pairwise, learner=learner, **settings)


def never_rises(crf):
    values = [row["objective"] for row in crf.trace_]
    return all(b <= a + 1e-12 * abs(a) for a, b in itertools.pairwise(values))


def hidden(masks, share=0.4):
    rng = np.random.default_rng(1)
    return [np.where(rng.random(mask.shape) < share, -1, mask) for mask in masks]


@pytest.mark.parametrize("kind", ORACLES)
@pytest.mark.parametrize("hide", [False, True])
def test_the_value_never_rises(kind, hide):
    pytest.importorskip(EXTRAS[kind])
    X, Y = images()
    crf = model(*ORACLES[kind], n_rounds=12).fit(X, hidden(Y) if hide else Y)
    assert never_rises(crf)
    assert crf.trace_[-1]["objective"] < 0.99 * crf.trace_[0]["objective"]
    assert crf.trace_[-1]["left_out"] == 0
    assert crf.score(X, Y) > 0.55


def test_the_value_is_the_smoothed_hinge():
    """With many sweeps, the trace ends at smoothed_max_margin of the functions found ([L13] eq. 6)."""
    X, Y = images(2, 8)
    crf = model(n_rounds=3, learner="oracle_descent(n_rounds=3, sweeps=400, tol=0.0)", dtype="float64").fit(X, Y)
    total = 0.0
    for x, mask in zip(X, Y, strict=True):
        total += bf.value_and_gradient(crf.potentials(x), mask.ravel(), loss="smoothed_max_margin(eps=0.1)")[0]
    assert crf.trace_[-1]["objective"] == pytest.approx(total / 128, rel=1e-6)


def test_threads_change_nothing():
    X, Y = images()
    one, two = (model(n_jobs=n).fit(X, Y) for n in (1, 2))
    assert [row["objective"] for row in one.trace_] == [row["objective"] for row in two.trace_]


def test_factors_of_any_arity_and_label_counts():
    """Two types of variables (2 and 3 labels) and of factors (pairs and triples)."""
    rng = np.random.default_rng(0)
    graph = bf.Graph(labels=[2, 3, 2, 3], factors=[(0, 1), (2, 3), (0, 2, 1), (0, 2, 3)])
    types = {"node_types": [0, 1, 0, 1], "factor_types": [0, 0, 1, 1]}
    X, Y = [], []
    for _ in range(20):
        y = np.array([rng.integers(0, k) for k in graph.labels])
        X.append(bf.Sample(graph, (y + 0.4 * rng.normal(size=4))[:, None], rng.random((4, 1)), **types))
        Y.append(y)
    settings = {"learner": "oracle_descent(n_rounds=10, tol=0.0)", "inference": "smoothed_lp(n_iter=25)"}
    crf = bf.GraphCRF(unary="linear", pairwise="linear", **settings).fit(X, Y)
    assert never_rises(crf)
    assert crf.score(X, Y) > 0.75


def test_weights_are_those_of_the_margin():
    X, Y = images()
    plain, dear = model(n_rounds=20).fit(X, Y), model(n_rounds=20, class_weight={0: 1.0, 1: 4.0}).fit(X, Y)
    assert np.mean(dear.predict(X)) > np.mean(plain.predict(X))


# Oracles of one's own, good and bad


class Table(OracleFunction):
    def __init__(self, values):
        self.values, self.n_classes = values, len(values)

    def scores(self, features):
        return np.tile(self.values, (len(features), 1))


@dataclass(frozen=True, repr=False)
class HardOnly(Oracle, name="test_hard_only"):
    """One gradient step on constants; takes labels only, and jumps away on odd seeds."""

    step: float = 2.0
    wild: bool = False

    def fit(self, task):
        assert task.labels.ndim == 1
        values = np.zeros(task.n_classes) if task.start is None else task.start.values
        if self.wild and task.seed % 2 and task.start is not None:
            return Table(values + 30 * np.arange(task.n_classes))
        scores = values + task.bias
        p = np.exp(scores - scores.max(axis=1, keepdims=True))
        p /= p.sum(axis=1, keepdims=True)
        return Table(values + self.step * (np.eye(task.n_classes)[task.labels] - p).mean(axis=0))


def test_rows_without_labels_are_left_out():
    X, Y = images()
    crf = model("test_hard_only", "test_hard_only").fit(X, hidden(Y))
    assert never_rises(crf)
    n_hidden = sum(int((mask < 0).sum()) for mask in hidden(Y))
    assert crf.trace_[-1]["left_out"] > n_hidden  # hidden pixels, and edges that touch one


def test_a_fit_that_raises_the_value_is_not_taken():
    X, Y = images()
    crf = model("test_hard_only(wild=True)", "test_hard_only(wild=True)").fit(X, Y)
    assert never_rises(crf)
    # Three functions: pixels, horizontal and vertical edges.
    assert [row["rejected"] for row in crf.trace_] == [0, 3, 0, 3, 0, 3]


@dataclass(frozen=True, repr=False)
class Bad(Oracle, name="test_bad"):
    how: str = "nan"

    def fit(self, task):
        values = np.log(np.bincount(task.labels, minlength=task.n_classes) + 1.0)
        if self.how == "nan":
            values[0] = np.nan
        return Table(values[:-1] if self.how == "shape" else values)


@pytest.mark.parametrize(("how", "words"), [("nan", "is nan"), ("shape", r"\(432, 2\)"), ("bias", "ignores the bias")])
def test_bad_oracles_are_named(how, words):
    X, Y = images()
    with pytest.raises(bf.InputError, match=f"oracle 'test_bad'.*{words}"):
        model(f"test_bad(how={how!r})", "zero").fit(X, Y)


@pytest.mark.parametrize(("name", "package", "extra"), [("boosted_trees", "lightgbm", "boost"), ("mlp", "torch", "torch")])
def test_missing_extras_are_named(name, package, extra, monkeypatch):
    monkeypatch.setitem(sys.modules, package, None)
    X, Y = images(1)
    with pytest.raises(bf.InputError, match=rf"{name} needs {package}.*pip install 'backfield\[{extra}\]'"):
        model(name, "zero").fit(X, Y)


# Checkpoints


def same_model(a, b):
    same = all(np.array_equal(p, q) for p, q in zip(a.predict_proba(images()[0]), b.predict_proba(images()[0]), strict=True))
    return same and same_trace(a.trace_, b.trace_)


@pytest.mark.parametrize("kind", ORACLES)
@pytest.mark.parametrize("hide", [False, True])
def test_stopped_and_resumed(kind, hide, tmp_path):
    pytest.importorskip(EXTRAS[kind])
    X, Y = images()
    Y = hidden(Y) if hide else Y
    whole = model(*ORACLES[kind]).fit(X, Y)
    path = tmp_path / "fit.ckpt"
    stopped = model(*ORACLES[kind]).fit(X, Y, checkpoint=path, callbacks=[lambda i, w, row: i == 2])
    assert len(stopped.trace_) == 2
    resumed = model(*ORACLES[kind]).fit(X, Y, checkpoint=path, resume=True)
    assert same_model(resumed, whole)
    assert resumed.message_ == whole.message_
    again = model(*ORACLES[kind]).fit(X, Y, checkpoint=path, resume=True)  # done: the functions are read, nothing is run
    assert same_model(again, whole)


def test_other_oracles_cannot_go_on(tmp_path):
    X, Y = images()
    path = tmp_path / "fit.ckpt"
    model().fit(X, Y, checkpoint=path)
    with pytest.raises(
        bf.InputError, match="has energies 'linear, linear, linear' and this fit has 'linear, constant, constant'"
    ):
        model("linear", "constant").fit(X, Y, checkpoint=path, resume=True)


SCRIPT = """
import sys, time
from tests.learners.test_oracle_descent import images, model, ORACLES
X, Y = images()
fit = model(*ORACLES[sys.argv[1]]).fit
fit(X, Y, checkpoint=sys.argv[2], checkpoint_seconds=0.0, callbacks=[lambda i, w, row: time.sleep(0.3 if i < 5 else 1000)])
"""


@pytest.mark.end_to_end
@pytest.mark.parametrize("kind", ["linear", "trees"])
def test_killed_and_resumed(kind, tmp_path):
    pytest.importorskip(EXTRAS[kind])
    path = tmp_path / "fit.ckpt"
    process = subprocess.Popen([sys.executable, "-c", SCRIPT, kind, str(path)], cwd=Path(__file__).parents[2])
    try:
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline and process.poll() is None:
            if path.exists() and read_checkpoint(path)[1]["state"]["round"] >= 3:
                break
            time.sleep(0.01)
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert process.returncode == -signal.SIGKILL
    X, Y = images()
    resumed = model(*ORACLES[kind]).fit(X, Y, checkpoint=path, resume=True)
    assert same_model(resumed, model(*ORACLES[kind]).fit(X, Y))


# Early stopping


def test_the_best_functions_on_validation_data_are_kept(tmp_path):
    X, Y = images(1, 8)
    held = images(2, 12, seed=5)
    learner = "oracle_descent(n_rounds=60, tol=0.0, patience=3)"
    seen = []
    crf = model(learner=learner, l2=0.0)
    crf.fit(X, Y, validation=held, callbacks=[lambda i, w, row: seen.append((row["validation"], parameters(crf)))])
    lowest = min(range(len(seen)), key=lambda k: seen[k][0])
    assert np.array_equal(parameters(crf), seen[lowest][1])
    assert len(seen) < 60 and len(seen) == lowest + 4
    assert "validation" in crf.message_
    path = tmp_path / "fit.ckpt"
    stopped = model(learner=learner, l2=0.0)
    stopped.fit(X, Y, validation=held, checkpoint=path, callbacks=[lambda i, w, row: i == lowest + 2])
    resumed = model(learner=learner, l2=0.0).fit(X, Y, validation=held, checkpoint=path, resume=True)
    assert np.array_equal(parameters(resumed), parameters(crf))


def parameters(crf):
    return np.concatenate([block.energy.function.weights.ravel() for block in crf.layout_.unary + crf.layout_.factors])


def test_progress(capsys):
    X, Y = images(1, 6)
    model(n_rounds=2, verbose=1).fit(X, Y)
    assert "2/2" in capsys.readouterr().err
