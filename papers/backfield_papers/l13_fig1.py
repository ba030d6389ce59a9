"""[L13] Figure 1: the energies learned on denoising data, as functions of their one feature, by function class.

A pixel of label 0 has a feature in [0, .9] and one of label 1 in [.1, 1]; an edge of equal labels one in [0, .8] and one of
different labels in [.2, 1]. So the best functions are flat in the middle and step at these ends, which lines cannot.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from backfield_papers import _l13 as l13
from backfield_papers._base import Context, Outcome, experiment, figure, save

SHOWN = ("linear", "boosted_trees", "mlp")
#: In the middle of the overlap, and where the feature gives the answer away.
AT = {"unary": (0.05, 0.5, 0.95), "pairwise": (0.1, 0.5, 0.9)}


@experiment("l13-fig1", "The learned energies of denoising, by function class")
def run(context: Context) -> Outcome:
    """Train both terms with one class, for each class."""
    found, origin = l13.cells(context, [(l13.DENOISING, c, c) for c in SHOWN])
    functions = {c: {kind: np.array(found[l13.DENOISING, c, c]["functions"][kind]) for kind in AT} for c in SHOWN}
    rows: list[dict[str, Any]] = []
    for c in SHOWN:
        for kind, points in AT.items():
            f = functions[c][kind]
            # u(1) - u(0), and half the gain of equal labels over different ones.
            gain = f[1] - f[0] if kind == "unary" else (f[0] + f[3] - f[1] - f[2]) / 2
            what = "u(x, 1) - u(x, 0)" if kind == "unary" else "[v(x, 0, 0) + v(x, 1, 1) - v(x, 0, 1) - v(x, 1, 0)] / 2"
            for x in points:
                ours = float(np.interp(x, l13.POINTS, gain))
                rows.append({"functions": c, "term": kind, "what": what, "x": x, "paper": None, "ours": round(ours, 3)})
    settings = {**l13.settings([l13.DENOISING]), "seeds": 0, "cells": origin}
    return Outcome(settings, rows, {"l13-fig1.png": lambda path: _draw(path, functions)})


def _draw(path: Path, functions: dict[str, dict[str, np.ndarray]]) -> None:
    made, axes = figure(2, len(SHOWN), width=3.0, height=2.4)
    labels = {"unary": ("y = 0", "y = 1"), "pairwise": ("0, 0", "0, 1", "1, 0", "1, 1")}
    styles = {"unary": (("C0", "-"), ("C1", "-")), "pairwise": (("C0", "-"), ("C2", "--"), ("C3", ":"), ("C1", "-"))}
    for row, (kind, names) in enumerate(labels.items()):
        for axis, c in zip(axes[row], SHOWN, strict=True):
            for values, name, (colour, line) in zip(functions[c][kind], names, styles[kind], strict=True):
                axis.plot(l13.POINTS, values, color=colour, linestyle=line, label=name, linewidth=1.4)
            axis.set_xlim(0, 1)
            if row == 0:
                axis.set_title(l13.SHORT[c], fontsize=10)
        axes[row, 0].set_ylabel("u(x, y)" if kind == "unary" else "v(x, y, y')")
        axes[row, -1].legend(fontsize=7, loc="center left", bbox_to_anchor=(1.0, 0.5))
    for axis in axes[-1]:
        axis.set_xlabel("feature")
    save(made, path)
