"""value_and_gradient: hidden labels, sets, weights and inputs in every combination, defaults and refusals."""

import warnings

import numpy as np
import pytest

import backfield as bf
from backfield.registry import names
from tests.gradients.differences import GRAPHS, check, example, iterative_methods, takes

SHORT = [f"{name}(n_iter=3)" for name in iterative_methods()] + ["exact", "brute_force"]


@pytest.mark.parametrize("method", SHORT)
@pytest.mark.parametrize("loss", names("losses"))
def test_weights_and_inputs(loss, method):
    for graph in GRAPHS.values():
        if not takes(loss, graph):
            continue
        theta, labels = example(graph)
        rng = np.random.default_rng(0)
        w = rng.random(graph.n_variables)
        each = [rng.random(count) for count in graph.labels]
        observed = np.full_like(labels, -1)
        observed[-1] = labels[-1]
        for more in (
            {"weights": w},
            {"weights": each if graph.n_labels is None else np.array(each)},
            {"observed": observed},
            {"observed": observed, "weights": w},
        ):
            check(theta, labels, 1e-6, loss=loss, inference=method, **more)


@pytest.mark.parametrize("method", SHORT)
@pytest.mark.parametrize("loss", ["univariate_logistic", "clique_logistic"])
def test_sets(loss, method):
    for graph in GRAPHS.values():
        theta, labels = example(graph)
        rng = np.random.default_rng(1)
        allowed = [rng.random(count) < 0.6 for count in graph.labels]
        for row, label in zip(allowed, labels, strict=True):
            row[max(label, 0)] = True
        given = allowed if graph.n_labels is None else np.array(allowed)
        observed = [row.copy() for row in allowed]
        observed[-1][:] = True
        check(theta, given, 1e-6, loss=loss, inference=method)
        check(theta, given, 1e-6, loss=loss, inference=method, weights=rng.random(graph.n_variables))
        inputs = observed if graph.n_labels is None else np.array(observed)
        check(theta, labels, 1e-6, loss=loss, inference=method, observed=inputs)


def test_single_labels_may_be_given_as_a_mask():
    theta, labels = example(GRAPHS["grid of 3 labels"])
    mask = np.eye(3, dtype=bool)[labels]
    mask[labels < 0] = True
    for loss in (*names("losses"), "surrogate_likelihood", "pseudolikelihood", "piecewise", "pseudo_marginal"):
        if takes(loss, theta.graph):
            expected, d_expected = bf.value_and_gradient(theta, labels, loss=loss, inference="loopy_bp")
            found, d_found = bf.value_and_gradient(theta, mask, loss=loss, inference="loopy_bp")
            assert found == expected
            np.testing.assert_array_equal(d_found.vector(), d_expected.vector())


def test_everything_observed():
    theta, labels = example(GRAPHS["mixed"])
    labels[0] = 1
    for method in SHORT:
        value, d_theta = bf.value_and_gradient(theta, labels, loss="clique_logistic", inference=method, observed=labels)
        assert value == pytest.approx(0)
        assert not d_theta.vector().any()


def test_nothing_observed_is_no_condition():
    """A mask of nothing must not cost a grid its red/black order, and with it the numbers."""
    theta, labels = example(bf.Graph.grid(4, 5))
    setting = {"loss": "univariate_logistic", "inference": "tree_reweighted(n_iter=2)"}
    value, _ = bf.value_and_gradient(theta, labels, **setting)
    assert bf.value_and_gradient(theta, labels, observed=np.full_like(labels, -1), **setting)[0] == value


def test_the_loss_sees_what_infer_returns():
    for graph in GRAPHS.values():
        theta, labels = example(graph)
        observed = np.full_like(labels, -1)
        observed[-1] = labels[-1]
        for method in SHORT:
            for given in (None, observed):
                run = bf.infer(theta, method, observed=given)
                expected = -sum(np.log(row[x]) for row, x in zip(run.unary, labels, strict=True) if x >= 0)
                value, _ = bf.value_and_gradient(theta, labels, loss="univariate_logistic", inference=method, observed=given)
                assert value == pytest.approx(expected, abs=1e-12)


def test_defaults():
    theta, labels = example(GRAPHS["mixed"])
    setting = {"loss": "univariate_logistic", "inference": "tree_reweighted(n_iter=2)"}
    default = bf.value_and_gradient(theta, labels, **setting)[1].vector()
    np.testing.assert_array_equal(default, bf.value_and_gradient(theta, labels, gradient="truncated", **setting)[1].vector())
    exact = bf.value_and_gradient(theta, labels, loss="mse", inference="exact")[1].vector()
    direct = bf.value_and_gradient(theta, labels, loss="mse", inference="exact", gradient="direct")[1].vector()
    np.testing.assert_array_equal(exact, direct)
    for loss in ("pseudolikelihood", "surrogate_likelihood"):
        own = bf.value_and_gradient(theta, labels, loss=loss, inference="loopy_bp")[1].vector()
        direct = bf.value_and_gradient(theta, labels, loss=loss, inference="loopy_bp", gradient="direct")[1].vector()
        np.testing.assert_array_equal(own, direct)


def test_parts_may_be_given_for_specs():
    from backfield.gradients import Implicit
    from backfield.inference import LoopyBP
    from backfield.losses import UnivariateLogistic
    from backfield.objectives import Pseudolikelihood

    theta, labels = example(GRAPHS["mixed"])
    spec = {"loss": "univariate_logistic", "inference": "loopy_bp(n_iter=200)", "gradient": "implicit"}
    part = {"loss": UnivariateLogistic(), "inference": LoopyBP(n_iter=200), "gradient": Implicit()}
    expected, found = (bf.value_and_gradient(theta, labels, **setting) for setting in (spec, part))
    assert found[0] == expected[0]
    np.testing.assert_array_equal(found[1].vector(), expected[1].vector())
    assert bf.value_and_gradient(theta, labels, loss=Pseudolikelihood(patch=2))[0] > 0


def test_no_warnings_from_truncated():
    theta, labels = example(GRAPHS["grid"])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for method in SHORT:
            bf.value_and_gradient(theta, labels, loss="univariate_logistic", inference=method)


REFUSED = [
    ({"loss": "univariate_logistic"}, "univariate_logistic needs inference=, such as"),
    ({"loss": "surrogate_likelihood"}, "surrogate_likelihood needs inference="),
    ({"loss": "nothing", "inference": "exact"}, "there is no 'nothing' among losses and objectives; known: "),
    ({"loss": "pseudolikelyhood"}, r"did you mean 'pseudolikelihood'\?"),
    ({"loss": "mse", "inference": "nothing"}, "there is no 'nothing' in inference"),
    ({"loss": "mse", "inference": "gibbs"}, "no gradient through gibbs, which samples; use mean_field"),
    (
        {"loss": "mse", "inference": "loopy_bp", "gradient": "direct"},
        "through iterations needs 'truncated', 'backpropagation', 'implicit' or 'perturbation'",
    ),
    (
        {"loss": "mse", "inference": "exact", "weights": [1.0]},
        r"weights must have shape \(12,\) or \(12, labels\); received \(1,\)",
    ),
    ({"loss": "mse", "inference": "exact", "weights": [-1.0] * 12}, "weights must be finite numbers >= 0"),
    ({"loss": "mse", "inference": "exact", "weights": [np.nan] * 12}, "weights must be finite numbers >= 0"),
    ({"loss": "mse", "inference": "exact", "observed": [9] * 12}, r"observed\[0\] is 9; variable 0 has labels 0 .. 1"),
    ({"loss": "mse", "inference": "exact", "dtype": "float16"}, "dtype must be 'float32' or 'float64'"),
    (
        {"loss": "mse", "inference": "loopy_bp(order=[0])", "observed": [0] + [-1] * 11},
        "order must be a permutation of the 34 slots",
    ),
]


@pytest.mark.parametrize(("setting", "message"), REFUSED)
def test_refused_in_one_sentence(setting, message):
    theta, labels = example(GRAPHS["grid"])
    with pytest.raises(bf.InputError, match=message) as found:
        bf.value_and_gradient(theta, labels, **setting)
    assert "\n" not in str(found.value)
    assert str(found.value).endswith((".", "?"))


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ([0] * 11, r"labels must have shape \(12,\)"),
        ([2] + [0] * 11, r"labels\[0\] is 2; variable 0 has labels 0 .. 1"),
        ([0.5] * 12, "labels must be integers"),
        (np.zeros((12, 2), bool), r"labels\[0\] allows no label at all"),
    ],
)
def test_bad_labels(labels, message):
    theta, _ = example(GRAPHS["grid"])
    with pytest.raises(bf.InputError, match=message):
        bf.value_and_gradient(theta, labels, loss="mse", inference="exact")


@pytest.mark.parametrize("loss", ["univariate_logistic", "surrogate_likelihood", "pseudolikelihood", "saddle_point"])
def test_impossible_inputs(loss):
    theta, labels = example(GRAPHS["grid"])
    values = theta.vector()
    values[2 * 3] = -np.inf
    observed = np.full_like(labels, -1)
    observed[3] = 0
    labels[3] = -1
    with pytest.raises(bf.InputError, match="probability zero"):
        bf.value_and_gradient(theta.like(values), labels, loss=loss, inference="loopy_bp", observed=observed)
