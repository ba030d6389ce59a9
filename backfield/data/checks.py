"""Checks of the labels of examples on disk."""

from __future__ import annotations

import numpy as np

from backfield.data.format import Data
from backfield.errors import InputError
from backfield.graph.labeling import is_known


def check_labels(data: Data, n_labels: int | None = None) -> None:
    """Refuse labels from which nothing can be learned, and those beyond ``n_labels`` classes."""
    assert data.labels is not None
    if n_labels is not None:
        if data.labels[0].dtype.kind == "U":
            raise InputError(f"{data.path}: its labels are strings, so it needs no number of labels.")
        _check_known(data, np.arange(n_labels), f"the {n_labels} classes 0 .. {n_labels - 1}")
    seen = classes_of(data)
    variable = data.unit[1]
    if len(seen) == 0:
        raise InputError(f"{data.path}: there is nothing to learn from: all labels are hidden{_how_hidden(data)}.")
    if len(seen) == 1 and n_labels is None:
        hint = "; 255 = don't care: for masks of 0 and 255 use --positive 255" if data.format.hidden == "255" else ""
        hint += "" if seen.dtype.kind == "U" else " (--labels N says that there are N)"
        raise InputError(
            f"{data.path}: every labelled {variable} is of class {seen[0]}, so there is nothing to learn{hint}."
        )


def check_classes(data: Data, classes: np.ndarray) -> None:
    """Refuse labels that a model has not seen in training."""
    assert data.labels is not None
    if (data.labels[0].dtype.kind == "U") != (classes.dtype.kind == "U"):
        raise InputError(f"{data.path}: the data and the model have different types of labels, strings and numbers.")
    shown = ", ".join(str(c) for c in classes[:12]) + (", ..." if len(classes) > 12 else "")
    _check_known(data, classes, f"the classes seen in training ({shown}); --allow-unseen counts such labels as errors")
    if len(classes_of(data)) == 0:
        raise InputError(f"{data.path}: there is nothing to evaluate: all labels are hidden{_how_hidden(data)}.")


def classes_of(data: Data) -> np.ndarray:
    """Return the labels that occur, sorted; hidden is none."""
    assert data.labels is not None
    return np.unique(np.concatenate([np.unique(each[is_known(each)]) for each in data.labels]))


def _check_known(data: Data, classes: np.ndarray, what: str) -> None:
    assert data.labels is not None
    for number, each in enumerate(data.labels):
        known = each[is_known(each)]
        strange = known[~np.isin(known, classes)]
        if len(strange):
            at = tuple(int(i) for i in np.argwhere(each == strange[0])[0])
            raise InputError(
                f"{data.path}: {data.format.place(data, number, at)} has the label {strange[0]}, which is not among {what}."
            )


def _how_hidden(data: Data) -> str:
    return f" ({data.format.hidden})"
