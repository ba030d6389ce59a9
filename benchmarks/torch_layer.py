"""What PyTorch's autograd adds to the bare kernels: forward and backward of ``CRFLayer`` on a 100x100 image, 5 sweeps.

    python benchmarks/torch_layer.py

Bare: engine, sweeps, marginals, loss and their adjoints on prepared arrays and labels (``value_and_dtheta``). Layer: from
tensors to ``unary.grad`` and ``factors.grad``. The bar of issue 10 is a ratio of 1.2.
"""

import time

import numpy as np
import torch

import backfield as bf
from backfield.api import prepare
from backfield.bridges.torch import CRFLayer
from backfield.gradients.truncated import Tape

INFERENCE, LOSS = "tree_reweighted(n_iter=5)", "univariate_logistic"


def best(*functions, repeat=300):
    """Return the shortest time of each, run in turn so that a busy machine slows all of them."""
    times = [[] for _ in functions]
    for _ in range(repeat):
        for function, each in zip(functions, times, strict=True):
            start = time.perf_counter()
            function()
            each.append(time.perf_counter() - start)
    return [1e3 * min(each) for each in times]


def main():
    torch.set_num_threads(1)
    rng = np.random.default_rng(0)
    graph = bf.Graph.grid(100, 100)
    labels = rng.integers(0, 2, (100, 100))
    for dtype in (np.float32, np.float64):
        unary = torch.tensor(rng.normal(size=(100, 100, 2)).astype(dtype), requires_grad=True)
        factors = torch.tensor(rng.normal(size=(graph.n_factors, 2, 2)).astype(dtype), requires_grad=True)
        theta = bf.Potentials(graph, unary.detach().numpy().reshape(-1, 2), factors.detach().numpy())
        objective, setting, target = prepare(theta, labels.ravel(), LOSS, INFERENCE, "truncated", None, None, 0)
        layer, known = CRFLayer(graph, 2, inference=INFERENCE), torch.from_numpy(labels)
        d_mu = torch.from_numpy(rng.normal(size=(100, 100, 2)).astype(dtype))
        d_flat = d_mu.numpy().reshape(-1)

        def through_loss(layer=layer, unary=unary, factors=factors, known=known):
            unary.grad = factors.grad = None
            layer.loss(unary, factors, known, loss=LOSS).backward()

        def through_marginals(layer=layer, unary=unary, factors=factors, d_mu=d_mu):
            unary.grad = factors.grad = None
            layer.marginals(unary, factors, cliques=False).unary.backward(d_mu)

        def bare_marginals(theta=theta, method=setting.inference, d_mu=d_flat):
            engine = method.engine(theta)
            tape = Tape(engine, method, 2**30)
            engine.marginals(tape.last, factors=False)
            d_theta, d_state = engine.adjoint(), np.zeros_like(tape.last)
            engine.marginals_vjp(tape.last, bf.Potentials.from_flat(theta.graph, d_mu, d_mu[:0]), d_state, d_theta)
            tape.unwind(d_state, d_theta)
            return d_theta.potentials(theta.graph)

        def bare_loss(objective=objective, theta=theta, target=target, setting=setting):
            return objective.value_and_dtheta(theta, target, setting)

        bare, loss = best(bare_loss, through_loss)
        bare_mu, marginals = best(bare_marginals, through_marginals)
        print(f"{np.dtype(dtype).name}  loss:      bare {bare:.3f} ms, layer {loss:.3f} ms, ratio {loss / bare:.3f}")
        print(
            f"{np.dtype(dtype).name}  marginals: bare {bare_mu:.3f} ms, layer {marginals:.3f} ms, "
            f"ratio {marginals / bare_mu:.3f}"
        )


if __name__ == "__main__":
    main()
