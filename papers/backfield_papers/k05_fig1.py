"""[K05] Figure 1: parameters, approximate gradients and training errors along the ascent, for PMA, SPA and MMA.

The ascent runs for ``STEPS`` steps, five times as many as are needed to see the first cycles, and says whether it has
settled: from some iteration on, no parameter leaves a band of ``BAND`` times its size (or 1, if that is larger) around its
mean over the last ``TAIL`` of the steps. If it has not, that mean is what the parameters go round, and the rows say how far
they get from it.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from backfield_papers._base import Context, Outcome, experiment, figure, save
from backfield_papers._fields import field, flat, noisy, samples

SEED = 0
#: Panels: method, and seed of the random starting point.
RUNS = {"PMA": ("PMA", 0), "SPA-1": ("SPA", 0), "SPA-2": ("SPA", 1), "MMA": ("MMA", 0)}
STEP = 0.5
STEPS = {"PMA": 5000, "SPA": 2000, "MMA": 2000}
TAIL, BAND = 0.2, 0.01
#: Parameters as the paper names them, by their place among ours: the feature of a term comes before its constant.
PARAMETERS = {"w0": 1, "w1": 0, "v0": 3, "v1": 2}


def _key(name: str) -> str:
    """Return the key of a run's cell; cells of fewer steps had the name alone."""
    return f"{name}, {STEPS[RUNS[name][0]]} steps"


def _lacks(found: dict[str, Any]) -> list[str]:
    """Return all runs of a result of older sources, which had fewer steps."""
    return [] if any("settled" in row for row in found["rows"]) else [_key(name) for name in RUNS]


@experiment("k05-fig1", "Parameters, approximate gradients and errors along the ascent", lacks=_lacks)
def run(context: Context) -> Outcome:
    """Ascend from random values under bimodal noise."""
    n_train, size = (3, 32) if context.quick else (10, 64)
    wanted = [name for name in RUNS if context.wanted(_key(name))]
    traces = {name: context.cell(_key(name), _trace(name, n_train, size, context)) for name in wanted}
    rows: list[dict[str, Any]] = []
    for name, trace in traces.items():
        head = {"run": name, "iterations": trace["iterations"], "settled": trace["settled"] is not None}
        if trace["settled"] is not None:
            rows.append({**head, "what": "settled at iteration", "paper": None, "ours": trace["settled"]})
        rows += [{**head, "what": what, "paper": None, "ours": value} for what, value in trace["facts"].items()]
    settings = {"seed": SEED, "noise": "bimodal", "n_train": n_train, "size": size, "start": "standard normal", "runs": RUNS}
    settings |= {"step": STEP, "steps": STEPS, "tail": TAIL, "band": BAND}
    settings["left_out"] = [_key(name) for name in RUNS if name not in wanted]
    return Outcome(settings, rows, {"k05-fig1.png": _picture(traces)} if traces else {})


def _trace(name: str, n_train: int, size: int, context: Context) -> Callable[[], dict[str, Any]]:
    def compute() -> dict[str, Any]:
        method, seed = RUNS[name]
        data = noisy("bimodal", n_train, 1, size, SEED)
        steps = 40 if context.quick else STEPS[method]
        learner = f"ascent(max_iter={steps}, step_size={STEP}, cycles=0, tol=0.0)"
        crf = field(method, learner=learner, start="random", random_state=seed, n_jobs=context.n_jobs)
        crf.fit(samples(data.train), flat(data.train_masks))
        count = n_train * size * size
        w, g = np.array([row["w"] for row in crf.trace_]), np.array([row["gradient"] for row in crf.trace_])
        g *= -count  # sums over pixels, uphill: as in [K05]
        errors = np.array([round(row["error"] * count) for row in crf.trace_])
        return {
            "iterations": len(w) - 1,
            "settled": settled(w),
            "facts": _facts(w, g, errors),
            **{key: np.round(w[:, PARAMETERS[key]], 4).tolist() for key in ("w0", "w1")},
            **{f"g{key[1]}": np.round(g[:, PARAMETERS[key]], 1).tolist() for key in ("w0", "w1")},
            "errors": errors.tolist(),
        }

    return compute


def settled(w: np.ndarray) -> int | None:
    """Return the iteration from which on no parameter leaves the band around its last mean; None if some do to the end."""
    mean = _tail(w).mean(axis=0)
    outside = (np.abs(w - mean) > BAND * np.maximum(1.0, np.abs(mean))).any(axis=1)
    first = int(np.flatnonzero(outside)[-1]) + 1 if outside.any() else 0
    return first if first <= len(w) - len(_tail(w)) else None


def _tail(along: np.ndarray) -> np.ndarray:
    """Return the last part of a trace."""
    return along[-max(2, round(TAIL * len(along))) :]


def _facts(w: np.ndarray, g: np.ndarray, errors: np.ndarray) -> dict[str, float]:
    """Return what the rows say about a trace."""
    norms = np.linalg.norm(g, axis=1)
    g0 = g[:, PARAMETERS["w0"]]
    facts: dict[str, float] = {
        "fewest training errors": int(errors.min()),
        "errors at the end": int(errors[-1]),
        "errors, mean of the last fifth": float(_tail(errors).mean()),
        "norm of the gradient at the end": float(norms[-1]),
        "norm of the gradient, mean of the last fifth": float(_tail(norms).mean()),
        # [K05] Lemma 1: few errors, small gradient; the rank correlation says how closely.
        "rank correlation of errors and norm": float(_rank_correlation(errors, norms)),
        "sign changes of the gradient of w0": int((np.diff(np.sign(g0)) != 0).sum()),
        "the same, in the last fifth": int((np.diff(np.sign(_tail(g0))) != 0).sum()),
    }
    for name, column in PARAMETERS.items():
        last = _tail(w[:, column])
        facts[f"{name}, mean of the last fifth"] = float(last.mean())
        facts[f"{name}, farthest from that mean in the last fifth"] = float(np.abs(last - last.mean()).max())
    return facts


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
