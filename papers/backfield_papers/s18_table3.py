"""[S18] Tables 3 and 4: weighted Hamming loss on horses in superpixels, with full labels, boxes and unlabelled images.

Table 3 adds weakly labelled images to the labelled ones; Table 4 does so with 10 % of the labels, for eight draws.
What is free is chosen on training images that are held out, by one rule for all methods: l2 for the labelled images alone,
then kappa for each kind of weak labels. Both fits of a method take the same number of steps, whatever the images. The
weighted method has two rows: with Adam's steps, and with those of the paper, 1/(lambda h).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from backfield_papers import _horse_regions as regions
from backfield_papers._base import Context, Outcome, experiment, figure, save
from backfield_papers._horse_regions import METHODS, Horse, Horses

PAPER_3 = {
    "S-SVM+BCFW": {"small": 12.3, "medium": 10.9, "large": 10.9},
    "perturb&MAP": {"small": 20.9, "medium": 21.0, "large": 20.9},
    "w.m. perturb&MAP": {"small": 11.6, "medium": 10.9, "large": 10.9},
    "w.m. perturb&MAP, steps 1/(lambda h)": {"small": 11.6, "medium": 10.9, "large": 10.9},
}
PAPER_4 = {
    "S-SVM+BCFW": {"10% of small": 17.3, "medium with boxes": 14.0, "medium without boxes": 16.1},
    "perturb&MAP": {"10% of small": 23.2, "medium with boxes": 23.4, "medium without boxes": 23.0},
    "w.m. perturb&MAP": {"10% of small": 18.1, "medium with boxes": 13.7, "medium without boxes": 14.4},
    "w.m. perturb&MAP, steps 1/(lambda h)": {"10% of small": 18.1, "medium with boxes": 13.7, "medium without boxes": 14.4},
}
RIDGES = (1e-2, 1e-3, 1e-4, 1e-5, 1e-6)
KAPPAS = (1.0, 0.3, 0.1, 0.03)
LEAST, SETTINGS_4 = "10% of small", ("medium with boxes", "medium without boxes")


@experiment("s18-table3", "Horses in superpixels: weighted Hamming loss by method, with weakly labelled images added")
def run(context: Context) -> Outcome:
    """Train on the labelled images, then with boxes, then with unlabelled images, too."""
    data = regions.load(context)
    steps = 50 if context.quick else 8000
    half = len(data.medium) // 2
    extra: dict[str, dict[str, Any]] = {
        "medium": {"boxed": data.medium[:half]},
        "large": {"boxed": data.medium[:half], "hidden": data.medium[half:]},
    }
    folds = [_Split([h for n, h in enumerate(data.small) if n % 3 != k], data.small[k::3]) for k in range(3)]
    choice, final = _Trials(context, steps, folds), _Trials(context, steps, [_Split(data.small, data.test)])
    rows, apart, chosen = [], [], {}
    for method in METHODS:
        l2 = chosen[method] = choice.ridge(method)
        found = {"small": final.fit(f"{method} small", method, l2.best, {})}
        for setting, more in extra.items():
            kappa = chosen[f"{method}, {setting}"] = choice.only(1).kappa(method, l2.best, setting, more, KAPPAS[::2])
            found[setting] = final.fit(f"{method} {setting}", method, l2.best, more, kappa.best)
        rows += [_row(method, setting, PAPER_3[method][setting], results) for setting, results in found.items()]
        apart += [_above_small(method, setting, found) for setting in extra]
    settings = _settings(data, chosen, steps, {"medium": half, "large": len(data.medium)})
    return Outcome(settings, rows + apart, {"s18-table3.png": lambda path: _draw(path, rows, ["small", *extra])})


def _lacks(found: dict[str, Any]) -> list[str]:
    """Return the cells of the methods that a result of older sources does not have."""
    methods = [method for method in METHODS if all(row["method"] != method for row in found["rows"])]
    tasks = [*(f"l2 {l2:g}" for l2 in RIDGES), "small", *SETTINGS_4]
    tasks += [f"{setting} kappa {kappa:g}" for setting in SETTINGS_4 for kappa in KAPPAS]
    return [f"{method} {task}" for method in methods for task in tasks]


@experiment("s18-table4", "Horses in superpixels with 10 % of the labels: boxes and unlabelled images added", lacks=_lacks)
def run_reduced(context: Context) -> Outcome:
    """Train on a tenth of the labels, then with boxes or with unlabelled images."""
    data = regions.load(context)
    steps, tenth, count = (25, 5, 2) if context.quick else (6000, len(data.small) // 10, 8)
    parts: tuple[dict[str, Any], ...] = ({"boxed": data.medium}, {"hidden": data.medium})
    extra = dict(zip(SETTINGS_4, parts, strict=True))
    draws = [slice(k * tenth, (k + 1) * tenth) for k in range(count)]
    choice = _Trials(
        context, steps, [_Split(data.small[d], data.small[: d.start] + data.small[d.stop :]) for d in draws[:3]]
    )
    final = _Trials(context, steps, [_Split(data.small[d], data.test) for d in draws])
    rows, chosen, losses = [], {}, {}
    for method in METHODS:
        l2 = chosen[method] = choice.ridge(method)
        found = {LEAST: final.fit(f"{method} small", method, l2.best, {})}
        for setting, more in extra.items():
            kappa = chosen[f"{method}, {setting}"] = choice.kappa(method, l2.best, setting, more)
            found[setting] = final.fit(f"{method} {setting}", method, l2.best, more, kappa.best)
        rows += [_row(method, setting, PAPER_4[method][setting], results) for setting, results in found.items()]
        losses[method] = {setting: _losses(results) for setting, results in found.items()}
    table, order = rows, [LEAST, *extra]
    counts = {"labelled": tenth, "draws": count, "medium": len(data.medium)}
    rows = table + [row for setting in extra for row in _gains(losses, setting)]
    return Outcome(_settings(data, chosen, steps, counts), rows, {"s18-table4.png": lambda path: _draw(path, table, order)})


class _Split(NamedTuple):
    """Images with labels to learn from, and images to judge by."""

    labelled: list[Horse]
    judged: list[Horse]


class _Choice(NamedTuple):
    """The best value, and the loss on held-out images of each."""

    best: float
    held_out: dict[str, float]


@dataclass(frozen=True)
class _Trials:
    """Fits of each split."""

    context: Context
    steps: int
    splits: list[_Split]

    def only(self, count: int) -> _Trials:
        """Return the first ones."""
        return replace(self, splits=self.splits[:count])

    def ridge(self, method: str) -> _Choice:
        """Choose l2 for the labelled images alone."""
        ridges = RIDGES[1:2] if self.context.quick else RIDGES
        return _choose({l2: self.fit(f"{method} l2 {l2:g}", method, l2, {}) for l2 in ridges})

    def kappa(
        self, method: str, l2: float, setting: str, more: dict[str, Any], kappas: tuple[float, ...] = KAPPAS
    ) -> _Choice:
        """Choose kappa for some weakly labelled images."""
        key, some = f"{method} {setting} kappa", kappas[:1] if self.context.quick else kappas
        return _choose({kappa: self.fit(f"{key} {kappa:g}", method, l2, more, kappa) for kappa in some})

    def fit(self, key: str, method: str, l2: float, more: dict[str, Any], kappa: float = 1.0) -> list[dict[str, Any]]:
        """Return the results on the images to judge by, one for each split; kept as a cell."""

        def compute() -> list[dict[str, Any]]:
            options = {**more, "kappa": kappa}
            return [
                regions.evaluate(
                    regions.fit(method, self.steps, l2, labelled, self.context.n_jobs, **options), method, judged
                )
                for labelled, judged in self.splits
            ]

        found: list[dict[str, Any]] = self.context.cell(key, compute)
        return found


def _choose(found: dict[float, list[dict[str, Any]]]) -> _Choice:
    losses = {value: float(_losses(results).mean()) for value, results in found.items()}
    return _Choice(min(losses, key=lambda value: losses[value]), {f"{value:g}": round(losses[value], 3) for value in losses})


def _losses(results: list[dict[str, Any]]) -> np.ndarray:
    return np.array([each["loss"] for each in results])


def _gains(losses: dict[str, dict[str, np.ndarray]], setting: str) -> Iterator[dict[str, Any]]:
    """Yield what weakly labelled images take from the loss of each draw, and how much more they do so than for S-SVM."""
    gain = {method: each[LEAST] - each[setting] for method, each in losses.items()}
    paper = {method: PAPER_4[method][LEAST] - PAPER_4[method][setting] for method in gain}
    for method in gain:
        row = {"method": method, "training": setting, "what": "weighted Hamming loss in % below 10% of small"}
        yield {**row, "paper": paper[method], **_mean(gain[method])}
    other = "S-SVM+BCFW"
    for ours in [method for method in METHODS if method.startswith("w.m.")]:
        row = {"method": ours, "training": setting, "what": f"the same, more than {other}"}
        yield {**row, "paper": paper[ours] - paper[other], **_mean(gain[ours] - gain[other])}


def _above_small(method: str, setting: str, found: dict[str, list[dict[str, Any]]]) -> dict[str, Any]:
    """Return what more images add to the loss of a test image, with its standard error over the test images."""
    (more,), (few,) = found[setting], found["small"]
    row = {"method": method, "training": setting, "what": "weighted Hamming loss in % above small, over test images"}
    apart = _mean(np.array(more["each"]) - np.array(few["each"]))
    del apart["draws"]
    return {**row, "paper": PAPER_3[method][setting] - PAPER_3[method]["small"], **apart}


def _mean(draws: np.ndarray) -> dict[str, Any]:
    """Return the mean over draws with its standard error, from the spread of the draws."""
    error = float(draws.std(ddof=1) / np.sqrt(len(draws))) if len(draws) > 1 else None
    return {"ours": float(draws.mean()), "standard error": error, "draws": [round(each, 3) for each in draws.tolist()]}


def _row(method: str, setting: str, paper: float, found: list[dict[str, Any]]) -> dict[str, Any]:
    row = {"method": method, "training": setting, "what": "weighted Hamming loss in %", "paper": paper}
    return {**row, **_mean(_losses(found)), "wrong pixels in %": float(np.mean([each["wrong"] for each in found]))}


def _settings(data: Horses, chosen: dict[str, _Choice], steps: int, counts: dict[str, int]) -> dict[str, Any]:
    return {
        "images": {"small": len(data.small), **counts, "test": len(data.test)},
        "chosen": {name: {"best": choice.best, "held-out loss": choice.held_out} for name, choice in chosen.items()},
        "steps": steps,
        "learners": {
            method: regions.learner_of(method, steps, counts.get("labelled", len(data.small)), counts["medium"])
            for method in METHODS
        },
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
        axis.set_title(method.replace(", ", "\n"), fontsize=9)
        axis.set(ylim=(0, top))
    axes[0, 0].set_ylabel("weighted Hamming loss in %")
    made.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=2, fontsize=8)
    save(made, path)
