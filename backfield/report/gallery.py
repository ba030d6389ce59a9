"""Test examples of a report: the worst first, with error and uncertainty beside the prediction, and a table that sorts."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from html import escape
from typing import Any, NamedTuple

import numpy as np

from backfield.report.pictures import (
    Picture,
    data_uri,
    error_picture,
    input_picture,
    label_picture,
    marginal_picture,
    reduced,
    uncertainty_picture,
)

#: Examples that are shown with pictures: the worst, and those where a confusion is most frequent.
N_WORST, N_CONFUSED = 12, 8
#: Rows of the table of examples.
MAX_ROWS = 1000


class Example(NamedTuple):
    """One test example: errors by model (nan: no label is known), confusions of the first model, and its pictures."""

    name: str
    errors: Sequence[float]
    #: (true, predicted) position of a class -> number of variables, wrong ones only.
    confusions: dict[tuple[int, int], int]
    pictures: Sequence[Picture] = ()


def confusions_of(truth: np.ndarray, guess: np.ndarray) -> dict[tuple[int, int], int]:
    """Return how often each label was taken for another; positions of classes, -1 = hidden."""
    wrong = (truth != guess) & (truth >= 0)
    pairs, counts = np.unique(np.stack([truth[wrong], guess[wrong]]), axis=1, return_counts=True)
    return {(int(a), int(b)): int(n) for a, b, n in zip(*pairs, counts, strict=True)}


def worst_first(examples: Sequence[Example]) -> list[int]:
    """Return the numbers of the examples, the worst of the first model first; those without labels last."""
    return sorted(range(len(examples)), key=lambda k: (math.isnan(examples[k].errors[0]), -examples[k].errors[0]))


def chosen(examples: Sequence[Example]) -> list[int]:
    """Return the examples that get pictures: the worst, and for the commonest confusions the one that has most of each."""
    order = worst_first(examples)
    found = order[:N_WORST]
    total: dict[tuple[int, int], int] = {}
    for example in examples:
        for cell, n in example.confusions.items():
            total[cell] = total.get(cell, 0) + n
    for cell in sorted(total, key=lambda cell: -total[cell])[:N_CONFUSED]:
        most = max(order, key=lambda k: examples[k].confusions.get(cell, 0))
        found += [most] if most not in found else []
    return sorted(found, key=order.index)


def layers(image: Any, truth: np.ndarray, guesses: dict[str, tuple[np.ndarray, np.ndarray]], classes: Any) -> list[Picture]:
    """Return what can be seen of one image: input, truth, and of each model prediction, errors, marginals, uncertainty.

    ``truth`` and predicted labels are positions of classes (-1: hidden); ``guesses`` has labels and marginals by the name of
    the model, which is "" if there is only one.
    """
    marginal = f"P({classes[1]})" if len(classes) == 2 else "confidence"
    found = [Picture("input", input_picture(image)), Picture("truth", label_picture(truth))]
    for name, (guess, probabilities) in guesses.items():
        of = f" of {name}" if name else ""
        found += [
            Picture(f"prediction{of}", label_picture(guess)),
            Picture(f"errors{of}", error_picture(truth, guess)),
            Picture(f"{marginal}{of}", marginal_picture(probabilities)),
            Picture(f"uncertainty{of}", uncertainty_picture(probabilities)),
        ]
    return [picture._replace(pixels=reduced(picture.pixels)) for picture in found]


def gallery(examples: Sequence[Example]) -> str:
    """Return the rows of pictures, the worst first; a click enlarges one, and arrows flip through its layers."""
    out = ""
    for k in worst_first(examples):
        example = examples[k]
        if not example.pictures:
            continue
        cells = "".join(
            f'<figure><button class=open data-layer="{i}">'
            f'<img src="{data_uri(p.pixels)}" alt="{escape(p.caption)}"></button>'
            f"<figcaption>{escape(p.caption)}</figcaption></figure>"
            for i, p in enumerate(example.pictures)
        )
        head = f"<h3>{escape(example.name)}<span>error {_percent(example.errors)}</span></h3>"
        out += (
            f'<article data-example="{k}">{head}<div class=row style="--n:{len(example.pictures)}">{cells}</div></article>'
        )
    return out and f"<p class=filter hidden><span></span> <button>show all</button></p><div id=gallery>{out}</div>"


def _percent(errors: Sequence[float]) -> str:
    return " and ".join("not known" if math.isnan(error) else f"{100 * error:.1f} %" for error in errors)


def table(examples: Sequence[Example], models: Sequence[str], classes: Sequence[Any]) -> str:
    """Return the table of examples; a click on a heading sorts it."""
    if len(examples) < 2:
        return ""
    heads = [f"error of {name}" for name in models] if len(models) > 1 else ["error"]
    heads += ["difference"] if len(models) == 2 else []
    head = "".join(f"<th class=n data-sort>{escape(name)}</th>" for name in heads)
    rows = ""
    order = worst_first(examples)
    for k in order[:MAX_ROWS]:
        example = examples[k]
        values = [100 * error for error in example.errors]
        values += [values[1] - values[0]] if len(models) == 2 else []
        cells = "".join(f"<td class=n>{'–' if math.isnan(value) else f'{value:.2f} %'}</td>" for value in values)
        worst = max(example.confusions.items(), key=lambda item: item[1], default=None)
        note = "" if worst is None else f"{classes[worst[0][0]]} predicted as {classes[worst[0][1]]}"
        rows += f'<tr data-example="{k}"><td>{escape(example.name)}</td>{cells}<td>{escape(note)}</td></tr>'
    more = f"<p class=note>{len(order) - MAX_ROWS} better examples not shown.</p>" if len(order) > MAX_ROWS else ""
    top = f"<tr><th data-sort>name</th>{head}<th data-sort>most frequent confusion</th></tr>"
    return f"<div class=scroll><table class=sortable><thead>{top}</thead><tbody>{rows}</tbody></table></div>{more}"


def cells(examples: Sequence[Example]) -> str:
    """Return, as JSON for the page's script, the examples that have each confusion, those with most of it first."""
    found: dict[str, list[tuple[int, int]]] = {}
    for k, example in enumerate(examples):
        for (a, b), n in example.confusions.items():
            found.setdefault(f"{a},{b}", []).append((n, k))
    ordered = {cell: [k for _, k in sorted(pairs, reverse=True)] for cell, pairs in found.items()}
    return f'<script type="application/json" id=cells>{json.dumps(ordered, separators=(",", ":"))}</script>'
