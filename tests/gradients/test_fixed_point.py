"""Gradients that hold at convergence: implicit, back-propagation without a tape, and perturbation."""

import warnings
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest

import backfield as bf
from backfield.inference import LoopyBP
from backfield.inference.message_passing.families import MessagePassing
from backfield.registry import lookup, names
from tests.gradients.differences import GRAPHS, check, example, iterative_methods, takes

GRADIENTS = ["implicit", "backpropagation(tol=1e-9)", "perturbation"]


def converged(name):
    """Return the spec of a method run until nothing changes; eps = 0.5 keeps what differences see smooth."""
    return f"{name}(n_iter=3000, tol=1e-13{', eps=0.5' if name == 'smoothed_lp' else ''})"


def gradient(theta, labels, **setting):
    return bf.value_and_gradient(theta, labels, **setting)[1].vector()


def assert_close(found, expected, tolerance):
    assert np.abs(found - expected).max() <= tolerance * np.abs(expected).max() + 1e-12


@pytest.mark.parametrize("method", iterative_methods())
@pytest.mark.parametrize("loss", names("losses"))
def test_all_agree_at_convergence(loss, method):
    for graph in GRAPHS.values():
        if not takes(loss, graph):
            continue
        theta, labels = example(graph, scale=0.5)
        setting = {"loss": loss, "inference": converged(method)}
        truncated = gradient(theta, labels, gradient="truncated", **setting)
        for strategy in GRADIENTS:
            assert_close(gradient(theta, labels, gradient=strategy, **setting), truncated, 1e-5)
        check(theta, labels, 1e-5, gradient="implicit", **setting)


@pytest.mark.parametrize("strategy", GRADIENTS)
@pytest.mark.parametrize("method", iterative_methods())
def test_against_differences(method, strategy):
    for graph in GRAPHS.values():
        theta, labels = example(graph, seed=1, scale=0.5)
        check(theta, labels, 1e-5, loss="clique_logistic", inference=converged(method), gradient=strategy)


@pytest.mark.parametrize(
    "method", [name for name in iterative_methods() if issubclass(lookup("inference", name), MessagePassing)]
)
def test_explicit_system(method):
    """The theorem of [D13] §5, also where its D is singular: corners of grids at rho = 1/2, leaves at rho = 1."""
    for graph in GRAPHS.values():
        theta, labels = example(graph, scale=0.5)
        for loss in ("univariate_logistic", "clique_quadratic"):
            setting = {"loss": loss, "inference": converged(method)}
            explicit = gradient(theta, labels, gradient="implicit(system='explicit')", **setting)
            assert_close(explicit, gradient(theta, labels, gradient="implicit", **setting), 1e-7)


def test_forbidden_entries():
    theta, labels = example(GRAPHS["mixed"], scale=0.5)
    values = theta.vector()
    for entry in (3, len(theta.unary_flat) + 1, len(theta.unary_flat) + 20):
        values[entry] = -np.inf
    theta, labels[:] = theta.like(values), [0, 0, -1, 1, 0]
    for method in iterative_methods():
        setting = {"loss": "univariate_logistic", "inference": converged(method)}
        truncated = gradient(theta, labels, gradient="truncated", **setting)
        for strategy in GRADIENTS:
            assert_close(gradient(theta, labels, gradient=strategy, **setting), truncated, 1e-5)
    explicit = gradient(theta, labels, gradient="implicit(system='explicit')", loss="l1", inference=converged("loopy_bp"))
    assert_close(explicit, gradient(theta, labels, loss="l1", inference=converged("loopy_bp")), 1e-6)


def test_explicit_system_is_for_small_models():
    theta, labels = example(bf.Graph.grid(30, 30))
    with pytest.raises(bf.InputError, match="unknowns, over 4000; use system='matrix_free'"):
        gradient(theta, labels, loss="mse", inference="loopy_bp", gradient="implicit(system='explicit')")


@pytest.mark.parametrize("sides", [1, 2, 4])
def test_more_sides_are_more_exact(sides):
    theta, labels = example(bf.Graph.grid(4, 4))
    setting = {"loss": "univariate_logistic", "inference": "tree_reweighted(n_iter=500, tol=1e-14)"}
    exact = gradient(theta, labels, gradient="truncated", **setting)
    found = gradient(theta, labels, gradient=f"perturbation(sides={sides})", **setting)
    error = np.abs(found - exact).max() / np.abs(exact).max()
    assert {1: 1e-7, 2: 1e-12, 4: 0}[sides] < error < {1: 1e-3, 2: 1e-7, 4: 1e-9}[sides]


def test_exact_methods_take_any_strategy():
    theta, labels = example(GRAPHS["tree"])
    expected = gradient(theta, labels, loss="univariate_logistic", inference="exact")
    for strategy in ("truncated", "direct", *GRADIENTS):
        found = gradient(theta, labels, loss="univariate_logistic", inference="exact", gradient=strategy)
        assert_close(found, expected, 1e-7)


# Where it does not apply


@pytest.mark.parametrize("strategy", GRADIENTS)
@pytest.mark.parametrize("method", iterative_methods())
def test_warns_before_convergence(method, strategy):
    theta, labels = example(bf.Graph.grid(4, 4))
    setting = {"loss": "univariate_logistic", "gradient": strategy}
    with pytest.warns(bf.ConvergenceWarning, match="holds at convergence.*or use the gradient 'truncated'"):
        gradient(theta, labels, inference=f"{method}(n_iter=2)", **setting)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        gradient(theta, labels, inference=f"{method}(n_iter=500)", **setting)
        gradient(theta, labels, inference=f"{method}(n_iter=500, tol=1e-9)", **setting)


def test_backpropagation_warns_where_it_does_not_die_out():
    theta, labels = example(bf.Graph.grid(4, 4))
    with pytest.warns(bf.ConvergenceWarning, match="did not reach its tolerance in 3 steps"):
        gradient(
            theta, labels, loss="mse", inference="loopy_bp(n_iter=500)", gradient="backpropagation(tol=1e-12, n_iter=3)"
        )


@dataclass(frozen=True, repr=False)
class Lopsided(LoopyBP):
    """A method that does not claim a symmetric Jacobian; not registered."""

    symmetric: ClassVar[bool] = False


def test_perturbation_refuses_methods_without_symmetry():
    theta, labels = example(GRAPHS["grid"])
    with pytest.raises(bf.InputError, match=r"perturbation needs a symmetric d mu / d theta.*; use 'truncated'"):
        gradient(theta, labels, loss="mse", inference=Lopsided(), gradient="perturbation")


@pytest.mark.parametrize("strategy", ["truncated", *GRADIENTS])
def test_no_gradient_through_samples(strategy):
    theta, labels = example(GRAPHS["grid"])
    with pytest.raises(bf.InputError, match=r"no gradient through gibbs, which samples; use mean_field") as found:
        gradient(theta, labels, loss="mse", inference="gibbs", gradient=strategy)
    assert "\n" not in str(found.value)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("perturbation(sides=3)", "sides must be one of 1, 2, 4; received 3"),
        ("perturbation(multiplier=0)", "multiplier must be a positive number, received 0"),
        ("implicit(system='dense')", "system must be 'matrix_free' or 'explicit', received 'dense'"),
        ("backpropagation(tol=0)", "tol must be a positive number, received 0"),
        ("truncated(memory=0)", "memory must be a positive number of bytes, received 0"),
        ("truncate", "there is no 'truncate' in gradients; did you mean 'truncated'"),
    ],
)
def test_bad_settings(spec, message):
    theta, labels = example(GRAPHS["grid"])
    with pytest.raises(bf.InputError, match=message):
        gradient(theta, labels, loss="mse", inference="loopy_bp", gradient=spec)


def test_explicit_system_refuses_other_methods():
    theta, labels = example(GRAPHS["grid"])
    for method in ("mean_field", "smoothed_lp"):
        with pytest.raises(bf.InputError, match=f"describes loopy_bp and tree_reweighted, not {method}; use system="):
            gradient(theta, labels, loss="mse", inference=method, gradient="implicit(system='explicit')")
