"""Iterations of lbfgs with 10 and 40 pairs, with and without the metric of the features: 12 horses, clique logistic.

    python benchmarks/precondition.py --data DATA

Prints the objective after 25, 50, 100 and 200 iterations, and how many iterations come within 1 % of the lowest one seen.
"""

import argparse
import json
import warnings
from pathlib import Path

import backfield as bf
from backfield.datasets import horses
from backfield.features import EdgeFeatures, PixelFeatures

SPECS = ("history=10", "history=40", "history=10, precondition=True", "history=40, precondition=True")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    data = horses.load(parser.parse_args().data)
    images = [data.images[i] for i in data.train[:12]]
    pixels, edges = PixelFeatures(), EdgeFeatures().fit(images)
    X = [bf.GridSample(pixels.transform_one(image), *edges.transform_one(image)) for image in images]
    y = [data.masks[i] for i in data.train[:12]]
    curves = {}
    for spec in SPECS:
        crf = bf.GridCRF(
            loss="clique_logistic", l2=1e-3, inference="tree_reweighted(n_iter=10)", learner=f"lbfgs(max_iter=200, {spec})"
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", bf.errors.ConvergenceWarning)
            crf.fit(X, y)
        curves[spec] = [row["objective"] for row in crf.trace_]
    lowest = min(min(curve) for curve in curves.values())
    for spec, curve in curves.items():
        near = next((k for k, value in enumerate(curve) if value <= 1.01 * lowest), None)
        print(json.dumps({"lbfgs": spec, **{str(k): round(curve[k], 5) for k in (25, 50, 100, 200)}, "within 1 %": near}))


if __name__ == "__main__":
    main()
