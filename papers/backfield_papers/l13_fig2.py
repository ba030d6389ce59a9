"""[L13] Figure 2: training and test error against the rounds of learning, by unary (rows) and pairwise (columns) class.

Curves are those of the first seed.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

from backfield_papers import _l13 as l13
from backfield_papers._base import Context, Outcome, experiment, figure, save

SHOWN = ("linear", "boosted_trees", "mlp")


@experiment("l13-fig2", "Learning curves by unary and pairwise function class")
def run(context: Context) -> Outcome:
    """Train each cell, or take the curves that came with the table."""
    names = [l13.DENOISING] + ([l13.HORSES] if context.data is not None else [])
    pairs = [("linear", "linear"), ("mlp", "mlp")] if context.quick else [(u, p) for u in SHOWN for p in l13.CLASSES]
    found, origin = l13.cells(context, [(name, u, p) for name in names for u, p in pairs])
    rows: list[dict[str, Any]] = []
    for (name, unary, pairwise), cell in found.items():
        head = {"data": name, "unary": unary, "pairwise": pairwise}
        for rounds, train, test in cell["curve"]:
            rows.append({**head, "rounds": int(rounds), "train error": train, "paper": None, "ours": test})
    settings = {**l13.settings(names), "ours": "test error", "seeds": 0, "cells": origin}
    curves = {each: cell["curve"] for each, cell in found.items()}
    pictures: dict[str, Any] = {f"l13-fig2-{name}.png": partial(_draw, name, curves) for name in names}
    return Outcome(settings, rows, pictures)


def _draw(name: str, curves: dict[tuple[str, str, str], list[list[float]]], path: Path) -> None:
    """Draw one panel for each unary class, dashed training and solid test errors."""
    unary = [u for u in SHOWN if any(each[:2] == (name, u) for each in curves)]
    made, axes = figure(1, len(unary), width=3.6, height=3.0)
    for axis, u in zip(axes[0], unary, strict=True):
        for k, p in enumerate(l13.CLASSES):
            if (curve := curves.get((name, u, p))) is not None:
                rounds, train, test = zip(*curve, strict=True)
                axis.plot(rounds, test, color=f"C{k}", label=l13.SHORT[p], linewidth=1.3)
                axis.plot(rounds, train, color=f"C{k}", linestyle="--", linewidth=1)
        axis.set(xscale="log", yscale="log", xlabel="rounds", title=f"{l13.SHORT[u]} unary terms")
    axes[0, 0].set_ylabel("error (dashed: training)")
    made.legend(*axes[0, 0].get_legend_handles_labels(), title="pairwise", loc="outside right center", fontsize=8)
    save(made, path)
