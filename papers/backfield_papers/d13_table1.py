"""[D13] Table 1: binary denoising of 132 Berkeley images at three noise levels, ten losses; Figure 4: marginals.

TRW to a threshold of 1e-4, gradients by back-propagation to the same threshold; surrogate likelihood in the direct form.
"""

from __future__ import annotations

import itertools
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from backfield.datasets import bsds
from backfield_papers import _d13 as d13
from backfield_papers._base import Context, Outcome, experiment, need_data
from backfield_papers._d13 import LIKELIHOOD, SMOOTHED, Images

NOISE = (1.25, 1.5, 5)
INFERENCE = "tree_reweighted(n_iter=1000, tol=0.0001)"
#: Loss -> (train, test) error of the paper at each noise level.
PAPER: dict[str, tuple[tuple[float, float], ...]] = {
    "independent": ((0.421, 0.424), (0.367, 0.368), (0.129, 0.129)),
    LIKELIHOOD: ((0.149, 0.143), (0.103, 0.097), (0.031, 0.030)),
    "univariate logistic": ((0.133, 0.126), (0.102, 0.096), (0.031, 0.030)),
    "clique logistic": ((0.132, 0.126), (0.102, 0.096), (0.031, 0.030)),
    "pseudolikelihood": ((0.207, 0.204), (0.117, 0.112), (0.032, 0.030)),
    "piecewise": ((0.466, 0.481), (0.466, 0.481), (0.063, 0.058)),
    "univariate quad": ((0.132, 0.126), (0.102, 0.096), (0.031, 0.030)),
    "sm. class. alpha=5": ((0.136, 0.129), (0.105, 0.099), (0.032, 0.030)),
    "sm. class. alpha=15": ((0.132, 0.126), (0.102, 0.096), (0.031, 0.030)),
    "sm. class. alpha=50": ((0.132, 0.125), (0.102, 0.096), (0.030, 0.030)),
}
QUICK = ("independent", LIKELIHOOD, "univariate logistic", "clique logistic", "pseudolikelihood")
#: Loss -> spec and gradient; the others are learned through inference.
DIRECT: dict[str, tuple[str, str | None]] = {
    "independent": ("univariate_logistic", None),
    LIKELIHOOD: ("surrogate_likelihood", "direct"),
    "pseudolikelihood": ("pseudolikelihood", None),
    "piecewise": ("piecewise", None),
}
THROUGH = {**d13.MARGINAL, "univariate quad": "univariate_quadratic", **SMOOTHED}
SHOWN = 0


@experiment("d13-table1", "Binary denoising by loss and noise level (and Figure 4)")
def run(context: Context) -> Outcome:
    """Train every loss at every noise level."""
    masks = _masks(context)
    found: dict[tuple[float, str], dict[str, Any]] = {}
    left_out: list[str] = []
    images = {n: (_images(masks[0], n, 0), _images(masks[1], n, len(masks[0]))) for n in NOISE}
    wanted = QUICK if context.quick else PAPER
    later = [loss for loss in wanted if loss in SMOOTHED]  # they start from surrogate likelihood
    first = [loss for loss in wanted if loss not in SMOOTHED]
    for n, loss in [*itertools.product(NOISE, first), *itertools.product(NOISE, later)]:
        if not context.wanted(key := f"n={n:g}, {loss}"):
            left_out.append(key)
            continue
        start = found[n, LIKELIHOOD]["weights"] if loss in SMOOTHED else "independent"
        found[n, loss] = context.cell(key, partial(d13.measured, _settings(loss, start, context), *images[n], shown=SHOWN))
    found = {(n, loss): found[n, loss] for n in NOISE for loss in PAPER if (n, loss) in found}
    table = [
        row
        for (n, loss), cell in found.items()
        for row in d13.rows({"n": n, "loss": loss}, PAPER[loss][NOISE.index(n)], cell)
    ]
    chosen: dict[str, Any] = {
        "images": [len(masks[0]), len(masks[1])],
        "shape": list(masks[0][0].shape),
        "inference": INFERENCE,
        "l2": 0.0,
    }
    chosen |= {"gradient": "backpropagation(tol=0.0001)", "dtype": "float32", "n_jobs": context.n_jobs, "left_out": left_out}
    return Outcome(chosen, table, {"d13-fig4.png": partial(_draw, found, masks[1][SHOWN], len(masks[0]) + SHOWN)})


def _masks(context: Context) -> tuple[list[np.ndarray], list[np.ndarray]]:
    folder = need_data(context, "bsds300/*.jpg")
    if context.quick:
        data = bsds.load(folder, n_images=12, n_train=6)
        return [data.masks[i][50:130, 50:170] for i in data.train], [data.masks[i][50:130, 50:170] for i in data.test]
    data = bsds.load(folder)
    return [data.masks[i] for i in data.train], [data.masks[i] for i in data.test]


def _images(masks: list[np.ndarray], n: float, offset: int) -> Images:
    noisy = [bsds.noisy(mask, n, (0, offset + number))[..., None] for number, mask in enumerate(masks)]
    return Images(noisy, masks, masks)


def _settings(loss: str, start: Any, context: Context) -> dict[str, Any]:
    spec, gradient = DIRECT[loss] if loss in DIRECT else (THROUGH[loss], "backpropagation(tol=0.0001)")
    settings: dict[str, Any] = {
        "inference": INFERENCE,
        "loss": spec,
        "gradient": gradient,
        "l2": 0.0,
        "n_jobs": context.n_jobs,
    }
    learner = "lbfgs(max_iter=200)"
    settings |= {"learner": learner, "start": start if isinstance(start, str) else np.asarray(start)}
    return settings | ({"pairwise": "zero"} if loss == "independent" else {})


def _draw(found: dict[tuple[float, str], dict[str, Any]], mask: np.ndarray, number: int, path: Path) -> None:
    panels = []
    for n in NOISE:
        row = [("truth", mask), (f"input, n={n:g}", bsds.noisy(mask, n, (0, number)))]
        row += [(loss, d13.unpacked(cell["shown"])[..., 1]) for (m, loss), cell in found.items() if m == n]
        panels.append(row)
    d13.draw(path, panels, side=1.3)  # noise makes large files
