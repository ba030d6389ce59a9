"""Membranes of ISBI 2012: a pixel classifier, a 2-D field on it, a 3-D field on it.

    python -m backfield_benchmarks.isbi [--seeds 3] [--out FILE]

30 consecutive slices of one volume, 512 x 512, voxels of 4 x 4 x 50 nm; slices 0-14 are learned from, 15-29 are the test.
The classifier is boosted trees on local features of each slice, fitted to pixels that its seed draws. The fields learn from
its log-odds out of fold (three volumes of five slices) through the truncated inference that they predict with; a field has a
few dozen weights, and the middle quarter of each slice is enough to learn them.
Neighbours within a slice are chosen by the log loss with seed 0 on slices 10-14 after learning from 0-9; the
3-D field has the voxel below as well. The test slices are seen by the chosen fields alone. Cells are saved in
docs/results/studies/isbi.json, and a run that was interrupted goes on.
"""

import argparse
import time
from functools import cached_property
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.ensemble import HistGradientBoostingClassifier

import backfield as bf
from backfield.datasets import data_dir, read_image, read_mask
from backfield.features import LocalFeatures
from backfield_benchmarks.cells import Cells

COMMAND = "python -m backfield_benchmarks.isbi"
MAKER = LocalFeatures(scales=(1.0, 2.0, 4.0, 8.0), kinds=("intensity", "gaussian", "gradient", "hessian", "structure"))
#: Slices of the volumes that are learned from; each is a fold of the classifier.
TRAIN = (slice(0, 5), slice(5, 10), slice(10, 15))
TEST = slice(15, 30)
ROWS = 200_000
#: The part of the training volumes that fields learn from.
MIDDLE = (slice(None), slice(128, 384), slice(128, 384))

NEAR = [(0, 0, 1), (0, 1, 0)]
DIAGONAL = [(0, 1, 1), (0, 1, -1)]
FAR = [(0, 0, 4), (0, 4, 0), (0, 3, 3), (0, 3, -3)]
#: Neighbours within a slice.
FLAT = {"4 neighbours": NEAR, "8 neighbours": NEAR + DIAGONAL, "8 near, 8 far": NEAR + DIAGONAL + FAR}
#: The neighbour in the next slice. A fit with nine, four pixels apart, was given up after 17 minutes.
BELOW = [(1, 0, 0)]


class Sampled(ClassifierMixin, BaseEstimator):
    """A classifier that is fitted to rows drawn at random: neighbouring pixels say much the same."""

    def __init__(self, estimator, rows, seed):
        self.estimator, self.rows, self.seed = estimator, rows, seed

    def fit(self, X, y):
        chosen = np.random.default_rng(self.seed).choice(len(y), min(self.rows, len(y)), replace=False)
        self.estimator.fit(X[chosen], y[chosen])
        self.classes_ = self.estimator.classes_
        return self

    def predict_proba(self, X):
        return self.estimator.predict_proba(X)


def read(slices):
    """Return the features (D, H, W, F) of a volume, and which voxels are membrane."""
    folder = data_dir() / "isbi2012_membrane"
    names = sorted(path.name for path in (folder / "images").iterdir())[slices]
    x = [MAKER.transform_one(read_image(folder / "images" / name)[..., 0]) for name in names]
    y = [(read_mask(folder / "masks" / name) == 0).astype(int) for name in names]
    return np.stack(x), np.stack(y)


class Stage:
    """The log-odds of a classifier of one seed: of the training volumes out of fold, and of the test volume."""

    def __init__(self, seed):
        self.seed = seed

    @cached_property
    def train(self):
        return self._made[0]

    @cached_property
    def test(self):
        return self._made[1]

    @cached_property
    def _made(self):
        start = time.process_time()
        estimator = HistGradientBoostingClassifier(max_iter=100, random_state=self.seed, early_stopping=False)
        volumes, labels = zip(*(read(each) for each in TRAIN), strict=True)
        unary = bf.Classifier(Sampled(estimator, ROWS, self.seed), cv=len(TRAIN))
        rows = [x.reshape(-1, x.shape[-1]) for x in volumes]
        fitted, logs = unary.fit_predict(rows, [y.ravel() for y in labels], 2)
        odds = [_odds(each, y.shape) for each, y in zip(logs, labels, strict=True)]
        del volumes, rows
        x, y = read(TEST)
        seen = np.concatenate([unary.log_probabilities(fitted, each.reshape(-1, each.shape[-1]), 2) for each in x])
        print(f"classifier of seed {self.seed}: {time.process_time() - start:.0f} s", flush=True)
        return (odds, list(labels)), ([_odds(seen, y.shape)], [y])


def _odds(logs, shape):
    return (logs[:, 1] - logs[:, 0]).reshape(*shape, 1)


def field(offsets):
    """A field on log-odds: it learns their weight, and tables for each offset that also see how much the odds differ."""
    grid: dict[str, Any] = {"offsets": offsets, "contrast": True}
    return bf.VolumeCRF(inference="tree_reweighted(n_iter=5)", learner="lbfgs(max_iter=40)", l2=1e-5, **grid)


def scores(truth, p, seconds=None):
    """Return error, IoU of membrane (of all pixels, and the mean over slices), ECE and log loss."""
    tally = bf.metrics.Tally([0, 1])
    each = []
    for y, q in zip(truth, p, strict=True):
        tally.add(y, q.argmax(axis=-1), q)
        one = bf.metrics.Tally([0, 1])
        one.add(y, q.argmax(axis=-1))
        each.append(one.metrics().iou[1])
    found = tally.metrics()
    row = {
        "error": found.error,
        "iou": found.iou[1],
        "mean_iou": np.mean(each),
        "ece": found.ece,
        "log_loss": found.log_loss,
    }
    row = {key: round(float(value), 5) for key, value in row.items()}
    return row if seconds is None else row | {"seconds": round(seconds, 1)}


def fitted_scores(offsets, train, test):
    """Learn, predict, and score slice by slice."""
    start = time.process_time()
    crf = field(offsets).fit(*([each[MIDDLE] for each in part] for part in train))
    p = crf.predict_proba(test[0])
    seconds = time.process_time() - start
    return scores(np.concatenate(test[1]), np.concatenate(p), seconds)


def alone(test):
    """Score the classifier."""
    odds = np.concatenate(test[0])[..., 0].astype(np.float64)
    p = 1 / (1 + np.exp(-odds))
    return scores(np.concatenate(test[1]), np.stack([1 - p, p], axis=-1))


def chosen(cells, stage):
    """Return the offsets with the lowest log loss on slices 10-14, alone and with the voxel below."""

    def tried(name, offsets):
        (x, y) = stage.train
        return cells.get(f"choice, {name}", lambda: fitted_scores(offsets, (x[:2], y[:2]), (x[2:], y[2:])))["log_loss"]

    cells.get("choice, classifier", lambda: alone(tuple(part[2:] for part in stage.train)))
    flat = min(FLAT, key=lambda name: tried(name, FLAT[name]))
    tried(f"{flat}, below", FLAT[flat] + BELOW)
    return {f"2-D field, {flat}": FLAT[flat], f"3-D field, {flat}, below": FLAT[flat] + BELOW}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--out", default="isbi", help="a JSON file (default: docs/results/studies/isbi.json)")
    options = parser.parse_args()
    cells = Cells(options.out, COMMAND)
    stages = [Stage(seed) for seed in range(options.seeds)]
    fields = chosen(cells, stages[0])
    table: dict[str, list[dict[str, float]]] = {}
    for stage in stages:
        name = "pixel classifier"
        table.setdefault(name, []).append(cells.get(f"{name}, seed {stage.seed}", lambda s=stage: alone(s.test)))
        for name, offsets in fields.items():
            row = cells.get(f"{name}, seed {stage.seed}", lambda s=stage, o=offsets: fitted_scores(o, s.train, s.test))
            table.setdefault(name, []).append(row)
        stage.__dict__.clear()  # its volumes take memory
    print("| | error | IoU of membrane | mean over slices | ECE | log loss |\n|---|---|---|---|---|---|")
    for name, rows in table.items():
        numbers = ([row[key] for row in rows] for key in ("error", "iou", "mean_iou", "ece", "log_loss"))
        print(f"| {name} | " + " | ".join(f"{np.mean(each):.4f} ± {np.std(each):.4f}" for each in numbers) + " |")


if __name__ == "__main__":
    main()
