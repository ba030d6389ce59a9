"""``python -m fuzz.bounds``: no claimed bound fails on random models, potentials from .01 to 1e4, forbidden labels.

A claim is ``bound`` of a result, and its ``lower`` and ``upper``; it may miss log Z, found by enumeration, by
1e-9 (1 + |log Z|).
"""

from __future__ import annotations

import argparse
import sys
import warnings
from collections import Counter

import numpy as np

import backfield as bf
from backfield.inference import Result
from backfield.testing.models import enumerate_model, random_graph, random_potentials

METHODS = (
    "exact",
    "tree_reweighted(n_iter=3)",
    "tree_reweighted(n_iter=60, damping=0.3)",
    "tree_reweighted(n_iter=500, tol=1e-6)",
    "tree_reweighted(n_iter=20, tol=1e-3)",
    "tree_reweighted(n_iter=500, tol=1e-9, damping=0.3, schedule='flooding')",
    "tree_reweighted(n_iter=100, rho='trees', schedule='monotonic')",
    "mean_field(n_iter=3)",
    "mean_field(n_iter=100, tol=1e-6)",
    "smoothed_lp(n_iter=5, eps=1.0)",
    "smoothed_lp(n_iter=100, eps=1.5, tol=1e-6)",
    "loopy_bp(n_iter=50)",
)
#: These take long, so only every so many models sees them.
SLOW = {"auto(seconds=0.05, memory=2000)": 50, "gibbs(n_samples=20)": 50, "perturb_and_map(n_samples=5)": 20}


def hard_model(seed: int) -> bf.Potentials:
    """Return a small model; every third has forbidden labels, every fifth forbidden pairs, every fourth is a grid."""
    rng = np.random.default_rng(seed)
    graph = bf.Graph.grid(2, int(rng.integers(2, 4))) if seed % 4 == 0 else random_graph(rng)
    theta = random_potentials(graph, rng, 10 ** rng.uniform(-2, 4))
    if seed % 3 == 0:
        for row in theta.unary:
            row[rng.permutation(len(row))[: rng.integers(0, len(row))]] = -np.inf
    if seed % 5 == 0:
        best = bf.find_map(theta, "brute_force").labels
        kept = theta.indicators(best).factors_flat > 0  # one configuration stays possible
        theta.factors_flat[(rng.random(len(theta.factors_flat)) < 0.3) & ~kept] = -np.inf
    return theta


def broken(run: Result, log_z: float) -> str:
    """Return which claim does not hold, if one does not."""
    slack = 1e-9 * (1 + abs(log_z))
    if run.bound == "exact" and abs(run.log_partition - log_z) > slack:
        return "exact"
    if (run.bound == "upper" and run.log_partition < log_z - slack) or run.upper < log_z - slack:
        return "upper"
    if (run.bound == "lower" and run.log_partition > log_z + slack) or run.lower > log_z + slack:
        return "lower"
    return ""


def main() -> int:
    """Run the models; exit code 1 if a claim does not hold."""
    parser = argparse.ArgumentParser(prog="python -m fuzz.bounds", description=__doc__)
    parser.add_argument("--models", type=int, default=10_000)
    parser.add_argument("--first", type=int, default=0, help="seed of the first model")
    arguments = parser.parse_args()
    claims: Counter[str] = Counter()
    runs = found = 0
    warnings.simplefilter("ignore", bf.ConvergenceWarning)
    for seed in range(arguments.first, arguments.first + arguments.models):
        theta = hard_model(seed)
        log_z, _ = enumerate_model(theta)
        for method in [*METHODS, *(each for each, every in SLOW.items() if seed % every == 0)]:
            try:
                run = bf.infer(theta, method)
            except bf.InputError as error:
                claims[f"refused ({method.split('(')[0]})"] += 1
                if "no configuration is possible" in str(error):
                    found += 1
                    print(f"model {seed}, {method}: {error}", flush=True)
                continue
            runs += 1
            claims[run.bound] += 1
            wrong = broken(run, log_z)
            if wrong:
                found += 1
                print(f"model {seed}, {method}: {wrong} bound {run.log_partition!r}, log Z = {log_z!r}", flush=True)
    shown = ", ".join(f"{count} {kind}" for kind, count in sorted(claims.items()))
    print(f"{arguments.models} models, {runs} runs: {shown}; {found} claims do not hold")
    return int(found > 0)


if __name__ == "__main__":
    sys.exit(main())
