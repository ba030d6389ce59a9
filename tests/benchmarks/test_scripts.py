"""The scripts beside other libraries still find what they import, and the function of a fit can be taken out of it."""

import importlib

import numpy as np
import pytest

import backfield as bf
from backfield_benchmarks import grid_fit, module_count
from backfield_benchmarks.probe import problem_of


@pytest.mark.parametrize(
    "name",
    [
        "annotator",
        "clamping",
        "cluster",
        "crfsuite",
        "dense_filter",
        "dense_pydensecrf",
        "dense_sets",
        "graph_cut",
        "isbi",
        "label",
        "msrc",
        "precondition",
        "tiles",
        "torch_layer",
        "volumes",
    ],
)
def test_scripts_can_be_imported(name):
    if name == "torch_layer":
        pytest.importorskip("torch")
    assert importlib.import_module(f"backfield_benchmarks.{name}").__doc__


def test_the_function_of_a_fit():
    X, Y = grid_fit.data(2)
    crf = bf.GridCRF(inference="tree_reweighted(n_iter=2)", learner="lbfgs(max_iter=2)", dtype="float64").fit(X, Y)
    problem = problem_of(bf.GridCRF(inference="tree_reweighted(n_iter=2)", dtype="float64"), X, Y)
    found = problem.value_and_gradient(crf.weights_)
    assert found.value == pytest.approx(crf.trace_[-1]["objective"], rel=1e-12)
    assert np.linalg.norm(found.gradient) == pytest.approx(crf.trace_[-1]["gradient_norm"], rel=1e-9)


def test_kernels_alone():
    marginals = grid_fit.kernel_time(5, 6, 2)
    np.testing.assert_allclose(marginals.unary.sum(axis=1), 1.0, rtol=1e-12)


@pytest.mark.parametrize(("model", "most"), [("grid", 38), ("chain", 42), ("graph", 39)])
def test_a_fit_passes_no_more_modules_than_before(model, most):
    crf, X, y = module_count.example(model)
    crf.fit(X, y)  # compiling does not count, and would take several times as long while calls are watched
    found = module_count.modules_of(lambda: crf.fit(X, y))
    assert len(found) <= most, f"{len(found)} modules, {most} before: merge what belongs together, or ask fewer of them"
