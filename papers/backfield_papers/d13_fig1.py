"""[D13] Figure 1: test error of the likelihood and of marginal losses on a chain that is misspecified by a shift."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from backfield_papers._base import Context, Outcome, experiment, figure, save
from backfield_papers._shifted_chain import LOSSES, ChainModel, error, random_truth, sample, settings

LENGTH, N_TEST, SEED = 20, 1000, 0
COLOURS = {"likelihood": "C0", "univariate logistic": "C3", "clique logistic": "C2", "truth": "0.6"}


@experiment("d13-fig1", "Test error by loss, shift and amount of data, with exact inference on a chain")
def run(context: Context) -> Outcome:
    """Fit each loss to data of each distribution, size and shift."""
    count, sizes, shifts = (2, [100], [0, 2]) if context.quick else (32, [10, 32, 100, 316, 1000], [0, 1, 2, 3, 5])
    tasks = {f"distribution {number + 1} of {count}": (number, sizes, shifts) for number in range(count)}
    found: dict[tuple[int, int, str], list[float]] = {}
    for errors in context.cells(tasks, _errors).values():
        for shift, size, name, value in errors:
            found.setdefault((shift, size, name), []).append(value)
    rows = [_row(key, values) for key, values in found.items()]
    rows += _claims(found, max(sizes), shifts)
    chosen = settings(length=LENGTH, distributions=count, n_data=sizes, shifts=shifts, n_test=N_TEST)
    chosen["seeds"] = [[SEED, number] for number in range(count)]
    return Outcome(chosen, rows, {"d13-fig1.png": lambda path: _draw(path, found, sizes, shifts)})


def _errors(number: int, sizes: list[int], shifts: list[int]) -> list[tuple[int, int, str, float]]:
    """Return the test errors of one distribution: shift, size, loss, error."""
    rng = np.random.default_rng([SEED, number])
    truth = random_truth(LENGTH, rng)
    test, data = sample(truth, N_TEST, rng), sample(truth, max(sizes), rng)
    found = []
    for shift in shifts:
        for size in sizes:
            moved = data.shifted(shift)
            model = ChainModel(moved.y[:size])
            for name, loss in LOSSES.items():
                found.append((shift, size, name, error(truth, model.fit(moved.x[:size], loss), test, shift)))
            found.append((shift, size, "truth", error(truth, None, test, shift)))
    return found


def _row(key: tuple[int, int, str], values: list[float]) -> dict[str, Any]:
    shift, size, name = key
    spread = float(np.std(values) / np.sqrt(len(values)))
    return {
        "shift": shift,
        "n_data": size,
        "loss": name,
        "paper": None,
        "ours": float(np.mean(values)),
        "standard_error": spread,
    }


def _claims(found: dict[tuple[int, int, str], list[float]], size: int, shifts: list[int]) -> list[dict[str, Any]]:
    """Compare each marginal loss with the likelihood, distribution by distribution, at the largest amount of data."""
    rows = []
    for shift in shifts:
        for name in list(LOSSES)[1:]:
            gap = np.array(found[shift, size, name]) - np.array(found[shift, size, "likelihood"])
            rows.append(
                {
                    "shift": shift,
                    "n_data": size,
                    "loss": f"{name} - likelihood",
                    "paper": "essentially identical" if shift == 0 else "lower",
                    "ours": float(gap.mean()),
                    "standard_error": float(gap.std() / np.sqrt(len(gap))),
                }
            )
    return rows


def _draw(path: Path, found: dict[tuple[int, int, str], list[float]], sizes: list[int], shifts: list[int]) -> None:
    made, axes = figure(1, len(shifts), width=2.6)
    for axis, shift in zip(axes[0], shifts, strict=True):
        for name, colour in COLOURS.items():
            means = [np.mean(found[shift, size, name]) for size in sizes]
            axis.semilogx(sizes, means, "--" if name == "truth" else "o-", color=colour, label=name, markersize=3)
        axis.set(title=f"shift {shift}", xlabel="training examples")
        axis.sharey(axes[0, 0])
    axes[0, 0].set_ylabel("test error")
    made.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=4, fontsize=8)
    save(made, path)
