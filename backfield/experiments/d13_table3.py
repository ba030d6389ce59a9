"""[D13] Table 3: the Stanford background images, eight classes with hidden pixels, cross-validated; Figure 6: marginals.

Features are computed at full resolution and every fifth pixel is kept; predicted marginals are enlarged again. Training
goes from 32 images and 1000 iterations to all images, twice as many and half the iterations at a time. At 10 and 20
sweeps the first fold is taken only.

The row "ours, best" puts a field on boosted trees: log-probabilities out of fold as unary features.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from backfield.estimators import Classifier
from backfield.experiments import _backgrounds as backgrounds
from backfield.experiments import _d13 as d13
from backfield.experiments._base import Context, Outcome, experiment
from backfield.experiments._d13 import Images
from backfield.features import enlarge

EM = "surrogate EM"
SWEEPS = (5, 10, 20)
#: Loss -> (train, test) error of the paper at each number of sweeps.
PAPER: dict[str, dict[int, tuple[float | None, float | None]]] = {
    "independent": {20: (0.293, 0.299)},
    "univariate logistic": {5: (0.210, 0.228), 10: (0.202, 0.224), 20: (0.201, 0.223)},
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
    **d13.MARGINAL,
}
BEST = "ours, best"


@experiment("d13-table3", "Stanford backgrounds by loss and number of sweeps (and Figure 6)")
def run(context: Context) -> Outcome:
    """Train every row on every fold asked for."""
    images, folds, pictures = backgrounds.load(context, 40 if context.quick else None)
    cells = [(loss, n) for n in SWEEPS for loss in PAPER if n in PAPER[loss]]
    if context.quick:
        cells = [("independent", 20), ("univariate logistic", 5), (EM, 5)]
    table: list[dict[str, Any]] = []
    shown: dict[str, dict[str, Any]] = {}
    for loss, n in [*cells, (BEST, 5)]:
        wanted = range(5) if n == 5 and not context.quick else [0]
        found = [
            context.cell(f"{loss}, {n} sweeps, fold {fold}", partial(_cell, loss, n, fold, images, folds, context))
            for fold in wanted
        ]
        mean = {key: float(np.mean([cell[key] for cell in found])) for key in ("train", "test", "seconds", "iterations")}
        head = {"loss": loss, "sweeps": n, "l2": _ridge(loss), "folds": len(found)}
        table += d13.rows(head, PAPER.get(loss, {}).get(n, (None, None)), mean)
        shown[f"{loss}, {n}"] = found[0]["shown"]
    first = int(np.flatnonzero(folds == 0)[0])
    chosen: dict[str, Any] = {"images": len(images.X), "stride": backgrounds.STRIDE, "features": repr(backgrounds.PIXELS)}
    chosen |= {"edges": repr(backgrounds.EDGES), "best": {k: str(v) for k, v in _settings(BEST, 5, context).items()}}
    chosen |= {"n_jobs": context.n_jobs, "fold_seed": 0}
    return Outcome(chosen, table, {"d13-fig6.png": partial(_draw, shown, pictures[first], images.full[first])})


def _cell(loss: str, n: int, fold: int, images: Images, folds: np.ndarray, context: Context) -> dict[str, Any]:
    train, test = (images.part(np.flatnonzero(use)) for use in (folds != fold, folds == fold))
    changes = {"inference": "tree_reweighted(n_iter=1000, tol=0.00001)"} if loss in ("pseudolikelihood", "piecewise") else {}
    found = d13.measured(_settings(loss, n, context), train, test, 0, **changes)
    return {key: value for key, value in found.items() if key != "weights"}


def _ridge(loss: str) -> float:
    return 1e-4 if loss in ("pseudolikelihood", "piecewise", "independent", BEST) else 1e-3


def _settings(loss: str, n: int, context: Context) -> dict[str, Any]:
    learner = "lbfgs(max_iter=20)" if context.quick else "lbfgs(max_iter=1000, doubling_first=32)"
    settings: dict[str, Any] = {
        "inference": f"tree_reweighted(n_iter={n})",
        "l2": _ridge(loss),
        "n_jobs": context.n_jobs,
        "n_labels": 8,
    }
    settings |= {"learner": learner, "loss": LOSSES.get(loss, "univariate_logistic")}
    if loss == "independent":
        settings |= {"pairwise": "zero", "inference": "tree_reweighted(n_iter=0)"}
    if loss == BEST:
        from sklearn.ensemble import HistGradientBoostingClassifier

        rounds = 5 if context.quick else 150
        trees = HistGradientBoostingClassifier(max_iter=rounds, early_stopping=False, random_state=0)
        settings["unary"] = Classifier(trees, cv=4)
    return settings


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
