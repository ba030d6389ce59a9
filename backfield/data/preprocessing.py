"""From data on disk to what an estimator takes, and how it was done as JSON, so that a model file can remember it."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from typing import Any

import numpy as np

from backfield.data.examples import Data
from backfield.data.samples import GridSample
from backfield.datasets.conll import window_features, window_template
from backfield.errors import InputError
from backfield.features import EdgeFeatures, PixelFeatures, as_rgb

#: Features of pixels: name -> what it is.
FEATURES = {
    "rgb": "red, green and blue in [0, 1]",
    "raw": "the numbers as they are (.npz)",
    "pixel": "the 100 of [D13]: colour and position, expanded in sines and cosines, and histograms of gradients",
    "l13": "the 42 of [L13]: constant, colour, position, histogram of gradients",
}
#: Features of edges between pixels beside the constant; several are joined by commas.
EDGES = {
    "constant": "a constant per direction, nothing else",
    "difference": "distance of the colours, at 10 thresholds",
    "sobel": "Sobel response, at 10 thresholds",
    "given": "horizontal and vertical of the .npz",
}


@dataclass(frozen=True)
class Preprocessing:
    """How features are made.

    Attributes
    ----------
    format : of the data: ``images``, ``arrays`` or ``columns``
    features, edges : names of :data:`FEATURES` and :data:`EDGES`; empty for chains
    thresholds : kind of edge feature -> thresholds, chosen from the training images
    templates : windows of column files, lists of (column, offset)
    n_columns : columns of features in a column file
    """

    format: str
    features: str = ""
    edges: str = ""
    thresholds: dict[str, list[float]] | None = None
    templates: list[list[list[int]]] | None = None
    n_columns: int | None = None

    def as_json(self) -> dict[str, Any]:
        """Return what a model file keeps."""
        return {key: value for key, value in asdict(self).items() if value not in (None, "")}

    @classmethod
    def from_json(cls, content: Any) -> Preprocessing:
        """Read back what :meth:`as_json` gave."""
        known = {field.name for field in fields(cls)}
        if not isinstance(content, dict) or "format" not in content or not set(content) <= known:
            raise InputError("the model does not say how its features are made in a way that this version knows.")
        return cls(**content)

    def __call__(self, data: Data) -> Any:
        """Return X for an estimator."""
        if data.format == "packed":
            if data.preprocessing is not None and data.preprocessing != self.as_json():
                raise InputError(
                    f"{data.path} was packed with other features than the model's; pack it again with --like and the model "
                    "or its training folder."
                )
            return data.inputs
        if data.format == "columns":
            return self._windows(data)
        if data.kind == "chain":
            return list(data.inputs)
        try:
            return self._images(data)
        except InputError as error:
            raise InputError(f"{data.path}: {error}") from error

    def _windows(self, data: Data) -> list[Any]:
        templates = [tuple((int(c), int(t)) for c, t in template) for template in self.templates or []]
        return [window_features(sentence, templates) for sentence in data.inputs]

    def _images(self, data: Data) -> list[Any]:
        pixels = self._pixels(data)
        if self.edges == "constant":
            return pixels
        if self.edges == "given":
            if data.edges is None:
                raise InputError("edges 'given' are horizontal and vertical of an .npz; these data have none.")
            edges = data.edges
        else:
            edges = self._edge_features().transform(data.inputs)
        return [GridSample(x, across, down) for x, (across, down) in zip(pixels, edges, strict=True)]

    def _pixels(self, data: Data) -> list[np.ndarray]:
        if self.features == "raw":
            return [_as_float32(x, name) for x, name in zip(data.inputs, data.names, strict=True)]
        if self.features == "rgb":
            return [as_rgb(x) for x in data.inputs]
        if self.features not in FEATURES:
            raise InputError(f"there are no features {self.features!r} of pixels; there are {', '.join(FEATURES)}.")
        maker = PixelFeatures() if self.features == "pixel" else PixelFeatures.l13()
        return maker.transform(data.inputs)

    def _edge_features(self) -> EdgeFeatures:
        # The estimator's intercept is the constant.
        maker = EdgeFeatures(kinds=tuple(kind for kind in self.edges.split(",") if kind != "constant"))
        if self.thresholds is not None:
            maker.thresholds_ = {kind: np.asarray(cuts, np.float32) for kind, cuts in self.thresholds.items()}
        return maker


def choose_preprocessing(data: Data, features: str | None = None, edges: str | None = None) -> Preprocessing:
    """Decide how features are made of training data; what is not asked for is chosen by the form of the data.

    Parameters
    ----------
    data
        Training data; thresholds of edge features come from its images.
    features
        One of :data:`FEATURES`; by default ``rgb`` for image files and ``raw`` for arrays, ``rgb`` if these are uint8.
    edges
        Some of :data:`EDGES`; by default ``given`` where the data have edge features, else ``constant``.
    """
    if data.format == "packed":
        if features is not None or edges is not None:
            raise InputError(f"the features of {data.path} were made by pack; --features and --edges belong there.")
        if data.preprocessing is not None:
            return Preprocessing.from_json(data.preprocessing)
        if data.kind == "chain":
            return Preprocessing("arrays")
        return Preprocessing("arrays", "raw", "given" if isinstance(data.inputs[0], GridSample) else "constant")
    if data.kind == "chain":
        if features is not None or edges is not None:
            raise InputError(f"features and edges are for images; {data.path} holds chains.")
        if data.format == "arrays":
            return Preprocessing("arrays")
        count = len(data.inputs[0][0])
        templates = [[list(at) for at in template] for template in window_template(count)]
        return Preprocessing("columns", templates=templates, n_columns=count)
    integers = data.format == "images" or all(x.dtype == np.uint8 for x in data.inputs)
    made = Preprocessing(
        data.format,
        _known("features", features or ("rgb" if integers else "raw"), FEATURES),
        ",".join(_known("edges", edge, EDGES) for edge in (edges or ("given" if data.edges else "constant")).split(",")),
    )
    if made.edges in ("constant", "given"):
        return made
    if "given" in made.edges:
        raise InputError("edges 'given' are all there are; they cannot be joined with others.")
    thresholds = made._edge_features().fit(data.inputs).thresholds_
    cuts = {kind: [float(cut) for cut in values] for kind, values in thresholds.items()}
    return Preprocessing(made.format, made.features, made.edges, cuts)


def _known(what: str, name: str, table: dict[str, str]) -> str:
    if name.strip() not in table:
        listed = "; ".join(f"{key} ({text})" for key, text in table.items())
        raise InputError(f"there are no {what} {name.strip()!r}; there are: {listed}.")
    return name.strip()


def _as_float32(values: Any, name: str) -> np.ndarray:
    """Return features in the type of estimators, refused where they do not fit into it."""
    with np.errstate(over="ignore"):
        out = np.asarray(values, dtype=np.float32)
    if not np.isfinite(out).all():
        raise InputError(f"{name}: features must be finite and below {np.finfo(np.float32).max:.1g} in size.")
    return out
