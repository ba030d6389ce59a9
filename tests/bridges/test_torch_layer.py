"""The PyTorch layer: the numbers of the library, derivatives that PyTorch's own checks accept, no copies, any batch."""

import copy
import subprocess
import sys

import numpy as np
import pytest

import backfield as bf
from backfield.objectives import get_objective
from backfield.registry import lookup, names
from tests.models import random_potentials

torch = pytest.importorskip("torch")
from backfield.bridges import torch as bridge  # noqa: E402
from backfield.bridges.torch import CRFLayer  # noqa: E402

GRID = bf.Graph.grid(2, 3)
CHAIN = bf.Graph.chain(4, labels=3)
MIXED = bf.Graph([2, 3, 2], [(0, 1), (0, 1, 2)])
DIFFERENTIABLE = [name for name in names("inference") if lookup("inference", name).differentiable]
LOSSES = [name for name in names("losses") + names("objectives") if get_objective(name).integrable]


def tensors(graph, seed=0, dtype=np.float64, scale=0.6):
    theta = random_potentials(graph, np.random.default_rng(seed), scale).astype(dtype)
    return torch.tensor(theta.unary, requires_grad=True), torch.tensor(theta.factors, requires_grad=True)


def potentials(graph, unary, factors):
    return bf.Potentials(graph, unary.detach().numpy(), factors.detach().numpy())


def labels_of(graph, seed=0):
    labels = np.random.default_rng(seed).integers(0, graph.labels)
    labels[1] = -1
    return labels


def spec(inference):
    return inference + "(n_iter=3)" if "n_iter" in lookup("inference", inference).__dataclass_fields__ else inference


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("inference", DIFFERENTIABLE)
def test_gradcheck_of_every_loss(inference, loss):
    graph = bf.Graph.chain(4) if inference == "chain" else GRID
    unary, factors = tensors(graph)
    known = np.maximum(labels_of(graph), 0) if loss in ("max_margin", "saddle_point") else labels_of(graph)
    try:
        layer = CRFLayer(graph, 2, inference=spec(inference))
        layer.loss(unary, factors, known, loss=loss)
    except bf.InputError as error:  # a combination that the library itself refuses
        with pytest.raises(bf.InputError):
            bf.value_and_gradient(potentials(graph, unary, factors), known, loss=loss, inference=spec(inference))
        pytest.skip(str(error))
    assert torch.autograd.gradcheck(lambda u, f: layer.loss(u, f, known, loss=loss), (unary, factors), atol=1e-6)


@pytest.mark.parametrize("inference", DIFFERENTIABLE)
def test_gradcheck_of_marginals_once_and_twice(inference):
    graph = bf.Graph.chain(3) if inference == "chain" else bf.Graph.grid(2, 2)
    layer = CRFLayer(graph, 2, inference=spec(inference))
    given = tensors(graph)
    assert torch.autograd.gradcheck(lambda u, f: tuple(layer.marginals(u, f)), given, atol=1e-6)
    assert torch.autograd.gradgradcheck(lambda u, f: tuple(layer.marginals(u, f)), given, atol=1e-6)


@pytest.mark.parametrize("loss", ["univariate_logistic", "clique_quadratic", "surrogate_likelihood"])
@pytest.mark.parametrize("inference", ["exact", "mean_field(n_iter=2)", "tree_reweighted(n_iter=2)"])
def test_double_backward(inference, loss):
    layer = CRFLayer(bf.Graph.grid(2, 2), 2, inference=inference, gradient="truncated")
    one, other = (tensors(bf.Graph.grid(2, 2), seed) for seed in (0, 1))
    batch = [torch.stack(pair).detach().requires_grad_() for pair in zip(one, other, strict=True)]
    known = np.array([[0, 1, -1, 1], [1, 1, 0, 0]])
    assert torch.autograd.gradgradcheck(
        lambda u, f: layer.loss(u, f, known, loss=loss, reduction="none"), tuple(batch), atol=1e-6
    )


def test_double_backward_is_refused_where_there_is_none():
    unary, factors = tensors(GRID)
    for gradient, loss, match in (
        ("truncated", "saddle_point", "saddle_point has no second derivative"),
        ("perturbation", "mse", "perturbation has no second derivative; use gradient='truncated'"),
    ):
        layer = CRFLayer(GRID, inference="tree_reweighted(n_iter=500, tol=1e-12)", gradient=gradient)
        known = np.maximum(labels_of(GRID), 0)
        (d_unary,) = torch.autograd.grad(layer.loss(unary, factors, known, loss=loss), unary, create_graph=True)
        with pytest.raises(bf.InputError, match=match):
            d_unary.square().sum().backward()


@pytest.mark.parametrize("gradient", ["truncated", "backpropagation", "implicit", "perturbation"])
def test_gradient_strategies(gradient):
    inference = "tree_reweighted(n_iter=2000, tol=1e-12)"
    unary, factors = tensors(GRID)
    layer = CRFLayer(GRID, 2, inference=inference, gradient=gradient)
    layer.marginals(unary, factors).unary[:, 1].square().sum().backward()
    exact = tensors(GRID)
    CRFLayer(GRID, 2, inference=inference).marginals(*exact).unary[:, 1].square().sum().backward()
    np.testing.assert_allclose(unary.grad, exact[0].grad, atol=2e-6)
    np.testing.assert_allclose(factors.grad, exact[1].grad, atol=2e-6)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("graph", [GRID, CHAIN], ids=["grid", "chain"])
def test_is_what_the_library_computes(graph, dtype):
    unary, factors = tensors(graph, dtype=dtype)
    known = labels_of(graph)
    setting = {"loss": "clique_logistic", "inference": "tree_reweighted(n_iter=4)"}
    layer = CRFLayer(graph, inference=setting["inference"])
    value = layer.loss(unary, factors, known, loss="clique_logistic")
    (3 * value).backward()
    name = np.dtype(dtype).name
    expected, d_theta = bf.value_and_gradient(potentials(graph, unary, factors), known, dtype=name, **setting)
    assert value.dtype == unary.dtype
    assert value.item() == pytest.approx(expected, rel=1e-6)
    np.testing.assert_array_equal(unary.grad, dtype(3) * d_theta.unary)
    np.testing.assert_array_equal(factors.grad, dtype(3) * d_theta.factors)
    run = bf.infer(potentials(graph, unary, factors), setting["inference"], dtype=name)
    mu = layer.marginals(unary, factors)
    np.testing.assert_array_equal(mu.unary.detach(), run.unary)
    np.testing.assert_array_equal(mu.factors.detach(), run.factors)
    np.testing.assert_array_equal(layer.decode(unary, factors), run.unary.argmax(1))
    np.testing.assert_array_equal(
        layer.decode(unary, factors, "map"), bf.find_map(potentials(graph, unary, factors), "max_product").labels
    )


def test_contiguous_tensors_are_not_copied(monkeypatch):
    from backfield.bridges._torch_functions import Tables

    seen = []
    original = Tables.thetas
    monkeypatch.setattr(Tables, "thetas", lambda self, given, check=True: seen.append(original(self, given)) or seen[-1])
    layer = CRFLayer((2, 3), 2)
    unary, factors = torch.zeros(4, 2, 3, 2), torch.zeros(7, 2, 2)
    layer.loss(unary, factors, torch.zeros(4, 2, 3, dtype=torch.long))
    for k, theta in enumerate(seen[0]):
        assert theta.unary_flat.ctypes.data == unary[k].data_ptr()
        assert theta.factors_flat.ctypes.data == factors.data_ptr()  # shared tables are shared in memory, too


@pytest.mark.parametrize("n_jobs", [1, 3])
def test_a_batch_is_a_loop(n_jobs):
    layer = CRFLayer((2, 3), 2, n_jobs=n_jobs)
    rng = np.random.default_rng(0)
    unary = torch.tensor(rng.normal(size=(5, 2, 3, 2)), requires_grad=True)
    factors = torch.tensor(rng.normal(size=(7, 2, 2)), requires_grad=True)
    labels = torch.tensor(rng.integers(-1, 2, size=(5, 2, 3)))
    together = layer.loss(unary, factors, labels, reduction="none")
    together.sum().backward()
    alone = torch.stack([layer.loss(unary[k], factors, labels[k]) for k in range(5)])
    np.testing.assert_array_equal(together.detach(), alone.detach())
    d_unary, d_factors = torch.autograd.grad(alone.sum(), (unary, factors))
    np.testing.assert_array_equal(unary.grad, d_unary)
    np.testing.assert_allclose(factors.grad, d_factors, rtol=1e-12)
    assert layer.decode(unary, factors).shape == (5, 2, 3)
    mu = layer.marginals(unary, factors)
    assert mu.unary.shape == (5, 2, 3, 2) and mu.factors.shape == (5, 7, 2, 2)
    assert layer.loss(unary, factors, labels, reduction="mean").item() == pytest.approx(together.mean().item())


def test_different_graphs():
    graphs = [bf.Graph.grid(2, 2), bf.Graph.chain(3), bf.Graph.from_edges([(0, 1), (1, 2), (2, 0)])]
    given = [tensors(graph, seed) for seed, graph in enumerate(graphs)]
    layer = CRFLayer(graphs, inference="loopy_bp(n_iter=3)", n_jobs=2)
    unary, factors = [u for u, _ in given], [f for _, f in given]
    known = [labels_of(graph) for graph in graphs]
    layer.loss(unary, factors, known).backward()
    for graph, u, f, y in zip(graphs, unary, factors, known, strict=True):
        _, d = bf.value_and_gradient(potentials(graph, u, f), y, loss="univariate_logistic", inference="loopy_bp(n_iter=3)")
        np.testing.assert_array_equal(u.grad, d.unary)
        np.testing.assert_array_equal(f.grad, d.factors)
    assert [len(each) for each in layer.decode(unary, factors)] == [4, 3, 3]
    mu = layer.marginals(unary, factors)
    assert [tuple(each.shape) for each in mu.factors] == [(4, 2, 2), (2, 2, 2), (3, 2, 2)]


def test_grids_of_any_size():
    layer = CRFLayer(None, 2)
    unary = [torch.randn(h, w, 2, requires_grad=True) for h, w in ((2, 3), (4, 2), (1, 5))]
    table = torch.zeros(2, 2, requires_grad=True)
    labels = [torch.zeros(u.shape[:2], dtype=torch.long) for u in unary]
    layer.loss(unary, [table] * 3, labels).backward()
    assert table.grad.abs().sum() > 0
    assert [tuple(each.shape) for each in layer.decode(unary, [table] * 3)] == [(2, 3), (4, 2), (1, 5)]


def test_mixed_label_counts():
    theta = random_potentials(MIXED, np.random.default_rng(0))
    unary = [torch.tensor(table, requires_grad=True) for table in theta.unary]
    factors = [torch.tensor(table, requires_grad=True) for table in theta.factors]
    layer = CRFLayer(MIXED, inference="exact")
    layer.loss(unary, factors, [0, -1, 1]).backward()
    _, d = bf.value_and_gradient(theta, [0, -1, 1], loss="univariate_logistic", inference="exact")
    for found, expected in zip([*unary, *factors], [*d.unary, *d.factors], strict=True):
        np.testing.assert_allclose(found.grad, expected, atol=1e-14)
    mu = layer.marginals(unary, factors)
    assert [tuple(table.shape) for table in mu.factors] == [(2, 3), (2, 3, 2)]
    assert layer.decode(unary, factors).shape == (3,)


def test_masks_observed_and_weights():
    unary, factors = tensors(GRID)
    layer = CRFLayer((2, 3), 2)
    allowed = np.ones((2, 3, 2), bool)
    allowed[0, 1, 0] = False
    weights = np.arange(6.0).reshape(2, 3)
    observed = np.array([[1, -1, -1], [-1, -1, 0]])
    value = layer.loss(unary.reshape(2, 3, 2), factors, allowed, observed=observed, weights=weights)
    expected, d = bf.value_and_gradient(
        potentials(GRID, unary, factors),
        allowed.reshape(6, 2),
        loss="univariate_logistic",
        inference="tree_reweighted(n_iter=5)",
        observed=observed.ravel(),
        weights=weights.ravel(),
    )
    assert value.item() == pytest.approx(expected)
    (found,) = torch.autograd.grad(value, factors)
    np.testing.assert_allclose(found, d.factors, atol=1e-14)
    assert torch.autograd.gradcheck(lambda u, f: layer.marginals(u, f, observed=observed.ravel()).unary, (unary, factors))
    assert layer.decode(unary, factors, observed=observed.ravel())[0] == 1


def test_backward_twice_and_unused_parts():
    unary, factors = tensors(GRID)
    layer = CRFLayer(GRID)
    mu = layer.marginals(unary, factors)
    first = torch.autograd.grad(mu.factors[0, 1, 1], unary, retain_graph=True)[0]
    second = torch.autograd.grad(mu.factors[0, 1, 1], unary, retain_graph=True)[0]
    np.testing.assert_allclose(first, second, atol=1e-15)
    value = layer.loss(unary, factors, labels_of(GRID))
    value.backward(retain_graph=True)
    before = unary.grad.clone()
    value.backward()
    np.testing.assert_allclose(unary.grad, 2 * before, rtol=1e-15)
    with torch.no_grad():
        np.testing.assert_allclose(layer.marginals(unary, factors, cliques=False).unary, mu.unary.detach(), atol=1e-15)


def test_channels_first_scores_and_a_network():
    """What people do: scores of a convolution, moved to the last axis; parameters get gradients."""
    torch.manual_seed(0)
    network = torch.nn.Conv2d(1, 2, 3, padding=1)
    table = torch.nn.Parameter(torch.zeros(2, 2))
    layer = copy.deepcopy(CRFLayer((6, 5), 2, n_jobs=2))
    scores = network(torch.randn(3, 1, 6, 5)).permute(0, 2, 3, 1)
    layer.loss(scores, table, torch.zeros(3, 6, 5, dtype=torch.long), reduction="mean").backward()
    assert network.weight.grad.abs().sum() > 0 and table.grad.abs().sum() > 0
    assert "tree_reweighted(n_iter=5)" in repr(layer)


def test_other_devices_are_copied_with_one_warning(monkeypatch):
    """No other device here: a tensor that says it is elsewhere takes the same path."""

    class Elsewhere(torch.Tensor):
        moved = 0

        @property
        def device(self):
            return torch.device("cuda")

        def to(self, *args):
            Elsewhere.moved += 1
            return self.as_subclass(torch.Tensor)

    monkeypatch.setattr(bridge, "_warned_of_copies", False)
    far = torch.zeros(6, 2).as_subclass(Elsewhere)
    with pytest.warns(UserWarning, match="tensors on cuda are copied"):
        bridge._on_cpu(far)
    bridge._on_cpu(far)  # warnings are errors from here on
    assert Elsewhere.moved == 2


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"unary": torch.zeros(5, 2)}, r"unary must have shape \(6, 2\) or \(2, 3, 2\)"),
        ({"unary": torch.zeros(6, 2, dtype=torch.float16)}, r"must be float32 or float64.*\.float\(\)"),
        ({"unary": np.zeros((6, 2))}, "must be a torch.Tensor, received ndarray"),
        ({"unary": torch.full((6, 2), torch.nan)}, r"unary\[0\] holds nan"),
        ({"factors": torch.zeros(6, 2, 2)}, r"factors must have shape \(7, 2, 2\), or \(2, 2\)"),
        ({"labels": torch.zeros(7, dtype=torch.long)}, r"labels must have shape \(6,\)"),
        ({"labels": torch.full((6,), 2)}, "labels 0 .. 1"),
        ({"loss": "nothing"}, "there is no 'nothing'"),
        ({"reduction": "max"}, "reduction must be"),
    ],
)
def test_bad_input(change, message):
    given = {"unary": torch.zeros(6, 2), "factors": torch.zeros(7, 2, 2), "labels": torch.zeros(6, dtype=torch.long)}
    with pytest.raises(bf.InputError, match=message):
        CRFLayer((2, 3), 2).loss(**(given | change))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("part", [0, 1])
@pytest.mark.parametrize(("value", "word"), [(np.nan, "nan"), (np.inf, "inf"), (1e36, "1e")])
def test_numbers_that_are_none_are_seen_wherever_they_are(dtype, part, value, word):
    # A grid of 9 x 9 after one sweep: nothing of the last pixel arrives where the labels are.
    layer = CRFLayer((9, 9), 2, inference="tree_reweighted(n_iter=1)")
    given = [torch.zeros(9, 9, 2, dtype=dtype, requires_grad=True), torch.zeros(144, 2, 2, dtype=dtype, requires_grad=True)]
    with torch.no_grad():
        given[part].view(-1)[-1] = value * (1e120 if value == 1e36 and dtype == torch.float64 else 1)
    labels = torch.full((9, 9), -1)
    labels[0, 0] = 1
    what = "unary" if part == 0 else "factors"
    for call in (lambda: layer.loss(*given, labels), lambda: layer.marginals(*given), lambda: layer.decode(*given)):
        with pytest.raises(bf.InputError, match=f"{what}.*{word}"):
            call()
    with pytest.raises(bf.InputError, match=f"example {1 - part}: "):
        layer.loss(
            torch.stack([torch.zeros(9, 9, 2, dtype=dtype), given[0]]), given[1].expand(2, 144, 2, 2), labels.expand(2, 9, 9)
        )


def test_forbidden_labels_and_large_potentials_are_taken():
    layer = CRFLayer((3, 4), 2, inference="tree_reweighted(n_iter=3)")
    unary, factors = torch.zeros(3, 4, 2), torch.zeros(17, 2, 2)
    unary[0, 0, 1], unary[2, 3, 0] = -torch.inf, 500.0
    mu = layer.marginals(unary, factors).unary
    assert mu[0, 0, 1] == 0 and mu[2, 3, 0] == 1
    unary[0, 0] = -torch.inf
    with pytest.raises(bf.InputError, match="variable 0 has no allowed label"):
        layer.marginals(unary, factors)


def test_bad_layers():
    for arguments, message in (
        (((2, 3),), "needs n_labels"),
        (("grid", 2), "needs a Graph, a shape"),
        ((GRID, 3), "n_labels=3, its graph 2"),
        ((GRID, 2, "nothing"), "there is no 'nothing'"),
    ):
        with pytest.raises(bf.InputError, match=message):
            CRFLayer(*arguments)
    with pytest.raises(bf.InputError, match="no gradient through gibbs"):
        CRFLayer(GRID, inference="gibbs(n_samples=5)").loss(torch.zeros(6, 2), torch.zeros(7, 2, 2), np.zeros(6, int))
    with pytest.raises(bf.InputError, match="2 graphs; the batch has 1"):
        CRFLayer([GRID, CHAIN]).decode([torch.zeros(6, 2)], [torch.zeros(7, 2, 2)])


def test_the_core_never_imports_torch():
    code = "import sys, backfield, backfield.cli.app, backfield.bridges; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_transforms_are_refused():
    layer, unary, factors = CRFLayer(GRID), torch.zeros(6, 2), torch.zeros(7, 2, 2)
    with pytest.raises(bf.InputError, match="CRFLayer takes no torch"):
        torch.func.grad(lambda u: layer.loss(u, factors, np.zeros(6, int)))(unary)
    with pytest.raises(bf.InputError, match="CRFLayer takes no torch"):
        torch.vmap(lambda u: layer.marginals(u, factors).unary)(unary[None])
