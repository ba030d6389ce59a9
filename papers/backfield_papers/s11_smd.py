"""[S11] Table 3, its rows for the MSE, with the paper's optimiser: stochastic meta-descent.

Gains are tuned as the paper says, by a grid on other models (seed 1): each training loss by its own value on the training
samples after all passes. Where the gains are too large for a model, its first gain is halved until its training does not
diverge; cells say how often. The last weights are taken, as nothing in the paper says otherwise.

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
from backfield_papers._model_problem import ModelProblem
from backfield_papers._random_models import BATCH, EPOCHS, IN, LOSSES, MODELS, START, Sizes, random_truth
from backfield_papers.s11_tables import PAPER_LOGL, QUICK_MODELS, SEED, TABLE3, Run, assessed, compared

TUNED_ON = (Sizes(50, 100), Sizes(100, 400))
GRID = {"eta0": (0.02, 0.1, 0.5, 2.0), "mu": (0.02, 0.1), "lambda_": (0.0, 0.95)}
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
            halvings = [cells[f"{loss} {s.n}-{s.edges}"]["halvings"] for s in done]
            rows.append(
                {**row, "models": len(done), "gains halved": sum(halvings), "each": [round(value, 6) for value in each]}
            )
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
        w = _unless_it_diverges(problem, loss, start, 1 if quick else EPOCHS, gains, SEED)
        values.append(1e9 if w is None else problem.minimising(LOSSES[loss]).value_and_gradient(w).value)
    return float(np.mean(values))


def _unless_it_diverges(
    problem: ModelProblem, loss: str, w: np.ndarray, passes: int, gains: dict[str, float], seed: int
) -> np.ndarray | None:
    try:
        with np.errstate(over="ignore", invalid="ignore"):
            w = descend(problem, LOSSES[loss], w, passes, gains, seed)
            return w if np.isfinite(problem.minimising(LOSSES[loss]).value_and_gradient(w).value) else None
    except InputError:  # messages or the objective were not finite
        return None


def halved(
    problem: ModelProblem, loss: str, w: np.ndarray, passes: int, gains: dict[str, float], seed: int
) -> tuple[np.ndarray, int]:
    """Return what some passes make of w, with the first gain halved until they do not diverge, and how often it was."""
    for times in range(12):
        found = _unless_it_diverges(problem, loss, w, passes, {**gains, "eta0": gains["eta0"] / 2**times}, seed)
        if found is not None:
            return found, times
    raise InputError(f"meta-descent on {loss} diverges with every gain that was tried.")


def measure(sizes: Sizes, loss: str, gains: dict[str, dict[str, float]], quick: bool) -> dict[str, Any]:
    """Train one model for one loss."""
    count, epochs = (40, 2) if quick else (1000, EPOCHS)
    start = time.process_time()
    problem = ModelProblem((truth := random_truth(sizes, SEED, count)).edges, truth.train, 100)
    w = models.START * np.random.default_rng(SEED).normal(size=problem.n_weights)
    done, times = 0, 0
    if "in" in WAYS[loss]:
        done = min(IN, epochs - 1)
        w, times = halved(problem, "APPR-LOGL", w, done, gains["APPR-LOGL"], 0)
    w, more = halved(problem, loss, w, epochs - done, gains[loss], done)
    found = assessed(problem, w, sizes, Run(loss, WAYS[loss]), count)
    return {**found, "halvings": times + more, "seconds": round(time.process_time() - start, 1)}
