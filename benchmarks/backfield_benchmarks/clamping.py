"""What observed labels cost: inference and gradients with 5 % of a grid observed beside the free run, and surrogate EM.

    python -m backfield_benchmarks.clamping [--size 256] [--repeats 9]

Free and clamped runs take turns; printed are medians of processor time and their ratio. Surrogate EM is that of d13-table3:
images of 48 x 64 pixels, 8 labels, 10 % of them hidden, 5 sweeps, one image after the other (``PYTHONPATH`` of an old
version times that one).
"""

import argparse
import json
import time

import numpy as np

import backfield as bf

METHODS = ("tree_reweighted(n_iter=5)", "mean_field(n_iter=5)", "smoothed_lp(n_iter=5, eps=1.0)")
OBSERVED = 0.05


def model(rows, columns, labels, rng):
    graph = bf.Graph.grid(rows, columns, labels=labels)
    tables = rng.normal(size=(graph.n_variables, labels)), 0.5 * rng.normal(size=(graph.n_factors, labels, labels))
    return bf.Potentials(graph, *tables)


def some_labels(n, labels, share, rng):
    found = rng.integers(0, labels, n)
    found[rng.random(n) >= share] = -1
    return found


def medians(tasks, repeats):
    """Return the median processor seconds of each task; they take turns, and a first round is not counted."""
    seconds: dict[str, list[float]] = {name: [] for name in tasks}
    for _ in range(repeats + 1):
        for name, task in tasks.items():
            start = time.process_time()
            task()
            seconds[name].append(time.process_time() - start)
    return {name: float(np.median(found[1:])) for name, found in seconds.items()}


def grids(size, labels, repeats):
    rng = np.random.default_rng(0)
    theta = model(size, size, labels, rng)
    truth = rng.integers(0, labels, theta.graph.n_variables)
    observed = np.where(rng.random(len(truth)) < OBSERVED, truth, -1)
    unary = np.where((observed[:, None] >= 0) & (observed[:, None] != np.arange(labels)), -np.inf, theta.unary)
    forbidden = bf.Potentials(theta.graph, unary, theta.factors)
    for method in METHODS:
        gradient = {"loss": "univariate_logistic", "inference": method, "gradient": "truncated"}
        found = medians(
            {
                "free": lambda method=method: bf.infer(theta, method),
                "clamped": lambda method=method: bf.infer(theta, method, observed=observed),
                "-inf": lambda method=method: bf.infer(forbidden, method),
                "gradient, free": lambda gradient=gradient: bf.value_and_gradient(theta, truth, **gradient),
                "gradient, clamped": lambda gradient=gradient: bf.value_and_gradient(
                    theta, truth, observed=observed, **gradient
                ),
            },
            repeats,
        )
        row = {"grid": size, "labels": labels, "method": method}
        row |= {name: f"{1000 * each:.1f} ms" for name, each in found.items()}
        row |= {
            "ratio": round(found["clamped"] / found["free"], 2),
            "ratio of -inf": round(found["-inf"] / found["free"], 2),
        }
        row["ratio of gradients"] = round(found["gradient, clamped"] / found["gradient, free"], 2)
        print(json.dumps(row), flush=True)


def surrogate_em(repeats, n_images=4):
    rng = np.random.default_rng(1)
    thetas = [model(48, 64, 8, rng) for _ in range(n_images)]
    thetas = [bf.Potentials(thetas[0].graph, theta.unary, theta.factors) for theta in thetas]  # one graph for all
    labels = [some_labels(48 * 64, 8, 0.9, rng) for _ in thetas]
    setting = {"loss": "surrogate_likelihood", "inference": METHODS[0], "gradient": "truncated"}

    def step():
        for theta, known in zip(thetas, labels, strict=True):
            bf.value_and_gradient(theta, known, **setting)  # type: ignore[arg-type]

    seconds = medians({"em": step}, repeats)["em"]
    print(json.dumps({"surrogate EM, 48 x 64, 8 labels": f"{1000 * seconds / n_images:.1f} ms per image"}), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", type=int, default=256)
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--only-em", action="store_true")
    asked = parser.parse_args()
    surrogate_em(asked.repeats)
    for labels in () if asked.only_em else (2, 8):
        grids(asked.size, labels, asked.repeats)


if __name__ == "__main__":
    main()
