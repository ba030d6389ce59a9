"""How many strokes does a person need? A simulated annotator, who paints a disc of the true label wherever it is asked to.

    python -m backfield_benchmarks.annotator [--data DIR] [--seeds 10] [--strokes 100] [--out FILE.json] [--plot FILE.png]

Membranes (isbi2012_membrane), horses and backgrounds. A seed draws images to label and others to test on. Three ways to
choose the next place: at random, where the classifier alone is uncertain, where the field is uncertain. Counted are the
strokes until mean IoU on the test images has closed 90 % of the gap between the majority class and training with all labels
of the images to label; where that is never reached, the number of strokes that were tried. There are two such models, the
classifier alone and the field: ``strokes`` counts up to the first, whatever the way of choosing, ``strokes_to_best`` up to
the better of the two. Every way of choosing sees the same images. The curves, mean and standard error over seeds, go into
the JSON, from which a run that was ended goes on. Every third image is left out: settings were chosen on those
(``--develop`` draws from them alone).
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from backfield.atomic import write_text
from backfield.datasets._files import data_dir, read_image, read_mask
from backfield.labelling.asking import choose_image, uncertain_place
from backfield.labelling.field import Features, Field, features_of, pieces, softmax
from backfield.labelling.learning import QUICK, THOROUGH, Learner, Rows
from backfield.labelling.material import Material, collect
from backfield.labelling.pictures import entropy
from backfield.labelling.strokes import HIDDEN, Box, covered

ARMS = ("classifier, random places", "classifier, its uncertainty", "field, its uncertainty")


@dataclass(frozen=True)
class Task:
    """A data set: pairs of files, how masks become labels, and how it is cut."""

    name: str
    n_labels: int
    radius: float
    side: int  # larger images are cut to this
    n_images: int = 5
    develop: bool = False

    def pairs(self, data: Path) -> list[tuple[Path, Path]]:
        return [pair for k, pair in enumerate(self._all_pairs(data)) if (k % 3 == 0) == self.develop]

    def _all_pairs(self, data: Path) -> list[tuple[Path, Path]]:
        if self.name == "membranes":
            folder = data / "isbi2012_membrane"
            return [(path, folder / "masks" / path.name) for path in sorted((folder / "images").iterdir())]
        if self.name == "horses":
            folders = [data / "weizmann_horses" / part for part in ("training", "test")]
            found = [(p, f / "masks" / p.name.replace("image", "mask")) for f in folders for p in (f / "images").iterdir()]
            return sorted(found)
        folder = data / "stanford_background"
        return [(path, folder / "regions" / f"{path.stem}.png") for path in sorted((folder / "images").iterdir())]

    def read(self, pair: tuple[Path, Path], rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        image, mask = read_image(pair[0]), read_mask(pair[1])
        labels = mask.astype(np.int64) if self.name == "backgrounds" else (mask > 0).astype(np.int64)
        top, left = (int(rng.integers(max(n - self.side, 0) + 1)) for n in labels.shape)
        window = slice(top, top + self.side), slice(left, left + self.side)
        return image[window], labels[window]


TASKS = {
    task.name: task
    for task in (Task("membranes", 2, 3.0, 192), Task("horses", 2, 4.0, 256, 8), Task("backgrounds", 8, 6.0, 240, 8))
}


@dataclass
class Desk:
    """Images to label, what is painted on them, and others to test on."""

    task: Task
    features: list[Features]
    truth: list[np.ndarray]
    test: list[tuple[Features, np.ndarray]]

    @classmethod
    def draw(cls, task: Task, data: Path, seed: int) -> Desk:
        rng = np.random.default_rng(seed)
        pairs = task.pairs(data)
        chosen = [task.read(pairs[k], rng) for k in rng.choice(len(pairs), 2 * task.n_images, replace=False)]
        made = [(features_of(image), labels) for image, labels in chosen]
        train = made[: task.n_images]
        return cls(task, [f for f, _ in train], [labels for _, labels in train], made[task.n_images :])

    def iou(self, predict: Any) -> float:
        """Mean IoU over the labels that occur in the test images."""
        hit, either = np.zeros(self.task.n_labels), np.zeros(self.task.n_labels)
        for features, truth in self.test:
            found, known = predict(features), truth != HIDDEN
            for label in range(self.task.n_labels):
                a, b = (found == label) & known, truth == label
                hit[label] += (a & b).sum()
                either[label] += (a | b).sum()
        return float((hit[either > 0] / either[either > 0]).mean())

    def majority(self) -> float:
        counts = sum(np.bincount(t[t != HIDDEN], minlength=self.task.n_labels) for t in self.truth)
        return self.iou(lambda features: np.full(features.shape, np.argmax(counts)))

    def full(self) -> tuple[float, float]:
        """Mean IoU of classifier and field after training with all labels."""
        material = [
            collect(f, np.where(t == HIDDEN, HIDDEN, t).astype(np.uint8), 0)
            for f, t in zip(self.features, self.truth, strict=True)
        ]
        rows, learner = Rows.of(material), Learner()
        field = learner.classify(rows, THOROUGH)
        refined, _ = learner.refine(rows, material, THOROUGH, lambda: False)
        return self.iou(lambda f: by_classifier(field, f)), self.iou(lambda f: by_field(refined, f))


def by_classifier(field: Field, features: Features) -> np.ndarray:
    return field.known[field.scores(features.pixels).argmax(axis=2)]


def by_field(field: Field, features: Features) -> np.ndarray:
    return field.known[marginals(field, features, np.full(features.shape, HIDDEN, np.uint8)).argmax(axis=2)]


def marginals(field: Field, features: Features, labels: np.ndarray) -> np.ndarray:
    height, width = features.shape
    out = np.empty((height, width, len(field.known)), np.float32)
    for box in pieces(Box(0, 0, width, height)):
        out[box.slices] = field.beliefs(features, box, labels).field
    return out


def run(desk: Desk, arm: int, seed: int, n_strokes: int) -> list[tuple[int, float]]:
    """Return (strokes, mean IoU) along a simulated session."""
    rng = np.random.default_rng(1000 + seed)
    maps = [np.full(f.shape, HIDDEN, np.uint8) for f in desk.features]
    material: dict[int, Material] = {}
    learner, field, curve = Learner(), None, []
    for stroke in range(1, n_strokes + 1):
        image, x, y = _place(desk, arm, field, maps, rng)
        label = desk.truth[image][y, x]
        near = covered(np.array([[x + 0.5, y + 0.5]]), desk.task.radius, maps[image].shape)
        maps[image][near & (desk.truth[image] == label)] = label
        material[image] = collect(desk.features[image], maps[image], stroke)
        used = [material[k] for k in sorted(material)]
        rows = Rows.of(used)
        if len(rows.known) < 2:
            continue
        field = learner.classify(rows)
        if arm == 2 and (stroke % 4 == 0 or stroke < 8):
            field, _ = learner.refine(rows, used, QUICK, lambda: False)
        if stroke <= 12 or stroke % 4 == 0:
            curve.append((stroke, desk.iou(partial(by_field if arm == 2 else by_classifier, field))))
    return curve


def _place(
    desk: Desk, arm: int, field: Field | None, maps: list[np.ndarray], rng: np.random.Generator
) -> tuple[int, int, int]:
    """Return image, x and y where to paint."""
    if arm > 0 and field is not None:
        places = {}
        for number, (features, labels) in enumerate(zip(desk.features, maps, strict=True)):
            p = softmax(field.scores(features.pixels)) if arm == 1 else marginals(field, features, labels)
            unsure = np.where(desk.truth[number] == HIDDEN, 0, entropy(p)).astype(np.uint8)
            places[number] = uncertain_place(unsure, labels, rng)
        image = choose_image(places, rng)
        if desk.truth[image][places[image].y, places[image].x] != HIDDEN:
            return image, places[image].x, places[image].y
    while True:
        image = int(rng.integers(len(maps)))
        y, x = (int(rng.integers(n)) for n in maps[image].shape)
        if desk.truth[image][y, x] != HIDDEN:
            return image, x, y


def strokes_until(curve: list[tuple[int, float]], target: float, most: int) -> int:
    return next((stroke for stroke, value in curve if value >= target), most)


def cell(task: Task, data: Path, seed: int, n_strokes: int) -> dict[str, Any]:
    """Return what one seed gives: scores to compare with, and strokes and curve of each way of choosing."""
    desk = Desk.draw(task, data, seed)
    low, (high, field_high) = desk.majority(), desk.full()
    out: dict[str, Any] = {"task": task.name, "seed": seed, "strokes_tried": n_strokes}
    out |= {"majority": low, "full": high, "full_field": field_high}
    for number, arm in enumerate(ARMS):
        start = time.process_time()
        curve = run(desk, number, seed, n_strokes)
        targets = (low + 0.9 * (top - low) for top in (high, max(high, field_high)))
        first, best = (strokes_until(curve, target, n_strokes) for target in targets)
        out[arm] = {"strokes": first, "strokes_to_best": best, "seconds": round(time.process_time() - start, 1)}
        out[arm]["curve"] = [[stroke, round(value, 4)] for stroke, value in curve]
    return out


def summary(cells: list[dict[str, Any]]) -> dict[str, Any]:
    """Return means and standard errors over the seeds of a task."""
    out = {key: cells[0][key] for key in ("task", "strokes_tried")} | {"seeds": len(cells)}
    out |= {key: float(np.mean([each[key] for each in cells])) for key in ("majority", "full", "full_field")}
    for arm in ARMS:
        found = {}
        for name in ("strokes", "strokes_to_best"):
            found[f"{name}_mean"], found[f"{name}_se"] = _mean(np.array([each[arm][name] for each in cells], float))
        curves = [dict(each[arm]["curve"]) for each in cells]
        steps = sorted(set.intersection(*map(set, curves)))
        mean, se = _mean(np.array([[curve[step] for step in steps] for curve in curves]))
        out[arm] = found | {"at": steps, "iou": np.round(mean, 4).tolist(), "iou_se": np.round(se, 4).tolist()}
    for ratio, name in (("ratio", "strokes_mean"), ("ratio_to_best", "strokes_to_best_mean")):
        out[ratio] = {arm: round(out[arm][name] / out[ARMS[0]][name], 3) for arm in ARMS}
    return out


def _mean(values: np.ndarray) -> tuple[Any, Any]:
    """Return mean and standard error over the first axis."""
    spread = values.std(axis=0, ddof=1) / np.sqrt(len(values)) if len(values) > 1 else np.zeros(values.shape[1:])
    return values.mean(axis=0).tolist(), spread.tolist()


def summaries(cells: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return a summary of each task that has cells."""
    by_task = {name: [each for each in cells if each["task"] == name] for name in TASKS}
    return [summary(each) for each in by_task.values() if each]


def rows(results: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the strokes of each way of choosing, for a table."""
    shown = ("strokes_mean", "strokes_se", "strokes_to_best_mean", "strokes_to_best_se")
    return [
        {"images": each["task"], "seeds": each["seeds"], "places": arm}
        | {key: each[arm][key] for key in shown}
        | {"ratio": each["ratio"][arm], "ratio_to_best": each["ratio_to_best"][arm], "iou_at_the_end": each[arm]["iou"][-1]}
        | {key: each[key] for key in ("majority", "full", "full_field")}
        for each in results
        for arm in ARMS
    ]


def write(cells: list[dict[str, Any]], path: Path) -> None:
    """Write the cells and what follows from them."""
    results = summaries(cells)
    found = {"command": "python -m backfield_benchmarks.annotator", "rows": rows(results), "results": results}
    write_text(path, json.dumps(found | {"cells": cells}) + "\n")


def stored(path: Path | None) -> list[dict[str, Any]]:
    """Return the cells of a file."""
    return json.loads(path.read_text())["cells"] if path is not None and path.exists() else []


def plot(results: list[dict[str, Any]], path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, len(results), figsize=(4.2 * len(results), 3.4), squeeze=False)
    for ax, result in zip(axes[0], results, strict=True):
        for arm, colour in zip(ARMS, ("#999999", "#e69f00", "#0072b2"), strict=True):
            found = result[arm]
            x, y, se = found["at"], np.array(found["iou"]), np.array(found["iou_se"])
            ax.plot(x, y, color=colour, label=arm)
            ax.fill_between(x, y - se, y + se, color=colour, alpha=0.2, linewidth=0)
        ax.axhline(
            result["majority"] + 0.9 * (result["full"] - result["majority"]), color="black", linewidth=0.8, linestyle=":"
        )
        ax.set_title(f"{result['task']} ({result['seeds']} seeds)")
        ax.set_xlabel("strokes")
    axes[0][0].set_ylabel("mean IoU, test images")
    axes[0][-1].legend(frameon=False, fontsize=8, loc="lower right")
    figure.tight_layout()
    figure.savefig(path, dpi=110)


def keep(found: dict[str, Any], cells: list[dict[str, Any]], path: Path | None) -> list[dict[str, Any]]:
    """Return the cells with one more, and those that another process has written meanwhile; print and write them."""
    print(json.dumps({key: found[key] for key in ("task", "seed", "majority", "full", "full_field")}), flush=True)
    print(json.dumps({arm: {k: v for k, v in found[arm].items() if k != "curve"} for arm in ARMS}), flush=True)
    name = (found["task"], found["seed"])
    others = [each for each in stored(path) or cells if (each["task"], each["seed"]) != name]
    cells = sorted([*others, found], key=lambda each: (each["task"], each["seed"]))
    if path:
        write(cells, path)
    return cells


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data", type=Path)
    parser.add_argument("--tasks", nargs="*", default=list(TASKS), choices=list(TASKS))
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--start", type=int, default=0, help="first seed")
    parser.add_argument("--strokes", type=int, default=100)
    parser.add_argument("--images", type=int, help="images to label, and as many to test on")
    parser.add_argument("--develop", action="store_true", help="draw from the images on which settings were chosen")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--plot", type=Path)
    options = parser.parse_args()
    tasks = [replace(TASKS[name], develop=options.develop) for name in options.tasks]
    if options.images:
        tasks = [replace(task, n_images=options.images) for task in tasks]
    cells = stored(options.out)
    for task in tasks:
        for seed in range(options.start, options.seeds):
            key = {"task": task.name, "seed": seed, "strokes_tried": options.strokes}
            if key not in [{name: each[name] for name in key} for each in cells]:
                cells = keep(cell(task, data_dir(options.data), seed, options.strokes), cells, options.out)
    for each in summaries(cells):
        print(json.dumps({key: each[key] for key in ("task", "seeds", "ratio", "ratio_to_best")}), flush=True)
    if options.out:
        write(cells, options.out)
    if options.plot:
        plot(summaries(cells), options.plot)


if __name__ == "__main__":
    main()
