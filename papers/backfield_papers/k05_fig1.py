"""[K05] Figure 1: parameters, approximate gradients and training errors along the ascent, for PMA, SPA and MMA."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from backfield_papers._base import Context, Outcome, experiment, figure, save
from backfield_papers._fields import field, flat, noisy, samples

SEED = 0
#: Panels: method, seed of the random starting point, step and steps.
RUNS = {
    "PMA": ("PMA", 0, 0.5, 1000),
    "SPA-1": ("SPA", 0, 0.5, 400),
    "SPA-2": ("SPA", 1, 0.5, 400),
    "MMA": ("MMA", 0, 0.5, 400),
}


@experiment("k05-fig1", "Parameters, approximate gradients and errors along the ascent")
def run(context: Context) -> Outcome:
    """Ascend from random values under bimodal noise."""
    n_train, size = (3, 32) if context.quick else (10, 64)
    traces = {name: context.cell(name, _trace(name, n_train, size, context)) for name in RUNS}
    rows: list[dict[str, Any]] = []
    for name, trace in traces.items():
        errors, norms = np.array(trace["errors"]), np.array(trace["norms"])
        shown = {"run": name, "iterations": len(errors) - 1}
        facts = {
            "fewest training errors": int(errors.min()),
            "errors at the end": int(errors[-1]),
            "norm of the gradient at the end": float(norms[-1]),
            # [K05] Lemma 1: few errors, small gradient; the rank correlation says how closely.
            "rank correlation of errors and norm": float(_rank_correlation(errors, norms)),
            "sign changes of the gradient of w0": int((np.diff(np.sign(trace["g0"])) != 0).sum()),
        }
        rows += [{**shown, "what": what, "paper": None, "ours": value} for what, value in facts.items()]
    settings = {"seed": SEED, "noise": "bimodal", "n_train": n_train, "size": size, "start": "standard normal", "runs": RUNS}
    return Outcome(settings, rows, {"k05-fig1.png": _picture(traces)})


def _trace(name: str, n_train: int, size: int, context: Context) -> Callable[[], dict[str, Any]]:
    def compute() -> dict[str, Any]:
        method, seed, step, steps = RUNS[name]
        data = noisy("bimodal", n_train, 1, size, SEED)
        steps = 40 if context.quick else steps
        learner = f"ascent(max_iter={steps}, step_size={step}, cycles=0, tol=0.0)"
        crf = field(method, learner=learner, start="random", random_state=seed, n_jobs=context.n_jobs)
        crf.fit(samples(data.train), flat(data.train_masks))
        count = n_train * size * size
        w, g = np.array([row["w"] for row in crf.trace_]), np.array([row["gradient"] for row in crf.trace_])
        return {
            "w0": w[:, 1].tolist(), "w1": w[:, 0].tolist(),  # weights are those of the features, then the constant
            "g0": (-count * g[:, 1]).tolist(), "g1": (-count * g[:, 0]).tolist(),  # sums over pixels, uphill: as in [K05]
            "errors": [round(row["error"] * count) for row in crf.trace_],
            "norms": [count * row["gradient_norm"] for row in crf.trace_],
            "truncated": [row["truncated"] for row in crf.trace_],
        }  # fmt: skip

    return compute


def _rank_correlation(a: np.ndarray, b: np.ndarray) -> float:
    from scipy.stats import spearmanr

    if len(np.unique(a)) < 2 or len(np.unique(b)) < 2:
        return 0.0
    return float(spearmanr(a, b).statistic)


def _picture(traces: dict[str, dict[str, Any]]) -> Callable[[Path], None]:
    def draw(path: Path) -> None:
        keys = {
            "w0": "$w_0$",
            "g0": "gradient of $w_0$",
            "w1": "$w_1$",
            "g1": "gradient of $w_1$",
            "errors": "training errors",
        }
        made, axes = figure(len(keys), len(traces), 2.4, 1.5)
        for column, (name, trace) in enumerate(traces.items()):
            for row, (key, label) in enumerate(keys.items()):
                ax = axes[row, column]
                ax.plot(trace[key], linewidth=0.8)
                ax.tick_params(labelsize=6)
                if column == 0:
                    ax.set_ylabel(label, fontsize=7)
                if row == 0:
                    ax.set_title(name, fontsize=8)
                if row == len(keys) - 1:
                    ax.set_xlabel("iteration", fontsize=7)
        save(made, path)

    return draw
