"""The picture of the front page: marginals after few sweeps of two models, one learned for infinitely many of them.

Denoising images of [L13] §8. One model is fitted by the surrogate likelihood, with converged tree-reweighted message
passing; the others by the univariate logistic loss through n sweeps. Each is then tested with 1, 2, ... sweeps.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from backfield.datasets.generated import denoising
from backfield.estimators import GridCRF, GridSample
from backfield_papers._base import Context, Outcome, experiment, figure, save

CONVERGED = "tree_reweighted(n_iter=500, tol=3e-4)"
SWEEPS = (1, 2, 3, 4, 5, 7, 10, 15, 20, 30, 50)
SHOWN = (1, 2, 5, 20)
TRAINED = (3, 5)


@experiment("idea", "Why to learn through the inference that is used: error against sweeps at test time")
def run(context: Context) -> Outcome:
    """Fit the models and test each after any number of sweeps."""
    count, size, n_iter = (2, 20, 5) if context.quick else (8, 100, 200)
    made = denoising(2 * count, size, 0, sd=min(10.0, size / 10))
    X = [GridSample(*each) for each in zip(made.features, made.horizontal, made.vertical, strict=True)]
    common: dict[str, Any] = {"l2": 1e-4, "learner": f"lbfgs(max_iter={n_iter})", "dtype": "float64"}
    models = {"likelihood, converged": GridCRF(loss="surrogate_likelihood", inference=CONVERGED, gradient=None, **common)}
    for n in TRAINED:
        models[f"through {n} sweeps"] = GridCRF(inference=f"tree_reweighted(n_iter={n})", n_jobs=context.n_jobs, **common)
    rows, marginals = [], {}
    for name, crf in models.items():
        context.progress(name)
        crf.fit(X[:count], made.masks[:count])
        for sweeps in SWEEPS:
            crf.inference = f"tree_reweighted(n_iter={sweeps})"
            found = crf.predict_proba(X[count:])
            p = np.stack(found)[..., 1]
            truth = np.stack(made.masks[count:])
            loss = -np.log(np.maximum(np.where(truth == 1, p, 1 - p), 1e-12)).mean()
            error = float(((p > 0.5) != truth).mean())
            row = {"model": name, "sweeps": sweeps, "what": "test error", "paper": None, "ours": round(error, 5)}
            rows.append(row | {"log loss": round(float(loss), 5)})
            marginals[name, sweeps] = found[0][..., 1]
    settings = {"images": count, "size": size, "seed": 0, "sweeps": list(SWEEPS), **common}
    picture = made.features[count][..., -1]
    return Outcome(settings, rows, {"idea.png": lambda path: _draw(path, rows, marginals, picture, made.masks[count])})


def _draw(path: Path, rows: list[dict[str, Any]], marginals: dict[Any, Any], image: np.ndarray, mask: np.ndarray) -> None:
    made, axes = figure(2, 3 + len(SHOWN), width=1.55, height=1.6)
    grid = axes[0, 0].get_gridspec()
    for axis in axes[:, -2:].ravel():
        axis.remove()
    plot = made.add_subplot(grid[:, -2:])
    names = list(dict.fromkeys(row["model"] for row in rows))
    for name, style in zip(names, ("o-", "s--", "D-"), strict=False):
        points = [(row["sweeps"], row["log loss"]) for row in rows if row["model"] == name]
        plot.plot(
            *zip(*points, strict=True), style, markersize=3, label=f"learned {'by the ' if 'like' in name else ''}{name}"
        )
    plot.set_xscale("log")
    plot.set_xticks(SHOWN, [str(n) for n in SHOWN])
    plot.set_xlabel("sweeps at test time")
    plot.set_title("log loss of the marginals, test images", fontsize=9)
    plot.legend(fontsize=7)
    plot.set_ylim(0, 0.7)
    for first, row, name in zip((True, False), axes, (names[0], names[-1]), strict=True):
        shown = [image if first else mask, *(marginals[name, n] for n in SHOWN)]
        titles = ["input" if first else "truth", *(f"{n} sweep{'s' * (n > 1)}" for n in SHOWN)]
        for axis, values, title in zip(row, shown, titles, strict=False):
            axis.imshow(values, cmap="gray", interpolation="nearest")
            axis.set_axis_off()
            axis.set_title(title, fontsize=8)
        label = "learned by the\nlikelihood" if first else f"learned\n{name}"
        row[1].text(-0.06, 0.5, label, transform=row[1].transAxes, rotation=90, va="center", ha="right", fontsize=8)
    save(made, path)
