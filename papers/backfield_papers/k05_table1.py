"""[K05] Table 1: pixelwise errors by learning and inference method for two noise models; its Figures 2 and 3 as pictures.

Each figure is the mean over five seeds of the noise, with its standard error, for shapes of three sizes: four by four, two
by two, or one to an image.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from backfield.datasets.generated import BIMODAL, GAUSSIAN_SD
from backfield.estimators.coupling import coupling_table
from backfield_papers._base import Context, Outcome, experiment, figure, save
from backfield_papers._fields import BP, INFERENCE, LEARNING, TILES, field, flat, noisy, samples

SEEDS, TILINGS = range(5), (TILES, 2, 1)
NOISES = ("gaussian", "bimodal")
#: The shapes and the seed of the pictures.
DRAWN = (TILES, 0)
#: [K05] Table 1: (noise, learning) -> errors in per cent by MAP, MPM and ICM; seconds to learn; seconds to infer.
PAPER = {
    ("gaussian", "PMA"): (2.73, 2.51, 3.91), ("bimodal", "PMA"): (6.45, 5.48, 17.39),
    ("gaussian", "SPA"): (2.49, 7.64, 3.98), ("bimodal", "SPA"): (5.82, 19.19, 14.88),
    ("gaussian", "MMA"): (34.34, 2.96, 4.11), ("bimodal", "MMA"): (26.53, 5.70, 16.00),
    ("gaussian", "PL"): (3.82, 3.10, 3.89), ("bimodal", "PL"): (17.69, 7.31, 22.22),
    ("gaussian", "CD"): (3.78, 2.82, 4.09), ("bimodal", "CD"): (8.88, 6.29, 8.92),
}  # fmt: skip
PAPER_LEARNING = {"PMA": 1183.13, "SPA": 81.52, "MMA": 635.78, "PL": 299.75, "CD": 206.93}
PAPER_INFERENCE = {("gaussian", "MAP"): 5.52, ("gaussian", "MPM"): 90.04, ("gaussian", "ICM"): 5.20,
                   ("bimodal", "MAP"): 5.96, ("bimodal", "MPM"): 113.84, ("bimodal", "ICM"): 5.20}  # fmt: skip
FIGURES = {
    "k05-fig2.png": [("PL", "MAP"), ("PL", "MPM"), ("CD", "MAP"), ("CD", "MPM")],
    "k05-fig3.png": [("MMA", "MAP"), ("SPA", "MPM"), ("SPA", "MAP"), ("MMA", "MPM")],
}


@experiment("k05-table1", "Errors by learning and inference method under two noises")
def run(context: Context) -> Outcome:
    """Learn in six ways, decode in three, for each noise."""
    n_train, n_test, size = (3, 2, 32) if context.quick else (10, 50, 64)
    seeds, tilings = (range(2), (TILES,)) if context.quick else (SEEDS, TILINGS)
    rows: list[dict[str, Any]] = []
    seen: dict[tuple[str, str, str], list[np.ndarray]] = {}
    left_out: list[str] = []
    for tiles, noise in itertools.product(tilings, NOISES):
        found: dict[str, list[dict[str, Any]]] = {method: [] for method in LEARNING}
        for seed, method in itertools.product(seeds, LEARNING):
            if not context.wanted(key := f"{tiles} tiles, {noise} {method}, seed {seed}"):
                left_out.append(key)
                continue
            cell = context.cell(key, _cell(noise, method, n_train, n_test, size, seed, tiles, context))
            found[method].append(cell)
            if (tiles, seed) == DRAWN:
                for column in INFERENCE:
                    seen[noise, method, column] = [_unpack(text, size) for text in cell["pictures"][column]]
        rows += [row for method, cells in found.items() if cells for row in _errors(tiles, noise, method, cells)]
        rows += _times(tiles, noise, {method: cells for method, cells in found.items() if cells})
    settings = {
        "seeds": len(seeds), "n_train": n_train, "n_test": f"4 x {n_test}", "size": size, "learning": LEARNING,
        "inference": INFERENCE, "gaussian": f"standard deviation {GAUSSIAN_SD} on {{0, 1}}",
        "bimodal": f"mixtures (mean, standard deviation), half and half: {BIMODAL}",
        "n_jobs": context.n_jobs, "paper_machine": "2.8 GHz, Matlab and C", "left_out": left_out,
    }  # fmt: skip
    data = noisy("bimodal", 1, 1, size, 0)
    return Outcome(settings, rows, {name: _picture(data, pairs, seen) for name, pairs in FIGURES.items()})


def _cell(
    noise: str, method: str, n_train: int, n_test: int, size: int, seed: int, tiles: int, context: Context
) -> Callable[[], dict[str, Any]]:
    def compute() -> dict[str, Any]:
        data = noisy(noise, n_train, n_test, size, seed, tiles)
        crf = field(method, n_jobs=context.n_jobs, random_state=seed)
        if context.quick:
            crf.set_params(learner__max_iter=60)
        pictures: dict[str, list[str]] = {}
        weights: list[float] = []

        def look(row: str, column: str, fitted: Any, predictions: list[np.ndarray]) -> None:
            name = next(key for key, spec in INFERENCE.items() if spec == column)
            if (tiles, seed) == DRAWN:
                pictures[name] = [np.packbits(predictions[k * n_test]).tobytes().hex() for k in range(4)]
            weights[:] = np.round(fitted.weights_, 4).tolist()

        cells = coupling_table(
            crf,
            [f"{crf.loss} @ {BP}"],
            list(INFERENCE.values()),
            (samples(data.train), flat(data.train_masks)),
            (samples(data.test), flat(data.test_masks)),
            learner=crf.learner,
            look=look,
        )
        named = dict(zip(INFERENCE, cells, strict=True))
        return {
            "errors": {name: 100 * float(cell.error or 0.0) for name, cell in named.items()},
            "learning": cells[0].learning_seconds,
            "seconds": {name: cell.inference_seconds for name, cell in named.items()},
            "weights": weights,
            "pictures": pictures,
        }

    return compute


def _errors(tiles: int, noise: str, method: str, cells: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return a row for each inference: the mean over the seeds and its standard error."""
    rows = []
    for number, column in enumerate(INFERENCE):
        values = [cell["errors"][column] for cell in cells]
        spread = float(np.std(values, ddof=1) / np.sqrt(len(values))) if len(values) > 1 else None
        paper = PAPER.get((noise, method))
        row = {"tiles": tiles, "noise": noise, "learning": method, "inference": column, "what": "error in %"}
        row |= {"paper": None if paper is None else paper[number], "ours": float(np.mean(values))}
        rows.append({**row, "standard error": spread, "seeds": len(values)})
    return rows


def _times(tiles: int, noise: str, found: dict[str, list[dict[str, Any]]]) -> list[dict[str, Any]]:
    """Return rows of seconds: the paper's learning times are over both noises."""
    rows = []
    for method, cells in found.items():
        learning = float(np.mean([cell["learning"] for cell in cells]))
        what = {"tiles": tiles, "noise": noise, "learning": method, "inference": None, "what": "seconds to learn"}
        rows.append(
            {**what, "paper": PAPER_LEARNING.get(method), "ours": round(learning, 2), "weights": cells[0]["weights"]}
        )
    for column in INFERENCE if found else ():
        mean = float(np.mean([cell["seconds"][column] for cells in found.values() for cell in cells]))
        what = {"tiles": tiles, "noise": noise, "learning": None, "inference": column, "what": "seconds to infer"}
        rows.append({**what, "paper": PAPER_INFERENCE[noise, column], "ours": round(mean, 3)})
    return rows


def _unpack(text: str, size: int) -> np.ndarray:
    return np.unpackbits(np.frombuffer(bytes.fromhex(text), np.uint8))[: size * size].reshape(size, size)


def _picture(
    data: Any, pairs: list[tuple[str, str]], seen: dict[tuple[str, str, str], list[np.ndarray]]
) -> Callable[[Path], None]:
    def draw(path: Path) -> None:
        lines = [("truth", data.test_masks), ("noisy", [image[..., 0] for image in data.test])]
        lines += [(f"{column} with {method}", seen["bimodal", method, column]) for method, column in pairs]
        made, axes = figure(len(lines), 4, 1.1, 1.1)
        for row, (name, images) in zip(axes, lines, strict=True):
            for ax, image in zip(row, images, strict=True):
                ax.imshow(image, cmap="gray", interpolation="nearest")
                ax.set_xticks([])
                ax.set_yticks([])
            row[0].set_ylabel(name, fontsize=7)
        save(made, path)

    return draw
