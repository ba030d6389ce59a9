"""[L13] Table 1: errors for all pairs of unary and pairwise function classes, and Figure 3: predictions on test images.

Denoising needs no data; the horses are added where ``--data`` has them.

# Differs from [L13]: the split of the horses is not recorded there; ours is the seeded one of 200 + 128 images.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

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


@experiment("l13-table1", "Errors by unary and pairwise function class (and Figure 3)")
def run(context: Context) -> Outcome:
    """Train each cell."""
    names = ["denoising"] + (["horses"] if context.data is not None else [])
    chosen = QUICK if context.quick else ORDER
    tasks = {f"{name} {u} {p}": (name, context.data, context.quick, u, p) for name in names for u, p in chosen}
    found = context.cells(tasks, l13.cell)
    rows = [row for key, (name, _, _, u, p) in tasks.items() if key in found for row in _rows(name, u, p, found[key])]
    spent = {
        name: round(sum(cell["processor_seconds"] for key, cell in found.items() if key.startswith(name))) for name in names
    }
    settings = {**l13.settings(names), "processor_seconds": spent, "n_jobs": context.n_jobs}
    if missing := [key for key in tasks if key not in found]:
        settings["not_done"] = missing
    pictures: dict[str, Any] = {f"l13-fig3-{name}.png": partial(_draw, name, context, found) for name in names}
    return Outcome(settings, rows, pictures)


def _rows(name: str, unary: str, pairwise: str, cell: dict[str, Any]) -> list[dict[str, Any]]:
    paper = l13.PAPER[name][l13.CLASSES.index(unary)][l13.CLASSES.index(pairwise)]
    head = {"data": name, "unary": unary, "pairwise": pairwise}
    test = {**head, "what": "test error", "paper": paper, "ours": cell["test"], "rounds": cell["rounds"]}
    test |= {"processor_seconds": cell["processor_seconds"], "curve": cell["curve"]}
    if unary == pairwise and cell["functions"] is not None:
        test["functions"] = cell["functions"]
    # The train errors of the paper are in an appendix that is not available.
    return [test, {**head, "what": "train error", "paper": None, "ours": cell["train"], "rounds": cell["rounds"]}]


def _draw(name: str, context: Context, found: dict[str, Any], path: Path) -> None:
    """Draw two test images, their truth, and predictions of some cells."""
    data = l13.data(name, context.data, context.quick)
    shown = [(u, p) for u, p in QUICK if f"{name} {u} {p}" in found]
    made, axes = figure(2, 2 + len(shown), width=1.35, height=1.45)
    for row, (sample, truth, shape) in enumerate(zip(data.test, data.test_labels, data.shapes, strict=False)):
        if row == len(axes):
            break
        x = np.asarray(sample.node_features)
        image = x[:, 0].reshape(shape) if x.shape[1] == 1 else x[:, :3].reshape(*shape, 3)
        shots = {"input": image, "truth": truth.reshape(shape)}
        for u, p in shown:
            title = l13.SHORT[u] if u == p else f"{l13.SHORT[u]} \\ {l13.SHORT[p]}"
            shots[title] = l13.unpack(found[f"{name} {u} {p}"]["predictions"][row], shape)
        for axis, (title, each) in zip(axes[row], shots.items(), strict=True):
            axis.imshow(np.clip(each, 0, 1), cmap="gray", vmin=0, vmax=1)
            axis.set(xticks=[], yticks=[])
            if row == 0:
                axis.set_title(title, fontsize=9)
    save(made, path)
