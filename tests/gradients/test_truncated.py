"""Truncated back-propagation is the exact derivative of what the sweeps computed."""

import tracemalloc

import numpy as np
import pytest

import backfield as bf
from backfield.gradients import Truncated
from backfield.gradients.truncated import Tape, log_partition_and_gradient
from backfield.losses import UnivariateLogistic
from backfield.registry import get, names
from tests.gradients.differences import GRAPHS, check, example, iterative_methods, relative_error, takes

METHODS = [name + "(n_iter={})" for name in iterative_methods()] + [
    "tree_reweighted(n_iter={}, rho=0.6, damping=0.2)",
    "loopy_bp(n_iter={}, schedule='flooding')",
    "mean_field(n_iter={}, damping=0.3, schedule='flooding')",
]


@pytest.mark.parametrize("sweeps", [1, 3, 50])
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("loss", names("losses"))
def test_every_loss_through_every_method(loss, method, sweeps):
    for graph in GRAPHS.values():
        if takes(loss, graph):
            theta, labels = example(graph)
            check(theta, labels, 1e-6, loss=loss, inference=method.format(sweeps), gradient="truncated")


@pytest.mark.parametrize("sweeps", [1, 3, 50])
@pytest.mark.parametrize("method", METHODS)
def test_truncated_log_partition(method, sweeps):
    part = get("inference", method.format(sweeps))
    for graph in GRAPHS.values():
        theta, _ = example(graph)
        value, d_theta, mu = log_partition_and_gradient(part, theta)
        run = part.infer(theta)
        assert value == pytest.approx(run.log_partition, rel=1e-12)
        np.testing.assert_allclose(mu.vector(), run.marginals.vector(), rtol=1e-12)

        def log_z(moved):
            return part.infer(moved).log_partition

        assert relative_error(theta, log_z, d_theta.vector(), np.random.default_rng(1)) < 1e-6, graph


@pytest.mark.parametrize("method", METHODS)
def test_forbidden_entries(method):
    theta, labels = example(GRAPHS["mixed"])
    values = theta.vector()
    for entry in (3, len(theta.unary_flat) + 1, len(theta.unary_flat) + 20):
        values[entry] = -np.inf
    labels[:] = [0, 0, -1, 1, 0]
    check(theta.like(values), labels, 1e-6, loss="univariate_logistic", inference=method.format(3))


def test_no_sweep_at_all():
    theta, labels = example(GRAPHS["mixed"])
    for name in iterative_methods():
        if name != "mean_field":
            check(theta, labels, 1e-6, loss="clique_quadratic", inference=f"{name}(n_iter=0)")
    _, d_theta = bf.value_and_gradient(theta, labels, loss="univariate_logistic", inference="mean_field(n_iter=0)")
    assert not d_theta.vector().any()


def test_single_precision():
    for name in ("grid", "grid of 3 labels", "tree", "mixed"):
        theta, labels = example(GRAPHS[name])
        setting = {"loss": "univariate_logistic", "inference": "tree_reweighted(n_iter=5)"}
        value, d_theta = bf.value_and_gradient(theta, labels, **setting)
        small, d_small = bf.value_and_gradient(theta, labels, dtype="float32", **setting)
        assert d_small.dtype == np.float32
        assert small == pytest.approx(value, rel=1e-5)
        np.testing.assert_allclose(d_small.vector(), d_theta.vector(), atol=1e-5)


# Memory


def _states(method, theta, count):
    """Bytes of ``count`` states."""
    return count * method.engine(theta).init().nbytes


@pytest.mark.parametrize("name", [*iterative_methods(), "tree_reweighted(rho=0.7, damping=0.1, schedule='sequential')"])
@pytest.mark.parametrize("capacity", [0, 4, 5, 9, 16, 33, 100])
def test_checkpoints_give_the_same_gradient(name, capacity):
    """Below five states even spacing does not fit, and segments are split again."""
    method = get("inference", name).replace(n_iter=45)
    for graph in (bf.Graph.grid(7, 6), GRAPHS["mixed"]):
        theta, labels = example(graph, scale=0.5)
        small = Truncated(memory=max(1, _states(method, theta, capacity)))
        for changes in ({}, {"tol": 1e-4}):
            setting = {"loss": "univariate_logistic", "inference": method.replace(**changes)}
            value, d_theta = bf.value_and_gradient(theta, labels, gradient=Truncated(), **setting)
            again, d_again = bf.value_and_gradient(theta, labels, gradient=small, **setting)
            assert again == value
            np.testing.assert_allclose(d_again.vector(), d_theta.vector(), rtol=1e-11, atol=1e-14)
    value, d_theta, _ = log_partition_and_gradient(method, theta)
    again, d_again, _ = log_partition_and_gradient(method, theta, small.memory)
    assert again == value
    np.testing.assert_allclose(d_again.vector(), d_theta.vector(), rtol=1e-11, atol=1e-14)


@pytest.mark.parametrize("name", iterative_methods())
def test_memory_stays_within_the_budget(name):
    theta, labels = example(bf.Graph.grid(120, 110))
    setting = {"loss": "univariate_logistic", "inference": get("inference", name).replace(n_iter=60)}

    def peak(memory, **changes):
        inference = setting["inference"].replace(**changes)
        tracemalloc.start()
        bf.value_and_gradient(theta, labels, **{**setting, "inference": inference}, gradient=Truncated(memory=memory))
        found = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return found

    fixed = peak(2**30, n_iter=1)
    budget = _states(setting["inference"], theta, 12)
    assert peak(2**30) - fixed > 4 * budget
    assert peak(budget) - fixed < budget


def test_sweeps_are_at_most_doubled_where_spacing_fits():
    theta, _ = example(bf.Graph.grid(5, 5))
    method = get("inference", "tree_reweighted(n_iter=40)")
    engine = method.engine(theta)
    done = []
    sweep = engine.sweep
    engine.sweep = lambda state, t: (done.append(t), sweep(state, t))
    tape = Tape(engine, method, _states(method, theta, 20))
    tape.unwind(np.zeros_like(tape.last), engine.adjoint())
    assert tape.spacing > 1
    assert len(done) <= 80


def test_marginals_are_not_overwritten_on_the_way_back():
    for name in iterative_methods():
        method = get("inference", name)
        for graph in GRAPHS.values():
            theta, labels = example(graph)
            labeling = bf.graph.labeling.as_labeling(graph, labels)
            outcome = Truncated().differentiate(
                method, theta, lambda mu: UnivariateLogistic().value_and_dmu(mu, labeling, None), False
            )
            np.testing.assert_array_equal(outcome.mu.unary_flat, method.infer(theta).marginals.unary_flat)
            assert outcome.n_iter == method.n_iter
