"""Features of the pixels and edges of images."""

from __future__ import annotations

from typing import Any

import numpy as np

from backfield.data.format import Data, Preprocessing
from backfield.data.samples import GridSample
from backfield.errors import InputError
from backfield.features import EdgeFeatures, FilterBank, LocalFeatures, PixelFeatures, as_rgb

#: Features of pixels: name -> what it is.
FEATURES = {
    "rgb": "red, green and blue in [0, 1]",
    "raw": "the numbers as they are (.npz)",
    "pixel": "the 100 of [D13]: colour and position, expanded in sines and cosines, and histograms of gradients",
    "filters": "30 of a filter bank: colour, edges, ridges and texture at several scales",
    "local": "blurs, gradients, Hessian and structure tensor of each channel at 3 scales",
    "l13": "the 42 of [L13]: constant, colour, position, histogram of gradients",
}
#: Features of edges between pixels beside the constant; several are joined by commas.
EDGES = {
    "constant": "a constant per direction, nothing else",
    "difference": "distance of the colours, at 10 thresholds",
    "sobel": "Sobel response, at 10 thresholds",
    "contrast": "exp(-distance of the colours, squared): 1 where they agree",
    "given": "horizontal and vertical of the .npz",
}

#: Those of them that are computed from images.
_MAKERS: dict[str, Any] = {"pixel": PixelFeatures, "l13": PixelFeatures.l13, "filters": FilterBank, "local": LocalFeatures}


def choose_pixels(data: Data, features: str | None, edges: str | None, plain: str) -> Preprocessing:
    """Decide how features are made of training images; what is not asked for is chosen by the form of the data.

    Parameters
    ----------
    data
        Training data; thresholds of edge features come from its images.
    features
        One of :data:`FEATURES`; by default ``plain``.
    edges
        Some of :data:`EDGES`; by default ``given`` where the data have edge features, else ``constant``.
    """
    made = Preprocessing(
        data.format.name,
        _known("features", features or plain, FEATURES),
        ",".join(_known("edges", edge, EDGES) for edge in (edges or ("given" if data.edges else "constant")).split(",")),
    )
    if made.edges in ("constant", "given"):
        return made
    if "given" in made.edges:
        raise InputError("edges 'given' are all there are; they cannot be joined with others.")
    thresholds = _edge_features(made).fit(data.inputs).thresholds_
    cuts = {kind: [float(cut) for cut in values] for kind, values in thresholds.items()}
    return Preprocessing(made.format, made.features, made.edges, cuts)


def pixel_inputs(data: Data, made: Preprocessing) -> list[Any]:
    """Return images with their features, as an estimator takes them."""
    try:
        pixels = _pixels(data, made.features)
        if made.edges == "constant":
            return pixels
        if made.edges == "given" and data.edges is None:
            raise InputError("edges 'given' are horizontal and vertical of an .npz; these data have none.")
        edges = data.edges if made.edges == "given" else _edge_features(made).transform(data.inputs)
        assert edges is not None
        return [GridSample(x, across, down) for x, (across, down) in zip(pixels, edges, strict=True)]
    except InputError as error:
        raise InputError(f"{data.path}: {error}") from error


def _pixels(data: Data, features: str) -> list[np.ndarray]:
    if features == "raw":
        return [_as_float32(x, name) for x, name in zip(data.inputs, data.names, strict=True)]
    if features == "rgb":
        return [as_rgb(x) for x in data.inputs]
    if features not in _MAKERS:
        raise InputError(f"there are no features {features!r} of pixels; there are {', '.join(FEATURES)}.")
    return _MAKERS[features]().transform(data.inputs)


def _edge_features(made: Preprocessing) -> EdgeFeatures:
    # The estimator's intercept is the constant.
    maker = EdgeFeatures(kinds=tuple(kind for kind in made.edges.split(",") if kind != "constant"))
    if made.thresholds is not None:
        maker.thresholds_ = {kind: np.asarray(cuts, np.float32) for kind, cuts in made.thresholds.items()}
    return maker


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
