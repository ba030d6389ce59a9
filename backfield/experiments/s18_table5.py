"""[S18] Table 5: time of training with Gumbel reduction (GR) and dynamic cuts (DC), together, alone and without both.

All four variants take the same steps of double SGD (one image, fresh noise, step 1 / (lambda h), from w = 0), so that their
weights agree to rounding. Seconds are those of the processor, for whole steps.

# Differs from [S18]: its seconds are those of the problems with one label fixed alone; these are nearly all of a step.
"""

from __future__ import annotations

import time
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from backfield.estimators import GraphCRF
from backfield.experiments import _horse_regions as regions
from backfield.experiments._base import Context, Outcome, experiment, figure, save

VARIANTS = {
    "basic": "reduction=False, dynamic=False",
    "DC": "reduction=False",
    "GR": "dynamic=False",
    "DC+GR": "",
}
#: Seconds in [S18] Table 5.
PAPER = {
    "basic": {100: 0.9, 1000: 9.2, 10000: 89.5},
    "DC": {100: 0.7, 1000: 6.9, 10000: 69.0},
    "GR": {100: 0.3, 1000: 2.1, 10000: 15.5},
    "DC+GR": {100: 0.2, 1000: 1.5, 10000: 10.9},
}
L2 = 1e-3
METHOD = "w.m. perturb&MAP"


@experiment("s18-table5", "Time of marginal perturb-and-MAP with dynamic cuts and Gumbel reduction")
def run(context: Context) -> Outcome:
    """Train each variant on the same steps."""
    data = regions.load(context)
    counts = [100] if context.quick else [100, 1000, 10000]
    _train("", data, 1, context)  # compiles
    found = {
        name: context.cell(name, partial(_train, options, data, counts[-1] // len(data.small), context))
        for name, options in VARIANTS.items()
    }
    rows: list[dict[str, Any]] = []
    for count in counts:
        at = count // len(data.small) - 1
        ours = {name: found[name]["seconds"][at] for name in VARIANTS}
        for name in VARIANTS:
            what = {"iterations": count, "method": name}
            rows.append({**what, "what": "seconds", "paper": PAPER[name][count], "ours": ours[name]})
            ratio = PAPER["basic"][count] / PAPER[name][count]
            rows.append({**what, "what": "times faster than basic", "paper": ratio, "ours": ours["basic"] / ours[name]})
    basic = np.array(found["basic"]["weights"])
    for name in ("DC", "GR", "DC+GR"):
        apart = float(np.abs(np.array(found[name]["weights"]) - basic).max() / np.abs(basic).max())
        what = {"iterations": counts[-1], "method": name, "what": "largest difference of a weight from basic, relative"}
        rows.append({**what, "paper": None, "ours": apart})
    settings = {"images": len(data.small), "l2": L2, "learner": _learner(counts[-1] // len(data.small)), "seeds": [0]}
    times = {name: found[name]["seconds"] for name in VARIANTS}
    return Outcome(settings, rows, {"s18-table5.png": lambda path: _draw(path, times, len(data.small))})


def _learner(epochs: int) -> str:
    return f"sgd(epochs={epochs}, schedule='lambda', average=True, projection='supermodular')"


def _train(options: str, data: regions.Horses, epochs: int, context: Context) -> dict[str, Any]:
    """Return the processor's seconds at the end of each epoch (one step per image), and the weights."""
    loss = f"marginal_perturb_and_map(solver='graph_cut'{', ' + options if options else ''})"
    model = GraphCRF(
        loss=loss, learner=_learner(epochs), l2=L2, start="zero", dtype="float64", class_weight="balanced", n_jobs=1
    )
    seconds: list[float] = []
    X, y = regions.samples_of(METHOD, data.small), [horse.labels for horse in data.small]
    begin = time.process_time()
    model.fit(X, y, callbacks=[lambda iteration, w, row: seconds.append(time.process_time() - begin)])
    return {"seconds": seconds, "weights": model.weights_.tolist()}


def _draw(path: Path, times: dict[str, list[float]], per_epoch: int) -> None:
    made, axes = figure(1, 1, width=4.5, height=3.2)
    for name, seconds in times.items():
        axes[0, 0].loglog(
            per_epoch * (1 + np.arange(len(seconds))), seconds, label=name, marker="." if len(seconds) < 9 else None
        )
    axes[0, 0].set(xlabel="iterations", ylabel="seconds")
    axes[0, 0].legend(fontsize=8)
    axes[0, 0].grid(alpha=0.3)
    save(made, path)
