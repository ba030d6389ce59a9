"""What the tables of [D13] §8 share: a row of a table is trained, and its errors on train and test images measured."""

from __future__ import annotations

import base64
import time
import warnings
import zlib
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from backfield.errors import ConvergenceWarning
from backfield.estimators import GridCRF
from backfield.features import enlarge
from backfield_papers._base import figure, save

#: Names of losses as the paper prints them, and their specs; smoothed classification starts from surrogate likelihood.
SMOOTHED = {f"sm. class. alpha={alpha}": f"smoothed_error(alpha={alpha})" for alpha in (5, 15, 50)}
MARGINAL = {"univariate logistic": "univariate_logistic", "clique logistic": "clique_logistic"}
LIKELIHOOD = "surrogate likelihood"
#: Of every lbfgs of Tables 2 and 3 and Figure 7.
PAIRS = "history=40"
BEST, ALONE, BEST_L2 = "ours, best", "its network alone", 1e-6
#: Marginals that are kept for pictures are about as wide at the most.
PICTURE = 120


class Images(NamedTuple):
    """Images as samples, with labels at the resolution of the field and at that of the images."""

    X: Sequence[Any]
    y: list[np.ndarray]
    full: list[np.ndarray]
    stride: int = 1

    def part(self, chosen: Any) -> Images:
        """Return some of the images."""
        return Images([self.X[i] for i in chosen], [self.y[i] for i in chosen], [self.full[i] for i in chosen], self.stride)


def error(model: GridCRF, images: Images, mirrored: Sequence[Any] | None = None) -> float:
    """Return the share of labelled pixels that are wrong, marginals enlarged to the resolution of the images.

    Where the images are there ``mirrored`` as well, marginals are the mean of both views.
    """
    wrong = total = 0
    views = [model.predict_each(images.X)] + ([] if mirrored is None else [model.predict_each(mirrored)])
    for truth, ((_, marginals), *others) in zip(images.full, zip(*views, strict=True), strict=True):
        if others:
            marginals = (marginals + others[0][1][:, ::-1]) / 2
        wrong += int((decoded(marginals, truth.shape, images.stride)[truth >= 0] != truth[truth >= 0]).sum())
        total += int((truth >= 0).sum())
    return wrong / total


def decoded(marginals: np.ndarray, shape: tuple[int, int], stride: int) -> np.ndarray:
    """Return the most probable label of each pixel of the full image."""
    found: np.ndarray = np.argmax(enlarge(marginals, shape, stride) if stride > 1 else marginals, axis=-1)
    return found


def measured(
    settings: dict[str, Any],
    train: Images,
    test: Images,
    shown: int = 0,
    more: Images | None = None,
    mirrored: Sequence[Any] | None = None,
    **changes: Any,
) -> dict[str, Any]:
    """Train a row of a table; return its errors, times and weights, and the marginals of a test image as text.

    ``more``: images to train with whose errors do not count; ``mirrored``: the test images seen in a mirror.
    """
    model = GridCRF(**settings)
    X, y = (list(train.X), train.y) if more is None else ([*train.X, *more.X], [*train.y, *more.y])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # a threshold that is not reached is part of the table
        start = time.process_time()
        model.fit(X, y)
        seconds = time.process_time() - start
        model.set_params(**changes)
        found = {"train": error(model, train), "test": error(model, test, mirrored)}
        marginals = model.predict_proba(test.part([shown]).X)[0]
    return {
        **found,
        "seconds": round(seconds, 1),
        "iterations": len(model.trace_),
        "message": model.message_,
        "objective": model.trace_[-1]["objective"],
        "weights": np.asarray(model.weights_).tolist(),
        "shown": packed(marginals),
    }


def network_in_front(train: Images, n_labels: int, channels: tuple[int, ...], epochs: int) -> dict[str, Any]:
    """Return settings of "ours, best": a network in front of the field, both trained through the sweeps of inference.

    Step and ridge were chosen on a fifth of the training images of the first fold of the backgrounds.
    """
    from backfield.energies import Network
    from backfield_papers._unet import GridUNet, seeded

    rows = [np.asarray(x.features, dtype=np.float64).reshape(-1, x.features.shape[-1]) for x in train.X[:100]]
    mean = np.mean([part.mean(axis=0) for part in rows], axis=0)
    spread = np.sqrt(np.mean([((part - mean) ** 2).mean(axis=0) for part in rows], axis=0)) + 1e-6
    network = seeded(GridUNet, 0, n_labels, channels, mean.astype(np.float32), spread.astype(np.float32))
    learner = f"sgd(epochs={epochs}, batch_size=4, optimizer='adam', step_size=0.003, schedule='cosine')"
    return {
        "unary": Network(network),
        "learner": learner,
        "loss": "univariate_logistic",
        "l2": BEST_L2,
        "n_labels": n_labels,
    }


def without_field(settings: dict[str, Any]) -> dict[str, Any]:
    """Return the same settings for the network alone: no edges, no sweeps, all else as it was."""
    return {**settings, "pairwise": "zero", "inference": "tree_reweighted(n_iter=0)"}


def averaged(cells: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the means of cells of several splits and, of more than one, the standard errors of their errors."""
    found: dict[str, Any] = {key: float(np.mean([cell[key] for cell in cells])) for key in ("seconds", "iterations")}
    for key in ("train", "test"):
        each = np.array([cell[key] for cell in cells])
        found[key] = float(each.mean())
        found[f"{key} spread"] = float(each.std(ddof=1) / np.sqrt(len(each))) if len(each) > 1 else None
    return found


def packed(marginals: np.ndarray) -> dict[str, Any]:
    """Return marginals in 1/255ths as text, thinned to the size of a small picture."""
    marginals = np.asarray(marginals)
    step = max(1, round(max(marginals.shape[:2]) / PICTURE))
    height, width = (size // step * step for size in marginals.shape[:2])
    blocks = marginals[:height, :width].reshape(height // step, step, width // step, step, -1)
    levels = np.round(255 * blocks.mean(axis=(1, 3))).astype(np.uint8)
    return {"shape": list(levels.shape), "data": base64.b64encode(zlib.compress(levels.tobytes(), 9)).decode()}


def unpacked(kept: dict[str, Any]) -> np.ndarray:
    """Return the marginals that were packed."""
    return np.frombuffer(zlib.decompress(base64.b64decode(kept["data"])), np.uint8).reshape(kept["shape"]) / 255


def rows(head: dict[str, Any], paper: tuple[float | None, float | None], cell: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the rows of a cell: train and test error beside the paper's, with standard errors where there are splits."""
    tail = {key: cell[key] for key in ("seconds", "iterations")}
    spread = {what: {"standard error": cell[key]} if (key := f"{what} spread") in cell else {} for what in ("train", "test")}
    return [
        {**head, "what": f"{what} error", "paper": value, "ours": cell[what], **spread[what], **tail}
        for what, value in zip(("train", "test"), paper, strict=True)
    ]


def draw(path: Any, panels: Sequence[Sequence[tuple[str, np.ndarray]]], side: float = 1.9) -> None:
    """Draw rows of pictures: grey where they are numbers, colours where they have three channels."""
    width = max(len(row) for row in panels)
    made, axes = figure(len(panels), width, width=side, height=0.9 * side)
    for line, row in zip(axes, panels, strict=True):
        for axis in line:
            axis.axis("off")
        for axis, (title, image) in zip(line, row, strict=False):
            axis.imshow(np.clip(image, 0, 1), cmap="gray", vmin=0, vmax=1)
            axis.set_title(title, fontsize=7)
    save(made, path)
