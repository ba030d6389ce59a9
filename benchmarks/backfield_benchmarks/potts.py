"""Messages through Potts tables: 21 labels on 200 x 300 pixels, TRW, against the same through tables.

    python -m backfield_benchmarks.potts [--repeat N] [--dtype float32]

Prints the seconds (of the processor, median) of a sweep and of a gradient of the univariate logistic loss through 5 sweeps
with respect to unary terms, all of T and the scales, and how many times faster each is than through tables, which are
forced by binding their engine. Both are measured by turns in one process.
"""

import argparse
import json
import time

import numpy as np

import backfield as bf
from backfield.gradients.truncated import Tape
from backfield.inference import TreeReweighted
from backfield.inference.message_passing.pairwise import PairwiseEngine
from backfield.losses import UnivariateLogistic


def model(size, dtype):
    """Contrast-sensitive Potts: one table, a scale for each edge."""
    rows, columns, labels = size
    rng = np.random.default_rng(0)
    graph = bf.Graph.grid(rows, columns, labels=labels)
    groups = [bf.Tied(0.8 * np.eye(labels, dtype=dtype), rng.uniform(0.2, 1, size=(g.n_factors, 1))) for g in graph.groups]
    unary = rng.normal(size=(rows * columns, labels)).astype(dtype)
    return bf.Potentials(graph, unary, groups=groups).astype(dtype), rng.integers(0, labels, size=rows * columns)


def through_tables(method, theta):
    """Bind the engine of any tables, which ``method.engine`` would not choose here."""
    rho = np.array(method.counting_numbers(theta.graph))
    return PairwiseEngine(theta.written_out(), rho, method._order(theta.graph), 0.0)


def gradient(method, engine, theta, labeling):
    """Return d_theta of the loss in the kinds of theta."""
    tape = Tape(engine, method, 2**32)
    mu = engine.marginals(tape.last, factors=False)
    _, d_mu = UnivariateLogistic().value_and_dmu(mu, labeling, None)
    d_theta, d_state = engine.adjoint(), np.zeros_like(tape.last)
    engine.marginals_vjp(tape.last, d_mu, d_state, d_theta)
    tape.unwind(d_state, d_theta)
    return theta.contract(d_theta.potentials(theta.graph))


def medians(tasks, repeat):
    """Return the median seconds of each task, run by turns; the first turn compiles and warms up."""
    seconds: dict[str, list[float]] = {name: [] for name in tasks}
    for turn in range(repeat + 1):
        for name, task in tasks.items():
            start = time.process_time()
            task()
            if turn:
                seconds[name].append(time.process_time() - start)
    return {name: float(np.median(values)) for name, values in seconds.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--dtype", default="float64")
    parser.add_argument("--size", type=int, nargs=3, default=(200, 300, 21), metavar=("ROWS", "COLUMNS", "LABELS"))
    options = parser.parse_args()
    theta, labels = model(options.size, options.dtype)
    method = TreeReweighted(n_iter=5)
    engines = {"potts": method.engine(theta), "tables": through_tables(method, theta)}
    states = {name: engine.init() for name, engine in engines.items()}
    labeling = bf.graph.labeling.as_labeling(theta.graph, labels)
    sweeps = medians({name: lambda n=name: engines[n].sweep(states[n], 0) for name in engines}, options.repeat)
    found = {}

    def evaluate(name):
        engine = method.engine(theta) if name == "potts" else through_tables(method, theta)
        found[name] = gradient(method, engine, theta, labeling).vector()

    engines.clear()
    gradients = medians({name: lambda n=name: evaluate(n) for name in states}, options.repeat)
    error = np.abs(found["potts"] - found["tables"]).max() / np.abs(found["tables"]).max()
    for case, seconds, bar in (("sweep", sweeps, 5.0), ("gradient", gradients, 4.0)):
        row = {"case": case, **seconds, "times_faster": seconds["tables"] / seconds["potts"], "bar": bar}
        print(json.dumps(row | {"dtype": options.dtype, "size": list(options.size), "largest_difference": float(error)}))


if __name__ == "__main__":
    main()
