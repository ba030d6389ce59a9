"""Models of the UAI 2014 competition: which ``auto`` solves exactly, in which time and memory.

    python -m backfield_benchmarks.uai [NAME ...] [--seconds 20] [--gib 2]

Each model is solved in a child process, after a small one that loads the kernels. ``error``: of log10 Z against the value at
full precision in ``index.json``; ``marginals``: the largest difference from the published ones, which have six digits.
Seconds are those of the processor, and memory is what the process had at its largest, the interpreter included.
"""

import argparse
import json
import multiprocessing
import resource
import time
from functools import partial

import numpy as np

import backfield as bf
from backfield.data.formats.uai import read_evidence, read_mar, read_uai
from backfield.datasets import data_dir
from backfield_benchmarks.cells import Cells


def solve(connection, path, spec):
    bf.infer(bf.Potentials(bf.Graph.chain(3, 2), np.zeros((3, 2)), np.zeros((2, 2, 2))), spec)
    theta = read_uai(path)
    observed = read_evidence(f"{path}.evid", theta.graph.n_variables)
    start = time.process_time()
    run = bf.infer(theta, spec, observed=observed if (observed >= 0).any() else None)
    seconds = time.process_time() - start
    published = read_mar(f"{path}.MAR")
    worst = max(float(np.abs(a - b).max()) for a, b in zip(run.unary, published, strict=True))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    connection.send((run.bound, run.log_partition / np.log(10), worst, seconds, peak, run.extra["known"]))


def cell(entry, folder, spec):
    mine, other = multiprocessing.get_context("spawn").Pipe()
    process = multiprocessing.get_context("spawn").Process(target=solve, args=(other, folder / f"{entry['name']}.uai", spec))
    process.start()
    other.close()
    bound, value, worst, seconds, peak, known = mine.recv()
    process.join()
    return {
        "exact": bound == "exact",
        "error": abs(value - entry["log10Z_exact_recomputed"]),
        "marginals": worst,
        "seconds": seconds,
        "GiB": peak,
        "known": known,
    }


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="*")
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--gib", type=int, default=2)
    parser.add_argument("--out", default="uai2014")
    options = parser.parse_args()
    folder = data_dir() / "uai2014"
    cells = Cells(options.out, "python -m backfield_benchmarks.uai")
    spec = f"auto(seconds={options.seconds}, memory={options.gib * 2**30})"
    for entry in json.loads((folder / "index.json").read_text()):
        if not options.names or entry["name"] in options.names:
            cells.get(entry["name"], partial(cell, entry, folder, spec))
    rows = list(cells.rows.values())
    print(
        f"exact: {sum(row['exact'] for row in rows)} of {len(rows)}; largest error of log10 Z "
        f"{max(row['error'] for row in rows):.1e}, of a marginal {max(row['marginals'] for row in rows):.1e}; slowest "
        f"{max(row['seconds'] for row in rows):.1f} s, largest {max(row['GiB'] for row in rows):.2f} GiB"
    )


if __name__ == "__main__":
    main()
