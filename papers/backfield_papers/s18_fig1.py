"""[S18] Figure 1: marginals beside the MAP, for test images of horses in superpixels."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from backfield.features import paint
from backfield_papers import _horse_regions as regions
from backfield_papers._base import Context, Outcome, experiment, figure, save

METHOD = "w.m. perturb&MAP"
N_SHOWN = 3


@experiment("s18-fig1", "Marginals by perturb-and-MAP beside MAP labels")
def run(context: Context) -> Outcome:
    """Fit weighted marginal perturb-and-MAP to few labels and look at test images."""
    data = regions.load(context)
    labelled = data.small[:10]
    model = regions.fit(METHOD, 50 if context.quick else 2000, 1e-3, labelled, context.n_jobs)
    samples = regions.samples_of(METHOD, data.test)
    labels, marginals = model.predict(samples), [p[:, 1] for p in model.predict_proba(samples)]
    truth = [horse.labels for horse in data.test]
    rows = [
        _row("log-loss of the marginals per region", _log_loss(truth, marginals)),
        _row("log-loss of the MAP labels, softened to .005 and .995", _log_loss(truth, labels)),
        _row("share of wrong regions, marginals above 1/2", _wrong(truth, [p > 0.5 for p in marginals])),
        _row("share of wrong regions, MAP", _wrong(truth, labels)),
        _row("share of regions with a marginal in [.1, .9]", _mean([(p >= 0.1) & (p <= 0.9) for p in marginals])),
    ]
    settings = {"labelled": len(labelled), "test": len(data.test), "samples": 100, "seeds": [regions.SPLIT_SEED, 0]}
    shown = [(data.test[k], labels[k], marginals[k]) for k in range(N_SHOWN)]
    return Outcome(settings, rows, {"s18-fig1.png": lambda path: _draw(path, shown)})


def _row(what: str, ours: float) -> dict[str, Any]:
    return {"what": what, "paper": None, "ours": ours}


def _mean(parts: list[np.ndarray]) -> float:
    return float(np.concatenate(parts).mean())


def _wrong(truth: list[np.ndarray], labels: Any) -> float:
    return _mean([y != x for y, x in zip(truth, labels, strict=True)])


def _log_loss(truth: list[np.ndarray], probability: Any) -> float:
    """Return the mean of -log p(truth); counts of 100 samples are kept away from 0 and 1 by half a sample."""
    bounded = [np.clip(p, 0.005, 0.995) for p in probability]
    return _mean([-np.log(np.where(y == 1, p, 1 - p)) for y, p in zip(truth, bounded, strict=True)])


def _draw(path: Path, shown: list[Any]) -> None:
    made, axes = figure(len(shown), 3, width=2.0, height=1.6)
    for number, (row, (horse, labels, p)) in enumerate(zip(axes, shown, strict=True)):
        # The photographs belong to their owners, so pictures of results go without them.
        for axis, title, what in zip(row, ("truth", "marginals", "MAP"), (horse.labels, p, labels), strict=True):
            axis.imshow(paint(what.astype(float), horse.regions), cmap="gray", vmin=0, vmax=1)
            axis.set_axis_off()
            if number == 0:
                axis.set_title(title, fontsize=9)
    save(made, path)
