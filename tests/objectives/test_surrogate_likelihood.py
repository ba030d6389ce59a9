"""Surrogate likelihood and surrogate EM: gradients, bounds, hidden variables and sets."""

import warnings

import numpy as np
import pytest

import backfield as bf
from backfield.graph import conditioning
from backfield.graph.labeling import as_labeling, one_hot
from backfield.objectives import Setting, Target, get_objective
from backfield.registry import get
from tests.gradients.differences import GRAPHS, check, example, iterative_methods
from tests.models import enumerate_model, random_graph, random_potentials

LOSS = "surrogate_likelihood"


def converged(name):
    return f"{name}(n_iter=5000, tol=1e-12)"


def log_probability(theta, labels, observed=None):
    """log p(known labels | observed), by enumeration."""
    given = None if observed is None else np.asarray(observed)
    both = np.where(labels >= 0, labels, -1 if given is None else given)
    joint = bf.infer(theta, "brute_force", observed=both).log_partition
    return joint - bf.infer(theta, "brute_force", observed=given).log_partition


@pytest.mark.parametrize("method", iterative_methods())
def test_gradient_at_convergence_is_marginals_minus_labels(method):
    for graph in GRAPHS.values():
        theta, labels = example(graph, scale=0.5)
        labels[0] = 0
        setting = {"loss": LOSS, "inference": converged(method)}
        _, d_theta = bf.value_and_gradient(theta, labels, **setting)
        expected = bf.infer(theta, converged(method)).marginals.vector() - np.concatenate(one_hot(graph, labels))
        np.testing.assert_allclose(d_theta.vector(), expected, atol=1e-12)
        check(theta, labels, 1e-6, step=1e-3, **setting)


@pytest.mark.parametrize("method", iterative_methods())
def test_hidden_variables_are_clamped_out(method):
    for graph in GRAPHS.values():
        theta, labels = example(graph, scale=0.5)
        setting = {"loss": LOSS, "inference": converged(method)}
        value, d_theta = bf.value_and_gradient(theta, labels, **setting)
        free, clamped = (bf.infer(theta, converged(method), observed=given) for given in (None, labels))
        assert value == pytest.approx(free.log_partition - clamped.log_partition, abs=1e-9)
        np.testing.assert_allclose(d_theta.vector(), free.marginals.vector() - clamped.marginals.vector(), atol=1e-12)
        check(theta, labels, 1e-6, step=1e-3, **setting)


@pytest.mark.parametrize("sweeps", [0, 1, 3, 50])
@pytest.mark.parametrize("method", iterative_methods())
def test_truncated_form(method, sweeps):
    """[D13] §7.3: the exact derivative of the truncated partition functions, before convergence too."""
    for graph in GRAPHS.values():
        theta, labels = example(graph)
        for given in (labels, np.maximum(labels, 0), np.full_like(labels, -1)):
            check(theta, given, 1e-6, loss=LOSS, inference=f"{method}(n_iter={sweeps})", gradient="truncated")


@pytest.mark.parametrize("method", ["exact", "brute_force"])
def test_exact_inference_gives_the_likelihood(method):
    for graph in GRAPHS.values():
        theta, labels = example(graph)
        observed = np.full_like(labels, -1)
        observed[-1] = labels[-1]
        value, _ = bf.value_and_gradient(theta, labels, loss=LOSS, inference=method)
        assert value == pytest.approx(-log_probability(theta, labels))
        value, _ = bf.value_and_gradient(theta, labels, loss=LOSS, inference=method, observed=observed)
        assert value == pytest.approx(-log_probability(theta, labels, observed))
        check(theta, labels, 1e-6, loss=LOSS, inference=method)
        check(theta, labels, 1e-6, loss=LOSS, inference=method, observed=observed)


def models(count, hidden):
    """Small random graphs of any arity, with labels and the exact log-likelihood."""
    rng = np.random.default_rng(11)
    for number in range(count):
        graph = random_graph(rng, arity_max=4)
        theta = random_potentials(graph, rng, [0.5, 1.5][number % 2])
        labels = rng.integers(0, graph.labels)
        if hidden:
            labels[rng.random(len(labels)) < 0.5] = -1
        yield theta, labels, log_probability(theta, labels)


def test_tree_reweighted_bounds_the_likelihood_from_below():
    method = "tree_reweighted(n_iter=3000, rho='trees', tol=1e-10, damping=0.1)"
    for theta, labels, exact in models(40, hidden=False):
        assert -bf.value_and_gradient(theta, labels, loss=LOSS, inference=method)[0] <= exact + 1e-8


def test_mean_field_bounds_the_likelihood_from_above():
    for sweeps in (1, 100):
        for theta, labels, exact in models(40, hidden=False):
            method = f"mean_field(n_iter={sweeps})"
            assert -bf.value_and_gradient(theta, labels, loss=LOSS, inference=method)[0] >= exact - 1e-9


def test_smoothed_lp_of_large_eps_bounds_the_likelihood_from_below():
    for theta, labels, exact in models(30, hidden=False):
        value, _ = bf.value_and_gradient(theta, labels, loss=LOSS, inference="smoothed_lp(n_iter=100, eps=1)")
        assert -value <= exact + 1e-9


MIXED = "surrogate_likelihood(clamped='mean_field(n_iter=2000, tol=1e-12)')"


def test_mixed_bounds_the_em_loss_from_below():
    """Mean field for the clamped part, TRW for the free part ([D13] §4.1.2)."""
    method = "tree_reweighted(n_iter=3000, tol=1e-10, damping=0.1)"
    for theta, labels, exact in models(40, hidden=True):
        assert -bf.value_and_gradient(theta, labels, loss=MIXED, inference=method)[0] <= exact + 1e-8


def test_gradient_of_the_mixed_form():
    for graph in GRAPHS.values():
        theta, labels = example(graph, scale=0.5)
        setting = {"loss": MIXED, "inference": converged("tree_reweighted")}
        check(theta, labels, 1e-6, step=1e-3, **setting)
        short = "surrogate_likelihood(clamped='mean_field(n_iter=2)')"
        check(theta, labels, 1e-6, loss=short, inference="tree_reweighted(n_iter=3)", gradient="truncated")


def test_sets():
    for graph in GRAPHS.values():
        theta, _ = example(graph)
        allowed = [np.arange(count) < max(1, count - 1) for count in graph.labels]
        given = allowed if graph.n_labels is None else np.array(allowed)
        values = theta.vector()
        values[: len(theta.unary_flat)][~np.concatenate(allowed)] = -np.inf
        expected = enumerate_model(theta)[0] - enumerate_model(theta.like(values))[0]
        value, _ = bf.value_and_gradient(theta, given, loss=LOSS, inference="exact")
        assert value == pytest.approx(expected)
        for method in ("exact", "tree_reweighted(n_iter=4)", "mean_field(n_iter=4)"):
            check(theta, given, 1e-6, loss=LOSS, inference=method, gradient="truncated")


def test_nothing_known_is_nothing_lost():
    theta, labels = example(bf.Graph.grid(4, 4))
    for method in iterative_methods():
        value, d_theta = bf.value_and_gradient(theta, np.full_like(labels, -1), loss=LOSS, inference=f"{method}(n_iter=2)")
        assert value == 0
        assert not d_theta.vector().any()


# What it refuses and says


@pytest.mark.parametrize("gradient", ["implicit", "perturbation", "backpropagation"])
def test_other_gradients_do_not_apply(gradient):
    theta, labels = example(GRAPHS["grid"])
    with pytest.raises(bf.InputError, match=rf"its own gradient at convergence .*; {gradient} does not apply"):
        bf.value_and_gradient(theta, labels, loss=LOSS, inference="loopy_bp", gradient=gradient)


def test_refuses_samples_and_weights():
    theta, labels = example(GRAPHS["grid"])
    with pytest.raises(bf.InputError, match="needs a variational or exact method, not gibbs"):
        bf.value_and_gradient(theta, labels, loss=LOSS, inference="gibbs")
    with pytest.raises(bf.InputError, match="takes no weights per variable; use a marginal loss"):
        bf.value_and_gradient(theta, labels, loss=LOSS, inference="loopy_bp", weights=np.ones(len(labels)))


def test_warns_where_a_tolerance_is_not_reached():
    theta, labels = example(bf.Graph.grid(5, 5))
    with pytest.warns(bf.ConvergenceWarning, match="stopped"):
        bf.value_and_gradient(theta, labels, loss=LOSS, inference="loopy_bp(n_iter=2, tol=1e-9)")


def test_impossible_labels():
    theta, labels = example(GRAPHS["grid"])
    values = theta.vector()
    values[2 * 3 + labels[3]] = -np.inf
    with pytest.raises(bf.InputError, match="known labels together have probability zero"):
        bf.value_and_gradient(theta.like(values), labels, loss=LOSS, inference="loopy_bp")
    observed = np.full_like(labels, -1)
    observed[3] = 1 - labels[3]
    with pytest.raises(bf.InputError, match="variable 3 is observed with a label that labels forbid"):
        bf.value_and_gradient(theta, labels, loss=LOSS, inference="loopy_bp", observed=observed)


def test_examples_of_one_graph_each_keep_what_was_compiled_for_them(monkeypatch):
    """Images of one size share a graph: the reduced model belongs to the example, and iterative methods need none."""
    made = []
    original = conditioning.Restriction.__init__

    def counted(self, *arguments):
        made.append(arguments)
        original(self, *arguments)

    monkeypatch.setattr(conditioning.Restriction, "__init__", counted)
    graph, rng = bf.Graph.grid(2, 3), np.random.default_rng(0)
    examples = [(random_potentials(graph, rng), rng.integers(-1, 2, 6)) for _ in range(5)]
    for spec, wanted in (("exact", 5), ("tree_reweighted(n_iter=3)", 0)):
        targets = [Target(as_labeling(graph, np.append(-1, labels[1:]))) for _, labels in examples]
        setting = Setting(get("inference", spec), None)
        made.clear()
        for _ in range(3):
            for (theta, _), target in zip(examples, targets, strict=True):
                get_objective(LOSS).value_and_dtheta(theta, target, setting)
        assert len(made) == wanted


@pytest.mark.parametrize("sweeps", [1, 5])
def test_both_terms_are_one_approximation(sweeps):
    """Clamping variables to the one label that they have changes nothing: both terms share rho, order and kernels."""
    theta = random_potentials(bf.Graph.grid(4, 5), np.random.default_rng(0))
    theta.unary[[3, 8, 12], 0] = -np.inf  # these have one label already
    labels = np.full(20, -1)
    labels[[3, 8, 12]] = 1
    setting = {"loss": LOSS, "inference": f"tree_reweighted(n_iter={sweeps})", "gradient": "truncated"}
    value, d_theta = bf.value_and_gradient(theta, labels, **setting)
    assert value == 0 and not d_theta.vector().any()


def test_its_own_gradient_before_convergence_is_taken_with_a_warning():
    """Which says what it is off by: the derivative of the value is another one there, and 'truncated' gives it."""
    theta, labels = example(GRAPHS["grid"], scale=2.0)
    labels = np.maximum(labels, 0)
    with pytest.warns(
        bf.ConvergenceWarning, match=r"surrogate_likelihood: .*n_iter=2\).* has not converged.*gradient='truncated'"
    ):
        own = bf.value_and_gradient(theta, labels, loss=LOSS, inference="tree_reweighted(n_iter=2)")[1].vector()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        through = {"inference": "tree_reweighted(n_iter=2)", "gradient": "truncated"}
        true = bf.value_and_gradient(theta, labels, loss=LOSS, **through)[1].vector()
        bf.value_and_gradient(theta, labels, loss=LOSS, inference=converged("tree_reweighted"))
    assert np.abs(own - true).max() > 1e-3
