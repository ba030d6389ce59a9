"""[S11] Figure 1: losses on lines from the true parameters to others."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from backfield_papers import _random_models as models
from backfield_papers._base import Context, Outcome, experiment, figure, save
from backfield_papers._model_problem import LIKELIHOOD, ModelProblem
from backfield_papers._random_models import SETTINGS, Sizes, random_truth, scores, train

SEED = 0


@experiment("s11-fig1", "Losses on lines from the true parameters to others")
def run(context: Context) -> Outcome:
    """Evaluate all losses between the true parameters (alpha = 0) and random or learned ones (alpha = 1)."""
    sizes, count, points = (Sizes(15, 25), 40, 5) if context.quick else (Sizes(50, 200), 1000, 25)
    truth = random_truth(sizes, SEED, count)
    problem = ModelProblem(truth.edges, truth.train, 100, context.n_jobs)
    alphas = np.linspace(-0.5, 1.5, points)
    start = models.START * np.random.default_rng(SEED).normal(size=problem.n_weights)
    epochs = 3 if context.quick else models.EPOCHS
    ends: dict[str, Callable[[], np.ndarray]] = {
        "random values": lambda: start,
        "one pass of APPR-LOGL": lambda: models.descend(problem, LIKELIHOOD, start, 0, 1),
        "APPR-LOGL": lambda: train(problem, "APPR-LOGL", SEED, "last", epochs),
        "frac-MSE": lambda: train(problem, "frac-MSE", SEED, "in", epochs),
    }

    def line(end: Callable[[], np.ndarray]) -> dict[str, list[float]]:
        w, true = end(), truth.parameters.ravel()
        found = [scores(problem, (1 - a) * true + a * w) for a in alphas]
        return {key: [each[key] for each in found] for key in SETTINGS}

    lines = {name: context.cell(name, lambda end=end: line(end)) for name, end in ends.items()}  # type: ignore[misc]
    rows: list[dict[str, Any]] = []
    for name, curves in lines.items():
        for key, values in curves.items():
            lowest = float(alphas[int(np.argmin(values))])
            rows.append({"towards": name, "loss": key, "what": "alpha of the lowest loss", "paper": None, "ours": lowest})
    settings = {"seed": SEED, "model": f"{sizes.n}-{sizes.edges}", "samples": count, "alphas": alphas.tolist()}
    return Outcome(settings, rows, {"s11-fig1.png": _picture(lines, alphas)})


def _picture(lines: dict[str, dict[str, list[float]]], alphas: np.ndarray) -> Callable[[Path], None]:
    def draw(path: Path) -> None:
        made, axes = figure(2, 2, width=4.2)
        for ax, (name, curves) in zip(axes.ravel(), lines.items(), strict=True):
            other = ax.twinx()
            drawn = []
            for key, values in curves.items():
                side, style = (other, "k--") if key == "APPR-LOGL" else (ax, "-")
                drawn += side.plot(alphas, values, style, label=key)
            ax.set_title(f"alpha = 1: {name}", fontsize=8)
            ax.set_ylabel("F, L1, MSE", fontsize=7)
            other.set_ylabel("APPR-LOGL", fontsize=7)
            for side in (ax, other):
                side.tick_params(labelsize=6)
        for ax in axes[-1]:
            ax.set_xlabel("alpha (0: true parameters)", fontsize=7)
        axes[0, 0].legend(handles=drawn, fontsize=6)
        save(made, path)

    return draw
