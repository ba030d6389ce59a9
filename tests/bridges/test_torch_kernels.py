"""CRFLayer with kernels over all pairs: values as without PyTorch, gradients in unary terms and kernel parameters."""

import numpy as np
import pytest

import backfield as bf
from backfield.errors import InputError

torch = pytest.importorskip("torch")
from backfield.bridges.torch import CRFLayer  # noqa: E402

RNG = np.random.default_rng(0)
HEIGHT, WIDTH, LABELS = 3, 4, 3
POINTS = np.stack(np.mgrid[:HEIGHT, :WIDTH], axis=-1).reshape(-1, 2).astype(float)
COLOURS = RNG.normal(size=(12, 3))
UNARY = RNG.normal(size=(HEIGHT, WIDTH, LABELS))
TRUTH = RNG.integers(0, LABELS, (HEIGHT, WIDTH))
FULL = np.array([[1.0, -0.4, 0.1], [-0.4, 0.7, 0.3], [0.1, 0.3, -0.6]])


def leaf(value):
    return torch.tensor(value, dtype=torch.float64, requires_grad=True)


def layer(graph=None):
    return CRFLayer(graph, LABELS, inference="mean_field(n_iter=4)")


def test_crf_as_rnn():
    unary, weight, compat, sigma = leaf(UNARY), leaf(0.7), leaf(FULL), leaf([1.1, 0.9])
    kernels = [bf.Kernel(POINTS, compat, sigma, weight), bf.Kernel(COLOURS, leaf(2.0))]
    loss = layer().loss(unary, kernels, torch.from_numpy(TRUTH))
    loss.backward()
    own = [bf.Kernel(POINTS, FULL, [1.1, 0.9], 0.7), bf.Kernel(COLOURS, 2.0)]
    theta = bf.Potentials(bf.Graph(labels=[LABELS] * 12), UNARY.reshape(12, -1), groups=own)
    how = {"loss": "univariate_logistic", "inference": "mean_field(n_iter=4)"}
    value, d = bf.value_and_gradient(theta, TRUTH.reshape(-1), **how)
    assert loss.item() == pytest.approx(value)
    assert unary.grad.numpy().reshape(12, -1) == pytest.approx(d.unary, abs=1e-12)
    assert weight.grad.item() == pytest.approx(d.kernels[0].weight)
    assert sigma.grad.numpy() == pytest.approx(d.kernels[0].bandwidths)
    both = compat.grad.numpy() + compat.grad.numpy().T
    wanted = 2 * d.kernels[0].compatibility
    assert both == pytest.approx(wanted)


def test_gradcheck():
    unary, weight, c, sigma = leaf(UNARY), leaf(0.7), leaf([0.5, -0.2, 0.3]), leaf(1.2)
    field = layer()

    def value(unary, weight, c, sigma):
        return field.loss(unary, bf.Kernel(POINTS, c, sigma, weight), torch.from_numpy(TRUTH))

    def marginals(unary, weight, c, sigma):
        return field.marginals(unary, bf.Kernel(POINTS, c, sigma, weight)).unary

    assert torch.autograd.gradcheck(value, (unary, weight, c, sigma))
    assert torch.autograd.gradcheck(marginals, (unary, weight, c, sigma))


def test_batches_and_features_of_each_example():
    unary = torch.tensor(RNG.normal(size=(2, HEIGHT, WIDTH, LABELS)), dtype=torch.float32, requires_grad=True)
    weight = torch.tensor(1.5, requires_grad=True)
    colours = RNG.normal(size=(2, 12, 3)).astype(np.float32)
    found = layer().marginals(unary, [bf.Kernel(POINTS, 1.0, weight=weight), bf.Kernel(colours, 2.0)]).unary
    assert found.shape == unary.shape
    for k in range(2):
        alone = layer().marginals(unary[k], [bf.Kernel(POINTS, 1.0, weight=weight), bf.Kernel(colours[k], 2.0)]).unary
        assert torch.allclose(found[k], alone, atol=1e-6)
    found[..., 0].sum().backward()
    assert weight.grad.abs() > 0 and torch.isfinite(unary.grad).all()
    labels = layer().decode(unary, bf.Kernel(POINTS, 1.0))
    assert labels.shape == (2, HEIGHT, WIDTH)


def test_beside_tied_edges():
    graph = bf.Graph.chain(6, labels=LABELS)
    unary, table, weight = leaf(RNG.normal(size=(6, LABELS))), leaf(FULL), leaf(0.8)
    groups = [bf.Tied(table), bf.Kernel(POINTS[:6], 1.0, weight=weight)]
    layer(graph).loss(unary, groups, torch.arange(6) % LABELS).backward()
    assert table.grad.abs().sum() > 0 and weight.grad.abs() > 0


def test_refusals():
    with pytest.raises(InputError, match="features of 3 examples; the batch has 2"):
        layer().loss(torch.zeros(2, 3, 4, 3), bf.Kernel(np.zeros((3, 12, 2))), torch.zeros(2, 3, 4, dtype=torch.int64))
    with pytest.raises(InputError, match="takes no kernel groups"):
        CRFLayer(None, LABELS).marginals(torch.zeros(3, 4, 3), bf.Kernel(POINTS))
    with pytest.raises(InputError, match="bandwidths must be positive"):
        layer().marginals(torch.zeros(3, 4, 3), bf.Kernel(POINTS, bandwidths=leaf(-1.0)))
