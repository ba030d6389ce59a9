"""[S18] Table 2: error on handwritten words (OCR) of a CRF, an S-SVM, perturb-and-MAP and marginal perturb-and-MAP.

"small": train on one of ten folds, test on the other nine; "large": the reverse. The ridge strength of each method and its
passes over the data are chosen together: least error on a fifth of the training words of fold 0 (small: folds 0 to 2) after
training on the rest. The grid grows until the best point lies inside of it. Test words have no part in it.
"""

from __future__ import annotations

from functools import partial
from itertools import product, starmap
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from backfield.datasets import letters
from backfield.estimators import ChainCRF
from backfield_papers._base import Context, Outcome, experiment, figure, need_data, save

#: [S18] Table 2: mean and standard deviation of the error in percent.
PAPER = {
    "small": {"CRF": (19.5, 0.4), "S-SVM+BCFW": (19.5, 0.4), "perturb&MAP": (19.1, 0.3), "marg. perturb&MAP": (19.1, 0.3)},
    "large": {"CRF": (13.1, 0.8), "S-SVM+BCFW": (12.0, 1.1), "perturb&MAP": (12.5, 1.1), "marg. perturb&MAP": (12.8, 1.2)},
}
LOSSES = {
    "CRF": ("surrogate_likelihood", "max_marginal"),
    "S-SVM+BCFW": ("max_margin", "map"),
    "perturb&MAP": ("perturb_and_map", "map"),
    "marg. perturb&MAP": ("marginal_perturb_and_map", "map"),
}
#: First candidates for l2 times the number of letters in training.
RIDGES = {"S-SVM+BCFW": (2.0, 4.0, 8.0), "": (0.5, 1.0, 2.0)}
#: First candidates for the passes over the data; a larger set needs fewer.
PASSES: dict[str, dict[str, tuple[int, ...]]] = {
    "quick": {"CRF": (20,), "": (3,)},
    "small": {"CRF": (40, 80, 160), "S-SVM+BCFW": (10, 20, 40), "": (50, 100, 200)},
    "large": {"CRF": (80, 160), "S-SVM+BCFW": (8, 16), "": (60, 120)},
}
#: How often the grid may grow.
WIDER = 4
_LEARNERS = {
    "CRF": "lbfgs(max_iter={0})",
    "S-SVM+BCFW": "frank_wolfe(epochs={0}, average=True, check_every={0})",
    "": "sgd(epochs={0}, batch_size=10, step_size=20.0, schedule='sqrt', decay=0.05, average=True)",
}


class Choice(NamedTuple):
    """l2 times the number of letters, and passes over the data."""

    strength: float
    passes: int


def learner_of(method: str, passes: int) -> str:
    """Return the learner."""
    return _of(_LEARNERS, method).format(passes)


def _of(table: dict[str, Any], method: str) -> Any:
    return table.get(method, table[""])


def _lacks(found: dict[str, Any]) -> list[str]:
    """Return the choices of a result of older sources that lie at an edge of their grid."""
    at_edge = []
    for name, method in found["settings"]["methods"].items():
        errors = method["held-out error in % by (l2 times letters, passes)"]
        points = [tuple(map(float, key.split(", "))) for key in errors]
        chosen = min(zip(errors.values(), points, strict=True))[1] if points else ()
        if any(value in (min(axis), max(axis)) for value, axis in zip(chosen, zip(*points, strict=True), strict=True)):
            at_edge.append(f"{name}: candidates beyond those of the grid")
    return at_edge


@experiment("s18-table2", "OCR: error by method, trained on one fold or on nine", lacks=_lacks)
def run(context: Context) -> Outcome:
    """Train and test all methods on all folds."""
    data = letters.load(need_data(context, "ocr_letters"))
    sizes, folds = (["small"], [0]) if context.quick else (["small", "large"], list(range(10)))
    rows: list[dict[str, Any]] = []
    chosen: dict[str, Any] = {}
    for size in sizes:
        for method in LOSSES:
            choice, held_out = _choose(context, data, method, size)
            chosen[f"{method}, {size}"] = {
                "learner": learner_of(method, choice.passes),
                "l2 times letters": choice.strength,
                "held-out error in % by (l2 times letters, passes)": held_out,
            }
            errors = []
            for fold in folds:
                compute = partial(_error, context, data, method, *_split(data, size, fold, context), choice)
                errors.append(context.cell(f"{size} {method} fold {fold}", compute))
            paper, spread = PAPER[size][method]
            ours = {"ours": float(np.mean(errors)), "ours_sd": float(np.std(errors)), "folds": [round(e, 3) for e in errors]}
            rows.append({"size": size, "method": method, "what": "error in %", "paper": paper, "paper_sd": spread, **ours})
    settings = {"methods": chosen, "folds": folds, "seeds": [0], "decoders": {m: d for m, (_, d) in LOSSES.items()}}
    return Outcome(settings, rows, {"s18-table2.png": lambda path: _draw(path, rows)})


def _split(data: letters.Letters, size: str, fold: int, context: Context) -> tuple[np.ndarray, np.ndarray]:
    inside, outside = np.flatnonzero(data.folds == fold), np.flatnonzero(data.folds != fold)
    if context.quick:
        inside, outside = inside[:150], outside[:300]
    return (inside, outside) if size == "small" else (outside, inside)


def _choose(context: Context, data: letters.Letters, method: str, size: str) -> tuple[Choice, dict[str, float]]:
    """Return the choice with the least error on words held out from training, and the errors of all."""
    strengths = _of(RIDGES, method)
    if context.quick:
        return Choice(strengths[1], _of(PASSES["quick"], method)[0]), {}

    def held_out(choice: Choice) -> float:
        errors = []
        for fold in range(3 if size == "small" else 1):
            train = np.random.default_rng(fold).permutation(_split(data, size, fold, context)[0])
            fifth = len(train) // 5
            errors.append(_error(context, data, method, train[fifth:], train[:fifth], choice))
        return float(np.mean(errors))

    found: dict[Choice, float] = {}
    passes = _of(PASSES[size], method)
    for _ in range(WIDER + 1):
        for c in starmap(Choice, product(strengths, passes)):
            if c not in found:
                found[c] = context.cell(f"{size} {method} l2 {c.strength:g} passes {c.passes}", partial(held_out, c))
        best = min(found, key=lambda c: found[c])
        wider = _widened(strengths, best.strength), _widened(passes, best.passes)
        if wider == (strengths, passes):
            break
        strengths, passes = wider
    return best, {f"{c.strength:g}, {c.passes}": round(error, 3) for c, error in sorted(found.items())}


def _widened(values: tuple[Any, ...], best: float) -> tuple[Any, ...]:
    """Return sorted candidates with one more at the end where the best is."""
    if best == values[0]:
        return (type(best)(best / 2), *values)
    return (*values, 2 * best) if best == values[-1] else values


def _error(
    context: Context, data: letters.Letters, method: str, train: np.ndarray, test: np.ndarray, choice: Choice
) -> float:
    """Return the share of wrong test letters in percent."""
    loss, decoder = LOSSES[method]
    X, Y = ([part[k] for k in train] for part in (data.words, data.labels))
    l2 = choice.strength / sum(len(y) for y in Y)
    learner = learner_of(method, choice.passes)
    model = ChainCRF(loss=loss, learner=learner, decoder=decoder, l2=l2, n_labels=26, n_jobs=context.n_jobs)
    model.fit(X, Y)
    return 100 * float(1 - model.score([data.words[k] for k in test], [data.labels[k] for k in test]))


def _draw(path: Path, rows: list[dict[str, Any]]) -> None:
    sizes = sorted({row["size"] for row in rows}, reverse=True)
    made, axes = figure(1, len(sizes), width=4.2)
    for axis, size in zip(axes[0], sizes, strict=True):
        some = [row for row in rows if row["size"] == size]
        at = np.arange(len(some))
        axis.bar(
            at - 0.2, [row["paper"] for row in some], 0.38, yerr=[row["paper_sd"] for row in some], label="S18", color="0.7"
        )
        axis.bar(at + 0.2, [row["ours"] for row in some], 0.38, yerr=[row["ours_sd"] for row in some], label="ours")
        axis.set_xticks(at, [row["method"].replace(" ", "\n") for row in some], fontsize=7)
        axis.set(title=size, ylabel="error in %")
    axes[0, 0].legend(fontsize=8, loc="lower right")
    save(made, path)
