"""The data sets of the study of defaults: each gives examples to learn from and to test on, for a seed."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.datasets import load_breast_cancer, load_digits, load_wine
from sklearn.neighbors import kneighbors_graph

import backfield as bf
from backfield.datasets import data_dir, horses, letters, read_image, read_mask
from backfield.datasets.backgrounds import load as load_backgrounds
from backfield.datasets.conll import read_columns, split_labels, window_features, window_template
from backfield.datasets.generated import denoising
from backfield.features import LocalFeatures, majority_labels, region_edges, region_features, superpixels


@dataclass
class Task:
    """Training and test examples, and the estimator that is made for them."""

    estimator: Any  # a class
    train: tuple[list[Any], list[Any]]
    test: tuple[list[Any], list[Any]]
    params: dict[str, Any] = field(default_factory=dict)  # what nobody could leave at its default


def knn(load, seed, small):
    """A table of scikit-learn as graphs: rows are nodes, joined to their five nearest; half of the rows are the test."""
    X, y = load(return_X_y=True)
    order = np.random.default_rng(seed).permutation(len(X))
    sd = X.std(axis=0)
    X = (X[order] - X.mean(axis=0)) / np.where(sd > 0, sd, 1)
    y, n_labels = y[order], int(y.max()) + 1

    def sample(rows):
        near = kneighbors_graph(X[rows], 5).tocoo()
        edges = np.unique(np.sort(np.stack([near.row, near.col], axis=1), axis=1), axis=0)
        distance = np.linalg.norm(X[rows][edges[:, 0]] - X[rows][edges[:, 1]], axis=1, keepdims=True)
        graph = bf.Graph.from_edges(edges, n_variables=len(rows), labels=n_labels)
        return bf.Sample(
            graph, X[rows] + 1.5 * np.random.default_rng((seed, len(rows))).normal(size=X[rows].shape), distance
        )

    parts = np.array_split(np.arange(len(X)), 20)
    train, test = parts[:10], parts[10:]
    return Task(
        bf.GraphCRF, ([sample(p) for p in train], [y[p] for p in train]), ([sample(p) for p in test], [y[p] for p in test])
    )


def digits(seed, small):
    """Digits of scikit-learn as numbers that count up: pictures in a row, noisy, with a wrong turn now and then.

    A picture may come twice; its noise is new each time, so what is held out has not been learned from.
    """
    X, y = load_digits(return_X_y=True)
    rng = np.random.default_rng(seed)

    def sequences(pool, count):
        rows = [np.flatnonzero(y[pool] == k) for k in range(10)]
        out = []
        for _ in range(count):
            steps = rng.choice([0, 1, 2], 12, p=[0.1, 0.8, 0.1])
            wanted = (rng.integers(10) + np.cumsum(steps)) % 10
            picked = pool[[rng.choice(rows[k]) for k in wanted]]
            out.append((X[picked] / 16 + 0.6 * rng.normal(size=(12, X.shape[1])), y[picked]))
        return [a for a, _ in out], [b for _, b in out]

    order = rng.permutation(len(X))
    half = len(X) // 2
    return Task(bf.ChainCRF, sequences(order[:half], 60 if small else 150), sequences(order[half:], 100))


def noisy(seed, small):
    """Denoising, by the intensity alone."""
    made = denoising(8 if small else 24, 40 if small else 80, seed=seed, sd=1.5)
    X, y = list(made.features), list(made.masks)
    half = len(X) // 2
    return Task(bf.GridCRF, (X[:half], y[:half]), (X[half:], y[half:]))


def noisy_context(seed, small):
    """Denoising, by blurs and gradients."""
    task = noisy(seed, small)
    make = LocalFeatures((1.0, 2.0, 4.0))
    (X, y), (test, truth) = task.train, task.test
    return Task(bf.GridCRF, (make.transform(X), y), (make.transform(test), truth))


def words(seed, small):
    """Words of the OCR data, one fold (small: 150 words) to learn from."""
    made = letters.load()
    folds = np.asarray(made.folds)
    train = np.flatnonzero(folds == seed)[: 150 if small else None]
    test = np.random.default_rng(seed).permutation(np.flatnonzero(folds != seed))[: 300 if small else 2000]
    return Task(bf.ChainCRF, _taken(made.words, made.labels, train), _taken(made.words, made.labels, test))


def single_letters(seed, small):
    """Letters of few words: what a first try with little data meets."""
    task = words(seed, True)
    return Task(bf.ChainCRF, (task.train[0][:60], task.train[1][:60]), task.test)


def _taken(X, y, numbers):
    return [np.asarray(X[int(k)], dtype=np.float64) for k in numbers], [np.asarray(y[int(k)]) for k in numbers]


def columns(folder, train, test):
    def load(seed, small):
        rng = np.random.default_rng(seed)
        parts = []
        for name, count in ((train, 300 if small else 3000), (test, 300 if small else 1000)):
            sentences = read_columns(data_dir() / folder / name)
            chosen = [sentences[int(k)] for k in rng.permutation(len(sentences))[:count]]
            tokens, labels = split_labels(chosen)
            template = window_template(len(tokens[0][0]))
            parts.append(([window_features(each, template) for each in tokens], [np.array(each) for each in labels]))
        return Task(bf.ChainCRF, parts[0], parts[1], {"unary": "observed_linear"})

    return load


def _split_images(images, masks, seed, counts, step):
    order = np.random.default_rng(seed).permutation(len(images))[: sum(counts)]
    make = LocalFeatures((1.0, 4.0))
    X = [make.transform_one(images[int(k)])[::step, ::step] for k in order]
    y = [np.asarray(masks[int(k)])[::step, ::step].astype(np.int64) for k in order]
    return Task(bf.GridCRF, (X[: counts[0]], y[: counts[0]]), (X[counts[0] :], y[counts[0] :]))


def horse_pixels(seed, small):
    """Weizmann horses, every third pixel, context features."""
    made = horses.load()
    return _split_images(made.images, made.masks, seed, (10, 10) if small else (60, 60), 6 if small else 3)


def backgrounds(seed, small):
    """Stanford backgrounds, every fifth pixel."""
    made = load_backgrounds(n_images=40 if small else 200)
    return _split_images(made.images, made.labels, seed, (12, 12) if small else (80, 80), 10 if small else 5)


def membranes(seed, small):
    """ISBI membranes: 0 = membrane, 255 = cell."""
    folder = data_dir() / "isbi2012_membrane"
    names = sorted(path.name for path in (folder / "images").iterdir())[: 8 if small else 30]
    masks = [(read_mask(folder / "masks" / name) == 255).astype(int) for name in names]
    images = [read_image(folder / "images" / name) for name in names]
    return _split_images(images, masks, seed, (3, 3) if small else (12, 12), 8 if small else 4)


def msrc(seed, small):
    """MSRC-21 as superpixels."""
    folder = data_dir() / "msrc21"
    names = sorted(path.stem for path in (folder / "images").iterdir())
    chosen = np.random.default_rng(seed).permutation(len(names))[: 60 if small else 300]
    X, y = [], []
    for k in chosen:
        image = read_image(next((folder / "images").glob(f"{names[int(k)]}.*")))
        mask = read_mask(folder / "labels" / f"{names[int(k)]}.png").astype(np.int64)
        regions = superpixels(image, 60 if small else 150)
        edges, edge_features = region_edges(image, regions)
        features = region_features(image, regions)
        graph = bf.Graph.from_edges(edges, n_variables=len(features), labels=21)
        X.append(bf.Sample(graph, features, edge_features))
        y.append(majority_labels(np.where(mask == 255, -1, mask), regions))
    half = len(X) // 2
    return Task(bf.GraphCRF, (X[:half], y[:half]), (X[half:], y[half:]))


TASKS = {
    "wine": lambda seed, small: knn(load_wine, seed, small),
    "breast cancer": lambda seed, small: knn(load_breast_cancer, seed, small),
    "digits, near ones": lambda seed, small: knn(load_digits, seed, small),
    "digits, counting": digits,
    "denoising": noisy,
    "denoising, context": noisy_context,
    "letters": single_letters,
    "OCR words": words,
    "CoNLL-2000": columns("conll2000", "train.txt", "test.txt"),
    "WNUT-17": columns("wnut17", "train.conll", "test.conll"),
    "horses": horse_pixels,
    "backgrounds": backgrounds,
    "MSRC-21": msrc,
    "ISBI membranes": membranes,
}
#: Those that three seeds, of 88 test labels each, say little about.
SEEDS = {"wine": 20}
#: Those whose features are names.
TAGGING = ("CoNLL-2000", "WNUT-17")
_PLACES = {"letters": "ocr_letters", "OCR words": "ocr_letters", "CoNLL-2000": "conll2000", "WNUT-17": "wnut17"}
_PLACES |= {"horses": "weizmann_horses", "backgrounds": "stanford_background", "MSRC-21": "msrc21"}
_PLACES |= {"ISBI membranes": "isbi2012_membrane"}


def available(name):
    """Whether the data of a task are here."""
    if name not in _PLACES:
        return True
    try:
        return Path(data_dir() / _PLACES[name]).exists()
    except bf.InputError:
        return False
