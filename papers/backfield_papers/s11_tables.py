"""[S11] Tables 3 to 6: loss above the true model's by training and test setting, wrong edges, and BP iterations."""

from __future__ import annotations

import functools
import itertools
import time
from typing import Any, NamedTuple

import numpy as np

from backfield.losses._thresholds import balanced_count, expected_count
from backfield_papers import _random_models as models
from backfield_papers._base import Context, Outcome, experiment
from backfield_papers._model_problem import BP, L2, ModelProblem
from backfield_papers._random_models import (
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

SEED = 0
QUICK_MODELS = [Sizes(15, 25), Sizes(18, 36)]
#: Test setting -> training runs beside APPR-LOGL, with the paper's Delta loss and wins-ties-losses.
TABLE3 = {
    "frac-MSE": {"": (0.00482, "5-0-7"), "in": (0.00057, "12-0-0")},
    "int-F": {"hyb": (0.00411, "7-0-5"), "in": (0.00115, "10-1-1"), "hyb-in": (0.00081, "11-0-1")},
    "int-L1": {"hyb": (0.00398, "5-1-6"), "in": (0.00137, "10-2-0"), "hyb-in": (0.00079, "10-2-0")},
}
PAPER_LOGL = {"frac-MSE": 0.0071, "int-F": 0.0117, "int-L1": 0.00751, "APPR-LOGL": -0.31618}
TABLE4_LOGL = (-0.3096, -0.0180, -0.0373, -0.1169)
TABLE4 = {
    "frac-MSE": ((0.00352, 0.00642, 0.00622, 0.01118), (0.00101, 0.00316, 0.00312, 0.00534)),
    "int-F": ((0.01042, 0.01928, 0.01026, 0.02123), (0.00095, 0.00472, 0.00473, 0.00969)),
    "int-L1": ((0.00452, 0.00748, 0.00569, 0.01173), (0.00147, 0.00442, 0.00602, 0.00945)),
}
TABLE5_LOGL = (-0.3161, -0.1823, -0.2422, -0.1104)
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
#: Names of the two baselines: the mean of the likelihood's weights, as of the others, and the last ones.
FAIR, LAST = "APPR-LOGL, averaged", "APPR-LOGL"


class Run(NamedTuple):
    """A way to train."""

    setting: str
    stage: str = ""
    n_iter: int = 100
    mismatch: float = 0.0
    strength: float = 1.0
    schedule: str = "flooding"

    def __str__(self) -> str:
        return " ".join(map(str, self))


def measure(sizes: Sizes, run: Run, quick: bool) -> dict[str, Any]:
    """Train one model in one way; return its losses on the test samples and what they are above the true model's."""
    count, epochs = (40, 3) if quick else (1000, models.EPOCHS)
    start = time.process_time()
    truth = random_truth(sizes, SEED, count, run.strength)
    edges = truth.edges if run.mismatch == 0 else mismatched(truth, run.mismatch, SEED)
    problem = ModelProblem(edges, truth.train, run.n_iter, schedule=run.schedule)
    w = train(problem, run.setting, SEED, run.stage, epochs)
    return {**assessed(problem, w, sizes, run, count), "seconds": round(time.process_time() - start, 1)}


def assessed(problem: ModelProblem, w: np.ndarray, sizes: Sizes, run: Run, count: int) -> dict[str, Any]:
    """Return the losses of parameters on the test samples, and what they are above the true model's."""
    truth = random_truth(sizes, SEED, count, run.strength)
    test = ModelProblem(problem.edges, truth.test, run.n_iter, schedule=run.schedule)
    base, found = _true_scores(sizes, run.n_iter, count, run.strength, run.schedule), scores(test, w)
    b, y = test.marginals(w), truth.test.labels[:, truth.test.labels[0] >= 0]
    gain = f_measures(b, y, expected_count) - f_measures(b, y, balanced_count)
    return {
        "delta": {key: found[key] - base[key] for key in base},
        "loss": found,
        "training loss": problem.minimising(LOSSES[run.setting]).value_and_gradient(w).value,
        "F gained by the expected decoder": [float(gain.mean()), float(gain.std() / np.sqrt(count))],
    }


@functools.lru_cache(maxsize=4)
def _true_scores(sizes: Sizes, n_iter: int, count: int, strength: float, schedule: str) -> dict[str, float]:
    """Return the losses of the true model, with its own structure and the same inference."""
    truth = random_truth(sizes, SEED, count, strength)
    return scores(ModelProblem(truth.edges, truth.test, n_iter, schedule=schedule), truth.parameters.ravel())


class Runs:
    """What each way of training gives on every model: cells that are kept, in one file for all tables.

    Where cells are missing (``--so-far``), a row is about the models that have all that it compares, and says how many.
    """

    def __init__(self, context: Context, runs: list[Run], some: list[Sizes] | None = None) -> None:
        self.context = context
        self.models = QUICK_MODELS if context.quick else some or MODELS
        self.keys = {(s, run): f"{s.n}-{s.edges} {run}" for s in self.models for run in runs}
        self.cells = self.context.cells({key: (*what, context.quick) for what, key in self.keys.items()}, measure)

    def of(self, *runs: Run) -> list[list[dict[str, Any]]]:
        """Return the cells of some ways of training, on the models that have all of them."""
        keys = [[self.keys[sizes, run] for run in runs] for sizes in self.models]
        done = [each for each in keys if all(key in self.cells for key in each)]
        return [[self.cells[each[k]] for each in done] for k in range(len(runs))]

    def rows(self, test: str, trained: dict[str, tuple[Run, Any]], **more: Any) -> list[dict[str, Any]]:
        """Return a row for each way of training (with the paper's figure); all are compared with the first."""
        found = [[cell["delta"][test] for cell in cells] for cells in self.of(*(run for run, _ in trained.values()))]
        return [
            _row(test, name, ours, found[0] if k else None, paper, **more)
            for k, ((name, (_, paper)), ours) in enumerate(zip(trained.items(), found, strict=True))
            if ours
        ]

    def settings(self, **more: Any) -> dict[str, Any]:
        """Return what all tables share."""
        count = 40 if self.context.quick else 1000
        shown = {
            "seed": SEED,
            "models": [f"{m.n}-{m.edges}" for m in self.models],
            "left_out": sorted(set(self.keys.values()) - set(self.cells)),
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
        row |= {"times smaller": float(np.mean(base) / np.mean(found)), **compared(found, base)}
    return {**row, "models": len(found), "each": [round(value, 6) for value in found]}


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


@experiment("s11-table3", "Loss above the true model's, by training and test setting", cells="s11-tables")
def table3(context: Context) -> Outcome:
    """Train for each setting in each way."""
    likelihood, last = Run("APPR-LOGL"), Run("APPR-LOGL", "last")
    ways = {test: {stage: Run(test, stage) for stage in trained} for test, trained in TABLE3.items()}
    runs = Runs(context, [likelihood, last, *(run for trained in ways.values() for run in trained.values())])
    rows = []
    for test, trained in ways.items():
        named = {"-".join(filter(None, (test, stage))): (run, TABLE3[test][stage][0]) for stage, run in trained.items()}
        found = runs.rows(test, {FAIR: (likelihood, None), LAST: (last, PAPER_LOGL[test]), **named})
        for row, (_, wins) in zip(found[2:], TABLE3[test].values(), strict=False):
            row["paper_wins"] = wins
        rows += found
    rows += runs.rows("APPR-LOGL", {FAIR: (likelihood, None), LAST: (last, PAPER_LOGL["APPR-LOGL"])})
    decoded = {FAIR: likelihood, **{f"int-F-{stage}": run for stage, run in ways["int-F"].items()}}
    rows += [_decoders(name, cells) for name, cells in zip(decoded, runs.of(*decoded.values()), strict=True) if cells]
    return Outcome(runs.settings(), rows)


def _series(
    context: Context, name: str, values: dict[Any, int], key: str, paper: dict[str, Any], logl: tuple[float, ...]
) -> Outcome:
    """Return APPR-LOGL against matched training while one thing changes; ``values`` tell their column in the paper."""
    ways = {(value, test): Run(test, BEST[test], **{key: value}) for value in values for test in SETTINGS}
    ways |= {(value, LAST + " last"): Run("APPR-LOGL", "last", **{key: value}) for value in values}
    runs = Runs(context, list(ways.values()))
    rows = []
    for value, at in sorted(values.items(), key=lambda item: item[1]):
        fair, last = ways[value, "APPR-LOGL"], ways[value, LAST + " last"]
        for test in TABLE3:
            base, own = (column[at] for column in paper[test])
            trained = {FAIR: (fair, None), LAST: (last, base), test: (ways[value, test], own)}
            rows += runs.rows(test, trained, **{name: value})
        rows += runs.rows("APPR-LOGL", {FAIR: (fair, None), LAST: (last, logl[at])}, **{name: value})
    return Outcome(runs.settings(), rows)


@experiment("s11-table4", "Loss above the true model's when edges are wrong", cells="s11-tables")
def table4(context: Context) -> Outcome:
    """Exchange a share of the edges."""
    values = {0.2: 1} if context.quick else {0.1: 0, 0.2: 1, 0.3: 2, 0.4: 3}
    return _series(context, "mismatch", values, "mismatch", TABLE4, TABLE4_LOGL)


@experiment("s11-table5", "Loss above the true model's by the number of BP iterations", cells="s11-tables")
def table5(context: Context) -> Outcome:
    """Truncate inference, in training and testing."""
    values = {10: 3} if context.quick else {10: 3, 20: 2, 30: 1, 100: 0}  # what Table 3 trains as well comes last
    return _series(context, "iterations of BP", values, "n_iter", TABLE5, TABLE5_LOGL)


@experiment("s11-table6", "Loss above the true model's for all pairs of training and test settings", cells="s11-tables")
def table6(context: Context) -> Outcome:
    """Test each training run in each setting."""
    ways = {name: Run(name, BEST[name]) for name in SETTINGS}
    runs = Runs(context, list(ways.values()))
    rows = []
    for test in SETTINGS:
        matched = sorted(SETTINGS, key=lambda name: name != test)  # the matched one first: the others are compared with it
        columns = {name: (ways[name], TABLE6[test][SETTINGS.index(name)]) for name in matched}
        rows += runs.rows(test, {FAIR if name == "APPR-LOGL" else name: way for name, way in columns.items()})
    for row in rows:
        row.pop("times smaller", None)
    return Outcome(runs.settings(wins="of a run against the matched one"), rows)
