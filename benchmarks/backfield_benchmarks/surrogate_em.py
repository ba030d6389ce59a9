"""Surrogate EM of d13-table3, 5 sweeps, the first fold: the time of a fit beside that of an old version.

    python -m backfield_benchmarks.surrogate_em --data DIR [--against TREE] [--images 40] [--max-iter 20] [--repeats 3]

Features are computed once, as the experiment computes them, and the versions fit them by turns, each in a process of its
own (``TREE`` is the folder of another checkout). Printed are the medians of processor time, the evaluations that L-BFGS
made, and the time of one.
"""

from __future__ import annotations

import argparse
import json
import os
import pickle
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import backfield
from backfield.datasets import backgrounds
from backfield.features import EdgeFeatures, PixelFeatures, subsample

STRIDE = 5
#: What a process does: reads arrays, fits once to compile, then once for every line that it reads.
_FIT = """
import json, pickle, sys, time, warnings
warnings.simplefilter("ignore")
import backfield as bf
from backfield.estimators import GridSample
samples, labels = pickle.load(open(sys.argv[1], "rb"))
X = [GridSample(*sample) for sample in samples]

def fit(count, max_iter):
    model = bf.GridCRF(loss="surrogate_likelihood", inference="tree_reweighted(n_iter=5)", l2=1e-3, n_labels=8,
                       learner=f"lbfgs(max_iter={max_iter})")
    start = time.process_time()
    model.fit(X[:count], labels[:count])
    seconds = time.process_time() - start
    return {"seconds": seconds, "evaluations": sum(row["evaluations"] for row in model.trace_),
            "objective": model.trace_[-1]["objective"]}

fit(2, 1)
for line in sys.stdin:
    print(json.dumps(fit(len(X), int(sys.argv[2]))), flush=True)
"""


def fold(data: str, n_images: int) -> tuple[list[tuple[Any, ...]], list[Any]]:
    """Return features and labels of the training images of the first fold."""
    read = backgrounds.load(data, n_images=n_images)
    pixels, edges = PixelFeatures(stride=STRIDE), EdgeFeatures(("constant", "difference"))
    small = [subsample(image, STRIDE) for image in read.images]
    edges.fit(small)
    train = [k for k in range(len(small)) if read.folds[k] != 0]
    samples = [(pixels.transform_one(read.images[k]), *edges.transform_one(small[k])) for k in train]
    return samples, [subsample(read.labels[k], STRIDE) for k in train]


def process(tree: str, arrays: str, max_iter: int) -> subprocess.Popen[str]:
    """Start a process that fits with the version in a folder."""
    kept = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([tree, *kept])}
    command = [sys.executable, "-c", _FIT, arrays, str(max_iter)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env, cwd=tree)


def main() -> None:
    """Print one line for each version."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True)
    parser.add_argument("--against")
    parser.add_argument("--images", type=int, default=40)
    parser.add_argument("--max-iter", type=int, default=20)
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    here = str(Path(backfield.__file__).resolve().parents[1])
    trees = [here] if options.against is None else [str(Path(options.against).resolve()), here]
    with tempfile.NamedTemporaryFile(suffix=".pickle") as file:
        pickle.dump(fold(options.data, options.images), file)
        file.flush()
        running = [process(tree, file.name, options.max_iter) for tree in trees]
        found: list[list[dict[str, float]]] = [[] for _ in running]
        for _ in range(options.repeats):
            for each, rows in zip(running, found, strict=True):
                assert each.stdin is not None and each.stdout is not None
                print(file=each.stdin, flush=True)
                rows.append(json.loads(each.stdout.readline()))
        for each in running:
            each.communicate()
    for tree, rows in zip(trees, found, strict=True):
        seconds = statistics.median(row["seconds"] for row in rows)
        last = rows[-1]
        row = {"tree": tree, "seconds": round(seconds, 2), "evaluations": last["evaluations"]}
        row |= {"ms per evaluation": round(1000 * seconds / last["evaluations"], 1), "objective": last["objective"]}
        print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
