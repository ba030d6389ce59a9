"""Predictions out of fold, also probabilities, which scikit-learn's ``cross_val_predict`` cannot join for ragged labels."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.model_selection import KFold, check_cv

from backfield.data.sequences import Ragged
from backfield.errors import InputError
from backfield.scikit_learn import clone


def cross_val_predict(
    estimator: Any, X: Any, y: Any, *, cv: Any = None, method: str = "predict", params: Any = None
) -> Ragged:
    """Return the prediction of each example by a model that has not seen it.

    Parameters
    ----------
    estimator
        Any whose predictions are one array per example, or a pipeline that ends in one.
    X, y
        Examples and labels, one entry each.
    cv : int, splitter or iterable of (train, test), optional
        As in scikit-learn; a number cuts the examples into so many runs, 5 by default.
    method : "predict", "predict_proba", or another method that answers one entry per example.
    params : dict, optional
        Goes to ``fit``; what has one entry per example is cut with it, such as ``{"sample_weight": w}``.
    """
    splitter = KFold(5) if cv is None else check_cv(cv)
    found: list[Any] = [None] * len(X)
    counts = [0] * len(X)
    for train, test in splitter.split(list(range(len(X)))):
        fitted = clone(estimator).fit(_taken(X, train), _taken(y, train), **_cut(params, train, len(X)))
        for number, each in zip(np.asarray(test).tolist(), getattr(fitted, method)(_taken(X, test)), strict=True):
            found[number], counts[number] = each, counts[number] + 1
    if set(counts) != {1}:
        raise InputError("cross_val_predict needs a cv that predicts each example once.")
    return Ragged(found)


def _taken(entries: Any, numbers: Any) -> list[Any]:
    return [entries[int(number)] for number in numbers]


def _cut(params: Any, numbers: Any, count: int) -> dict[str, Any]:
    sized = {key: hasattr(value, "__len__") and len(value) == count for key, value in (params or {}).items()}
    return {key: _taken(value, numbers) if sized[key] else value for key, value in (params or {}).items()}
