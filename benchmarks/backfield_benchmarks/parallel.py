"""What threads and merging give to a fit.

    python -m backfield_benchmarks.parallel [images chains graphs] [--repeats 5] [--against TREE]

*images*: 64 images of 100 x 100 through 5 sweeps; *chains*: 2 000 sequences of 20 positions, 10 labels; both with the
defaults. One thread and two by turns: medians, their ratio, and whether the weights have the same bytes. ``limit`` is the
ratio of two processes that fit at the same time, each with one thread: what the machine itself gives. ``gil`` is the share
of a fit with one thread that holds the interpreter, where py-spy is installed: its samples with and without ``--gil``.

*graphs*: 2 000 graphs of six variables. With ``--against``, the folder of an old checkout fits them as well: the ratio of
seconds, and how far value and gradient at five vectors of weights, and the final objective, are apart.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

import backfield
import backfield as bf
from backfield.datasets import generated
from backfield_benchmarks.probe import problem_of


def images(n_jobs: int) -> tuple[Any, Any, Any]:
    """Return an estimator of images, X and y."""
    d = generated.denoising(64, seed=0)
    X = [bf.GridSample(*parts) for parts in zip(d.features, d.horizontal, d.vertical, strict=True)]
    return bf.GridCRF(inference="tree_reweighted(n_iter=5)", n_jobs=n_jobs), X, list(d.masks)


def chains(n_jobs: int) -> tuple[Any, Any, Any]:
    """Return an estimator of sequences, X and y: ten labels, twenty features."""
    rng = np.random.default_rng(0)
    y = [np.cumsum(rng.integers(0, 2, 20)) % 10 for _ in range(2000)]
    means = rng.normal(size=(10, 20))
    X = [means[each] + rng.normal(size=(20, 20)) for each in y]
    return bf.ChainCRF(n_jobs=n_jobs), X, y


def graphs(n_jobs: int = 1) -> tuple[Any, Any, Any]:
    """Return an estimator of small graphs, X and y: six variables, all pairs, as labels of a scene."""
    rng = np.random.default_rng(0)
    pairs = [(i, j) for i in range(6) for j in range(i)]
    types = np.arange(6), np.arange(len(pairs))
    y = [(rng.normal(size=6) + rng.normal() > 0).astype(int) for _ in range(2000)]
    graph = bf.Graph.from_edges(pairs, n_variables=6, labels=2)
    X = [bf.Sample(graph, each[:, None] + rng.normal(size=(6, 8)), None, *types) for each in y]
    crf = bf.GraphCRF(inference="tree_reweighted(n_iter=5)", dtype="float64", n_jobs=n_jobs, l2=1e-4,
                      learner="lbfgs(max_iter=200, gtol=1e-7)")  # fmt: skip
    return crf, X, y


CASES = {"images": images, "chains": chains}


def seconds_of(crf: Any, X: Any, y: Any) -> float:
    """Fit; return wall seconds."""
    start = time.perf_counter()
    crf.fit(X, y)
    return time.perf_counter() - start


def threads(name: str, repeats: int) -> dict[str, Any]:
    """Return medians with one and two threads, and what two processes give."""
    fits = {n: CASES[name](n) for n in (1, 2)}
    times: dict[int, list[float]] = {1: [], 2: []}
    for turn in range(-1, repeats):  # the first round compiles
        for n, fit in fits.items():
            found = seconds_of(*fit)
            if turn >= 0:
                times[n].append(found)
    one, two = (statistics.median(times[n]) for n in (1, 2))
    both = statistics.median(two_processes(name, repeats))
    weights = [fits[n][0].weights_.tobytes() for n in (1, 2)]
    return {"case": name, "one_s": one, "two_s": two, "speedup": one / two, "same_bytes": weights[0] == weights[1],
            "limit": 2 * one / both, "gil": held(name)}  # fmt: skip


def two_processes(name: str, repeats: int) -> list[float]:
    """Return the wall seconds of a fit in each of two processes that fit at the same time."""
    command = [sys.executable, "-m", "backfield_benchmarks.parallel", "--fit", name]
    pair = [subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    found = []
    for turn in range(-1, repeats):
        for each in pair:
            assert each.stdin is not None
            each.stdin.write("\n")
            each.stdin.flush()
        times = [float(each.stdout.readline()) for each in pair if each.stdout is not None]
        found += times if turn >= 0 else []
    for each in pair:
        each.communicate()
    return found


def held(name: str) -> float | None:
    """Return the share of a fit during which the interpreter is held; None without py-spy."""
    if shutil.which("py-spy") is None:
        return None
    command = [sys.executable, "-m", "backfield_benchmarks.parallel", "--fit", name]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None and process.stdout is not None
        counts = []
        process.stdin.write("\n" * 1000)
        process.stdin.flush()
        process.stdout.readline()  # compiled
        for options in ([], ["--gil"]):
            # Without a pause for each sample: after one, the interpreter's share is larger, as its caches are cold.
            spy = ["py-spy", "record", "--nonblocking", "--pid", str(process.pid), "--rate", "500", "--duration", "6"]
            with tempfile.NamedTemporaryFile() as out:
                subprocess.run([*spy, *options, "--format", "raw", "--output", out.name], check=True, capture_output=True)
                counts.append(sum(int(line.split()[-1]) for line in Path(out.name).read_text().splitlines()))
        process.kill()
    return counts[1] / counts[0]


def small_graphs(repeats: int) -> dict[str, Any]:
    """Return seconds of a fit, its objective, and values and gradients at some weights."""
    crf, X, y = graphs()
    seconds_of(crf, X[:50], y[:50])
    times = [seconds_of(crf, X, y) for _ in range(repeats)]
    objective = crf.trace_[-1]["objective"]
    problem = problem_of(crf, X, y)
    rng = np.random.default_rng(1)
    seen = [problem.value_and_gradient(rng.normal(size=problem.n_weights)) for _ in range(5)]
    return {"case": "graphs", "seconds": statistics.median(times), "objective": float(objective),
            "values": [float(each.value) for each in seen],
            "gradients": [np.asarray(each.gradient).tolist() for each in seen]}  # fmt: skip


def against(tree: str, repeats: int) -> dict[str, Any]:
    """Return :func:`small_graphs` of an old version."""
    tree = str(Path(tree).resolve())
    here = str(Path(__file__).resolve().parents[1])
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([tree, here])}
    command = [sys.executable, "-m", "backfield_benchmarks.parallel", "--old", str(repeats)]
    done = subprocess.run(command, env=env, cwd=tree, capture_output=True, text=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def compared(new: dict[str, Any], old: dict[str, Any]) -> dict[str, Any]:
    """Return how the two versions differ."""
    values, before = np.array(new["values"]), np.array(old["values"])
    gradients, others = np.array(new["gradients"]), np.array(old["gradients"])
    largest = np.abs(others).max(axis=1, keepdims=True)
    return {
        "case": "graphs against old", "new_s": new["seconds"], "old_s": old["seconds"],
        "times_faster": old["seconds"] / new["seconds"],
        "value_apart": float(np.max(np.abs(values - before) / np.abs(before))),
        "gradient_apart": float(np.max(np.abs(gradients - others) / largest)),
        "objective_apart": abs(new["objective"] - old["objective"]) / abs(old["objective"]),
    }  # fmt: skip


def main() -> None:
    """Print one line for each case."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="*", help="images, chains, graphs; all by default")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--against", help="folder of another checkout")
    parser.add_argument("--fit", help=argparse.SUPPRESS)
    parser.add_argument("--old", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.fit:
        fit = CASES[options.fit](1)
        for _ in sys.stdin:
            print(seconds_of(*fit), flush=True)
        return
    if options.old:
        print(json.dumps(small_graphs(options.old)))
        return
    print(f"backfield of {Path(backfield.__file__).parent}")
    cases = options.cases or [*CASES, "graphs"]
    for name in cases:
        if name in CASES:
            print(json.dumps(threads(name, options.repeats)), flush=True)
    if "graphs" in cases:
        found = small_graphs(options.repeats)
        print(json.dumps({key: found[key] for key in ("case", "seconds", "objective")}), flush=True)
        if options.against:
            print(json.dumps(compared(found, against(options.against, max(1, options.repeats // 3)))), flush=True)


if __name__ == "__main__":
    main()
