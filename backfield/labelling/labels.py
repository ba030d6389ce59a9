"""The labels of a session: names and colours, kept in ``labels.json`` of the folder."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from backfield.atomic import write_text
from backfield.errors import InputError
from backfield.limits import parse_json

#: Colours that colour-blind people can tell apart (Okabe and Ito 2008, Tol's "muted" after them).
PALETTE = (
    *("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#f0e442", "#332288"),
    *("#88ccee", "#882255", "#44aa99", "#999933", "#aa4499", "#117733", "#ddcc77", "#cc6677"),
)
#: Labels that a session can have.
MOST = 64
_COLOUR = re.compile(r"#[0-9a-f]{6}")


@dataclass(frozen=True)
class Label:
    """A name and a colour, ``#rrggbb``."""

    name: str
    colour: str


def default_labels(names: Sequence[str], count: int = 0) -> list[Label]:
    """Return labels of these names, and as many more as ``count`` needs, in the colours of the palette."""
    labels: list[Label] = []
    for name in [*names, *(f"class {k}" for k in range(len(names), count))]:
        labels = added(labels, name)
    return labels


def added(labels: list[Label], name: Any, colour: Any = None) -> list[Label]:
    """Return the labels with one more."""
    if len(labels) >= MOST:
        raise InputError(f"a session has at most {MOST} labels.")
    colour = PALETTE[len(labels) % len(PALETTE)] if colour is None else colour
    return [*labels, Label(_name(name, labels), _colour(colour))]


def changed(labels: list[Label], number: Any, name: Any = None, colour: Any = None) -> list[Label]:
    """Return the labels with another name or colour of one."""
    if isinstance(number, bool) or not isinstance(number, int) or not 0 <= number < len(labels):
        raise InputError(f"there is no label {number!r}; there are 0 .. {len(labels) - 1}.")
    label = labels[number]
    others = labels[:number] + labels[number + 1 :]
    if name is not None:
        label = replace(label, name=_name(name, others))
    if colour is not None:
        label = replace(label, colour=_colour(colour))
    return [*labels[:number], label, *labels[number + 1 :]]


def read_labels(path: Path) -> list[Label] | None:
    """Return the labels of a file; None where there is none."""
    try:
        content = parse_json(path.read_text(encoding="utf-8"))
        labels: list[Label] = []
        for each in content["labels"]:
            labels = added(labels, each["name"], each["colour"])
        return labels
    except FileNotFoundError:
        return None
    except (ValueError, LookupError, TypeError) as error:
        raise InputError(f"{path} does not hold labels as this version writes them ({error}).") from error


def write_labels(path: Path, labels: list[Label]) -> None:
    """Write the labels."""
    content = {"labels": [{"name": label.name, "colour": label.colour} for label in labels]}
    write_text(path, json.dumps(content, indent=1, ensure_ascii=False) + "\n")


def check_classes(path: Path, known: np.ndarray) -> None:
    """Refuse a file whose painted pixels hold numbers that are no labels."""
    if known.size and not 0 <= int(known.min()) <= int(known.max()) < MOST:
        raise InputError(f"{path} holds class {known.max()}; a session has at most {MOST} labels.")


def _name(name: Any, others: list[Label]) -> str:
    text = " ".join(name.split()) if isinstance(name, str) else ""
    if not 0 < len(text) <= 60 or not text.isprintable():
        raise InputError(f"the name of a label has 1 to 60 characters, received {str(name)[:80]!r}.")
    if text in [other.name for other in others]:
        raise InputError(f"there is a label {text!r} already.")
    return text


def _colour(colour: Any) -> str:
    if not isinstance(colour, str) or not _COLOUR.fullmatch(colour.lower()):
        raise InputError(f"a colour is #rrggbb, received {str(colour)[:40]!r}.")
    return colour.lower()
