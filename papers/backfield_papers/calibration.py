"""How often what a model calls probable comes true, for models learned by the likelihood and through the inference used.

The images, models and settings of ``backfield demo``. Each model is tested with 5 sweeps and with its own inference: a
reliability diagram of the probability of class 1 in ten bins, on test images.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from backfield.datasets.generated import denoising
from backfield.estimators import GridCRF, GridSample
from backfield_papers._base import Context, Outcome, experiment, figure, save

CONVERGED = "tree_reweighted(n_iter=500, tol=3e-4)"
FEW = "tree_reweighted(n_iter=5)"
MODELS: dict[str, dict[str, Any]] = {
    "likelihood": {"loss": "surrogate_likelihood", "inference": CONVERGED, "gradient": None},
    "univariate logistic, 5 sweeps": {"loss": "univariate_logistic", "inference": FEW, "gradient": "truncated"},
}
N_BINS = 10


@experiment("calibration", "Reliability of the marginals: learned by the likelihood, and through the sweeps that are used")
def run(context: Context) -> Outcome:
    """Fit the models of the demo; compare probabilities and frequencies on test images."""
    count, size, n_iter = (2, 20, 5) if context.quick else (8, 100, 300)
    made = denoising(2 * count, size, 0, sd=min(10.0, size / 10))
    X = [GridSample(*each) for each in zip(made.features, made.horizontal, made.vertical, strict=True)]
    truth = np.stack(made.masks[count:]).ravel()
    common: dict[str, Any] = {"l2": 1e-4, "learner": f"lbfgs(max_iter={n_iter})", "dtype": "float64", "random_state": 0}
    rows: list[dict[str, Any]] = []
    for name, settings in MODELS.items():
        context.progress(name)
        crf = GridCRF(n_jobs=context.n_jobs, **common, **settings).fit(X[:count], made.masks[:count])
        for tested, inference in {"converged": CONVERGED, "5 sweeps": FEW}.items():
            crf.inference = inference
            p = np.stack(crf.predict_proba(X[count:]))[..., 1].ravel()
            curve = _curve(p, truth)
            error = sum(share * abs(mean - rate) for share, mean, rate in curve)
            row: dict[str, Any] = {"learned by": name, "tested with": tested, "what": "calibration error", "paper": None}
            row |= {"ours": round(float(error), 5), "test error": round(float(((p > 0.5) != truth).mean()), 5)}
            rows.append({**row, "curve": curve})
    settings = {"images": count, "size": size, "seed": 0, "bins": N_BINS, **common}
    return Outcome(settings, rows, {"calibration.png": lambda path: _draw(path, rows)})


def _curve(p: np.ndarray, truth: np.ndarray) -> list[list[float]]:
    """Return the share of pixels, mean probability and frequency of class 1 of each bin that is not empty."""
    where = np.minimum((p * N_BINS).astype(int), N_BINS - 1)
    found = [(where == b) for b in range(N_BINS)]
    return [[round(float(x), 5) for x in (at.mean(), p[at].mean(), truth[at].mean())] for at in found if at.any()]


def _draw(path: Path, rows: list[dict[str, Any]]) -> None:
    tests = list(dict.fromkeys(row["tested with"] for row in rows))
    made, axes = figure(1, len(tests), width=3.6, height=3.9)
    for axis, tested in zip(axes[0], tests, strict=True):
        axis.plot([0, 1], [0, 1], color="0.7", linewidth=1)
        for row, style in zip([row for row in rows if row["tested with"] == tested], ("o-", "s-"), strict=True):
            share, mean, rate = np.array(row["curve"]).T
            label = f"{row['learned by'].split(',')[0]}: {100 * row['ours']:.1f} % off"
            (line,) = axis.plot(mean, rate, style, markersize=3, label=label)
            axis.scatter(mean, rate, s=400 * share, color=line.get_color(), alpha=0.25, linewidths=0)
        axis.set_title(f"marginals after {tested}" if "sweeps" in tested else "converged marginals", fontsize=9)
        axis.set_xlabel("probability of class 1")
        axis.set_ylabel("how often it is class 1")
        axis.set_box_aspect(1)
        axis.legend(fontsize=7, loc="lower right", title="learned by", title_fontsize=7)
    save(made, path)
