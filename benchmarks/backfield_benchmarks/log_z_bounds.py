"""Bounds of log Z on models too wide to be exact, after 1, 5 and 20 seconds, beside mean field and TRW alone.

    python -m backfield_benchmarks.log_z_bounds [--seeds 3]

*grid*: 30 x 30 binary variables, unary tables of N(0, 1), couplings of +-J x_i x_j with J from N(0, 2^2). *triples*: 120
variables of 3 labels and 160 random factors of three, entries from N(0, 1). *dense*: 60 binary variables, each pair with a
coupling from N(0, 0.5^2). Mean field and TRW run for 1000 sweeps or until they stop moving; the seconds are theirs.
Then every interval is checked: lower <= upper in each, and none is wider, or reaches out of, one of less time.
"""

import argparse
import time
import warnings
from functools import partial
from itertools import pairwise

import numpy as np

import backfield as bf
from backfield_benchmarks.cells import Cells

SECONDS = (1, 5, 20)


def ising(graph, strength, rng):
    spin = np.array([-1.0, 1.0])
    couplings = strength * rng.normal(size=(graph.n_factors, 1, 1)) * np.outer(spin, spin)
    return bf.Potentials(graph, rng.normal(size=(graph.n_variables, 2)), couplings)


def grid(rng):
    return ising(bf.Graph.grid(30, 30), 2.0, rng)


def dense(rng):
    return ising(bf.Graph.from_edges(np.stack(np.triu_indices(60, 1), axis=1), n_variables=60), 0.5, rng)


def triples(rng):
    scopes = [tuple(rng.choice(120, size=3, replace=False).tolist()) for _ in range(160)]
    return bf.Potentials(bf.Graph([3] * 120, scopes), rng.normal(size=(120, 3)), rng.normal(size=(160, 3, 3, 3)))


MODELS = {"grid": grid, "triples": triples, "dense": dense}


def run(model, seed):
    theta = MODELS[model](np.random.default_rng(seed))
    row = {}
    for name, spec in (
        ("mean field", "mean_field(n_iter=1000, tol=1e-8)"),
        ("TRW", "tree_reweighted(n_iter=1000, tol=1e-8)"),
    ):
        start = time.process_time()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", bf.ConvergenceWarning)
            found = bf.infer(theta, spec)
        row[name] = {"log Z": found.log_partition, "bound": found.bound, "seconds": time.process_time() - start}
    for seconds in SECONDS:
        start = time.process_time()
        found = bf.infer(theta, f"auto(seconds={seconds})")
        taken = time.process_time() - start
        row[f"auto {seconds}"] = {
            "lower": found.lower,
            "upper": found.upper,
            "seconds": taken,
            "known": found.extra["known"],
        }
    return row


def faults(row):
    """Return what is wrong with a row: bounds that cross, or that more time made worse."""
    found = [row[f"auto {seconds}"] for seconds in SECONDS]
    crossed = sum(each["lower"] > each["upper"] for each in found)
    wider = sum(b["lower"] < a["lower"] - 1e-9 or b["upper"] > a["upper"] + 1e-9 for a, b in pairwise(found))
    apart = sum(a["lower"] > b["upper"] or b["lower"] > a["upper"] for a in found for b in found)
    loose = sum(
        each["lower"] < row["mean field"]["log Z"] - 1e-6 or each["upper"] > row["TRW"]["log Z"] + 1e-3 for each in found
    )
    return {"crossed": crossed, "worse with time": wider, "apart": apart, "worse than one method alone": loose}


def flat(name, row, seconds):
    """Return a row of the table: the interval after some seconds, beside the methods alone."""
    found = {key: round(row[f"auto {seconds}"][key], 3) for key in ("lower", "upper")}
    alone = {method: round(row[method]["log Z"], 3) for method in ("mean field", "TRW")}
    return {"model": name, "seconds": seconds} | found | alone


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--out", default="log-z-bounds")
    options = parser.parse_args()
    bf.infer(ising(bf.Graph.grid(12, 12), 2.0, np.random.default_rng(0)), "auto(seconds=3, memory=50_000)")  # loads kernels
    cells = Cells(options.out, "python -m backfield_benchmarks.log_z_bounds")
    for model in MODELS:
        rows = [cells.get(f"{model} {seed}", partial(run, model, seed)) for seed in range(options.seeds)]
        alone = np.mean([row["TRW"]["log Z"] - row["mean field"]["log Z"] for row in rows])
        widths = [np.mean([row[f"auto {s}"]["upper"] - row[f"auto {s}"]["lower"] for row in rows]) for s in SECONDS]
        print(
            f"{model}: TRW - mean field {alone:.2f}; auto "
            + ", ".join(f"{s} s {w:.2f}" for s, w in zip(SECONDS, widths, strict=True))
        )
    cells.summary = [flat(name, row, seconds) for name, row in cells.rows.items() for seconds in SECONDS]
    cells.save()
    total: dict[str, int] = {}
    for row in cells.rows.values():
        for key, count in faults(row).items():
            total[key] = total.get(key, 0) + count
    print("faults:", total)


if __name__ == "__main__":
    main()
