"""Words of the OCR data, letter by letter and as chains: what the neighbours of a letter are worth.

Both models are fitted by their likelihood on one fold of [S18] and tested on the other nine; the ridge is that of Table 2.
The picture shows the first test word of each spelling of six to nine letters, whatever became of it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from backfield.datasets import letters
from backfield.estimators import ChainCRF
from backfield_papers._base import Context, Outcome, experiment, figure, need_data, save

#: l2 times the number of letters in training; s18-table2 chose it for its CRF on held-out words.
RIDGE = 1.0
MODELS: dict[str, dict[str, Any]] = {"each letter alone": {"pairwise": "zero"}, "the word as a chain": {}}
N_SHOWN, LENGTHS = 8, range(6, 10)


@experiment("ocr-words", "Handwritten words read letter by letter, and as chains")
def run(context: Context) -> Outcome:
    """Fit both models, count wrong letters and words, and draw some words."""
    data = letters.load(need_data(context, "ocr_letters"))
    train, test = np.flatnonzero(data.folds == 0), np.flatnonzero(data.folds != 0)
    if context.quick:
        train, test = train[:100], test[:200]
    X, Y = ([part[k] for k in train] for part in (data.words, data.labels))
    words, truth = ([part[k] for k in test] for part in (data.words, data.labels))
    l2 = RIDGE / sum(map(len, Y))
    rows: list[dict[str, Any]] = []
    found: dict[str, Any] = {}
    for name, energies in MODELS.items():
        context.progress(name)
        learner = f"lbfgs(max_iter={10 if context.quick else 80})"
        crf = ChainCRF(loss="surrogate_likelihood", inference="exact", learner=learner, l2=l2, n_labels=26, **energies)
        found[name] = crf.fit(X, Y).predict_proba(words)
        wrong = [p.argmax(axis=1) != y for p, y in zip(found[name], truth, strict=True)]
        shares = {"wrong letters": np.concatenate(wrong).mean(), "wrong words": np.mean([each.any() for each in wrong])}
        rows += [{"model": name, "what": f"{key}, %", "paper": None, "ours": 100 * float(v)} for key, v in shares.items()]
    first: dict[bytes, int] = {}
    for k, y in enumerate(truth):
        if len(y) in LENGTHS:
            first.setdefault(y.tobytes(), k)
    shown = list(first.values())[:N_SHOWN]
    settings = {"train": len(train), "test": len(test), "l2": l2, "learner": learner, "shown": [int(test[k]) for k in shown]}
    return Outcome(settings, rows, {"ocr-words.png": lambda path: _draw(path, shown, words, truth, found)})


def _draw(path: Path, shown: list[int], words: Any, truth: Any, found: dict[str, Any]) -> None:
    across, longest = 2, max(len(truth[k]) for k in shown)
    made, axes = figure((len(shown) + across - 1) // across, across, width=4.6, height=1.75)
    for axis in axes.ravel():
        axis.set_axis_off()
    for axis, k in zip(axes.ravel(), shown, strict=False):
        count = len(truth[k])
        strip = np.zeros((18, 10 * count))
        for t, letter in enumerate(words[k]):
            strip[1:17, 10 * t + 1 : 10 * t + 9] = letter.reshape(16, 8)
        axis.imshow(1 - strip, cmap="gray", interpolation="nearest", extent=(0, 10 * count, 18, 0))
        axis.set_xlim(-13, 10 * longest)
        axis.set_ylim(18 + 8 * (1 + len(found)), 0)
        _line(axis, 23, "truth", [chr(97 + y) for y in truth[k]], [None] * count, truth[k])
        for row, (name, marginals) in enumerate(found.items()):
            p = marginals[k]
            guess = p.argmax(axis=1)
            label = "letters" if "alone" in name else "chain"
            _line(axis, 31 + 8 * row, label, [chr(97 + y) for y in guess], p.max(axis=1), guess == truth[k])
    save(made, path)


def _line(axis: Any, y: float, label: str, text: list[str], probability: Any, right: Any) -> None:
    """Write letters under their images: wrong ones in red, with the probability that the model gives them."""
    axis.text(-1, y, label, ha="right", va="center", fontsize=8, color="0.4")
    for t, (letter, p) in enumerate(zip(text, probability, strict=True)):
        colour = "black" if p is None or right[t] else "tab:red"
        axis.text(10 * t + 4, y, letter, ha="center", va="center", fontsize=12, color=colour, family="monospace")
        if p is not None:
            axis.text(10 * t + 7, y + 1, f"{100 * p:.0f}", ha="left", va="center", fontsize=6, color=colour)
