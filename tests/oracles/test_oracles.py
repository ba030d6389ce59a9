"""What holds for every oracle of the package."""

import json
import os
import pickle
import subprocess
import sys

import numpy as np
import pytest

from backfield import InputError
from backfield.oracles import OracleTask, checked_fit, objective
from backfield.registry import get, lookup
from tests.oracles.rows import ORACLES, PACKAGES, built_in, rows, softmax


@pytest.fixture(params=ORACLES)
def oracle(request):
    if request.param in PACKAGES:
        pytest.importorskip(PACKAGES[request.param])
    return get("oracles", request.param)


def test_all_are_registered_and_their_specs_parse_back():
    assert sorted(built_in()) == sorted(ORACLES)
    for spec in ("linear(l2=0.01, fit_intercept=False)", "boosted_trees(n_rounds=3)", "mlp(hidden=7, optimizer='adam')"):
        assert repr(get("oracles", spec)) == spec


@pytest.mark.parametrize("n_classes", [2, 4])
def test_fit_lowers_the_biased_loss_and_saves(oracle, n_classes):
    x, y, bias = rows(n=3000, n_classes=n_classes, margin=10)
    fit = checked_fit(oracle, OracleTask(x, y, bias, seed=3))
    assert fit.scores.shape == (3000, n_classes) and fit.function.n_classes == n_classes
    assert fit.loss == pytest.approx(objective(fit.scores, y, bias), rel=1e-12)
    assert fit.loss <= fit.loss_before
    assert (fit.loss < fit.loss_before - 1e-3) == (oracle.name != "zero")

    arrays, meta = fit.function.arrays(), json.loads(json.dumps(fit.function.meta()))
    assert all(isinstance(a, np.ndarray) and a.dtype.kind in "fiu" for a in arrays.values())
    again = lookup("oracles", oracle.name).function_class.from_arrays(arrays, meta)
    np.testing.assert_array_equal(again.scores(x), fit.scores)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(fit.function)).scores(x), fit.scores)


def test_going_on_lowers_the_loss_further_and_keeps_the_start_as_it_was(oracle):
    x, y, bias = rows(n=3000, margin=10)
    first = checked_fit(oracle, OracleTask(x, y, bias))
    second = checked_fit(oracle, OracleTask(x, y, bias, start=first.function, seed=1))
    assert second.loss_before == pytest.approx(first.loss, rel=1e-12)
    assert second.loss <= first.loss * (1 + 1e-9)
    np.testing.assert_array_equal(first.function.scores(x), first.scores)
    saved = type(first.function).from_arrays(first.function.arrays(), first.function.meta())
    resumed = checked_fit(oracle, OracleTask(x, y, bias, start=saved, seed=1))
    np.testing.assert_array_equal(resumed.scores, second.scores)


def test_same_seed_same_function_for_any_number_of_threads(oracle):
    x, y, bias = rows(n=40000)
    a, b = (oracle.fit(OracleTask(x, y, bias, seed=5, n_jobs=1)).scores(x) for _ in range(2))
    np.testing.assert_array_equal(a, b)
    c = oracle.fit(OracleTask(x, y, bias, seed=5, n_jobs=2)).scores(x)
    np.testing.assert_allclose(a, c, atol=1e-3 if oracle.name == "mlp" else 0)


def test_a_class_that_never_occurs(oracle):
    x, y, bias = rows(n=2000, n_classes=3)
    fit = checked_fit(oracle, OracleTask(x, y, np.column_stack([bias, bias[:, 0]])))
    if oracle.name != "zero":
        assert fit.scores[:, 3].mean() < fit.scores[:, :3].mean() - 0.1


def test_one_class_only_and_few_rows(oracle):
    for n in (1, 2, 7):
        x, _, bias = rows(n=n)
        fit = checked_fit(oracle, OracleTask(x, np.ones(n, dtype=int), bias))
        assert fit.loss <= fit.loss_before + 1e-12
        checked_fit(oracle, OracleTask(x, np.ones(n, dtype=int), bias, start=fit.function))


def test_features_that_do_not_vary(oracle):
    _, y, bias = rows(n=500)
    fit = checked_fit(oracle, OracleTask(np.ones((500, 2)), y, bias))
    assert np.ptp(fit.scores, axis=0).max() == 0
    assert fit.loss < fit.loss_before or oracle.name == "zero"


@pytest.mark.parametrize("name", ["constant", "linear"])
def test_weights_are_repetitions(name):
    x, y, bias = rows(n=200)
    oracle = get("oracles", name)
    times = np.random.default_rng(0).integers(0, 4, 200)
    weighted = oracle.fit(OracleTask(x, y, bias, times.astype(float))).scores(x)
    repeated = oracle.fit(OracleTask(x.repeat(times, 0), y.repeat(times), bias.repeat(times, 0))).scores(x)
    np.testing.assert_allclose(weighted, repeated, atol=1e-4)


def test_labels_and_biases_of_rows_without_weight_do_not_matter(oracle):
    x, y, bias = rows(n=1000)
    weight = np.random.default_rng(0).integers(0, 3, 1000).astype(float)
    other_y, other_bias = y.copy(), bias.copy()
    other_y[weight == 0], other_bias[weight == 0] = 0, 100.0
    a = oracle.fit(OracleTask(x, y, bias, weight)).scores(x)
    b = oracle.fit(OracleTask(x, other_y, other_bias, weight)).scores(x)
    np.testing.assert_allclose(a, b, atol=1e-6)


def test_soft_targets_are_mixtures_of_labels(oracle):
    assert oracle.supports_soft_targets
    x, y, bias = rows(n=2000)
    one_hot = checked_fit(oracle, OracleTask(x, np.eye(3)[y], bias))
    labels = checked_fit(oracle, OracleTask(x, y, bias))
    np.testing.assert_allclose(one_hot.scores, labels.scores, atol=2e-3)
    soft = softmax(np.random.default_rng(1).normal(size=bias.shape))
    fit = checked_fit(oracle, OracleTask(x, soft, bias))
    assert fit.loss < fit.loss_before or oracle.name == "zero"


def test_float32_features_and_wrong_columns(oracle):
    x, y, bias = rows(n=1000)
    fit = checked_fit(oracle, OracleTask(x.astype(np.float32), y, bias))
    assert np.isfinite(fit.scores).all()
    if oracle.name not in ("zero", "constant"):
        with pytest.raises(InputError, match=rf"{oracle.name}.*\(N, 3\)"):
            fit.function.scores(x[:, :2])
        with pytest.raises(InputError, match=f"{oracle.name}.*features"):
            oracle.fit(OracleTask(x[:, :2], y, bias, start=fit.function))
    if oracle.name != "zero":
        other = get("oracles", "zero").fit(OracleTask(x, y, bias))
        with pytest.raises(InputError, match=f"{oracle.name}.*ZeroFunction"):
            oracle.fit(OracleTask(x, y, bias, start=other))


@pytest.mark.parametrize(
    "spec",
    [
        "linear(l2=-1)",
        "linear(max_iter=0)",
        "constant(l2='a')",
        "boosted_trees(n_rounds=0)",
        "boosted_trees(learning_rate=2)",
        "boosted_trees(min_fraction=0.7)",
        "mlp(hidden=1.5)",
        "mlp(optimizer='lbfgs')",
        "mlp(step=-1)",
    ],
)
def test_bad_parameters(spec):
    key = spec.partition("(")[2].partition("=")[0]
    with pytest.raises(InputError, match=key):
        get("oracles", spec)


@pytest.mark.parametrize(("name", "extra"), [("boosted_trees", "boost"), ("mlp", "torch")])
def test_a_missing_package_says_what_to_install(monkeypatch, name, extra):
    monkeypatch.setitem(sys.modules, PACKAGES[name], None)
    x, y, bias = rows(n=50)
    with pytest.raises(InputError, match=rf"{name} needs {PACKAGES[name]}.*pip install 'backfield\[{extra}\]'"):
        checked_fit(get("oracles", name), OracleTask(x, y, bias))
    assert lookup("oracles", name).needs_extra == extra


def test_optional_packages_are_not_imported_with_the_room():
    code = "import sys, backfield.oracles; sys.exit('torch' in sys.modules or 'lightgbm' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], env=os.environ.copy(), check=False).returncode == 0
