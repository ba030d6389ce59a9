"""What a format is: files or folders that hold examples, for the command line.

A structure lists its formats (``Structure.files``); ``fit``, ``predict``, ``evaluate`` and ``pack`` ask them alone.
Every structure also lies in packed folders, through its codec.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from backfield.data.sequences import select
from backfield.errors import InputError


@dataclass(frozen=True)
class Preprocessing:
    """How features are made, as JSON, so a model file can remember it.

    Attributes
    ----------
    format : name of the format of the data
    features, edges : of images (see ``backfield.data.pixels``); empty for others
    thresholds : kind of edge feature -> thresholds, chosen from the training images
    templates : windows of column files, lists of (column, offset)
    n_columns : columns of features in a column file
    patterns : lines of a template file of CRF++ or Wapiti, in the place of windows
    n_labels : classes of the nodes of graphs
    positive : number in masks that is class 1, where all others are class 0
    """

    format: str
    features: str = ""
    edges: str = ""
    thresholds: dict[str, list[float]] | None = None
    templates: list[list[list[int]]] | None = None
    n_columns: int | None = None
    patterns: list[str] | None = None
    n_labels: int | None = None
    positive: int | None = None

    def as_json(self) -> dict[str, Any]:
        """Return what a model file keeps."""
        return {key: value for key, value in asdict(self).items() if value not in (None, "")}

    @classmethod
    def from_json(cls, content: Any) -> Preprocessing:
        """Read back what :meth:`as_json` gave."""
        known = {field.name for field in fields(cls)}
        if not isinstance(content, dict) or "format" not in content or not set(content) <= known:
            raise InputError("this version does not know how the features of the model are made.")
        return cls(**content)

    def __call__(self, data: Data) -> Any:
        """Return X for an estimator."""
        return data.format.inputs(data, self)


@dataclass(frozen=True)
class Data:
    """Examples as they are on disk, before features are made of them.

    Attributes
    ----------
    path : where they came from
    format : how they lie there
    names : of the examples, for messages and for files of predictions
    inputs : entries as the format has them, such as images (H, W, C) or lists of tokens; lazy ones are read on demand
    labels : one array per example, -1 or "" = hidden; or ``None``
    edges : (horizontal, vertical) edge features of images, where the file has them
    preprocessing : of packed examples: how their features were made
    structure : name of the structure that the examples have
    unit : what an example and one of its variables are called
    """

    path: Path
    format: Format
    names: list[str]
    inputs: Sequence[Any]
    labels: Sequence[np.ndarray] | None
    edges: list[tuple[np.ndarray, np.ndarray]] | None = None
    preprocessing: dict[str, Any] | None = None
    structure: str = ""
    unit: tuple[str, str] = ("example", "variable")

    def __len__(self) -> int:
        return len(self.inputs)

    def part(self, numbers: Iterable[int]) -> Data:
        """Return some of the examples."""
        chosen = [int(k) for k in numbers]
        fields = {key: getattr(self, key) for key in ("names", "inputs", "labels", "edges")}
        return replace(self, **{key: select(value, chosen) for key, value in fields.items() if value is not None})


class Format:
    """A kind of file or folder that holds examples of a structure."""

    #: Goes into model files.
    name: ClassVar[str] = ""
    #: What an example and one of its variables are called; None: as the structure says.
    unit: ClassVar[tuple[str, str] | None] = None
    #: What a report shows of the data: ``pictures``, ``slices`` of volumes, ``sentences`` or nothing.
    shows: ClassVar[str] = ""
    #: Predictions are one mask per example in a folder, written as they come; else one file, written at the end.
    masks: ClassVar[bool] = False
    #: What a label is that is not known, for messages.
    hidden: ClassVar[str] = "-1"

    def holds(self, path: Path) -> bool:
        """Whether a file or folder that exists is of this format; a look at its name or its table of contents."""
        raise NotImplementedError

    def read(self, path: Path, with_labels: bool = True, n_columns: int | None = None, lazy: bool = False) -> Data:
        """Read the examples; without labels, none need be there."""
        raise NotImplementedError

    def with_positive(self, positive: int) -> Format:
        """Return the format with masks of which one number is class 1 and all others are class 0."""
        raise InputError("--positive is for folders with masks.")

    def choose(self, data: Data, features: str | None, edges: str | None) -> Preprocessing:
        """Decide how features are made of training data; ``features`` and ``edges`` are what the user asks for."""
        if features is not None or edges is not None:
            raise InputError(f"features and edges are for images; {data.path} holds {data.unit[0]}s.")
        return Preprocessing(self.name)

    def inputs(self, data: Data, preprocessing: Preprocessing) -> Any:
        """Return X for an estimator."""
        return list(data.inputs)

    def with_template(self, data: Data, made: Preprocessing, template: Path) -> Preprocessing:
        """Return the preprocessing with the features of a template file."""
        raise InputError(f"templates are for sentences in columns; {data.path} holds {data.unit[0]}s.")

    def defaults(self, data: Data) -> dict[str, Any]:
        """Return parameters of an estimator that suit the data, where the user gives none."""
        return {}

    def place(self, data: Data, number: int, at: tuple[int, ...]) -> str:
        """Say where a label is, for messages."""
        return f"{data.names[number]} at {at}"

    def mask_files(self, out: Path, data: Data, number: int, proba: bool) -> list[Path]:
        """Return the files of an example's labels and, if they are asked for, probabilities; where there are ``masks``."""
        raise NotImplementedError

    def by_parts(self, files: list[Path]) -> bool:
        """Whether these files are arrays that are written tile by tile."""
        return False

    def write_masks(
        self, files: list[Path], data: Data, number: int, labels: np.ndarray, p: np.ndarray | None, colours: bool = True
    ) -> None:
        """Write an example's labels and probabilities to :meth:`mask_files`; pictures have ``colours`` for classes."""
        raise NotImplementedError

    def write(self, path: Path, data: Data, labels: list[Any], probabilities: list[Any] | None) -> str:
        """Write predictions, with probabilities if they are given; return what was written, in words."""
        raise NotImplementedError
