"""The formats that the package reads: folders of images, ``.npz`` files, column files, packed folders."""

from __future__ import annotations

import hashlib
import struct
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from backfield.atomic import replacing
from backfield.data.format import Data, Format, Preprocessing
from backfield.data.formats.columns import read_column_file, write_column_file
from backfield.data.formats.images import read_image_folder, write_mask
from backfield.data.formats.npz import Arrays, base_keys, read_npz, read_stacked, write_npz
from backfield.data.formats.stacks import ending_of, files_in
from backfield.data.packed import is_packed, open_shards
from backfield.data.pixels import choose_pixels, pixel_inputs
from backfield.data.samples import GridSample
from backfield.data.sequences import Lazy
from backfield.datasets.conll import read_text
from backfield.errors import InputError
from backfield.features.tokens import Templates, joined, window_features, window_template, word_features

#: Endings of column files; a name without an ending is one, too.
COLUMN_ENDINGS = ("", ".txt", ".conll", ".col", ".columns", ".tsv", ".iob", ".iob2", ".bio", ".data", ".train", ".test")


class ImageFolder(Format):
    """A folder with ``images/`` and ``masks/``."""

    name: ClassVar[str] = "images"
    shows: ClassVar[str] = "pictures"
    masks: ClassVar[bool] = True
    hidden: ClassVar[str] = "255"

    def __init__(self, positive: int | None = None) -> None:
        self.positive = positive  # this number in masks is class 1, all others are class 0

    def with_positive(self, positive: int) -> ImageFolder:
        """Return the format with such masks."""
        if not 0 <= positive < 65536:
            raise InputError(f"--positive must be a number that masks hold, 0 .. 65535, received {positive}.")
        return ImageFolder(positive)

    def holds(self, path: Path) -> bool:
        """Whether a path is a folder, and not one of stacks."""
        return path.is_dir() and not ending_of(path) and not files_in(path)

    def read(self, path: Path, with_labels: bool = True, n_columns: int | None = None, lazy: bool = False) -> Data:
        """Read the images and their masks."""
        folder = read_image_folder(path, with_labels, lazy, self.positive)
        return Data(path, self, folder.names, folder.images, folder.masks)

    def choose(self, data: Data, features: str | None, edges: str | None) -> Preprocessing:
        """Choose colours, unless others are asked for."""
        return replace(choose_pixels(data, features, edges, "rgb"), positive=self.positive)

    def inputs(self, data: Data, preprocessing: Preprocessing) -> Any:
        """Return images with features."""
        return pixel_inputs(data, preprocessing)

    def place(self, data: Data, number: int, at: tuple[int, ...]) -> str:
        """Name a pixel of a mask."""
        return f"masks/{data.names[number]}, row {at[0]}, column {at[1]}"

    def mask_files(self, out: Path, data: Data, number: int, proba: bool) -> list[Path]:
        """Return a PNG, and an ``.npy`` of probabilities."""
        return [out / f"{data.names[number]}{ending}" for ending in (".png", ".npy")[: 1 + proba]]

    def write_masks(
        self, files: list[Path], data: Data, number: int, labels: np.ndarray, p: np.ndarray | None, colours: bool = True
    ) -> None:
        """Write a mask whole or not at all, after its probabilities."""
        if p is not None:
            with replacing(files[1]) as file:
                np.save(file, p.astype(np.float32))
        write_mask(files[0], labels, colours, self.positive)


class ArrayFile(Format):
    """An ``.npz`` file with ``X`` and ``y``: the examples stacked along the first axis."""

    name: ClassVar[str] = "arrays"
    #: What a file must hold to be of this format.
    key: ClassVar[str] = "X"

    def holds(self, path: Path) -> bool:
        """Whether the file has the key."""
        return path.suffix.lower() == ".npz" and self.key in npz_keys(path)

    def read(self, path: Path, with_labels: bool = True, n_columns: int | None = None, lazy: bool = False) -> Data:
        """Read the arrays."""
        arrays = self.arrays(path, with_labels)
        names = [f"example {k}" for k in range(len(arrays.inputs))]
        return Data(path, self, names, arrays.inputs, arrays.labels, arrays.edges)

    def arrays(self, path: Path, with_labels: bool) -> Arrays:
        """Return inputs and labels of each example."""
        return read_stacked(path, with_labels)

    def write(self, path: Path, data: Data, labels: list[Any], probabilities: list[Any] | None) -> str:
        """Write predictions in the place of the labels."""
        return _written(path, {"y": labels}, probabilities)


class ImageArrays(ArrayFile):
    """An ``.npz`` file with ``images`` and ``masks``."""

    key: ClassVar[str] = "images"
    shows: ClassVar[str] = "pictures"

    def arrays(self, path: Path, with_labels: bool) -> Arrays:
        """Return images and masks."""
        return read_npz(path, with_labels)

    def choose(self, data: Data, features: str | None, edges: str | None) -> Preprocessing:
        """Choose the numbers as they are, colours where they are uint8."""
        plain = "rgb" if all(x.dtype == np.uint8 for x in data.inputs) else "raw"
        return choose_pixels(data, features, edges, plain)

    def inputs(self, data: Data, preprocessing: Preprocessing) -> Any:
        """Return images with features."""
        return pixel_inputs(data, preprocessing)

    def write(self, path: Path, data: Data, labels: list[Any], probabilities: list[Any] | None) -> str:
        """Write masks."""
        return _written(path, {"masks": labels}, probabilities)


class ChainArrays(ArrayFile):
    """An ``.npz`` file with ``X`` and ``y``: chains end to end, with their ``lengths``."""

    def arrays(self, path: Path, with_labels: bool) -> Arrays:
        """Return sequences and their labels."""
        return read_npz(path, with_labels)

    def write(self, path: Path, data: Data, labels: list[Any], probabilities: list[Any] | None) -> str:
        """Write labels end to end, as they are read back."""
        arrays = {"y": np.concatenate(labels), "lengths": np.array([len(each) for each in labels])}
        return _written(path, arrays, None if probabilities is None else np.concatenate(probabilities))


class ColumnFile(Format):
    """A column file as of the CoNLL tasks."""

    name: ClassVar[str] = "columns"
    unit: ClassVar[tuple[str, str] | None] = ("sentence", "token")
    shows: ClassVar[str] = "sentences"

    def holds(self, path: Path) -> bool:
        """Whether a path is a file that ends as strings do."""
        return path.is_file() and path.suffix.lower() in COLUMN_ENDINGS

    def read(self, path: Path, with_labels: bool = True, n_columns: int | None = None, lazy: bool = False) -> Data:
        """Read the sentences."""
        file = read_column_file(path, n_columns, with_labels)
        labels = None if file.labels is None or not with_labels else [np.array(each) for each in file.labels]
        names = [f"sentence {k + 1}" for k in range(len(file.sentences))]
        return Data(path, self, names, file.sentences, labels)

    def choose(self, data: Data, features: str | None, edges: str | None) -> Preprocessing:
        """Choose windows around each token; with ``features`` "words", the forms of words, too."""
        if features not in (None, "windows", "words") or edges is not None:
            raise InputError(
                f"features of tokens are windows or words, and they have no edges; received {features or edges!r}."
            )
        count = len(data.inputs[0][0])
        templates = [[list(at) for at in template] for template in window_template(count)]
        return Preprocessing(self.name, "words" if features == "words" else "", templates=templates, n_columns=count)

    def inputs(self, data: Data, preprocessing: Preprocessing) -> Any:
        """Return dicts of the features in windows, or of a template file."""
        if preprocessing.patterns is not None:
            patterns = Templates(tuple(preprocessing.patterns))
            return [patterns(sentence) for sentence in data.inputs]
        templates = [tuple((int(c), int(t)) for c, t in template) for template in preprocessing.templates or []]
        windows = [window_features(sentence, templates) for sentence in data.inputs]
        if preprocessing.features != "words":
            return windows
        return [joined(found, word_features(sentence)) for found, sentence in zip(windows, data.inputs, strict=True)]

    def with_template(self, data: Data, made: Preprocessing, template: Path) -> Preprocessing:
        """Return the preprocessing with the lines of a template file of CRF++ or Wapiti."""
        patterns = Templates.parse(read_text(template), str(template))
        patterns(data.inputs[0])  # raises for missing columns
        return replace(made, templates=None, patterns=list(patterns.lines))

    def defaults(self, data: Data) -> dict[str, Any]:
        """Give weights to what occurs only, of hundreds of thousands of features."""
        return {"unary": "observed_linear"}

    def write(self, path: Path, data: Data, labels: list[Any], probabilities: list[Any] | None) -> str:
        """Write the file again with a further column."""
        truth = read_column_file(data.path, len(data.inputs[0][0]), with_labels=False).labels
        sentences = []
        for k, tokens in enumerate(data.inputs):
            rows = [list(token) for token in tokens]
            for at, row in enumerate(rows):
                row += [] if truth is None else [truth[k][at]]
                row.append(str(labels[k][at]))
                row += [] if probabilities is None else [f"{probabilities[k][at].max():.4f}"]
            sentences.append(rows)
        write_column_file(path, sentences)
        proba = probabilities is not None
        return f"{path}; the {'last but one' if proba else 'last'} column is the prediction" + (
            ", then its probability" * proba
        )


class PackedFolder(Format):
    """A folder that ``backfield pack`` has written, of the structure that its index names."""

    name: ClassVar[str] = "packed"

    def __init__(self, like: Format | None = None) -> None:
        self.like = like  # of what the examples were packed from, which writes predictions

    @property
    def masks(self) -> bool:  # type: ignore[override]
        """Predictions are written as for the data that were packed."""
        return self.like is not None and self.like.masks

    def holds(self, path: Path) -> bool:
        """Whether a path is a packed folder, complete or not."""
        return is_packed(path)

    def read(self, path: Path, with_labels: bool = True, n_columns: int | None = None, lazy: bool = False) -> Data:
        """Open the folder."""
        shards = open_shards(path)
        if with_labels and shards.y is None:
            raise InputError(f"{path} was packed without labels.")
        labels = shards.y if with_labels else None
        return Data(path, self, shards.names, shards.X, labels, None, shards.preprocessing, shards.kind)

    def choose(self, data: Data, features: str | None, edges: str | None) -> Preprocessing:
        """Return what pack chose."""
        if features is not None or edges is not None:
            raise InputError(f"the features of {data.path} were made by pack; --features and --edges belong there.")
        if data.preprocessing is not None:
            return Preprocessing.from_json(data.preprocessing)
        if self.like is not None and self.like.masks:
            return Preprocessing("arrays", "raw", "given" if isinstance(data.inputs[0], GridSample) else "constant")
        return Preprocessing("arrays")

    def inputs(self, data: Data, preprocessing: Preprocessing) -> Any:
        """Return the examples, refused where their features are others than the model's."""
        if data.preprocessing is not None and data.preprocessing != preprocessing.as_json():
            raise InputError(
                f"{data.path} was packed with other features than the model's; pack it again with --like and the model "
                "or its training folder."
            )
        return data.inputs

    def mask_files(self, out: Path, data: Data, number: int, proba: bool) -> list[Path]:
        """Return the files that the data that were packed would have."""
        assert self.like is not None
        return self.like.mask_files(out, data, number, proba)

    def write_masks(
        self, files: list[Path], data: Data, number: int, labels: np.ndarray, p: np.ndarray | None, colours: bool = True
    ) -> None:
        """Write masks as for the data that were packed."""
        assert self.like is not None
        self.like.write_masks(files, data, number, labels, p, colours)

    def write(self, path: Path, data: Data, labels: list[Any], probabilities: list[Any] | None) -> str:
        """Write predictions as arrays."""
        assert self.like is not None
        return self.like.write(path, data, labels, probabilities)


def lazy_inputs(data: Data, made: Preprocessing) -> Lazy:
    """Return X, one example at a time: what a process of ``pack`` needs of it is small."""
    shell = replace(data, names=[], inputs=[], labels=None, edges=None)
    return Lazy(_Maker(shell, made), data.inputs, data.edges, data.names)


class _Maker:
    """Makes one example; ``shell`` is the data without examples."""

    def __init__(self, shell: Data, made: Preprocessing) -> None:
        self.shell, self.made = shell, made

    def __call__(self, x: Any, edges: Any, name: str, number: int) -> Any:
        return self.made(replace(self.shell, names=[name], inputs=[x], edges=None if edges is None else [edges]))[0]


def source_of(data: Data) -> str:
    """Return a text that changes when the data do: sizes and times of files, or a checksum of arrays."""
    if data.path.is_dir():
        files = sorted(path for path in data.path.rglob("*") if path.is_file())
        stamps = [(path.name, path.stat().st_size, path.stat().st_mtime_ns) for path in files]
        return hashlib.sha256(repr(stamps).encode()).hexdigest()
    digest = hashlib.sha256()
    for values in (data.inputs, data.labels or (), *zip(*(data.edges or []), strict=True)):
        for each in values:
            digest.update(np.ascontiguousarray(each).tobytes() if isinstance(each, np.ndarray) else repr(each).encode())
    return digest.hexdigest()


def listed_keys(path: Path) -> str:
    """Return the names of the arrays in an ``.npz`` file, for messages; a damaged one is refused."""
    keys = npz_keys(path)
    if not keys and not zipfile.is_zipfile(path):
        raise InputError(f"{path}: cannot be read as an .npz file of arrays.")
    return ", ".join(sorted(keys)) or "none"


def npz_keys(path: Path) -> list[str]:
    """Return the names of the arrays in an ``.npz`` file; none where it is damaged."""
    try:
        with zipfile.ZipFile(path) as archive:
            return base_keys(archive.namelist())
    except (OSError, ValueError, zipfile.BadZipFile, NotImplementedError, struct.error):
        return []


def _written(path: Path, arrays: dict[str, Any], probabilities: Any) -> str:
    if probabilities is not None:
        arrays = arrays | {"probabilities": probabilities}
    write_npz(path, arrays)
    return f"{path} with {', '.join(arrays)}"
