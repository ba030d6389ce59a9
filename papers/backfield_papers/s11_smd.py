"""[S11] Table 3, its rows for the MSE, with the paper's optimiser: stochastic meta-descent.

Gains are tuned as the paper says, by a grid on other models (seed 1): each training loss by its own value on the training
samples after ``TUNING`` passes. The last weights are taken, as nothing in the paper says otherwise.

# Differs from [S11]: second derivatives are differences of gradients, not exact. One start, the small one, for all runs.
"""

from __future__ import annotations

import itertools
import time
from typing import Any

import numpy as np

from backfield.errors import InputError
from backfield.learners import SMD
from backfield_papers import _random_models as models
from backfield_papers._base import Context, Outcome, experiment
from backfield_papers._model_problem import LIKELIHOOD, ModelProblem
from backfield_papers._random_models import BATCH, EPOCHS, IN, LOSSES, MODELS, START, Sizes, random_truth
from backfield_papers.s11_tables import PAPER_LOGL, QUICK_MODELS, SEED, TABLE3, Run, assessed, compared

TUNED_ON, TUNING = (Sizes(50, 100), Sizes(50, 200)), 8
GRID = {"eta0": (0.02, 0.1, 0.5), "mu": (0.02, 0.1), "lambda_": (0.0, 0.95)}
WAYS = {"APPR-LOGL": "", "frac-MSE": "in"}


@experiment("s11-smd", "Loss above the true model's, trained by stochastic meta-descent")
def run(context: Context) -> Outcome:
    """Tune, then train on every model."""
    points = [dict(zip(GRID, values, strict=True)) for values in itertools.product(*GRID.values())]
    points = points[:2] if context.quick else points
    tuning = {f"tuning {loss} {point}": (loss, point, context.quick) for loss in WAYS for point in points}
    values = context.cells(tuning, tune)
    left_out = [key for key in tuning if key not in values]
    gains = {loss: min(points, key=lambda p: values.get(f"tuning {loss} {p}", np.inf)) for loss in WAYS}
    sizes = QUICK_MODELS if context.quick else MODELS
    tasks = {f"{loss} {s.n}-{s.edges}": (s, loss, gains, context.quick) for s in sizes for loss in WAYS}
    cells = context.cells(tasks, measure) if not left_out else {}
    left_out += [key for key in tasks if key not in cells]
    rows = []
    done = [s for s in sizes if all(f"{loss} {s.n}-{s.edges}" in cells for loss in WAYS)]
    for test in ("frac-MSE", "APPR-LOGL") if done else ():
        found = {loss: [cells[f"{loss} {s.n}-{s.edges}"]["delta"][test] for s in done] for loss in WAYS}
        paper = {"APPR-LOGL": PAPER_LOGL[test], "frac-MSE": TABLE3["frac-MSE"]["in"][0] if test == "frac-MSE" else None}
        for loss, each in found.items():
            row = {"test": test, "train": loss, "paper": paper[loss], "ours": float(np.mean(each))}
            if loss != "APPR-LOGL":
                base = found["APPR-LOGL"]
                row |= {"times smaller": float(np.mean(base) / np.mean(each)), **compared(each, base)}
            rows.append({**row, "models": len(done), "each": [round(value, 6) for value in each]})
    settings = {"seed": SEED, "gains": gains, "grid": GRID, "tuned on": [f"{s.n}-{s.edges}" for s in TUNED_ON]}
    return Outcome(settings | {"passes": EPOCHS, "in": IN, "batch": BATCH, "left_out": left_out}, rows)


def descend(problem: ModelProblem, loss: str, w: np.ndarray, passes: int, gains: dict[str, float], seed: int) -> np.ndarray:
    """Return what some passes of meta-descent make of w."""
    learner = SMD(epochs=passes, batch_size=BATCH, **gains)  # type: ignore[arg-type]
    return learner.fit(problem.minimising(loss), w, seed=seed).w


def tune(loss: str, gains: dict[str, float], quick: bool) -> float:
    """Return the mean training loss of a point of the grid; a large number where it diverges."""
    values = []
    for sizes in QUICK_MODELS[:1] if quick else TUNED_ON:
        truth = random_truth(sizes, SEED + 1, 40 if quick else 1000)
        problem = ModelProblem(truth.edges, truth.train, 100)
        start = START * np.random.default_rng(SEED + 1).normal(size=problem.n_weights)
        try:
            w = descend(problem, LOSSES[loss], start, 1 if quick else TUNING, gains, SEED)
            values.append(problem.minimising(LOSSES[loss]).value_and_gradient(w).value)
        except InputError:  # the objective was not finite
            values.append(1e9)
    return float(np.mean(values))


def measure(sizes: Sizes, loss: str, gains: dict[str, dict[str, float]], quick: bool) -> dict[str, Any]:
    """Train one model for one loss."""
    count, epochs = (40, 2) if quick else (1000, EPOCHS)
    start = time.process_time()
    problem = ModelProblem((truth := random_truth(sizes, SEED, count)).edges, truth.train, 100)
    w = models.START * np.random.default_rng(SEED).normal(size=problem.n_weights)
    done = 0
    if "in" in WAYS[loss]:
        done = min(IN, epochs - 1)
        w = descend(problem, LIKELIHOOD, w, done, gains["APPR-LOGL"], 0)
    w = descend(problem, LOSSES[loss], w, epochs - done, gains[loss], done)
    found = assessed(problem, w, sizes, Run(loss, WAYS[loss]), count)
    return {**found, "seconds": round(time.process_time() - start, 1)}
