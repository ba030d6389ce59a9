"""Labelled examples in whatever form they lie on disk: a folder of images, an ``.npz`` file, a column file."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from backfield.data.formats.columns import read_column_file
from backfield.data.formats.images import DONT_CARE, read_image_folder
from backfield.data.formats.npz import read_npz
from backfield.data.packed import is_packed, open_shards
from backfield.data.sequences import select
from backfield.errors import InputError

#: Endings of column files; a name without an ending is one, too.
COLUMN_ENDINGS = ("", ".txt", ".conll", ".col", ".columns", ".tsv", ".iob", ".iob2", ".bio", ".data", ".train", ".test")


@dataclass(frozen=True)
class Data:
    """Examples as they are on disk, before features are made of them.

    Attributes
    ----------
    path : where they came from
    format : ``images``, ``arrays``, ``columns`` or ``packed``
    kind : ``grid`` or ``chain``
    names : of the examples, for messages and for files of predictions
    inputs : images (H, W, C), arrays (T, F) or lists of tokens; packed: what an estimator takes, read when asked for
    labels : masks (H, W), labels (T,) or ``None``; -1 = hidden
    edges : (horizontal, vertical) edge features of the images, where the file has them
    preprocessing : of packed examples: how their features were made
    """

    path: Path
    format: str
    kind: str
    names: list[str]
    inputs: Sequence[Any]
    labels: Sequence[np.ndarray] | None
    edges: list[tuple[np.ndarray, np.ndarray]] | None = None
    preprocessing: dict[str, Any] | None = None

    def __len__(self) -> int:
        return len(self.inputs)

    def part(self, numbers: Iterable[int]) -> Data:
        """Return some of the examples."""
        chosen = [int(k) for k in numbers]

        fields = {key: getattr(self, key) for key in ("names", "inputs", "labels", "edges")}
        return replace(self, **{key: select(value, chosen) for key, value in fields.items() if value is not None})

    @property
    def unit(self) -> tuple[str, str]:
        """What an example and one of its variables are called."""
        if self.kind == "grid":
            return "image", "pixel"
        if self.kind == "graph":
            return "graph", "variable"
        columns = self.format == "columns" or (self.preprocessing or {}).get("format") == "columns"
        return ("sentence", "token") if columns else ("chain", "position")


def read_data(path: str | Path, with_labels: bool = True, n_columns: int | None = None, lazy: bool = False) -> Data:
    """Read examples.

    Parameters
    ----------
    path
        A folder with ``images/`` and ``masks/``, an ``.npz`` (see ``backfield.data.formats.npz``), a CoNLL column file, or a
        packed folder.
    with_labels
        Labels must be there. Else they are not looked at, and need not be.
    n_columns
        Columns of features in a column file; ``None``: all but the last.
    lazy
        Images are read when they are asked for; packed examples always are.
    """
    path = Path(path)
    if is_packed(path):
        return _packed(path, with_labels)
    if path.is_dir():
        folder = read_image_folder(path, with_labels, lazy)
        return Data(path, "images", "grid", folder.names, folder.images, folder.masks)
    if not path.exists():
        raise InputError(f"{path}: there is no such file or folder.")
    ending = path.suffix.lower()
    if ending == ".npz":
        arrays = read_npz(path, with_labels)
        names = [f"example {k}" for k in range(len(arrays.inputs))]
        return Data(path, "arrays", arrays.kind, names, arrays.inputs, arrays.labels, arrays.edges)
    if ending not in COLUMN_ENDINGS:
        raise InputError(
            f"{path}: unknown type of file {ending!r}; data are a folder with images/ and masks/, an .npz file, or a CoNLL "
            "column file (.txt, .conll, .tsv, ...)."
        )
    file = read_column_file(path, n_columns, with_labels)
    labels = None if file.labels is None or not with_labels else [np.array(each) for each in file.labels]
    names = [f"sentence {k + 1}" for k in range(len(file.sentences))]
    return Data(path, "columns", "chain", names, file.sentences, labels)


def _packed(path: Path, with_labels: bool) -> Data:
    shards = open_shards(path)
    if with_labels and shards.y is None:
        raise InputError(f"{path} was packed without labels.")
    labels = shards.y if with_labels else None
    return Data(path, "packed", shards.kind, shards.names, shards.X, labels, preprocessing=shards.preprocessing)


def check_labels(data: Data, n_labels: int | None = None) -> None:
    """Refuse labels from which nothing can be learned, and those beyond ``n_labels`` classes."""
    assert data.labels is not None
    if n_labels is not None:
        if data.labels[0].dtype.kind == "U":
            raise InputError(f"{data.path}: its labels are texts, which need no number of labels.")
        _check_known(data, np.arange(n_labels), f"the {n_labels} classes 0 .. {n_labels - 1}")
    seen = classes_of(data)
    variable = data.unit[1]
    if len(seen) == 0:
        raise InputError(f"{data.path}: there is nothing to learn from: all labels are hidden{_how_hidden(data)}.")
    if len(seen) == 1 and n_labels is None:
        hint = "; 255 = don't care: a mask of 0 and 255 has one class" if data.format == "images" else ""
        hint += "" if seen.dtype.kind == "U" else " (--labels N says that there are N)"
        raise InputError(
            f"{data.path}: every labelled {variable} is of class {seen[0]}, so there is nothing to tell apart{hint}."
        )


def check_classes(data: Data, classes: np.ndarray) -> None:
    """Refuse labels that a model has not seen in training."""
    assert data.labels is not None
    if (data.labels[0].dtype.kind == "U") != (classes.dtype.kind == "U"):
        raise InputError(f"{data.path}: the labels of the data and of the model are not of one kind: texts and numbers.")
    shown = ", ".join(str(c) for c in classes[:12]) + (", ..." if len(classes) > 12 else "")
    _check_known(data, classes, f"the classes seen in training ({shown}); --allow-unseen counts such labels as errors")
    if len(classes_of(data)) == 0:
        raise InputError(f"{data.path}: there is nothing to evaluate: all labels are hidden{_how_hidden(data)}.")


def classes_of(data: Data) -> np.ndarray:
    """Return the labels that occur, sorted; hidden is none."""
    assert data.labels is not None
    return np.unique(np.concatenate([np.unique(_known(each)) for each in data.labels]))


def _check_known(data: Data, classes: np.ndarray, what: str) -> None:
    assert data.labels is not None
    for name, each in zip(data.names, data.labels, strict=True):
        known = _known(each)
        strange = known[~np.isin(known, classes)]
        if len(strange):
            at = tuple(int(i) for i in np.argwhere(each == strange[0])[0])
            where = f"masks/{name}, row {at[0]}, column {at[1]}" if data.format == "images" else f"{name} at {at}"
            raise InputError(f"{data.path}: {where} has the label {strange[0]}, which is not among {what}.")


def _known(labels: np.ndarray) -> np.ndarray:
    return labels[labels != ("" if labels.dtype.kind == "U" else -1)]


def _how_hidden(data: Data) -> str:
    return f" ({DONT_CARE})" if data.format == "images" else " (-1)"
