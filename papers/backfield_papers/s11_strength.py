"""Where does training through inference win by much? [S11] Tables 3 and 5 again with weaker and stronger true models.

The paper says neither how strong its potentials are beyond "standard normal" nor in which order messages are sent, and its
gap grows as belief propagation is cut short, where ours at strength 1 does not. So: the excess MSE of the likelihood and of
training for the MSE, by the standard deviation of the true model's parameters, the number of BP iterations, and the order.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from backfield_papers._base import Context, Outcome, experiment, figure, save
from backfield_papers._random_models import Sizes
from backfield_papers.s11_tables import FAIR, LAST, Run, Runs, compared

TEST = "frac-MSE"
STRENGTHS, ITERATIONS = (0.5, 1.0, 1.5, 2.0, 3.0), (5, 10, 30, 100)
SOME = [Sizes(50, 100), Sizes(50, 200), Sizes(100, 200)]
#: The paper's factors at strength 1: the likelihood's excess MSE over that of training for the MSE.
PAPER = {10: 0.02461 / 0.00064, 30: 0.00301 / 0.00072, 100: 0.0071 / 0.00057}
WAYS = {LAST: ("APPR-LOGL", "last"), FAIR: ("APPR-LOGL", ""), TEST: (TEST, "in")}


@experiment("s11-strength", "Excess MSE by strength of the true model, BP iterations and order of messages", "s11-tables")
def run(context: Context) -> Outcome:
    """Train by the likelihood and for the MSE in every condition."""
    strengths, iterations = ((1.0, 2.0), (5,)) if context.quick else (STRENGTHS, ITERATIONS)
    cases = [*itertools.product(strengths, iterations, ["flooding"]), *itertools.product([1.0], iterations, ["sequential"])]
    runs = Runs(context, [_run(way, case) for case in cases for way in WAYS], SOME)
    rows: list[dict[str, Any]] = []
    for case in cases:
        found = runs.of(*(_run(way, case) for way in WAYS))
        if found[0]:
            deltas = {way: [cell["delta"][TEST] for cell in cells] for way, cells in zip(WAYS, found, strict=True)}
            rows += _rows(case, deltas)
    return Outcome(runs.settings(), rows, {"s11-strength.png": _picture(rows)})


def _run(way: str, case: tuple[float, int, str]) -> Run:
    strength, n_iter, schedule = case
    return Run(*WAYS[way], n_iter=n_iter, strength=strength, schedule=schedule)


def _rows(case: tuple[float, int, str], deltas: dict[str, list[float]]) -> list[dict[str, Any]]:
    strength, n_iter, schedule = case
    head = {"strength": strength, "iterations of BP": n_iter, "order": schedule}
    out = []
    for way, values in deltas.items():
        row = {**head, "train": way, "paper": None, "ours": float(np.mean(values))}
        if way != TEST:
            row["paper times"] = PAPER.get(n_iter) if (strength, schedule) == (1.0, "flooding") and way == LAST else None
            row["times that of MSE training"] = float(np.mean(values) / np.mean(deltas[TEST]))
            row["wins of MSE training"] = compared(deltas[TEST], values)["wins"]
        out.append({**row, "models": len(values), "each": [round(value, 6) for value in values]})
    return out


def _picture(rows: list[dict[str, Any]]) -> Callable[[Path], None]:
    def draw(path: Path) -> None:
        made, axes = figure(1, 2, width=4.2)
        for ax, way in zip(axes[0], (LAST, FAIR), strict=True):
            chosen = [row for row in rows if row["order"] == "flooding"]
            for n_iter in sorted({row["iterations of BP"] for row in chosen}):
                for train, style in ((way, "-o"), (TEST, "--")):
                    line = [r for r in chosen if r["iterations of BP"] == n_iter and r["train"] == train]
                    colour = f"C{sorted({row['iterations of BP'] for row in chosen}).index(n_iter)}"
                    label = f"{n_iter} iterations" if train == way else None
                    ax.plot([r["strength"] for r in line], [r["ours"] for r in line], style, color=colour, label=label)
            ax.set_yscale("symlog", linthresh=1e-4)
            ax.set_title(f"{way} (dashed: trained for the MSE)", fontsize=8)
            ax.set_xlabel("standard deviation of the true parameters", fontsize=7)
            ax.set_ylabel("MSE above the true model's", fontsize=7)
            ax.tick_params(labelsize=6)
        axes[0, 0].legend(fontsize=6)
        save(made, path)

    return draw
