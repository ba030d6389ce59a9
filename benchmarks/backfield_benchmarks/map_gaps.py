"""MAP with a certificate: random models whose MAP is known, and grids of 100 x 100 with eleven labels.

    python -m backfield_benchmarks.map_gaps [--models 50] [--grids 1]

*Random models*: 50 of each family, unary tables and factors from N(0, 1) unless said: binary grids of 8 x 8 with couplings
from N(0, 2^2); grids of 6 x 6 with three labels; 20 variables of three labels with 40 random pairs; 20 variables of two or
three labels with 25 random factors of three. The MAP is that of exact elimination. Counted are labels as good as the MAP
(``found``) and proofs of it (``certified``). libDAI is on neither PyPI nor Debian, so it is not beside them.

*Grids*: Potts and truncated linear costs of random strength, and random tables; seconds are those of the processor.
"""

import argparse
import time
from functools import partial

import numpy as np

import backfield as bf
from backfield.models import Model
from backfield_benchmarks.cells import Cells

SOLVERS = ("mplp", "mplp(tighten=False)", "max_product")
SIDE, LABELS = 100, 11


def normal(graph, rng, scale=1.0):
    unary = [rng.normal(size=count) for count in graph.labels]
    return bf.Potentials(graph, unary, [scale * rng.normal(size=graph.labels[list(scope)]) for scope in graph.factors])


def spins(rng):
    graph, spin = bf.Graph.grid(8, 8), np.array([-1.0, 1.0])
    couplings = 2 * rng.normal(size=(graph.n_factors, 1, 1)) * np.outer(spin, spin)
    return bf.Potentials(graph, rng.normal(size=(64, 2)), couplings)


def three_labels(rng):
    return normal(bf.Graph.grid(6, 6, labels=3), rng)


def pairs(rng):
    return normal(bf.Graph([3] * 20, [tuple(rng.choice(20, 2, replace=False).tolist()) for _ in range(40)]), rng)


def triples(rng):
    scopes = [tuple(rng.choice(20, 3, replace=False).tolist()) for _ in range(25)]
    return normal(bf.Graph(rng.integers(2, 4, size=20).tolist(), scopes), rng)


FAMILIES = {"spins": spins, "three labels": three_labels, "pairs": pairs, "triples": triples}


def known(family, seed):
    theta = FAMILIES[family](np.random.default_rng(seed))
    model = Model.from_potentials(theta)
    best = theta.score(np.array([int(str(state)) for state in model.map_query().values()]))
    row = {"MAP": best}
    for solver in SOLVERS:
        start = time.process_time()
        found = bf.find_map(theta, solver)
        seconds = time.process_time() - start
        if found.value > best + 1e-7 or found.bound < best - 1e-7:
            raise AssertionError(f"{family} {seed}: {solver} gives {found.value} <= {found.bound}; the MAP is {best}.")
        right = bool(best - found.value <= 1e-7)
        row[solver] = {"found": right, "certified": bool(found.optimal), "seconds": seconds}
    return row


def grid(kind, seed, spec):
    rng, graph = np.random.default_rng(seed), bf.Graph.grid(SIDE, SIDE, labels=LABELS)
    unary = rng.normal(size=(SIDE * SIDE, LABELS))
    apart = np.abs(np.subtract.outer(np.arange(LABELS), np.arange(LABELS)))
    cost = {"potts": 1.0 * (apart > 0), "linear": 0.5 * np.minimum(apart, 3)}.get(kind)
    shape = (graph.n_factors, LABELS, LABELS)
    tables = rng.normal(size=shape) if cost is None else -np.abs(rng.normal(size=(graph.n_factors, 1, 1))) * cost
    start = time.process_time()
    found = bf.find_map(bf.Potentials(graph, unary, tables), spec)
    seconds = time.process_time() - start
    gap = (found.bound - found.value) / abs(found.value)
    return {"value": found.value, "bound": found.bound, "gap": gap, "sweeps": found.n_iter, "seconds": seconds}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--models", type=int, default=50)
    parser.add_argument("--grids", type=int, default=1)
    parser.add_argument("--n-iter", type=int, default=300)
    parser.add_argument("--out", default="map-gaps")
    options = parser.parse_args()
    cells = Cells(options.out, "python -m backfield_benchmarks.map_gaps")
    for solver in SOLVERS:  # loads the kernels
        bf.find_map(three_labels(np.random.default_rng(0)), solver)
    for family in FAMILIES:
        rows = [cells.get(f"{family} {seed}", partial(known, family, seed)) for seed in range(options.models)]
        for solver in SOLVERS:
            found, certified = (sum(row[solver][key] for row in rows) for key in ("found", "certified"))
            seconds = np.mean([row[solver]["seconds"] for row in rows])
            print(f"{family}, {solver}: found {found}, certified {certified} of {len(rows)}; {1000 * seconds:.1f} ms each")
    for kind in ("potts", "linear", "random"):
        for seed in range(options.grids):
            spec = f"mplp(tol=0.001, n_iter={options.n_iter})"
            row = cells.get(f"grid {kind} {seed}", partial(grid, kind, seed, spec))
            print(f"{kind} {seed}: gap {100 * row['gap']:.3f} %, {row['sweeps']} sweeps, {row['seconds']:.1f} s")


if __name__ == "__main__":
    main()
