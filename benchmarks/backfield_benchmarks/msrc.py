"""Learned dense fields on MSRC-21: unary terms alone, pydensecrf2 with searched parameters, and ours learned.

    python -m backfield_benchmarks.msrc --data ../shared/data/msrc21 [--splits 5] [--train 335] [--test 256] [--shrink 1]
        [--settings 60] [--json FILE]

591 images, 21 classes, 255 = void; seeded splits. Unary terms: boosted trees (scikit-learn) of 42 pixel features on a
sample of the pixels, cross-fitted in three folds for the training images; test images get those of trees of all of them.
pydensecrf2 (where it is installed, see ``dense_pydensecrf``): the best of ``--settings`` random settings on a fifth of the
training images. Ours: ``DenseCRF(unary="given")``, learned from the training images. Errors are shares of the labelled
pixels of the test images, class averages means over the classes, the band is of 5 pixels around boundaries of the labels;
differences are paired over test images, with a 95 % interval. Fewer images (``--train``, ``--test``) or smaller ones
(``--shrink 2``) take less time; rows say what was run.
"""

import argparse
import json
import time
from pathlib import Path

import numpy as np
from PIL import Image
from scipy.ndimage import binary_dilation
from sklearn.ensemble import HistGradientBoostingClassifier

import backfield as bf
from backfield.features import PixelFeatures

N_CLASSES = 21
BAND = 5


def read(folder, shrink):
    """Return images and masks, -1 = void."""
    images, masks = [], []
    for path in sorted((folder / "images").iterdir()):
        image = Image.open(path).convert("RGB")
        mask = Image.open(next((folder / "labels").glob(f"{path.stem}*.png")))
        size = (image.width // shrink, image.height // shrink)
        images.append(np.array(image.resize(size, Image.Resampling.BILINEAR) if shrink > 1 else image))
        label = np.array(mask.resize(size, Image.Resampling.NEAREST) if shrink > 1 else mask).astype(np.int64)
        masks.append(np.where(label == 255, -1, label))
    return images, masks


def trees(rows, labels, seed, settings):
    """Return boosted trees of a sample of pixels."""
    rng = np.random.default_rng(seed)
    known = np.flatnonzero(labels >= 0)
    chosen = rng.choice(known, min(len(known), settings.pixels), replace=False)
    model = HistGradientBoostingClassifier(max_iter=settings.trees, learning_rate=0.15, max_leaf_nodes=24, random_state=seed)
    return model.fit(rows[chosen], labels[chosen])


def probabilities(model, features):
    """Return class probabilities (H, W, 21) of an image."""
    p = np.full((features.shape[0] * features.shape[1], N_CLASSES), 1e-4, np.float32)
    p[:, model.classes_] = model.predict_proba(features.reshape(-1, features.shape[-1]))
    return (p / p.sum(axis=1, keepdims=True)).reshape(*features.shape[:2], N_CLASSES)


def fit_trees(features, masks, numbers, seed, settings):
    rows = np.concatenate([features[k].reshape(-1, features[k].shape[-1])[::3] for k in numbers])
    return trees(rows, np.concatenate([masks[k].reshape(-1)[::3] for k in numbers]), seed, settings)


def unary_terms(features, masks, train, test, seed, settings, folds=3):
    """Return probabilities of training images out of fold, and of test images."""
    out: dict[int, np.ndarray] = {}
    for fold in range(folds):
        model = fit_trees(features, masks, [k for i, k in enumerate(train) if i % folds != fold], seed, settings)
        out |= {k: probabilities(model, features[k]) for i, k in enumerate(train) if i % folds == fold}
    model = fit_trees(features, masks, train, seed, settings)
    return out | {k: probabilities(model, features[k]) for k in test}


class Scores:
    """Errors of each image, in all and near boundaries, and of each class."""

    def __init__(self):
        self.images, self.band = [], []
        self.right, self.total = np.zeros(N_CLASSES), np.zeros(N_CLASSES)

    def add(self, labels, mask):
        known, wrong = mask >= 0, (labels != mask) & (mask >= 0)
        edges = np.zeros(mask.shape, bool)
        edges[1:] |= mask[1:] != mask[:-1]
        edges[:, 1:] |= mask[:, 1:] != mask[:, :-1]
        near = binary_dilation(edges, iterations=BAND) & known
        self.images.append((wrong.sum(), known.sum()))
        self.band.append(((wrong & near).sum(), near.sum()))
        self.right += np.bincount(mask[known & ~wrong], minlength=N_CLASSES)
        self.total += np.bincount(mask[known], minlength=N_CLASSES)

    def row(self):
        errors = [float(np.sum(x, axis=0)[0] / np.sum(x, axis=0)[1]) for x in (self.images, self.band)]
        classes = self.right[self.total > 0] / self.total[self.total > 0]
        return {"error": round(errors[0], 4), "band": round(errors[1], 4), "class average": round(float(classes.mean()), 4)}

    def against(self, other):
        """Return the mean difference of errors over images and its 95 % interval, all pixels and the band."""
        out = {}
        for name, mine, theirs in (("error", self.images, other.images), ("band", self.band, other.band)):
            pairs = [(a / b, c / d) for (a, b), (c, d) in zip(mine, theirs, strict=True) if b]
            d = np.diff(np.array(pairs), axis=1)[:, 0] * -1
            half = 1.96 * d.std(ddof=1) / np.sqrt(len(d))
            out[name] = [round(float(x), 4) for x in (d.mean(), d.mean() - half, d.mean() + half)]
        return out


def pydensecrf_labels(image, p, setting):
    import pydensecrf.densecrf as dcrf

    height, width = image.shape[:2]
    crf = dcrf.DenseCRF2D(width, height, N_CLASSES)
    crf.setUnaryEnergy(np.ascontiguousarray(-np.log(np.maximum(p, 1e-4)).reshape(-1, N_CLASSES).T, dtype=np.float32))
    crf.addPairwiseGaussian(sxy=setting["position"], compat=setting["w1"])
    crf.addPairwiseBilateral(
        sxy=setting["scale"], srgb=setting["colour"], rgbim=np.ascontiguousarray(image), compat=setting["w2"]
    )
    return np.array(crf.inference(5)).argmax(axis=0).reshape(height, width)


def searched(images, masks, p, numbers, count, seed):
    """Return the best of random settings on some images."""
    rng = np.random.default_rng(seed)
    best: tuple[float, dict[str, float]] = (np.inf, {})
    for _ in range(count):
        setting = {
            "position": rng.choice([1, 2, 3, 5]),
            "w1": rng.choice([0.5, 1, 2, 4, 8]),
            "w2": rng.choice([1, 2, 4, 8, 15]),
        }
        setting |= {"scale": rng.choice([10, 20, 40, 60, 80]), "colour": rng.choice([3, 5, 8, 13, 20])}
        setting = {key: float(value) for key, value in setting.items()}
        wrong = sum(
            int(((pydensecrf_labels(images[k], p[k], setting) != masks[k]) & (masks[k] >= 0)).sum()) for k in numbers
        )
        best = min(best, (wrong, setting), key=lambda pair: pair[0])
    return best[1]


def split(images, masks, settings, seed):
    """Run one split and return its rows."""
    order = np.random.default_rng(seed).permutation(len(images))
    train, test = order[: settings.train], order[settings.train : settings.train + settings.test]
    clock = time.process_time()
    used = [*train, *test]
    features = dict(zip(used, PixelFeatures.l13().transform([images[k] for k in used]), strict=True))
    p = unary_terms(features, masks, train, test, seed, settings)
    done = {"unary": [p[k].argmax(axis=-1) for k in test]}
    seconds = {"unary": time.process_time() - clock}
    clock = time.process_time()
    crf = bf.DenseCRF(unary="given", learner=f"lbfgs(max_iter={settings.iterations})", l2=settings.l2)
    crf.fit([(images[k], p[k]) for k in train], [masks[k] for k in train])
    done["learned"] = crf.predict([(images[k], p[k]) for k in test])
    seconds["learned"] = time.process_time() - clock
    found = {"learned": f"{crf.message_}; bandwidths {[k['bandwidths'].round(2).tolist() for k in crf.kernels_]}"}
    try:
        clock = time.process_time()
        best = searched(images, masks, p, train[::5], settings.settings, seed)
        done["pydensecrf2"] = [pydensecrf_labels(images[k], p[k], best) for k in test]
        seconds["pydensecrf2"], found["pydensecrf2"] = time.process_time() - clock, str(best)
    except ImportError:
        pass
    scores = {name: Scores() for name in done}
    for name, labels in done.items():
        for k, each in zip(test, labels, strict=True):
            scores[name].add(each, masks[k])
    rows = []
    for name, score in scores.items():
        row = {
            "split": seed,
            "train": len(train),
            "test": len(test),
            "shrink": settings.shrink,
            "method": name,
        } | score.row()
        row |= {"seconds": round(seconds[name], 1), "found": found.get(name, "")}
        if name != "learned":
            row["learned minus this"] = scores["learned"].against(score)
        rows.append(row)
        print(json.dumps(row), flush=True)
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    for name, default in (("splits", 5), ("train", 335), ("test", 256), ("shrink", 1), ("settings", 60)):
        parser.add_argument(f"--{name}", type=int, default=default)
    for name, default in (("iterations", 40), ("trees", 40), ("pixels", 40_000)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--l2", type=float, default=1e-4)
    parser.add_argument("--json", type=Path)
    settings = parser.parse_args()
    images, masks = read(settings.data, settings.shrink)
    rows = [row for seed in range(settings.splits) for row in split(images, masks, settings, seed)]
    if settings.json:
        settings.json.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
