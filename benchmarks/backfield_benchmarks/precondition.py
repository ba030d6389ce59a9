"""Iterations of lbfgs with 10 and 40 pairs, in the metric of the features and in the plain one: 12 horses.

    python -m backfield_benchmarks.precondition --data DATA

Two models: that of [D13] (100 features of colour, position and gradients; clique logistic, 10 sweeps) and one of raw numbers
(colours 0 .. 255, their squares, rows and columns, every fourth pixel; defaults). Prints the objective after 25, 50, 100 and
200 iterations, and how many come within 1 % of the lowest one seen.
"""

import argparse
import json
import warnings
from pathlib import Path

import numpy as np

import backfield as bf
from backfield.datasets import horses
from backfield.features import EdgeFeatures, PixelFeatures

SPECS = ("precondition=False", "history=40, precondition=False", "history=10", "history=40")


def features(images):
    pixels, edges = PixelFeatures(), EdgeFeatures().fit(images)
    return [bf.GridSample(pixels.transform_one(image), *edges.transform_one(image)) for image in images]


def raw(images):
    small = [image[::4, ::4].astype(np.float64) for image in images]
    places = [np.moveaxis(np.indices(image.shape[:2]), 0, -1) for image in small]
    return [np.concatenate([image, image**2, place], axis=-1) for image, place in zip(small, places, strict=True)]


def compare(case, X, y, **settings):
    curves = {}
    for spec in SPECS:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", bf.ConvergenceWarning)
            crf = bf.GridCRF(learner=f"lbfgs(max_iter=200, {spec})", **settings).fit(X, y)
        curves[spec] = [row["objective"] for row in crf.trace_]
    lowest = min(min(curve) for curve in curves.values())
    for spec, curve in curves.items():
        near = next((k for k, value in enumerate(curve) if value <= 1.01 * lowest), None)
        after = {str(k): round(curve[min(k, len(curve) - 1)], 5) for k in (25, 50, 100, 200)}
        print(json.dumps({"case": case, "lbfgs": spec, **after, "within 1 %": near}), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    data = horses.load(parser.parse_args().data)
    images, masks = ([each[i] for i in data.train[:12]] for each in (data.images, data.masks))
    compare("raw", raw(images), [mask[::4, ::4] for mask in masks])
    compare("d13", features(images), masks, loss="clique_logistic", l2=1e-3, inference="tree_reweighted(n_iter=10)")


if __name__ == "__main__":
    main()
