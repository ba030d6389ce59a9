"""What PyTorch's autograd adds to the bare kernels: forward and backward of ``CRFLayer`` on a 100x100 image.

    python -m backfield_benchmarks.torch_layer

Bare: engine, sweeps, marginals, loss and their adjoints on prepared arrays and labels (``value_and_dtheta``). By hand: the
same from tensors to the tensors ``unary.grad`` and ``factors.grad``, labels still prepared, without autograd. Layer: from
tensors and labels to ``unary.grad`` and ``factors.grad``. The bar of issue 10 is a ratio of 1.2. Of what the layer adds,
about 50 us are instructions; the rest is that a kernel fills the second-level cache, and PyTorch and Python come from
further away after it.
"""

import time

import numpy as np
import torch

import backfield as bf
from backfield.api import prepare
from backfield.bridges.torch import CRFLayer
from backfield.gradients.truncated import Tape

LOSS = "univariate_logistic"


def best(*functions, rounds=20, block=20):
    """Return the shortest time of each, in blocks that take turns, so a busy machine slows all of them."""
    times = [[] for _ in functions]
    for _ in range(rounds):
        for function, each in zip(functions, times, strict=True):
            for _ in range(block):
                start = time.perf_counter()
                function()
                each.append(time.perf_counter() - start)
    return [1e3 * min(each) for each in times]


def measure(dtype, sweeps):
    """Print what forward and backward take, bare and through the layer."""
    rng = np.random.default_rng(0)
    graph = bf.Graph.grid(100, 100)
    labels = rng.integers(0, 2, (100, 100))
    inference = f"tree_reweighted(n_iter={sweeps})"
    unary = torch.tensor(rng.normal(size=(100, 100, 2)).astype(dtype), requires_grad=True)
    factors = torch.tensor(rng.normal(size=(graph.n_factors, 2, 2)).astype(dtype), requires_grad=True)
    theta = bf.Potentials(graph, unary.detach().numpy().reshape(-1, 2), factors.detach().numpy())
    objective, setting, target = prepare(theta, labels.ravel(), LOSS, inference, "truncated", None, None, 0)
    layer, known = CRFLayer(graph, 2, inference=inference), torch.from_numpy(labels)
    d_mu = torch.from_numpy(rng.normal(size=(100, 100, 2)).astype(dtype))
    d_flat, method = d_mu.numpy().reshape(-1), setting.inference

    def read():
        return bf.Potentials.from_flat(graph, *(tensor.detach().numpy().reshape(-1) for tensor in (unary, factors)))

    def give(d_theta):
        unary.grad = torch.from_numpy(d_theta.unary_flat.reshape(unary.shape))
        factors.grad = torch.from_numpy(d_theta.factors_flat.reshape(factors.shape))

    def bare_loss(theta=theta):
        return objective.value_and_dtheta(theta, target, setting)

    def loss_by_hand():
        unary.grad = factors.grad = None
        value, d_theta = bare_loss(read())
        give(d_theta)
        return torch.from_numpy(np.array(value))

    def through_loss():
        unary.grad = factors.grad = None
        layer.loss(unary, factors, known, loss=LOSS).backward()

    def bare_marginals(theta=theta):
        engine = method.engine(theta)
        tape = Tape(engine, method, 2**30)
        mu = engine.marginals(tape.last, factors=False)
        d_theta, d_state = engine.adjoint(), np.zeros_like(tape.last)
        engine.marginals_vjp(tape.last, bf.Potentials.from_flat(graph, d_flat, d_flat[:0]), d_state, d_theta)
        tape.unwind(d_state, d_theta)
        return mu, d_theta.potentials(graph)

    def marginals_by_hand():
        unary.grad = factors.grad = None
        mu, d_theta = bare_marginals(read())
        give(d_theta)
        return torch.from_numpy(mu.unary_flat.reshape(unary.shape))

    def through_marginals():
        unary.grad = factors.grad = None
        layer.marginals(unary, factors, cliques=False).unary.backward(d_mu)

    for what, ways in (
        ("loss", (bare_loss, loss_by_hand, through_loss)),
        ("marginals", (bare_marginals, marginals_by_hand, through_marginals)),
    ):
        bare, hand, full = best(*ways)
        print(
            f"{np.dtype(dtype).name}, {sweeps:2d} sweeps, {what:9s}: bare {bare:.3f} ms, by hand {hand:.3f} ms, "
            f"layer {full:.3f} ms, ratio {full / bare:.3f} (to by hand {full / hand:.3f})"
        )


if __name__ == "__main__":
    torch.set_num_threads(1)
    for sweeps in (5, 20):
        for dtype in (np.float32, np.float64):
            measure(dtype, sweeps)
