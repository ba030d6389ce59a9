"""Training a grid CRF: 4 images of 100x100 (L13 data), univariate logistic through truncated TRW, to gradient norm 1e-4.

    python -m backfield_benchmarks.grid_fit

Prints seconds (wall and processor), evaluations, the share of an evaluation that is spent in the kernels of inference and
its adjoint, and the speed of two threads against one. The best existing tool, Marbl (C++), needs 99 s for this on one core.
"""

import json
import time

import numpy as np

import backfield as bf
from backfield.datasets import generated
from backfield.registry import get
from backfield_benchmarks.probe import problem_of


def data(count, seed=0):
    d = generated.denoising(count, seed=seed)
    return [bf.GridSample(*parts) for parts in zip(d.features, d.horizontal, d.vertical, strict=True)], list(d.masks)


def problem(X, Y, n_iter, n_jobs=1, dtype="float64"):
    return problem_of(bf.GridCRF(inference=f"tree_reweighted(n_iter={n_iter})", l2=1e-3, dtype=dtype, n_jobs=n_jobs), X, Y)


def best(function, repeat=7):
    times = []
    for _ in range(repeat):
        start = time.perf_counter()
        function()
        times.append(time.perf_counter() - start)
    return min(times)


def main():
    X, Y = data(4)
    settings = {"inference": "tree_reweighted(n_iter=10)", "l2": 1e-4, "dtype": "float64"}
    learner = "lbfgs(max_iter=1000, gtol=1e-4)"
    bf.GridCRF(learner="lbfgs(max_iter=2)", **settings).fit(X, Y)  # compile
    wall, cpu = time.perf_counter(), time.process_time()
    crf = bf.GridCRF(learner=learner, **settings).fit(X, Y)
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    print(json.dumps({"case": "fit", "wall_s": wall, "cpu_s": cpu, "iterations": len(crf.trace_), "message": crf.message_,
                      "error": 1 - crf.score(X, Y), "marbl_s": 99.0, "times_faster": 99.0 / wall}))  # fmt: skip
    p, w = problem(X, Y, 10), crf.weights_
    evaluation = best(lambda: p.value_and_gradient(w))
    kernels = sum(best(lambda y=y: kernel_time(*y.shape, 10)) for y in Y)
    print(
        json.dumps(
            {"case": "evaluation", "ms": 1e3 * evaluation, "kernels_ms": 1e3 * kernels, "ratio": evaluation / kernels}
        )
    )
    X, Y = data(16, seed=1)
    serial, parallel = (problem(X, Y, 10, n_jobs=n) for n in (1, 2))
    one, two = best(lambda: serial.value_and_gradient(w)), best(lambda: parallel.value_and_gradient(w))
    print(json.dumps({"case": "threads", "one_ms": 1e3 * one, "two_ms": 1e3 * two, "speedup": one / two}))
    small, large = problem(*data(4), 10), problem(X, Y, 10)
    times = [best(lambda q=q: q.value_and_gradient(w)) for q in (small, large)]
    print(
        json.dumps(
            {
                "case": "linear in images",
                "four_ms": 1e3 * times[0],
                "sixteen_ms": 1e3 * times[1],
                "ratio": times[1] / times[0],
            }
        )
    )


def kernel_time(height, width, n_iter):
    """Run inference and its adjoint alone, on a grid of that size, as an evaluation does; return the marginals."""
    graph, rng = bf.Graph.grid(height, width), np.random.default_rng(0)
    theta = bf.Potentials(graph, rng.normal(size=(graph.n_variables, 2)), rng.normal(size=(graph.n_factors, 2, 2)))
    engine = get("inference", f"tree_reweighted(n_iter={n_iter})").engine(theta)
    state = engine.init()
    tape = [state.copy()]
    for t in range(n_iter):
        engine.sweep(state, t)
        tape.append(state.copy())
    mu = engine.marginals(state, factors=False)
    d_theta, d_state = engine.adjoint(), np.zeros_like(state)
    engine.marginals_vjp(state, mu, d_state, d_theta)
    for t in range(n_iter - 1, -1, -1):
        engine.sweep_vjp(tape[t], tape[t + 1], t, d_state, d_theta)
    return mu


if __name__ == "__main__":
    main()
