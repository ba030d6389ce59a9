"""[D13] Figure 2: exact and predicted marginals for an example input, by loss and shift, trained on 1000 examples."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from backfield_papers._base import Context, Outcome, experiment, figure, save
from backfield_papers._shifted_chain import LOSSES, ChainModel, random_truth, sample, settings, true_marginals
from backfield_papers.d13_fig1 import COLOURS, LENGTH, SEED


@experiment("d13-fig2", "Marginals for an example input by loss and shift")
def run(context: Context) -> Outcome:
    """Fit each loss at each shift and compare its marginals with the truth's."""
    size, shifts = (100, [0, 2]) if context.quick else (1000, [0, 1, 2, 3])
    rng = np.random.default_rng([SEED, 0])
    truth = random_truth(LENGTH, rng)
    test, data = sample(truth, 1000, rng), sample(truth, size, rng)
    exact = true_marginals(truth, test.y)
    example: dict[tuple[int, str], np.ndarray] = {}
    rows: list[dict[str, Any]] = []
    for shift in shifts:
        context.progress(f"shift {shift}")
        wanted = np.roll(exact, shift, axis=1)
        example[shift, "truth"] = wanted[0]
        moved = data.shifted(shift)
        for name, loss in LOSSES.items():
            found = ChainModel(test.y).marginals(ChainModel(moved.y).fit(moved.x, loss))
            example[shift, name] = found[0]
            rows.append(
                {
                    "shift": shift,
                    "loss": name,
                    "what": "mean |marginal - exact| over test inputs",
                    "paper": None,
                    "ours": float(np.abs(found - wanted).mean()),
                    "example": np.round(found[0], 4).tolist(),
                    "exact": np.round(wanted[0], 4).tolist(),
                }
            )
    chosen = settings(length=LENGTH, n_data=size, shifts=shifts, n_test=1000, seeds=[[SEED, 0]])
    return Outcome(chosen, rows, {"d13-fig2.png": lambda path: _draw(path, example, shifts)})


def _draw(path: Path, example: dict[tuple[int, str], np.ndarray], shifts: list[int]) -> None:
    made, axes = figure(1, len(shifts), width=3.0)
    for axis, shift in zip(axes[0], shifts, strict=True):
        for name, colour in reversed(COLOURS.items()):
            style = {"linewidth": 3} if name == "truth" else {"linewidth": 1, "marker": "o", "markersize": 2}
            label = "exact" if name == "truth" else name
            axis.plot(range(1, LENGTH + 1), example[shift, name], color=colour, label=label, **style)
        axis.set(title=f"shift {shift}", xlabel="i", ylim=(0, 1), xticks=range(5, LENGTH + 1, 5))
    axes[0, 0].set_ylabel("p(x_i = 1 | y)")
    made.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=4, fontsize=8)
    save(made, path)
