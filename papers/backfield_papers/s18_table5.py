"""[S18] Table 5: time of training with Gumbel reduction (GR) and dynamic cuts (DC), together, alone and without both.

All four variants take the same steps of double SGD (one image, fresh noise, step 1 / (lambda h), from w = 0), so their
weights agree to rounding. Seconds are those of the processor: for "calculating all y_B*" as in the paper, and for all of
training (scores, noise, the cut for y_A*, the gradient, the step). "basic" and "GR" solve every cut from no flow, in
compiled code on arrays that are used again, as "DC" does from the last flow.
"""

from __future__ import annotations

import time
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from backfield.estimators import GraphCRF
from backfield.objectives import MarginalPerturbAndMap
from backfield_papers import _horse_regions as regions
from backfield_papers._base import Context, Outcome, experiment, figure, save

VARIANTS = {
    "basic": {"reduction": False, "dynamic": False},
    "DC": {"reduction": False},
    "GR": {"dynamic": False},
    "DC+GR": {},
}
#: What is timed -> what it is called.
TIMES = {"fixed": "seconds for all y_B*", "whole": "seconds of training"}
#: Seconds in [S18] Table 5.
PAPER = {
    "basic": {100: 0.9, 1000: 9.2, 10_000: 89.5, 100_000: 900.0, 1_000_000: 8993.0},
    "DC": {100: 0.7, 1000: 6.9, 10_000: 69.0, 100_000: 696.0, 1_000_000: 7171.0},
    "GR": {100: 0.3, 1000: 2.1, 10_000: 15.5, 100_000: 133.4, 1_000_000: 1186.0},
    "DC+GR": {100: 0.2, 1000: 1.5, 10_000: 10.9, 100_000: 83.5, 1_000_000: 727.0},
}
#: What is read off each run: one of 100 000 iterations, and one of a million.
COUNTS = ((100, 1000, 10_000, 100_000), (1_000_000,))
QUICK = ((100,),)
L2 = 1e-3
METHOD = "w.m. perturb&MAP"


def _key(name: str, counts: tuple[int, ...]) -> str:
    return f"{name}, {counts[-1]} iterations"


def _lacks(found: dict[str, Any]) -> list[str]:
    """Return the runs that a result of older sources does not have; its "basic" was not compiled."""
    there = {row["iterations"] for row in found["rows"]}
    return [_key(name, counts) for counts in COUNTS if counts[-1] not in there for name in VARIANTS]


@experiment("s18-table5", "Time of marginal perturb-and-MAP with dynamic cuts and Gumbel reduction", lacks=_lacks)
def run(context: Context) -> Outcome:
    """Train each variant on the same steps; the longest run is one of its own, so that the others need not wait for it."""
    data = regions.load(context)
    rows: list[dict[str, Any]] = []
    left_out: list[str] = []
    times: dict[str, list[float]] = {}
    for options in () if context.so_far else VARIANTS.values():
        _train(options, data, 1)  # compiles
    for counts in QUICK if context.quick else COUNTS:
        epochs = counts[-1] // len(data.small)
        tasks = {_key(name, counts): options for name, options in VARIANTS.items()}
        left_out += [key for key in tasks if not context.wanted(key)]
        if all(map(context.wanted, tasks)):
            cells = [context.cell(key, partial(_train, options, data, epochs)) for key, options in tasks.items()]
            found = dict(zip(VARIANTS, cells, strict=True))
            rows += _rows(counts, found, len(data.small))
            times = {name: found[name]["fixed"] for name in VARIANTS}
    settings = {"images": len(data.small), "l2": L2, "learner": _learner(1), "seeds": [0], "left_out": left_out}
    return Outcome(settings, rows, {"s18-table5.png": lambda path: _draw(path, times, len(data.small))})


def _rows(counts: tuple[int, ...], found: dict[str, dict[str, Any]], per_epoch: int) -> list[dict[str, Any]]:
    """Return seconds and factors at some numbers of iterations, and how far weights are apart at the last."""
    rows: list[dict[str, Any]] = []
    for count, name, (part, what) in product(counts, VARIANTS, TIMES.items()):
        seconds, basic = (found[each][part][count // per_epoch - 1] for each in (name, "basic"))
        paper = PAPER[name][count] if part == "fixed" else None
        ratio = None if paper is None else PAPER["basic"][count] / paper
        row = {"iterations": count, "method": name}
        rows.append({**row, "what": what, "paper": paper, "ours": seconds})
        faster = what.replace("seconds", "times faster than basic,")
        rows.append({**row, "what": faster, "paper": ratio, "ours": basic / seconds})
    weights = np.array(found["basic"]["weights"])
    for name in ("DC", "GR", "DC+GR"):
        apart = float(np.abs(np.array(found[name]["weights"]) - weights).max() / np.abs(weights).max())
        row = {"iterations": counts[-1], "method": name, "what": "largest difference of a weight from basic, relative"}
        rows.append({**row, "paper": None, "ours": apart})
    return rows


def _learner(epochs: int) -> str:
    return f"sgd(epochs={epochs}, schedule='lambda', average=True, projection='supermodular')"


class _Timed(MarginalPerturbAndMap):
    """The objective, with a clock around the problems with one label fixed."""

    def clock(self, seconds: list[float]) -> _Timed:
        """Add what they take to ``seconds``."""
        object.__setattr__(self, "_seconds", seconds)
        return self

    def _forced(self, *parts: Any) -> Any:
        begin = time.process_time()
        found = super()._forced(*parts)
        self._seconds[0] += time.process_time() - begin  # type: ignore[attr-defined]
        return found


def _train(options: dict[str, bool], data: regions.Horses, epochs: int) -> dict[str, Any]:
    """Return the processor's seconds up to the end of each epoch (one step per image), and the weights."""
    fixed = [0.0]
    loss = _Timed(solver="graph_cut", **options).clock(fixed)
    model = GraphCRF(
        loss=loss, learner=_learner(epochs), l2=L2, start="zero", dtype="float64", class_weight="balanced", n_jobs=1
    )
    seconds: dict[str, list[float]] = {"fixed": [], "whole": []}
    begin = time.process_time()

    def note(*_: Any) -> None:
        seconds["fixed"].append(fixed[0])
        seconds["whole"].append(time.process_time() - begin)

    model.fit(regions.samples_of(METHOD, data.small), [horse.labels for horse in data.small], callbacks=[note])
    return {**seconds, "weights": model.weights_.tolist()}


def _draw(path: Path, times: dict[str, list[float]], per_epoch: int) -> None:
    made, axes = figure(1, 1, width=4.5, height=3.2)
    for name, seconds in times.items():
        axes[0, 0].loglog(
            per_epoch * (1 + np.arange(len(seconds))), seconds, label=name, marker="." if len(seconds) < 9 else None
        )
    axes[0, 0].set(xlabel="iterations", ylabel="seconds for all y_B*")
    axes[0, 0].legend(fontsize=8)
    axes[0, 0].grid(alpha=0.3)
    save(made, path)
