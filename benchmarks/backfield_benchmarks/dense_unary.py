"""What studies of dense fields share: pixel classifiers, cross-fitted, and errors of each image with paired intervals."""

from typing import Any

import numpy as np
from scipy.ndimage import binary_dilation
from scipy.stats import t as student
from sklearn.ensemble import HistGradientBoostingClassifier

#: Pixels around boundaries of the labels that make the band, in images of their full size.
BAND = 5
#: One in so many pixels is learned from at the most.
_THINNED = 3


class Trees:
    """Boosted trees of pixel features, learned from a sample of the labelled pixels."""

    def __init__(self, n_classes, rounds, pixels, seed):
        self.n_classes, self.rounds, self.pixels, self.seed = n_classes, rounds, pixels, seed

    def fit(self, features, masks, numbers):
        rows = np.concatenate([features[k].reshape(-1, features[k].shape[-1])[::_THINNED] for k in numbers])
        labels = np.concatenate([masks[k].reshape(-1)[::_THINNED] for k in numbers])
        known = np.flatnonzero(labels >= 0)
        chosen = np.random.default_rng(self.seed).choice(known, min(len(known), self.pixels), replace=False)
        self.model = HistGradientBoostingClassifier(
            max_iter=self.rounds, learning_rate=0.15, max_leaf_nodes=24, early_stopping=False, random_state=self.seed
        ).fit(rows[chosen], labels[chosen])
        return self

    def probabilities(self, features):
        """Return class probabilities (H, W, classes) of an image; classes that were not seen are unlikely."""
        p = np.full((features.shape[0] * features.shape[1], self.n_classes), 1e-4, np.float32)
        p[:, self.model.classes_] = self.model.predict_proba(features.reshape(-1, features.shape[-1]))
        return (p / p.sum(axis=1, keepdims=True)).reshape(*features.shape[:2], self.n_classes)


def cross_fitted(trees, features, masks, train, test, folds=3):
    """Return probabilities of the training images out of fold, and of the test images by trees of all of them."""
    out: dict[int, np.ndarray] = {}
    for fold in range(folds):
        trees.fit(features, masks, [k for i, k in enumerate(train) if i % folds != fold])
        out |= {k: trees.probabilities(features[k]) for i, k in enumerate(train) if i % folds == fold}
    trees.fit(features, masks, train)
    return out | {k: trees.probabilities(features[k]) for k in test}


def scores(predictions, masks, n_classes, band):
    """Return errors of all pixels and of the band, the mean accuracy of classes, and the errors of each image."""
    images, near = [], []
    right, total = np.zeros(n_classes), np.zeros(n_classes)
    for labels, mask in zip(predictions, masks, strict=True):
        known, wrong = mask >= 0, (labels != mask) & (mask >= 0)
        close = binary_dilation(boundaries(mask), iterations=band) & known
        images.append((wrong.sum(), known.sum()))
        near.append(((wrong & close).sum(), close.sum()))
        right += np.bincount(mask[known & ~wrong], minlength=n_classes)
        total += np.bincount(mask[known], minlength=n_classes)
    sums = {"error": np.sum(images, axis=0), "band": np.sum(near, axis=0)}
    out: dict[str, Any] = {name: round(float(wrong / known), 5) for name, (wrong, known) in sums.items()}
    out["class average"] = round(float((right[total > 0] / total[total > 0]).mean()), 5)
    for name, x in (("error of images", images), ("band of images", near)):
        out[name] = " ".join(f"{a / b:.4f}" if b else "nan" for a, b in x)
    return out


def boundaries(mask):
    """Return which pixels differ from the one above or to the left."""
    edges = np.zeros(mask.shape, bool)
    edges[1:] |= mask[1:] != mask[:-1]
    edges[:, 1:] |= mask[:, 1:] != mask[:, :-1]
    return edges


def paired(one, two, name, tests):
    """Return the mean difference of errors over distinct images with its 95 % interval, and its mean in each split.

    ``one``, ``two``: the scores of two methods in each split; ``tests``: the numbers of the images of each. An image that is
    in several test sets counts once, with its mean.
    """
    found: dict[str, list[float]] = {}
    splits = []
    for a, b, numbers in zip(one, two, tests, strict=True):
        d = np.array(a[f"{name} of images"].split(), float) - np.array(b[f"{name} of images"].split(), float)
        splits.append(round(float(np.nanmean(d)), 5))
        for k, value in zip(numbers, d, strict=True):
            found.setdefault(k, []).append(value)
    each = np.array([np.mean(values) for values in found.values()])
    each = each[~np.isnan(each)]
    half = student.ppf(0.975, len(each) - 1) * each.std(ddof=1) / np.sqrt(len(each))
    interval = [round(float(x), 5) for x in (each.mean(), each.mean() - half, each.mean() + half)]
    return {"mean, 95 % interval": interval, "images": len(each), "splits": splits}


def means(rows):
    """Return the means of the scores over splits."""
    return {key: round(float(np.mean([row[key] for row in rows])), 5) for key in ("error", "band", "class average")}


def compared(cells, ours):
    """Return a row for each method: its mean scores, and how much lower ours are, with the worst split."""
    of = {name: [cell["methods"][name] for cell in cells] for name in cells[0]["methods"]}
    tests = [cell["test"].split() for cell in cells]
    rows = []
    for name, each in of.items():
        row: dict[str, Any] = {"method": name} | means(each)
        if name != ours:
            for key in ("error", "band"):
                mean, low, high = paired(of[ours], each, key, tests)["mean, 95 % interval"]
                row[f"{ours} minus this, {key}"] = f"{mean:+.4f} [{low:+.4f}, {high:+.4f}]"
            for key, worst in (("error", max), ("class average", min)):
                gaps = [a[key] - b[key] for a, b in zip(of[ours], each, strict=True)]
                row[f"worst split, {key}"] = round(worst(gaps), 5)
        rows.append(row)
    return rows
