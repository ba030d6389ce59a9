"""Every part on tied groups: the same numbers as on the tables written out, gradients in the kinds of theta."""

import numpy as np
import pytest

import backfield as bf
from backfield import Graph, InputError, Potentials, Tied
from backfield.objectives import get_objective
from backfield.registry import names

pytestmark = pytest.mark.usefixtures("processor_time")

GRID = Graph.grid(3, 3, labels=3)
METHODS = {
    "brute_force": "brute_force",
    "exact": "exact",
    "mean_field": "mean_field(n_iter=4)",
    "loopy_bp": "loopy_bp(n_iter=4)",
    "tree_reweighted": "tree_reweighted(n_iter=4)",
    "smoothed_lp": "smoothed_lp(n_iter=4)",
    "gibbs": "gibbs(n_samples=50)",
    "perturb_and_map": "perturb_and_map(n_samples=20)",
    "auto": "auto(seconds=5)",
}


def tied(kind, rng=None, dtype=np.float64, forbid=False):
    """A small model: a chain with one table, or a grid with a tied group with scales and one without."""
    rng = rng or np.random.default_rng(0)
    if kind == "chain":
        graph, groups = Graph.chain(5, labels=3), [Tied(rng.normal(size=(3, 3)).astype(dtype))]
    elif kind == "potts":
        scales = rng.uniform(0.5, 1.5, size=(6, 1)).astype(dtype)
        graph, groups = GRID, [Tied(0.6 * np.eye(3, dtype=dtype), scales), Tied((0.2 - 0.5 * np.eye(3)).astype(dtype))]
    else:
        tables, scales = rng.normal(size=(2, 3, 3)), rng.uniform(0.5, 1.5, size=(6, 2))
        graph, groups = GRID, [Tied(tables.astype(dtype), scales.astype(dtype)), Tied(rng.normal(size=(3, 3)).astype(dtype))]
    if forbid:
        groups[-1].tables[0, 2] = -np.inf
    return Potentials(graph, rng.normal(size=(graph.n_variables, 3)).astype(dtype), groups=groups)


def method_for(name, kind):
    return "chain" if name == "chain" else METHODS[name]


@pytest.mark.parametrize("kind", ["chain", "potts", "grid"])
@pytest.mark.parametrize("name", [*METHODS, "chain"])
def test_inference(name, kind):
    if name == "chain" and kind != "chain":
        pytest.skip("chain takes chains")
    theta, spec = tied(kind), method_for(name, kind)
    observed = np.full(theta.graph.n_variables, -1)
    observed[[1, 4]] = [2, 0]
    for given in (None, observed):
        run, wanted = bf.infer(theta, spec, observed=given), bf.infer(theta.written_out(), spec, observed=given)
        assert run.log_partition == pytest.approx(wanted.log_partition, rel=1e-10)
        np.testing.assert_allclose(run.unary, wanted.unary, atol=1e-10)
        np.testing.assert_allclose(run.factors, wanted.factors, atol=1e-10)


def test_every_method_is_here():
    assert set(names("inference")) <= {*METHODS, "chain"}


LOSSES = [name for room in ("losses", "objectives") for name in names(room)]


@pytest.mark.parametrize("kind", ["chain", "potts", "grid"])
@pytest.mark.parametrize("loss", LOSSES)
def test_losses(loss, kind):
    theta = tied(kind)
    rng = np.random.default_rng(1)
    labels = rng.integers(0, 3, size=theta.graph.n_variables)
    specs = ["tree_reweighted(n_iter=3)"] + (["chain", "exact"] if kind == "chain" else [])
    done = 0
    for spec in specs if get_objective(loss).needs_inference else [None]:
        try:
            wanted_value, wanted = bf.value_and_gradient(theta.written_out(), labels, loss=loss, inference=spec)
        except InputError:
            continue
        done += 1
        value, d_theta = bf.value_and_gradient(theta, labels, loss=loss, inference=spec)
        assert value == pytest.approx(wanted_value, rel=1e-9)
        assert {group.kind for group in d_theta.groups} == {"tied"}
        np.testing.assert_allclose(d_theta.vector(), theta.contract(wanted).vector(), rtol=1e-8, atol=1e-9)
    if not done:
        pytest.skip(f"{loss} takes none of these models")


@pytest.mark.parametrize("kind", ["chain", "potts", "grid"])
@pytest.mark.parametrize("hidden", [False, True])
@pytest.mark.parametrize("gradient", [None, "truncated"])
@pytest.mark.parametrize("loss", ["surrogate_likelihood", "univariate_logistic", "clique_quadratic"])
def test_gradients_are_those_of_differences(kind, hidden, gradient, loss):
    theta = tied(kind)
    rng = np.random.default_rng(2)
    labels = rng.integers(0, 3, size=theta.graph.n_variables)
    if hidden:
        labels[[0, 3]] = -1
    spec = "chain" if kind == "chain" and gradient is None else "tree_reweighted(n_iter=3)"
    if gradient is None and spec != "chain":
        pytest.skip("differences need the truncated gradient")
    options = {"loss": loss, "inference": spec, "gradient": gradient}
    _, d_theta = bf.value_and_gradient(theta, labels, **options)
    vector, step = theta.vector(), 1e-5
    for k in rng.choice(len(vector), size=12, replace=False):
        move = np.zeros_like(vector)
        move[k] = step
        there, back = (bf.value_and_gradient(theta.like(vector + s * move), labels, **options)[0] for s in (1, -1))
        assert d_theta.vector()[k] == pytest.approx((there - back) / (2 * step), rel=1e-6, abs=1e-7)


@pytest.mark.parametrize("kind", ["chain", "potts", "grid"])
def test_second_derivatives(kind):
    theta, rng = tied(kind), np.random.default_rng(3)
    labels = rng.integers(0, 3, size=theta.graph.n_variables)
    options = {"loss": "surrogate_likelihood", "inference": "chain"} if kind == "chain" else {
        "loss": "univariate_logistic", "inference": "tree_reweighted(n_iter=3)"
    }  # fmt: skip
    direction = theta.like(rng.normal(size=len(theta.vector())))
    product = bf.hessian_vector(theta, labels, direction, **options).vector()
    step = 1e-5
    moved = [theta.like(theta.vector() + s * step * direction.vector()) for s in (1, -1)]
    there, back = (bf.value_and_gradient(each, labels, **options)[1].vector() for each in moved)
    np.testing.assert_allclose(product, (there - back) / (2 * step), atol=1e-7)
    with pytest.raises(InputError, match="same kinds"):
        bf.hessian_vector(theta, labels, theta.written_out(), **options)


@pytest.mark.parametrize("kind", ["chain", "potts", "grid"])
def test_single_precision_and_forbidden_entries(kind):
    labels = np.zeros(5 if kind == "chain" else 9, dtype=int)
    options = {"loss": "surrogate_likelihood", "inference": "exact"}
    single, double = (
        bf.value_and_gradient(tied(kind, dtype=np.float32), labels, dtype=dtype, **options)
        for dtype in ("float32", "float64")
    )
    assert single[0] == pytest.approx(double[0], rel=1e-5) and single[1].dtype == np.float32
    np.testing.assert_allclose(single[1].vector(), double[1].vector(), atol=1e-4)
    theta = tied(kind, forbid=True)
    value, d_theta = bf.value_and_gradient(theta, labels, **options)
    wanted, d_tables = bf.value_and_gradient(theta.written_out(), labels, **options)
    assert value == pytest.approx(wanted, rel=1e-10)
    np.testing.assert_allclose(d_theta.vector(), theta.contract(d_tables).vector(), atol=1e-10)
    observed = np.full(len(labels), -1)
    observed[2] = 1
    found, wanted = (bf.infer(each, "exact", observed=observed) for each in (theta, theta.written_out()))
    assert found.log_partition == pytest.approx(wanted.log_partition, rel=1e-10)
    np.testing.assert_allclose(found.unary, wanted.unary, atol=1e-10)


def test_sizes_are_checked():
    theta = Potentials(Graph.chain(3), np.zeros((3, 2)), groups=[Tied(np.full((2, 2), 1e200))])
    with pytest.raises(InputError, match="may reach 1e\\+200"):
        bf.infer(theta, "chain")
