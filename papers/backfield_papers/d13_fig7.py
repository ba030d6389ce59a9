"""[D13] Figure 7: error against training time on background images, by the way the gradient is computed.

TRW and the univariate logistic loss: truncated fitting with 5, 10 and 20 sweeps; perturbation and back-propagation with
inference run to thresholds from loose to tight. Weights are kept during training and their errors measured afterwards,
so measuring costs no training time. Time is that of the processor, and each method has ``BUDGET`` seconds of it.
80 images to learn from, 120 others to test on.
"""

from __future__ import annotations

import time
import warnings
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from backfield.errors import ConvergenceWarning
from backfield.estimators import GridCRF
from backfield_papers import _backgrounds as backgrounds
from backfield_papers import _d13 as d13
from backfield_papers._base import Context, Outcome, experiment, figure, save
from backfield_papers._d13 import Images

TRUNCATED, THRESHOLDS = (5, 10, 20), (1e-2, 1e-3, 1e-4)
BUDGET = 240
#: Weights are kept when so many times more time has passed than at the ones before.
SPACING = 1.2


@experiment("d13-fig7", "Error against training time: truncated, perturbation, back-propagation")
def run(context: Context) -> Outcome:
    """Train by every method and measure along the way."""
    images, _, _ = backgrounds.load(context, 10 if context.quick else 200)
    order = np.random.default_rng(0).permutation(len(images.X))
    train, test = (images.part(part) for part in np.split(order, [2 * len(order) // 5]))
    truncated, thresholds = ((5,), (1e-2,)) if context.quick else (TRUNCATED, THRESHOLDS)
    methods = {f"truncated, {n} sweeps": (f"tree_reweighted(n_iter={n})", "truncated") for n in truncated}
    for tol in thresholds:
        inference = f"tree_reweighted(n_iter=1000, tol={tol:g})"
        methods[f"perturbation, {tol:g}"] = (inference, "perturbation")
        methods[f"backpropagation, {tol:g}"] = (inference, f"backpropagation(tol={tol:g})")
    curves = {
        name: context.cell(name, partial(_curve, inference, gradient, train, test, context))
        for name, (inference, gradient) in methods.items()
        if context.wanted(name)
    }
    final = {name: curve["points"][-1] for name, curve in curves.items()}
    rows = [
        {"method": name, "what": "final test error", "paper": None, "ours": point["test"], "train": point["train"],
         "seconds": point["seconds"], "objective": curves[name]["objective"], "message": curves[name]["message"]}
        for name, point in final.items()
    ]  # fmt: skip
    rows += _speed(curves)
    chosen = {"images": [len(train.X), len(test.X)], "l2": 1e-3, "n_jobs": context.n_jobs, "seed": 0, "budget": BUDGET}
    return Outcome(chosen, rows, {"d13-fig7.png": partial(_draw, curves)})


def _curve(inference: str, gradient: str, train: Images, test: Images, context: Context) -> dict[str, Any]:
    """Return (seconds, train error, test error) along a fit."""
    kept: list[tuple[float, np.ndarray]] = []
    began = 0.0

    def keep(iteration: int, w: np.ndarray, row: Any) -> bool:
        seconds = time.process_time() - began
        if not kept or seconds > SPACING * kept[-1][0]:
            kept.append((seconds, w.copy()))
        return seconds > BUDGET

    max_iter = 5 if context.quick else 500
    settings: dict[str, Any] = {
        "inference": inference,
        "gradient": gradient,
        "l2": 1e-3,
        "n_jobs": context.n_jobs,
        "n_labels": 8,
    }
    model = GridCRF(learner=f"lbfgs(max_iter={max_iter}, {d13.PAIRS})", **settings)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        GridCRF(**{**settings, "learner": "lbfgs(max_iter=1)"}).fit(train.X[:1], train.y[:1])  # compile
        began = time.process_time()
        model.fit(train.X, train.y, callbacks=[keep])
        kept.append((time.process_time() - began, model.weights_.copy()))
        points = []
        for seconds, w in kept:
            model.weights_ = w
            point = {"train": d13.error(model, train), "test": d13.error(model, test)}
            points.append({"seconds": round(seconds, 2), **point})
    return {"points": points, "objective": model.trace_[-1]["objective"], "message": model.message_}


def _speed(curves: dict[str, Any]) -> list[dict[str, Any]]:
    """Return how much sooner truncated fitting reaches the final error of the other methods."""
    rows = []
    for name, curve in curves.items():
        if name.startswith("truncated"):
            continue
        goal = curve["points"][-1]
        for other, faster in curves.items():
            reached = [point["seconds"] for point in faster["points"] if point["test"] <= goal["test"]]
            if other.startswith("truncated") and reached:
                ratio = goal["seconds"] / max(reached[0], 1e-3)
                what = f"times sooner at the final error of {name}"
                rows.append({"method": other, "what": what, "paper": None, "ours": ratio, "seconds": reached[0]})
    return rows


def _draw(curves: dict[str, Any], path: Path) -> None:
    made, axes = figure(1, 2, width=4.2, height=3.2)
    for axis, what in zip(axes[0], ("train", "test"), strict=True):
        for name, curve in curves.items():
            style = {"t": "-", "p": "--", "b": ":"}[name[0]]
            axis.plot([p["seconds"] for p in curve["points"]], [p[what] for p in curve["points"]], style, label=name)
        axis.set(xscale="log", xlabel="processor seconds of training", ylabel=f"{what} error")
    axes[0][1].legend(fontsize=6)
    save(made, path)
