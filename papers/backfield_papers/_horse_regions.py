"""The Weizmann horses cut into superpixels, for [S18] §5.2: samples, weighted Hamming loss, models.

# Differs from [S18]: HorseSeg (147 + 5974 + 19317 images) is not available. The 328 Weizmann horses take its place: 128 for
# testing; of the other 200 a random 100 are "small" (full labels) and the rest the images with boxes or without labels.
# l2 and kappa are not printed in [S18]; here they are chosen on training images that are held out.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from backfield.datasets import horses
from backfield.estimators import GraphCRF, Sample
from backfield.features import (
    box_labels,
    box_of,
    majority_labels,
    region_edges,
    region_features,
    superpixels,
)  # fmt: skip
from backfield.graph import Graph
from backfield_papers._base import Context, need_data

N_SEGMENTS = 200
SPLIT_SEED = 0
#: What a method is called in the tables -> loss, and whether it takes the weights.
METHODS = {
    "S-SVM+BCFW": ("max_margin(solver='graph_cut')", True),
    "perturb&MAP": ("perturb_and_map(solver='graph_cut')", False),
    "w.m. perturb&MAP": ("marginal_perturb_and_map(solver='graph_cut')", True),
    "w.m. perturb&MAP, steps 1/(lambda h)": ("marginal_perturb_and_map(solver='graph_cut')", True),
}


@dataclass(frozen=True)
class Horse:
    """One image in regions: features, labels, sizes, and what its bounding box says."""

    sample: Sample
    labels: np.ndarray
    boxed: np.ndarray
    regions: np.ndarray
    image: np.ndarray

    @property
    def hidden(self) -> np.ndarray:
        """Labels of an image of which nothing is known."""
        return np.full(len(self.labels), -1)


@dataclass(frozen=True)
class Horses:
    """Images for training ("small": with labels, "medium": without) and for testing."""

    small: list[Horse]
    medium: list[Horse]
    test: list[Horse]


def load(context: Context) -> Horses:
    """Return all images in regions, with features scaled on the training images."""
    data = horses.load(need_data(context, "weizmann_horses"), seed=SPLIT_SEED)
    # Neighbours in the order of the files are alike; shuffled, each part is like the others and like the test images.
    train, test = np.random.default_rng(SPLIT_SEED).permutation(data.train), data.test
    if context.quick:
        train, test = train[:40], test[:20]
    every = {int(k): _horse(data.images[k], data.masks[k]) for k in (*train, *test)}
    columns = np.concatenate([every[int(k)].sample.node_features for k in train])
    mean, sd = columns.mean(axis=0), columns.std(axis=0) + 1e-6
    for horse in every.values():
        features = horse.sample.node_features
        features -= mean
        features /= sd
    half = len(train) // 2
    parts = (train[:half], train[half:], test)
    return Horses(*([every[int(k)] for k in part] for part in parts))


def _horse(image: np.ndarray, mask: np.ndarray) -> Horse:
    regions = superpixels(image, n_segments=N_SEGMENTS)
    edges, border = region_edges(image, regions)
    graph = Graph.from_edges(edges, n_variables=int(regions.max()) + 1, labels=2)
    size = np.bincount(regions.ravel()).astype(np.float64)
    sample = Sample(graph, region_features(image, regions).astype(np.float64), edge_features(border), weights=size)
    labels = majority_labels(mask, regions)
    return Horse(sample, labels, box_labels(mask.shape, [box_of(mask)], regions), regions, image)


def edge_features(border: np.ndarray) -> np.ndarray:
    """Return features >= 0 that are large where two regions look alike."""
    share, colour, contrast, sobel = (border[:, k].astype(np.float64) for k in range(1, 5))
    return np.stack(
        [share, np.exp(-5 * colour), np.exp(-5 * contrast), share * np.exp(-5 * colour), np.exp(-5 * sobel)], axis=1
    )


def learner_of(method: str, steps: int, labelled: int, weak: int, kappa: float = 1.0) -> str:
    """Return the learner: ``steps`` on the labelled images, then as many on these and the weakly labelled ones.

    Double SGD uses Adam's steps, which need no tuning here, and once more those of [S18] Alg. 2, 1 / (lambda h).
    """
    first, second = (_inner(method, max(1, steps // count)) for count in (labelled, labelled + weak))
    return f"self_training(learner={first!r}, second={second!r}, kappa={kappa!r})" if weak else first


def _inner(method: str, epochs: int) -> str:
    if method == "S-SVM+BCFW":
        return f"frank_wolfe(epochs={epochs}, average=True, projection='supermodular')"
    steps = "step_size=0.05, optimizer='adam', schedule='sqrt', decay=0.02"
    if method.endswith("steps 1/(lambda h)"):
        steps = "schedule='lambda'"
    return f"sgd(epochs={epochs}, {steps}, average=True, projection='supermodular')"


def fit(
    method: str,
    steps: int,
    l2: float,
    labelled: list[Horse],
    n_jobs: int,
    boxed: Any = (),
    hidden: Any = (),
    kappa: float = 1.0,
) -> GraphCRF:
    """Fit a method to images with labels, with boxes and with nothing; predictions of all methods are cuts."""
    loss, weighted = METHODS[method]
    learner = learner_of(method, steps, len(labelled), len(boxed) + len(hidden), kappa)
    model = GraphCRF(
        loss=loss, learner=learner, decoder="map(solver='graph_cut')", l2=l2, start="zero",
        dtype="float64", n_jobs=n_jobs, class_weight="balanced" if weighted else None,
        inference="perturb_and_map(n_samples=100)",
    )  # fmt: skip
    y = [horse.labels for horse in labelled] + [horse.boxed for horse in boxed] + [horse.hidden for horse in hidden]
    model.fit(samples_of(method, [*labelled, *boxed, *hidden]), y)
    return model


def samples_of(method: str, some: list[Horse]) -> list[Sample]:
    """Return samples for a method; sizes are weights only where the loss takes them."""
    if METHODS[method][1]:
        return [horse.sample for horse in some]
    return [Sample(**{**vars(horse.sample), "weights": None}) for horse in some]


def weighted_hamming(horse: Horse, predicted: np.ndarray) -> float:
    """Return the loss of [S18] §5.2: wrong sizes V_d / (2 V) of foreground and background.

    # Differs from [S18]: the weights sum to one, so there is no further 1/D.
    """
    size = np.asarray(horse.sample.weights)
    total = 0.0
    for label in (0, 1):
        here = horse.labels == label
        if here.any():
            total += float(size[here & (predicted != horse.labels)].sum() / (2 * size[here].sum()))
    return total


def evaluate(fitted: Any, method: str, some: list[Horse]) -> dict[str, Any]:
    """Return weighted Hamming loss, mean and of each image, and the share of wrong pixels (regions by size), in percent."""
    predicted = fitted.predict(samples_of(method, some))
    losses = [weighted_hamming(horse, labels) for horse, labels in zip(some, predicted, strict=True)]
    sizes = [np.asarray(horse.sample.weights) for horse in some]
    wrong = sum(
        float(size[labels != horse.labels].sum()) for size, horse, labels in zip(sizes, some, predicted, strict=True)
    )
    wrong *= 100 / float(sum(size.sum() for size in sizes))
    return {"loss": 100 * float(np.mean(losses)), "each": [round(100 * each, 4) for each in losses], "wrong": wrong}
