"""[S18] Tables 3 and 4: weighted Hamming loss on horses in superpixels, with full labels, boxes and unlabelled images.

Table 3 adds weakly labelled images to the labelled ones; Table 4 does so with 10 % of the labels, for three draws of these.
What is free is chosen on training images that are held out, by one rule for all methods: l2 for the labelled images alone
and, in Table 4, then kappa for each kind of weak labels. In Table 3 kappa is 1.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from backfield.experiments import _horse_regions as regions
from backfield.experiments._base import Context, Outcome, experiment, figure, save
from backfield.experiments._horse_regions import METHODS, Horse, Horses

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
RIDGES = (1e-2, 3e-3, 1e-3, 3e-4)
KAPPAS = (1.0, 0.3, 0.1)


@experiment("s18-table3", "Horses in superpixels: weighted Hamming loss by method, with weakly labelled images added")
def run(context: Context) -> Outcome:
    """Train on the labelled images, then with boxes, then with unlabelled images, too."""
    data = regions.load(context)
    epochs = 5 if context.quick else 40
    half, cut = len(data.medium) // 2, int(0.7 * len(data.small))
    extra: dict[str, dict[str, Any]] = {
        "small": {},
        "medium": {"boxed": data.medium[:half]},
        "large": {"boxed": data.medium[:half], "hidden": data.medium[half:]},
    }
    part = _Trials(context, epochs, [data.small[:cut]], data.small[cut:], [])
    whole = _Trials(context, epochs, [data.small], [], data.test)
    rows, chosen = [], {}
    for method in METHODS:
        l2 = chosen[method] = part.ridge(method)
        for setting, more in extra.items():
            found = whole.fit(f"{method} {setting}", method, l2.best, more)
            rows.append({"method": method, "training": setting, **_row(PAPER_3[method][setting], found)})
    settings = _settings(data, chosen, epochs, {"medium": half, "large": len(data.medium)})
    return Outcome(settings, rows, {"s18-table3.png": lambda path: _draw(path, rows, list(extra))})


@experiment("s18-table4", "Horses in superpixels with 10 % of the labels: boxes and unlabelled images added")
def run_reduced(context: Context) -> Outcome:
    """Train on a tenth of the labels, then with boxes or with unlabelled images."""
    data = regions.load(context)
    epochs, tenth = (5, 5) if context.quick else (100, len(data.small) // 10)
    draws = [data.small[k * tenth : (k + 1) * tenth] for k in range(1 if context.quick else 3)]
    extra: dict[str, dict[str, Any]] = {
        "medium with boxes": {"boxed": data.medium},
        "medium without boxes": {"hidden": data.medium},
    }
    trials = _Trials(context, epochs, draws, data.small[len(draws) * tenth :], data.test)
    rows, chosen = [], {}
    for method in METHODS:
        l2 = chosen[method] = trials.ridge(method)
        settings = {"10% of small": l2.found}
        for setting, more in extra.items():
            kappa = chosen[f"{method}, {setting}"] = trials.kappa(method, l2.best, setting, more)
            settings[setting] = kappa.found
        rows += [{"method": method, "training": each, **_row(PAPER_4[method][each], settings[each])} for each in settings]
    counts = {"labelled": tenth, "draws": len(draws), "medium": len(data.medium)}
    order = ["10% of small", *extra]
    return Outcome(_settings(data, chosen, epochs, counts), rows, {"s18-table4.png": lambda path: _draw(path, rows, order)})


class _Choice(NamedTuple):
    """The best value, the held-out loss of each, and what the best one gave."""

    best: float
    held_out: dict[str, float]
    found: dict[str, Any]


@dataclass(frozen=True)
class _Trials:
    """Fits to each draw of labelled images, judged on held-out images and on test images."""

    context: Context
    epochs: int
    draws: list[list[Horse]]
    held_out: list[Horse]
    test: list[Horse]

    def ridge(self, method: str) -> _Choice:
        """Choose l2 for the labelled images alone."""
        ridges = RIDGES[2:3] if self.context.quick else RIDGES
        return self._choose({l2: self.fit(f"{method} l2 {l2:g}", method, l2, {}) for l2 in ridges})

    def kappa(self, method: str, l2: float, setting: str, more: dict[str, Any]) -> _Choice:
        """Choose kappa for some weakly labelled images."""
        kappas = KAPPAS[:1] if self.context.quick else KAPPAS
        key = f"{method} {setting} kappa"
        return self._choose({kappa: self.fit(f"{key} {kappa:g}", method, l2, more, kappa) for kappa in kappas})

    def fit(self, key: str, method: str, l2: float, more: dict[str, Any], kappa: float = 1.0) -> dict[str, Any]:
        """Return the results on held-out and test images, a list over draws each; kept as a cell."""

        def compute() -> dict[str, Any]:
            n_jobs = self.context.n_jobs
            models = [regions.fit(method, self.epochs, l2, draw, n_jobs, **more, kappa=kappa) for draw in self.draws]
            parts = {"held out": self.held_out, "test": self.test}
            return {
                name: [regions.evaluate(model, method, some) for model in models] if some else []
                for name, some in parts.items()
            }

        found: dict[str, Any] = self.context.cell(key, compute)
        return found

    @staticmethod
    def _choose(found: dict[float, dict[str, Any]]) -> _Choice:
        losses = {value: float(np.mean([each["loss"] for each in results["held out"]])) for value, results in found.items()}
        best = min(losses, key=lambda value: losses[value])
        return _Choice(best, {f"{value:g}": round(loss, 3) for value, loss in losses.items()}, found[best])


def _row(paper: float, found: dict[str, Any]) -> dict[str, Any]:
    losses, wrong = ([each[what] for each in found["test"]] for what in ("loss", "wrong"))
    return {
        "what": "weighted Hamming loss in %",
        "paper": paper,
        "ours": float(np.mean(losses)),
        "draws": [round(loss, 3) for loss in losses],
        "wrong pixels in %": float(np.mean(wrong)),
    }


def _settings(data: Horses, chosen: dict[str, _Choice], epochs: int, counts: dict[str, int]) -> dict[str, Any]:
    return {
        "images": {"small": len(data.small), **counts, "test": len(data.test)},
        "chosen": {name: {"best": choice.best, "held-out loss": choice.held_out} for name, choice in chosen.items()},
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
