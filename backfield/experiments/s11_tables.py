"""[S11] Tables 3 to 6: loss above the true model's by training and test setting, wrong edges, and BP iterations."""

from __future__ import annotations

import functools
import itertools
import time
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from backfield.experiments import _random_models as models
from backfield.experiments._base import Context, Outcome, experiment
from backfield.experiments._model_problem import BP, L2, ModelProblem
from backfield.experiments._random_models import (
    LOSSES,
    MODELS,
    SETTINGS,
    Sizes,
    f_measures,
    mismatched,
    random_truth,
    scores,
    train,
)
from backfield.losses._thresholds import balanced_count, expected_count

SEED = 0
QUICK_MODELS = [Sizes(15, 25), Sizes(18, 36)]
#: Test setting -> training runs beside APPR-LOGL, with the paper's Delta loss and wins-ties-losses.
TABLE3 = {
    "frac-MSE": {"": (0.00482, "5-0-7"), "in": (0.00057, "12-0-0")},
    "int-F": {"hyb": (0.00411, "7-0-5"), "in": (0.00115, "10-1-1"), "hyb-in": (0.00081, "11-0-1")},
    "int-L1": {"hyb": (0.00398, "5-1-6"), "in": (0.00137, "10-2-0"), "hyb-in": (0.00079, "10-2-0")},
}
PAPER_LOGL = {"frac-MSE": 0.0071, "int-F": 0.0117, "int-L1": 0.00751, "APPR-LOGL": -0.31618}
TABLE4 = {
    "frac-MSE": ((0.00352, 0.00642, 0.00622, 0.01118), (0.00101, 0.00316, 0.00312, 0.00534)),
    "int-F": ((0.01042, 0.01928, 0.01026, 0.02123), (0.00095, 0.00472, 0.00473, 0.00969)),
    "int-L1": ((0.00452, 0.00748, 0.00569, 0.01173), (0.00147, 0.00442, 0.00602, 0.00945)),
}
TABLE5 = {
    "frac-MSE": ((0.0071, 0.00301, 0.00816, 0.02461), (0.00057, 0.00072, 0.00063, 0.00064)),
    "int-F": ((0.0117, 0.00476, 0.01276, 0.03085), (0.00081, 0.00126, 0.00058, 0.00091)),
    "int-L1": ((0.00751, 0.00344, 0.01087, 0.02984), (0.00079, 0.00101, 0.00078, 0.00096)),
}
TABLE6 = {
    "frac-MSE": (0.00057, 0.00122, 0.00115, 0.0071),
    "int-F": (0.00109, 0.00081, 0.00106, 0.0117),
    "int-L1": (0.00069, 0.00096, 0.00079, 0.00751),
    "APPR-LOGL": (0.11141, 0.16153, 0.1508, -0.31618),
}
BEST = {"frac-MSE": "in", "int-F": "hyb-in", "int-L1": "hyb-in", "APPR-LOGL": ""}


class Run(NamedTuple):
    """A way to train."""

    setting: str
    stage: str = ""
    n_iter: int = 100
    mismatch: float = 0.0


def measure(sizes: Sizes, run: Run, quick: bool) -> dict[str, Any]:
    """Train one model in one way; return its losses on the test samples and what they are above the true model's."""
    count, epochs = (40, 3) if quick else (1000, models.EPOCHS)
    start = time.perf_counter()
    truth = random_truth(sizes, SEED, count)
    edges = truth.edges if run.mismatch == 0 else mismatched(truth, run.mismatch, SEED)
    problem = ModelProblem(edges, truth.train, run.n_iter)
    w = train(problem, run.setting, SEED, run.stage, epochs)
    seconds = time.perf_counter() - start
    test = ModelProblem(edges, truth.test, run.n_iter)
    base, found = _true_scores(sizes, run.n_iter, count), scores(test, w)
    b, y = test.marginals(w), truth.test.labels[:, truth.test.labels[0] >= 0]
    gain = f_measures(b, y, expected_count) - f_measures(b, y, balanced_count)
    return {
        "delta": {key: found[key] - base[key] for key in base},
        "loss": found,
        "training loss": problem.minimising(LOSSES[run.setting]).value_and_gradient(w).value,
        "F gained by the expected decoder": [float(gain.mean()), float(gain.std() / np.sqrt(count))],
        "seconds": round(seconds, 1),
    }


@functools.lru_cache(maxsize=4)
def _true_scores(sizes: Sizes, n_iter: int, count: int) -> dict[str, float]:
    """Return the losses of the true model, with its own structure and the same inference."""
    truth = random_truth(sizes, SEED, count)
    return scores(ModelProblem(truth.edges, truth.test, n_iter), truth.parameters.ravel())


class Runs:
    """What each way of training gives on every model: cells that are kept, in one file for all tables.

    Where cells are missing (``--so-far``), the models that lack one are left out, and the settings say which.
    """

    def __init__(self, context: Context, runs: list[Run]) -> None:
        kept = None if context.partial is None else context.partial.with_name(".s11-tables.cells")
        self.context = replace(context, partial=kept)
        listed = QUICK_MODELS if context.quick else MODELS
        keys = {(sizes, run): f"{sizes.n}-{sizes.edges} {' '.join(map(str, run))}" for sizes in listed for run in runs}
        self.cells = self.context.cells({key: (*what, context.quick) for what, key in keys.items()}, measure)
        self.keys = keys
        self.models = [sizes for sizes in listed if all(keys[sizes, run] in self.cells for run in runs)]
        self.left_out = [f"{sizes.n}-{sizes.edges}" for sizes in listed if sizes not in self.models]

    def of(self, run: Run) -> list[dict[str, Any]]:
        """Return the cells of one way of training."""
        return [self.cells[self.keys[sizes, run]] for sizes in self.models]

    def deltas(self, run: Run, test: str) -> list[float]:
        """Return, for each model, what a training run loses above the true model."""
        return [cell["delta"][test] for cell in self.of(run)]

    def settings(self, **more: Any) -> dict[str, Any]:
        """Return what all tables share."""
        count = 40 if self.context.quick else 1000
        shown = {
            "seed": SEED,
            "models": [f"{m.n}-{m.edges}" for m in self.models],
            "models left out": self.left_out,
            "samples": f"{count} + {count}",
            "seconds of all trainings": round(sum(cell["seconds"] for cell in self.cells.values()), 1),
        }
        learning = {
            "learner": f"sgd(adam, batches of {models.BATCH}, step {models.STEP} / (1 + {models.DECAY} t))",
            "passes": 3 if self.context.quick else models.EPOCHS,
            "in": models.IN,
            "restarts": models.RESTARTS,
            "standard deviation of starts": models.START,
            "step of rough losses": models.ROUGH,
        }
        if len(commits := self.context.commits()) > 1:
            shown["commits_of_cells"] = commits
        return {**shown, **learning, "l2": L2, "inference": BP, "losses": LOSSES, **more}


def compared(ours: list[float], theirs: list[float]) -> dict[str, Any]:
    """Return wins-ties-losses of ours against theirs and the p of a paired permutation test (all signs, one-sided)."""
    difference = np.array(ours) - np.array(theirs)
    tie = np.abs(difference) < 1e-6
    wins = f"{int((difference[~tie] < 0).sum())}-{int(tie.sum())}-{int((difference[~tie] > 0).sum())}"
    signs = np.array(list(itertools.product([-1, 1], repeat=len(difference))))
    p = float((signs @ difference <= difference.sum() + 1e-15).mean())
    return {"wins": wins, "p": p}


def _row(test: str, name: str, found: list[float], base: list[float] | None, paper: Any, **more: Any) -> dict[str, Any]:
    row = {"test": test, "train": name, **more, "paper": paper, "ours": float(np.mean(found))}
    if base is not None:
        row |= compared(found, base)
    return {**row, "each": [round(value, 6) for value in found]}


def _decoders(name: str, cells: list[dict[str, Any]]) -> dict[str, Any]:
    """Return what the decoder of largest expected F gains over the balanced one with the same parameters, on test data."""
    gains = [cell["F gained by the expected decoder"] for cell in cells]
    return {
        "test": "F, expected - balanced",
        "train": name,
        "paper": None,
        "ours": float(np.mean([gain for gain, _ in gains])),
        "wins": f"{sum(gain > 0 for gain, _ in gains)}-{sum(gain == 0 for gain, _ in gains)}-{sum(g < 0 for g, _ in gains)}",
        "worse by more than 2 standard errors": sum(gain < -2 * error for gain, error in gains),
        "each": [round(gain, 6) for gain, _ in gains],
        "balanced": [round(1 - cell["loss"]["int-F"], 5) for cell in cells],
        "expected": [round(1 - cell["loss"]["expected-F"], 5) for cell in cells],
    }


@experiment("s11-table3", "Loss above the true model's, by training and test setting")
def table3(context: Context) -> Outcome:
    """Train for each setting in each way."""
    likelihood = Run("APPR-LOGL")
    runs = Runs(context, [likelihood, *(Run(test, stage) for test, trained in TABLE3.items() for stage in trained)])
    rows = []
    for test, trained in TABLE3.items():
        base = runs.deltas(likelihood, test)
        rows.append(_row(test, "APPR-LOGL", base, None, PAPER_LOGL[test]))
        for stage, (paper, wins) in trained.items():
            found = runs.deltas(Run(test, stage), test)
            rows.append(_row(test, f"{test}-{stage}" if stage else test, found, base, paper, paper_wins=wins))
            rows[-1]["times smaller"] = float(np.mean(base) / np.mean(found))
    rows.append(_row("APPR-LOGL", "APPR-LOGL", runs.deltas(likelihood, "APPR-LOGL"), None, PAPER_LOGL["APPR-LOGL"]))
    rows.append(_decoders("APPR-LOGL", runs.of(likelihood)))
    rows += [_decoders(f"int-F-{stage}", runs.of(Run("int-F", stage))) for stage in TABLE3["int-F"]]
    return Outcome(runs.settings(), rows)


def _series(context: Context, name: str, values: list[Any], key: str, paper: dict[str, Any]) -> Outcome:
    """Return APPR-LOGL against matched training while one thing changes."""
    ways = {(value, test): Run(test, BEST[test], **{key: value}) for value in values for test in SETTINGS}
    runs = Runs(context, list(ways.values())[::-1])  # what Table 3 trains as well comes last
    rows = []
    for value in values:
        for test in TABLE3:
            base = runs.deltas(ways[value, "APPR-LOGL"], test)
            found = runs.deltas(ways[value, test], test)
            number = [0.1, 0.2, 0.3, 0.4].index(value) if key == "mismatch" else [100, 30, 20, 10].index(value)
            rows.append(_row(test, "APPR-LOGL", base, None, paper[test][0][number], **{name: value}))
            rows.append(_row(test, test, found, base, paper[test][1][number], **{name: value}))
            rows[-1]["times smaller"] = float(np.mean(base) / np.mean(found))
    return Outcome(runs.settings(**{name: values}), rows)


@experiment("s11-table4", "Loss above the true model's when edges are wrong")
def table4(context: Context) -> Outcome:
    """Exchange a share of the edges."""
    return _series(context, "mismatch", [0.2] if context.quick else [0.1, 0.2, 0.3, 0.4], "mismatch", TABLE4)


@experiment("s11-table5", "Loss above the true model's by the number of BP iterations")
def table5(context: Context) -> Outcome:
    """Truncate inference, in training and testing."""
    return _series(context, "iterations of BP", [10] if context.quick else [100, 30, 20, 10], "n_iter", TABLE5)


@experiment("s11-table6", "Loss above the true model's for all pairs of training and test settings")
def table6(context: Context) -> Outcome:
    """Test each training run in each setting."""
    runs = Runs(context, [Run(name, BEST[name]) for name in SETTINGS])
    rows = [
        _row(test, name, runs.deltas(Run(name, BEST[name]), test), None, TABLE6[test][at], matched=test == name)
        for test in SETTINGS
        for at, name in enumerate(SETTINGS)
    ]
    return Outcome(runs.settings(), rows)
