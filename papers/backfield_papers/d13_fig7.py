"""[D13] Figure 7: error against training time on background images, by the way the gradient is computed.

TRW and the univariate logistic loss: truncated fitting with 5, 10 and 20 sweeps; perturbation and back-propagation with
inference run to thresholds from loose to tight. 100 images to learn from, as in the paper, and 100 others to test on. All
is computed in float64: perturbation takes the difference of nearly equal marginals, and after 60 iterations on 25 images its
gradient at the threshold 1e-4 was 17 times farther from the exact one in float32 (.0021 of its size) than in float64.

Each method runs until L-BFGS ends by its own rule (the gradient is small, or no step lowers the objective, not even along
the gradient after a restart), or until it has had ``BUDGET`` seconds of the processor; rows say which. Weights are kept
during training and their errors measured afterwards, so measuring costs no training time. *learning failed* means that
L-BFGS gave up. Two columns say why it may: *exact gradient* is the norm, at the last weights, of the gradient through
inference run to a threshold of 1e-8, and *gradient - exact* is how far the method's own is from that. Where the second is
larger than the first, the method's gradient need not even point uphill.

# Differs from [D13]: its thresholds are in the picture only; ours are .1 to 1e-4. It does not say what it tests on, nor when
# learning ends.
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

TRUNCATED, THRESHOLDS = (5, 10, 20), (1e-1, 1e-2, 1e-3, 1e-4)
N_TRAIN, N_TEST = 100, 100
DTYPE, L2, LEARNER = "float64", 1e-3, f"lbfgs(max_iter=100000, {d13.PAIRS})"
#: Processor seconds of training that a method has at the most; it ends after the iteration in which they are over.
BUDGET = 1800
#: Weights are kept when so many times more time has passed than at the ones before.
SPACING = 1.2
#: What gradients are compared with.
EXACT = {"inference": "tree_reweighted(n_iter=5000, tol=1e-8)", "gradient": "backpropagation(tol=1e-8)"}
#: An objective that is higher by this share has risen; less is rounding, which the line search allows.
RISE = 1e-6


def _methods(truncated: tuple[int, ...], thresholds: tuple[float, ...]) -> dict[str, tuple[str, str]]:
    """Return inference and gradient of each method."""
    methods = {f"truncated, {n} sweeps": (f"tree_reweighted(n_iter={n})", "truncated") for n in truncated}
    for tol in thresholds:
        inference = f"tree_reweighted(n_iter=1000, tol={tol:g})"
        methods[f"perturbation, {tol:g}"] = (inference, "perturbation")
        methods[f"backpropagation, {tol:g}"] = (inference, f"backpropagation(tol={tol:g})")
    return methods


def _key(name: str) -> str:
    """Return the key of a method's cell; cells of 80 images in float32 had the name alone."""
    return f"{name}, {N_TRAIN} images, {DTYPE}, {BUDGET} s"


def _lacks(found: dict[str, Any]) -> list[str]:
    """Return all cells of a result of older sources: these had fewer images, float32, and less time."""
    if any("converged" in row for row in found["rows"]):
        return []
    return [_key(name) for name in _methods(TRUNCATED, THRESHOLDS)]


@experiment("d13-fig7", "Error against training time: truncated, perturbation, back-propagation", lacks=_lacks)
def run(context: Context) -> Outcome:
    """Train by every method and measure along the way."""
    n_train, n_test = (5, 5) if context.quick else (N_TRAIN, N_TEST)
    images, _, _ = backgrounds.load(context, n_train + n_test)
    order = np.random.default_rng(0).permutation(len(images.X))
    train, test = (images.part(part) for part in np.split(order, [n_train]))
    methods = _methods((5,), (1e-2,)) if context.quick else _methods(TRUNCATED, THRESHOLDS)
    curves = {
        name: context.cell(_key(name), partial(_curve, inference, gradient, train, test, context))
        for name, (inference, gradient) in methods.items()
        if context.wanted(_key(name))
    }
    rows = [_final(name, curve) for name, curve in curves.items()] + _speed(curves)
    chosen = {"images": [len(train.X), len(test.X)], "l2": L2, "dtype": DTYPE, "learner": LEARNER, "seed": 0}
    chosen |= {"budget": BUDGET, "n_jobs": context.n_jobs, "exact": EXACT}
    chosen["left_out"] = [_key(name) for name in methods if name not in curves]
    return Outcome(chosen, rows, {"d13-fig7.png": partial(_draw, curves)})


def _final(name: str, curve: dict[str, Any]) -> dict[str, Any]:
    """Return the row of a method: where it ended, and how."""
    point = curve["points"][-1]
    row = {"method": name, "what": "final test error", "paper": None, "ours": point["test"], "train": point["train"]}
    row |= {"seconds": point["seconds"], "iterations": curve["iterations"], "converged": curve["converged"]}
    row |= {"learning failed": curve["failed"], "restarts": curve["restarts"], "rises": curve["rises"]}
    row |= {"exact gradient": curve["exact"], "gradient - exact": curve["apart"]}
    return {**row, "objective": curve["objective"], "message": curve["message"]}


def _curve(inference: str, gradient: str, train: Images, test: Images, context: Context) -> dict[str, Any]:
    """Return (seconds, train error, test error) along a fit, and how it ended."""
    kept: list[tuple[float, np.ndarray]] = []
    began, late = 0.0, False

    def keep(iteration: int, w: np.ndarray, row: Any) -> bool:
        nonlocal late
        seconds = time.process_time() - began
        if not kept or seconds > SPACING * kept[-1][0]:
            kept.append((seconds, w.copy()))
        late = seconds > BUDGET or (context.quick and iteration >= 5)
        return late

    settings: dict[str, Any] = {
        "inference": inference,
        "gradient": gradient,
        "l2": L2,
        "n_jobs": context.n_jobs,
        "n_labels": 8,
        "dtype": DTYPE,
    }
    model = GridCRF(learner=LEARNER, **settings)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        GridCRF(**{**settings, "learner": "lbfgs(max_iter=1)"}).fit(train.X[:1], train.y[:1])  # compile
        began = time.process_time()
        model.fit(train.X, train.y, callbacks=[keep])
        kept.append((time.process_time() - began, model.weights_.copy()))
        probe = {} if gradient == "truncated" else _probe(settings, train, model.weights_)
        points = []
        for seconds, w in kept:
            model.weights_ = w
            point = {"train": d13.error(model, train), "test": d13.error(model, test)}
            points.append({"seconds": round(seconds, 2), **point})
    objective = np.array([row["objective"] for row in model.trace_])
    return {
        "points": points,
        "objective": float(objective[-1]),
        "message": model.message_,
        "iterations": int(model.trace_[-1]["iteration"]),
        "converged": bool(model.converged_),
        "failed": not (model.converged_ or late),
        "restarts": sum(bool(row.get("restarted")) for row in model.trace_),
        "rises": int((np.diff(objective) > RISE * np.abs(objective[:-1])).sum()),
        "exact": probe.get("exact"),
        "apart": probe.get("apart"),
    }


def _probe(settings: dict[str, Any], train: Images, w: np.ndarray) -> dict[str, float]:
    """Return the size of the exact gradient at ``w`` and how far a method's gradient is from it."""
    found, exact = (
        np.asarray(GridCRF(**each).problem(train.X, train.y).value_and_gradient(w).gradient)
        for each in (settings, {**settings, **EXACT})
    )
    return {"exact": float(np.linalg.norm(exact)), "apart": float(np.linalg.norm(found - exact))}


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
            if curve["failed"]:
                axis.plot(curve["points"][-1]["seconds"], curve["points"][-1][what], "kx", markersize=5)
        axis.set(xscale="log", xlabel="processor seconds of training", ylabel=f"{what} error (x: learning failed)")
    axes[0][1].legend(fontsize=6)
    save(made, path)
