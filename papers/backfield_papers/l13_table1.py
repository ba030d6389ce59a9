"""[L13] Table 1: errors for all pairs of unary and pairwise function classes, and Figure 3: predictions on test images.

Denoising needs no data; the horses are run where ``--data`` has them. Rows are means over the seeds that they count, with
standard errors; the horses at full resolution have one seed and come last, as they take the longest. ``mlp_sgd`` is the
network with the paper's learner.

# Differs from [L13]: the split of the horses is not recorded there; ours are seeded ones of 200 + 128 images.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from backfield_papers import _l13 as l13
from backfield_papers._base import Context, Outcome, experiment, figure, save

#: Cells with their own unary term first: a run that is stopped has them.
ORDER = tuple((u, p) for u in ("linear", "boosted_trees", "mlp", "constant", "zero") for p in l13.CLASSES)
QUICK = (
    ("linear", "zero"),
    ("linear", "constant"),
    ("linear", "linear"),
    ("boosted_trees", "boosted_trees"),
    ("mlp", "mlp"),
)
#: Data -> name of its picture.
PICTURES = {l13.DENOISING: "denoising", l13.HORSES: "horses", l13.FULL: "horses-full"}


class Cell(NamedTuple):
    """What is trained once."""

    name: str
    unary: str
    pairwise: str
    seed: int = 0

    @property
    def key(self) -> str:
        """Its key among the cells that are kept."""
        return l13.key(*self)


def _planned(quick: bool) -> Iterator[Cell]:
    """Yield every cell in the order in which they are run: seed by seed, the longest last."""
    for seed in (0,) if quick else l13.SEEDS[l13.DENOISING]:
        for name in (l13.DENOISING, l13.HORSES):
            for unary, pairwise in (*(QUICK if quick else ORDER), (l13.SGD, l13.SGD)):
                yield Cell(name, unary, pairwise, seed)
    if not quick:
        yield from (Cell(l13.FULL, unary, pairwise) for unary, pairwise in ORDER)


def _lacks(found: dict[str, Any]) -> list[str]:
    """Return the cells that a result of older sources, of one seed, does not have."""
    if "left_out" in found["settings"]:
        return []
    there = {(row["data"], row["unary"], row["pairwise"]) for row in found["rows"]}
    return [cell.key for cell in _planned(False) if cell.seed or cell[:3] not in there]


@experiment("l13-table1", "Errors by unary and pairwise function class (and Figure 3)", lacks=_lacks)
def run(context: Context) -> Outcome:
    """Train each cell."""
    planned = list(_planned(context.quick))
    possible = [cell for cell in planned if cell.name == l13.DENOISING or context.data is not None]
    tasks = {c.key: (c.name, context.data, context.quick, c.unary, c.pairwise, c.seed) for c in possible}
    kept = context.cells(tasks, l13.cell)
    found = {cell: kept[cell.key] for cell in possible if cell.key in kept}
    names = [name for name in PICTURES if any(cell.name == name for cell in found)]
    groups: dict[tuple[str, str, str], dict[int, dict[str, Any]]] = {}
    for cell, value in found.items():
        groups.setdefault(cell[:3], {})[cell.seed] = value
    rows = [row for each, seeds in groups.items() for row in _rows(*each, seeds)]
    spent = {name: round(sum(x["processor_seconds"] for c, x in found.items() if c.name == name)) for name in names}
    settings = {**l13.settings(names), "processor_seconds": spent, "n_jobs": context.n_jobs}
    settings["left_out"] = [cell.key for cell in planned if cell not in found]
    pictures: dict[str, Any] = {f"l13-fig3-{PICTURES[name]}.png": partial(_draw, name, context, groups) for name in names}
    return Outcome(settings, rows, pictures)


def _rows(name: str, unary: str, pairwise: str, seeds: dict[int, dict[str, Any]]) -> list[dict[str, Any]]:
    """Return test and train error, means over seeds."""
    row, column = (l13.CLASSES.index("mlp" if c == l13.SGD else c) for c in (unary, pairwise))
    cells = list(seeds.values())
    head = {"data": name, "unary": unary, "pairwise": pairwise}
    test = {**head, "what": "test error", "paper": l13.PAPER[name][row][column], **_mean(cells, "test")}
    test["processor_seconds"] = round(float(np.mean([cell["processor_seconds"] for cell in cells])), 1)
    if 0 in seeds:
        test["curve"] = seeds[0]["curve"]
        if unary == pairwise and seeds[0]["functions"] is not None:
            test["functions"] = seeds[0]["functions"]
    # The train errors of the paper are in an appendix that is not available.
    return [test, {**head, "what": "train error", "paper": None, **_mean(cells, "train")}]


def _mean(cells: list[dict[str, Any]], what: str) -> dict[str, Any]:
    """Return the mean over seeds with its standard error, how many there are, and their mean number of rounds."""
    errors = np.array([cell[what] for cell in cells])
    spread = float(errors.std(ddof=1) / np.sqrt(len(errors))) if len(errors) > 1 else None
    rounds = float(np.mean([cell["rounds"] for cell in cells]))
    return {"ours": float(errors.mean()), "standard error": spread, "seeds": len(errors), "rounds": rounds}


def _draw(name: str, context: Context, groups: dict[tuple[str, str, str], dict[int, dict[str, Any]]], path: Path) -> None:
    """Draw two test images of seed 0, their truth, and predictions of some cells."""
    data = l13.data(name, context.data, context.quick)
    shown = [(u, p) for u, p in QUICK if 0 in groups.get((name, u, p), {})]
    made, axes = figure(2, 2 + len(shown), width=1.35, height=1.45)
    for row, (sample, truth, shape) in enumerate(zip(data.test, data.test_labels, data.shapes, strict=False)):
        if row == len(axes):
            break
        x = np.asarray(sample.node_features)
        image = x[:, 0].reshape(shape) if x.shape[1] == 1 else x[:, :3].reshape(*shape, 3)
        shots = {"input": image, "truth": truth.reshape(shape)}
        for u, p in shown:
            title = l13.SHORT[u] if u == p else f"{l13.SHORT[u]} \\ {l13.SHORT[p]}"
            shots[title] = l13.unpack(groups[name, u, p][0]["predictions"][row], shape)
        for axis, (title, each) in zip(axes[row], shots.items(), strict=True):
            axis.imshow(np.clip(each, 0, 1), cmap="gray", vmin=0, vmax=1)
            axis.set(xticks=[], yticks=[])
            if row == 0:
                axis.set_title(title, fontsize=9)
    save(made, path)
