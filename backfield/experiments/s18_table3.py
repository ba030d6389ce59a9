"""[S18] Tables 3 and 4: weighted Hamming loss on horses in superpixels, with full labels, boxes and unlabelled images.

Table 3 adds weakly labelled images to the labelled ones; Table 4 does so with 10 % of the labels, for three draws of these.
The ridge strength of each method is chosen on labelled training images that are held out.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from backfield.experiments import _horse_regions as regions
from backfield.experiments._base import Context, Outcome, experiment, figure, save
from backfield.experiments._horse_regions import METHODS, Horses

PAPER_3 = {
    "S-SVM+BCFW": {"small": 12.3, "medium": 10.9, "large": 10.9},
    "perturb&MAP": {"small": 20.9, "medium": 21.0, "large": 20.9},
    "w.m. perturb&MAP": {"small": 11.6, "medium": 10.9, "large": 10.9},
}
PAPER_4 = {
    "S-SVM+BCFW": {"10% of small": 17.3, "medium with boxes": 14.0, "medium without boxes": 16.1},
    "perturb&MAP": {"10% of small": 23.2, "medium with boxes": 23.4, "medium without boxes": 23.0},
    "w.m. perturb&MAP": {"10% of small": 18.1, "medium with boxes": 13.7, "medium without boxes": 14.4},
}
RIDGES = (1e-2, 3e-3, 1e-3)


@experiment("s18-table3", "Horses in superpixels: weighted Hamming loss by method, with weakly labelled images added")
def run(context: Context) -> Outcome:
    """Train on the labelled images, then with boxes, then with unlabelled images, too."""
    data = regions.load(context)
    epochs = 5 if context.quick else 40
    half = len(data.medium) // 2
    extra: dict[str, dict[str, Any]] = {
        "small": {},
        "medium": {"boxed": data.medium[:half]},
        "large": {"boxed": data.medium[:half], "hidden": data.medium[half:]},
    }
    cut = int(0.7 * len(data.small))
    rows, chosen = [], {}
    for method in METHODS:
        chosen[method] = _choose(context, method, epochs, [(data.small[:cut], data.small[cut:])])
        for setting, more in extra.items():
            compute = partial(_measure, method, epochs, chosen[method], data, [data.small], context.n_jobs, more)
            found = context.cell(f"{method} {setting}", compute)
            rows.append({"method": method, "training": setting, **_row(PAPER_3[method][setting], found)})
    settings = _settings(data, chosen, epochs, {"medium": half, "large": len(data.medium)})
    return Outcome(settings, rows, {"s18-table3.png": lambda path: _draw(path, rows, list(extra))})


@experiment("s18-table4", "Horses in superpixels with 10 % of the labels: boxes and unlabelled images added")
def run_reduced(context: Context) -> Outcome:
    """Train on a tenth of the labels, then with boxes or with unlabelled images."""
    data = regions.load(context)
    epochs, tenth = (5, 5) if context.quick else (60, len(data.small) // 10)
    draws = [data.small[k * tenth : (k + 1) * tenth] for k in range(1 if context.quick else 3)]
    extra: dict[str, dict[str, Any]] = {
        "10% of small": {},
        "medium with boxes": {"boxed": data.medium},
        "medium without boxes": {"hidden": data.medium},
    }
    rows, chosen = [], {}
    for method in METHODS:
        held_out = data.small[len(draws) * tenth :]
        chosen[method] = _choose(context, method, epochs, [(draw, held_out) for draw in draws])
        for setting, more in extra.items():
            compute = partial(_measure, method, epochs, chosen[method], data, draws, context.n_jobs, more)
            found = context.cell(f"{method} {setting}", compute)
            rows.append({"method": method, "training": setting, **_row(PAPER_4[method][setting], found)})
    settings = _settings(data, chosen, epochs, {"labelled": tenth, "draws": len(draws), "medium": len(data.medium)})
    return Outcome(settings, rows, {"s18-table4.png": lambda path: _draw(path, rows, list(extra))})


def _choose(context: Context, method: str, epochs: int, splits: list[tuple[Any, Any]]) -> float:
    """Return l2 by the loss on held-out labelled images."""
    if context.quick:
        return RIDGES[-1]

    def held_out(l2: float) -> float:
        found = []
        for train, rest in splits:
            found.append(regions.evaluate(regions.fit(method, epochs, l2, train, context.n_jobs), method, rest)["loss"])
        return float(np.mean(found))

    losses = [context.cell(f"{method} l2 {l2:g}", partial(held_out, l2)) for l2 in RIDGES]
    return RIDGES[int(np.argmin(losses))]


def _measure(
    method: str, epochs: int, l2: float, data: Horses, draws: list[Any], n_jobs: int, more: dict[str, Any]
) -> list[dict[str, float]]:
    """Return the test results for each draw of labelled images."""
    models = [regions.fit(method, epochs, l2, draw, n_jobs, **more) for draw in draws]
    return [regions.evaluate(model, method, data.test) for model in models]


def _row(paper: float, found: list[dict[str, float]]) -> dict[str, Any]:
    losses, wrong = [each["loss"] for each in found], [each["wrong"] for each in found]
    return {
        "what": "weighted Hamming loss in %",
        "paper": paper,
        "ours": float(np.mean(losses)),
        "draws": [round(loss, 3) for loss in losses],
        "wrong pixels in %": float(np.mean(wrong)),
    }


def _settings(data: Horses, chosen: dict[str, float], epochs: int, counts: dict[str, int]) -> dict[str, Any]:
    return {
        "images": {"small": len(data.small), **counts, "test": len(data.test)},
        "l2": chosen,
        "learners": {method: regions.learner_of(method, epochs) for method in METHODS},
        "losses": {method: loss for method, (loss, _) in METHODS.items()},
        "n_segments": regions.N_SEGMENTS,
        "seeds": [regions.SPLIT_SEED, 0],
    }


def _draw(path: Path, rows: list[dict[str, Any]], order: list[str]) -> None:
    made, axes = figure(1, len(METHODS), width=3.0)
    top = 1.1 * max(max(row["paper"], row["ours"]) for row in rows)
    for axis, method in zip(axes[0], METHODS, strict=True):
        some = [row for row in rows if row["method"] == method]
        at = np.arange(len(order))
        for who, shift, colour in (("paper", -0.2, "0.7"), ("ours", 0.2, "C0")):
            axis.bar(at + shift, [row[who] for row in some], 0.38, label=who, color=colour)
        axis.set_xticks(at, [name.replace(" ", "\n", 1) for name in order], fontsize=7)
        axis.set(title=method, ylim=(0, top))
    axes[0, 0].set_ylabel("weighted Hamming loss in %")
    made.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=2, fontsize=8)
    save(made, path)
