"""[D13] Table 3: the Stanford background images, eight classes with hidden pixels, cross-validated; Figure 6: marginals.

Features are computed at full resolution and every fifth pixel is kept; predicted marginals are enlarged again. Training
goes from 32 images and 240 iterations (the paper: 1000) to all images, twice as many and half the iterations at a time.
At 10 and 20 sweeps the first fold is taken only; so it is for the row with the sinusoids that the paper prints, sin(c·s),
where all other rows have sin(pi c·s).

The row "ours, best" has a small U-Net of the same features as unary energy, trained together with the edges' energies
through the sweeps, on the images and on three random parts of each. Its marginals are the mean of those of a test image
and of its mirror image. "its network alone" is trained and tested alike, without edges.
Its epochs were doubled after a run of the first fold with 6: the training error was still falling.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from backfield.features import enlarge
from backfield_papers import _backgrounds as backgrounds
from backfield_papers import _d13 as d13
from backfield_papers._base import Context, Outcome, experiment, need_torch
from backfield_papers._d13 import ALONE, BEST, BEST_L2, PAIRS, Images

EM, UNIVARIATE = "surrogate EM", "univariate logistic"
SINUSOIDS = f"{UNIVARIATE}, sinusoids of the paper"
SWEEPS = (5, 10, 20)
#: Loss -> (train, test) error of the paper at each number of sweeps.
PAPER: dict[str, dict[int, tuple[float | None, float | None]]] = {
    "independent": {20: (0.293, 0.299)},
    UNIVARIATE: {5: (0.210, 0.228), 10: (0.202, 0.224), 20: (0.201, 0.223)},
    SINUSOIDS: {5: (0.210, 0.228)},
    "clique logistic": {5: (0.206, 0.226), 10: (0.198, 0.223), 20: (0.195, 0.221)},
    EM: {5: (0.876, 0.877), 10: (0.239, 0.249), 20: (0.238, 0.248)},
    "pseudolikelihood": {20: (0.516, 0.519)},
    "piecewise": {20: (0.335, 0.341)},
}
LOSSES = {
    "independent": "univariate_logistic",
    EM: "surrogate_likelihood",
    "pseudolikelihood": "pseudolikelihood",
    "piecewise": "piecewise",
    SINUSOIDS: d13.MARGINAL[UNIVARIATE],
    **d13.MARGINAL,
}
CHANNELS, COPIES = (32, 48, 64, 96), 3


def _lacks(found: dict[str, Any]) -> list[str]:
    """Return the row that results of older sources do not have."""
    return [] if any(row["loss"] == SINUSOIDS for row in found["rows"]) else [_key(SINUSOIDS, 5, 0)]


@experiment("d13-table3", "Stanford backgrounds by loss and number of sweeps (and Figure 6)", lacks=_lacks)
def run(context: Context) -> Outcome:
    """Train every row on every fold asked for."""
    need_torch()
    images, folds, pictures = backgrounds.load(context, 40 if context.quick else None)
    cells = [(loss, n) for n in SWEEPS for loss in (BEST, ALONE, *PAPER) if n in PAPER.get(loss, {5: ()})]
    if context.quick:
        cells = [("independent", 20), (UNIVARIATE, 5), (SINUSOIDS, 5), (EM, 5), (BEST, 5)]
    folds_asked = {(loss, n): 5 if n == 5 and loss != SINUSOIDS and not context.quick else 1 for loss, n in cells}
    tasks = [(loss, n, fold) for fold in range(5) for loss, n in cells if fold < folds_asked[loss, n]]
    left_out: list[str] = []
    done: dict[tuple[str, int], list[dict[str, Any]]] = {cell: [] for cell in cells}
    on_first: dict[tuple[str, int], dict[str, Any]] = {}
    for loss, n, fold in tasks:
        if context.wanted(key := _key(loss, n, fold)):
            compute = partial(_cell, loss, n, fold, images, folds, pictures, context)
            done[loss, n].append(context.cell(key, compute))
            on_first |= {(loss, n): done[loss, n][0]} if fold == 0 else {}
        else:
            left_out.append(key)
    table: list[dict[str, Any]] = []
    for (loss, n), found in done.items():
        if found:
            head = {"loss": loss, "sweeps": n, "l2": _ridge(loss), "folds": len(found)}
            table += d13.rows(head, PAPER.get(loss, {}).get(n, (None, None)), d13.averaged(found))
    table += _difference(on_first)
    shown = {f"{loss}, {n}": found[0]["shown"] for (loss, n), found in done.items() if found}
    first = int(np.flatnonzero(folds == 0)[0])
    chosen: dict[str, Any] = {"images": len(images.X), "stride": backgrounds.STRIDE, "features": repr(backgrounds.PIXELS)}
    chosen["sinusoids of the paper"] = repr(backgrounds.PIXELS_OF_THE_PAPER)
    best = d13.network_in_front(images, 8, CHANNELS, _epochs(context))
    chosen |= {
        "edges": repr(backgrounds.EDGES),
        "best": {k: str(v) for k, v in best.items()},
        "channels": CHANNELS,
        "copies": COPIES,
    }
    chosen |= {"n_jobs": context.n_jobs, "fold_seed": 0, "left_out": left_out}
    return Outcome(chosen, table, {"d13-fig6.png": partial(_draw, shown, pictures[first], images.full[first])})


def _key(loss: str, n: int, fold: int) -> str:
    return f"{loss}, {n} sweeps, fold {fold}"


def _difference(on_first: dict[tuple[str, int], dict[str, Any]]) -> list[dict[str, Any]]:
    """Return what the paper's sinusoids add to the errors of ours, on the first fold, which both have."""
    theirs, ours = (on_first.get((loss, 5)) for loss in (SINUSOIDS, UNIVARIATE))
    if theirs is None or ours is None:
        return []
    head = {"loss": SINUSOIDS, "sweeps": 5, "l2": _ridge(SINUSOIDS), "folds": 1, "paper": None}
    return [
        {**head, "what": f"{what} error above that with our sinusoids, fold 0", "ours": theirs[what] - ours[what]}
        for what in ("train", "test")
    ]


def _cell(
    loss: str, n: int, fold: int, images: Images, folds: np.ndarray, pictures: list[np.ndarray], context: Context
) -> dict[str, Any]:
    if loss == SINUSOIDS:
        images, _, _ = backgrounds.load(context, len(images.X), backgrounds.PIXELS_OF_THE_PAPER)
    train, test = (images.part(np.flatnonzero(use)) for use in (folds != fold, folds == fold))
    more, mirrored = None, None
    if loss in (BEST, ALONE):
        settings = d13.network_in_front(train, 8, CHANNELS, _epochs(context))
        copies = 1 if context.quick else COPIES
        more = backgrounds.varied([pictures[i] for i in np.flatnonzero(folds != fold)], train.full, copies, fold)
        mirrored = backgrounds.mirrored([pictures[i] for i in np.flatnonzero(folds == fold)])
    else:
        settings = {"loss": LOSSES[loss], "l2": _ridge(loss), "n_labels": 8, "learner": _learner(context)}
    settings |= {"inference": f"tree_reweighted(n_iter={n})", "n_jobs": context.n_jobs}
    if loss in (ALONE, "independent"):
        settings = d13.without_field(settings)
    changes = {"inference": "tree_reweighted(n_iter=1000, tol=0.00001)"} if loss in ("pseudolikelihood", "piecewise") else {}
    found = d13.measured(settings, train, test, 0, more, mirrored, **changes)
    return {key: value for key, value in found.items() if key != "weights"}


def _ridge(loss: str) -> float:
    if loss in (BEST, ALONE):
        return BEST_L2
    return 1e-4 if loss in ("pseudolikelihood", "piecewise", "independent") else 1e-3


def _learner(context: Context) -> str:
    return f"lbfgs(max_iter=20, {PAIRS})" if context.quick else f"lbfgs(max_iter=240, doubling_first=32, {PAIRS})"


def _epochs(context: Context) -> int:
    return 1 if context.quick else 12


def _draw(shown: dict[str, dict[str, Any]], picture: np.ndarray, truth: np.ndarray, path: Path) -> None:
    panels: list[tuple[str, np.ndarray]] = [("input", picture / 255), ("truth", _coloured(np.eye(9)[truth][..., :8]))]
    for name, kept in shown.items():
        panels.append((name, _coloured(enlarge(d13.unpacked(kept), picture.shape[:2], backgrounds.STRIDE))))
    d13.draw(path, [panels[k : k + 5] for k in range(0, len(panels), 5)])


def _coloured(marginals: np.ndarray) -> np.ndarray:
    """Mix the colours of the classes by their probabilities; hidden pixels are black."""
    from matplotlib import colormaps

    colours = np.array([colormaps["tab10"](k)[:3] for k in range(8)])
    return np.asarray(marginals) @ colours
