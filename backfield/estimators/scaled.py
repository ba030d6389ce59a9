"""A scaler of scikit-learn for examples of any size, as a step of a pipeline."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from typing import Any, Self

import numpy as np
from scipy.sparse import issparse, vstack
from sklearn.preprocessing import StandardScaler

from backfield.constraints import check, estimator, optional
from backfield.data.samples import GridSample, Sample
from backfield.errors import InputError
from backfield.scikit_learn import BaseEstimator, TransformerMixin, check_is_fitted, clone


class Scaled(TransformerMixin, BaseEstimator, auto_wrap_output_keys=None):  # type: ignore[call-arg]
    """Fits a scaler on the rows (pixels, positions, nodes) of all examples together, and scales those of each.

    ``Pipeline([("scale", bf.Scaled()), ("crf", bf.GridCRF())])`` is a model that scales what it predicts as it scaled what
    it learned from. X is as of any estimator here, but not of named features. Features of edges stay as they are.

    Parameters
    ----------
    scaler : transformer of rows, optional
        Any of scikit-learn; by default ``StandardScaler()``.

    Attributes
    ----------
    scaler_ : the fitted scaler.
    n_features_in_ : int
    """

    def __init__(self, scaler: Any = None) -> None:
        self.scaler = scaler

    def fit(self, X: Sequence[Any], y: Any = None) -> Self:
        """Fit the scaler on the rows of all examples."""
        check({"scaler": self.scaler}, {"scaler": (estimator, optional)})
        rows = [_rows(x, number) for number, x in enumerate(_examples(X))]
        if not rows:
            raise InputError("Scaled needs at least one example.")
        widths = {each.shape[1] for each in rows}
        if len(widths) > 1:
            raise InputError(f"examples have different numbers of features: {sorted(widths)}.")
        self.n_features_in_ = widths.pop()
        whole = vstack(rows) if issparse(rows[0]) else np.concatenate(rows)
        plain = StandardScaler(with_mean=not issparse(rows[0]))
        self.scaler_ = (plain if self.scaler is None else clone(self.scaler)).fit(whole)
        return self

    def transform(self, X: Sequence[Any]) -> list[Any]:
        """Return the examples with scaled features."""
        check_is_fitted(self, "scaler_")
        return [self._scaled(x, number) for number, x in enumerate(_examples(X))]

    def set_output(self, *, transform: str | None = None) -> Self:
        """Choose whether (T, F) examples come as ``"pandas"`` or ``"polars"`` frames; others stay arrays."""
        if transform is not None:
            self._container = transform
        return self

    def _scaled(self, x: Any, number: int) -> Any:
        rows = _rows(x, number)
        if rows.shape[1] != self.n_features_in_:
            raise InputError(f"example {number} has {rows.shape[1]} features; {self.n_features_in_} were scaled.")
        scaler = self.scaler_
        container = getattr(self, "_container", "default")
        plain = np.ndim(x) == 2 and not issparse(rows)
        scaler.set_output(transform=container if plain else "default")
        found = scaler.transform(rows)
        if isinstance(x, Sample):
            return dataclasses.replace(x, node_features=found)
        if isinstance(x, GridSample):
            return dataclasses.replace(x, features=found.reshape(np.shape(x.features)))
        return found if plain or issparse(rows) else found.reshape(np.shape(x))


def _examples(X: Any) -> Iterable[Any]:
    """Return the examples, if these are some."""
    if isinstance(X, str | bytes | dict) or not isinstance(X, Iterable):
        raise InputError(f"Scaled needs a list of examples, got {type(X).__name__}.")
    return X


def _rows(x: Any, number: int) -> Any:
    """Return the (N, F) features of an example."""
    features = x.node_features if isinstance(x, Sample) else x.features if isinstance(x, GridSample) else x
    if issparse(features):
        if 0 in features.shape:
            raise InputError(f"example {number}: Scaled needs rows with features, received shape {features.shape}.")
        return features.tocsr()
    try:
        array = np.asarray(features)
    except ValueError as error:  # ragged lists
        raise InputError(f"example {number}: Scaled needs arrays of numbers, got ragged lists.") from error
    if array.dtype.kind not in "biuf" or array.ndim < 2 or 0 in array.shape:
        got = f"{array.dtype} of shape {array.shape}"
        raise InputError(f"example {number}: Scaled needs arrays of numbers with features as last axis, received {got}.")
    return array.reshape(-1, array.shape[-1])
