"""DenseCRF and GridCRF on the same unary terms: horses and backgrounds, and whether a dense field is ever worse than they.

    python -m backfield_benchmarks.dense_sets --data ../shared/data [--sets horses backgrounds] [--seeds 5] [--train 100]
        [--test 100] [--shrink 2] [--out dense-sets]

Unary terms: boosted trees of 42 pixel features, cross-fitted in three folds (``dense_unary``). ``GridCRF``: those terms with
a learned temperature, and edges with the thresholded colour differences of [D13] (its features and loss, through 5 sweeps
of tree-reweighted BP). ``DenseCRF``: the same terms, and its default kernels. Each seed draws its own training and test
images. A dense field learns in three fits of ``--iterations``, so the grid gets three times as many in its one. Errors are
shares of the labelled pixels; differences are paired over test images, with a 95 % interval.
"""

import argparse
import json
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import backfield as bf
from backfield.datasets import backgrounds, horses
from backfield.features import EdgeFeatures, PixelFeatures
from backfield_benchmarks.cells import Cells
from backfield_benchmarks.dense_unary import BAND, Trees, compared, cross_fitted, scores


def read(name, folder, shrink):
    """Return images, masks (-1 = unknown) and the number of classes; every ``shrink``-th row and column."""
    found: Any = horses.load(folder) if name == "horses" else backgrounds.load(folder)
    masks = found.masks if name == "horses" else found.labels
    images = [np.ascontiguousarray(image[::shrink, ::shrink]) for image in found.images]
    return images, [np.asarray(mask, np.int64)[::shrink, ::shrink] for mask in masks], 2 if name == "horses" else 8


def grid(images, p, masks, train, test, learner):
    """Return the labels of test images by a grid on the same unary terms."""
    edges = EdgeFeatures().fit([images[k] for k in train])
    X = {k: bf.GridSample(p[k], *edges.transform_one(images[k])) for k in [*train, *test]}
    crf = bf.GridCRF(unary="given", inference="tree_reweighted(n_iter=5)", loss="clique_logistic", learner=learner)
    crf.fit([X[k] for k in train], [masks[k] for k in train])
    return crf.predict([X[k] for k in test]), crf.message_


def dense(images, p, masks, train, test, learner, shrink):
    """Return the labels of test images by a dense field."""
    how: dict[str, Any] = {"kernels": ["position(3)", f"bilateral({60 / shrink:g}, 10)"], "learner": learner}
    crf = bf.DenseCRF(unary="given", **how)
    crf.fit([(images[k], p[k]) for k in train], [masks[k] for k in train])
    widths = [kernel["bandwidths"].round(2).tolist() for kernel in crf.kernels_]
    return crf.predict([(images[k], p[k]) for k in test]), f"{crf.message_}; bandwidths {widths}"


def run(data, settings, seed):
    """Return the scores of each method on one draw of images."""
    images, masks, n_classes = data
    order = np.random.default_rng(seed).permutation(len(images))
    train, test = order[: settings.train], order[settings.train : settings.train + settings.test]
    numbers = [*train, *test]
    features = dict(zip(numbers, PixelFeatures.l13().transform([images[k] for k in numbers]), strict=True))
    p = cross_fitted(Trees(n_classes, settings.rounds, settings.pixels, seed), features, masks, train, test)
    learner, truth = "lbfgs(max_iter={})".format, [masks[k] for k in test]
    methods = {
        "unary": lambda: ([p[k].argmax(axis=-1) for k in test], ""),
        "grid": lambda: grid(images, p, masks, train, test, learner(3 * settings.iterations)),
        "dense": lambda: dense(images, p, masks, train, test, learner(settings.iterations), settings.shrink),
    }
    rows = {}
    for name, method in methods.items():
        clock = time.process_time()
        labels, found = method()
        rows[name] = {"seconds": round(time.process_time() - clock, 1), "found": found}
        rows[name] |= scores(labels, truth, n_classes, int(np.ceil(BAND / settings.shrink)))
    return {"test": " ".join(map(str, test)), "train": len(train), "methods": rows}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--sets", nargs="+", choices=["horses", "backgrounds"], default=["horses", "backgrounds"])
    for name, default in (("seeds", 5), ("train", 100), ("test", 100), ("shrink", 2), ("iterations", 20)):
        parser.add_argument(f"--{name}", type=int, default=default)
    for name, default in (("rounds", 40), ("pixels", 40_000)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--out", default="dense-sets")
    settings = parser.parse_args()
    cells = Cells(settings.out, " ".join(["python -m backfield_benchmarks.dense_sets", *sys.argv[1:]]))
    table = []
    for name in settings.sets:
        data = read(name, settings.data, settings.shrink)
        rows = [cells.get(f"{name} {seed}", partial(run, data, settings, seed)) for seed in range(settings.seeds)]
        table += [{"set": name, "seeds": len(rows)} | row for row in compared(rows, "dense")]
    cells.summary = table
    cells.save()
    for row in table:
        print(json.dumps(row))


if __name__ == "__main__":
    main()
