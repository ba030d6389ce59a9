"""Factors of the torch layer by groups: values and gradients are those of the tables that the groups stand for."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import backfield as bf  # noqa: E402
from backfield.bridges.torch import CRFLayer  # noqa: E402

METHODS = ["tree_reweighted(n_iter=3)", "mean_field(n_iter=2)", "exact"]
LABELS = np.array([0, 1, 1, -1])


def ring(labels):
    return bf.Graph.from_edges([[0, 1], [1, 2], [2, 3], [3, 0], [1, 3]], 4, labels=labels)


def tensors(labels, n_tables=2, seed=0):
    """Unary tables, tables, and scales of all tables but the last."""
    rng = np.random.default_rng(seed)
    shapes = (4, labels), (n_tables, labels, labels), (5, n_tables - 1)
    return [torch.tensor(rng.normal(size=shape), requires_grad=True) for shape in shapes]


def written_out(tables, scales):
    return torch.einsum("fk,kab->fab", torch.cat([scales, torch.ones(len(scales), 1, dtype=scales.dtype)], 1), tables)


def gradients(value, inputs):
    return [each.numpy() for each in torch.autograd.grad(value, inputs, retain_graph=True)]


def assert_same(found, wanted, inputs):
    np.testing.assert_allclose(found.detach(), wanted.detach(), atol=1e-10)
    for a, b in zip(gradients(found.sum(), inputs), gradients(wanted.sum(), inputs), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-9)


@pytest.mark.parametrize("labels", [2, 3])
@pytest.mark.parametrize("method", METHODS)
def test_losses_and_marginals_are_those_of_tables(labels, method):
    layer = CRFLayer(ring(labels), inference=method)
    inputs = unary, tables, scales = tensors(labels)
    tied = bf.Tied(tables, scales)
    for loss in ("univariate_logistic", "clique_quadratic", "surrogate_likelihood"):
        found = layer.loss(unary, tied, LABELS, loss=loss)
        assert_same(found, layer.loss(unary, written_out(tables, scales), LABELS, loss=loss), inputs)
    given = np.array([-1, 1, -1, -1])
    found = layer.loss(unary, tied, LABELS, observed=given)
    assert_same(found, layer.loss(unary, written_out(tables, scales), LABELS, observed=given), inputs)
    found, wanted = layer.marginals(unary, tied), layer.marginals(unary, written_out(tables, scales))
    for a, b in zip(found, wanted, strict=True):
        assert a.shape == b.shape
        assert_same(a**2, b**2, inputs)
    assert layer.decode(unary, tied).tolist() == layer.decode(unary, written_out(tables, scales)).tolist()


@pytest.mark.parametrize("labels", [2, 3])
def test_gradcheck(labels):
    layer, (unary, tables, scales) = CRFLayer(ring(labels), inference="loopy_bp(n_iter=2)"), tensors(labels)
    potts = torch.eye(labels, dtype=torch.float64)[None].requires_grad_()  # through which messages cost O(L)

    def loss(unary, tables, scales):
        return layer.loss(unary, bf.Tied(tables, scales), LABELS)

    def marginals(unary, tables, scales):
        return tuple(layer.marginals(unary, bf.Tied(tables, scales)))

    for each in (tables, torch.cat([potts, 0 * potts]).detach().requires_grad_()):
        assert torch.autograd.gradcheck(loss, (unary, each, scales))
        assert torch.autograd.gradcheck(marginals, (unary, each, scales))
    assert torch.autograd.gradgradcheck(loss, (unary, tables, scales))
    assert torch.autograd.gradgradcheck(marginals, (unary, tables, scales))


def test_batches_share_groups_or_have_their_own():
    layer = CRFLayer(ring(3), n_jobs=2)
    _, tables, scales = tensors(3)
    unary = torch.randn(3, 4, 3, dtype=torch.float64, requires_grad=True)
    own = torch.randn(3, 5, 1, dtype=torch.float64, requires_grad=True)
    each = torch.randn(3, 2, 3, 3, dtype=torch.float64, requires_grad=True)
    labels = np.array([LABELS, LABELS[::-1], LABELS])
    for a, b in ((tables, scales), (tables, own), (each, scales), (each, own)):
        found = layer.loss(unary, bf.Tied(a, b), labels, reduction="none")
        parts = [
            layer.loss(unary[k], bf.Tied(a[k] if a is each else a, b[k] if b is own else b), labels[k]) for k in range(3)
        ]
        assert_same(found, torch.stack(parts), (unary, a, b))
    assert layer.marginals(unary, bf.Tied(each, own)).factors.shape == (3, 5, 3, 3)


def test_one_entry_for_each_group_of_the_graph():
    layer = CRFLayer((4, 5), 3)
    unary = torch.randn(4, 5, 3, dtype=torch.float64, requires_grad=True)
    table = torch.randn(3, 3, dtype=torch.float64, requires_grad=True)
    down = torch.randn(15, 3, 3, dtype=torch.float64, requires_grad=True)
    labels = np.zeros((4, 5), dtype=int)
    found = layer.loss(unary, [bf.Tied(table), down], labels)
    assert_same(found, layer.loss(unary, torch.cat([table.expand(16, 3, 3), down]), labels), (unary, table, down))


def test_lists_of_examples():
    layer = CRFLayer([bf.Graph.chain(3, labels=3), bf.Graph.chain(4, labels=3)], inference="chain")
    unary = [torch.randn(n, 3, dtype=torch.float64, requires_grad=True) for n in (3, 4)]
    table = torch.randn(3, 3, dtype=torch.float64, requires_grad=True)
    labels = [np.zeros(3, dtype=int), np.ones(4, dtype=int)]
    wanted = layer.loss(unary, [table, table], labels, loss="surrogate_likelihood")
    for factors in ([bf.Tied(table), bf.Tied(table)], [bf.Tied(table), table]):
        assert_same(layer.loss(unary, factors, labels, loss="surrogate_likelihood"), wanted, (*unary, table))


def test_scales_without_a_gradient_are_data():
    unary, tables, scales = tensors(3)
    found = CRFLayer(ring(3)).loss(unary, bf.Tied(tables, scales.detach()), LABELS)
    wanted = CRFLayer(ring(3)).loss(unary, written_out(tables, scales.detach()), LABELS)
    assert_same(found, wanted, (unary, tables))


@pytest.mark.parametrize(
    ("factors", "words"),
    [
        (bf.Tied(torch.zeros(2, 2)), r"tables must have shape \(3, 3\)"),
        (bf.Tied(torch.full((3, 3), torch.nan)), "hold NaN"),
        (bf.Tied([1.0]), "must be a torch.Tensor, received list"),
        (bf.Tied(torch.zeros(2, 3, 3)), "it needs scales"),
        ([bf.Tied(torch.zeros(3, 3))] * 2, "must hold 1 groups"),
        (bf.Tied(torch.zeros(3, 3, dtype=torch.int64)), "call .float"),
    ],
)
def test_wrong_groups_are_refused(factors, words):
    with pytest.raises(bf.InputError, match=words):
        CRFLayer(ring(3)).loss(torch.zeros(4, 3), factors, LABELS)
