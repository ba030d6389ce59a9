"""Scorers for scikit-learn: ``scoring="accuracy"`` and others, where the labels of an example are an array.

scikit-learn's metrics compare two flat arrays. A :class:`RaggedScorer` looks whether the estimator (also the last step of
a pipeline, also inside of a search) declares structured outputs by its tags, and then counts over all labelled variables of
all examples together; hidden labels (-1 or "") count nowhere. Any other estimator is scored as scikit-learn does.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.metrics import _scorer, get_scorer

from backfield.errors import InputError
from backfield.metrics.tags import StructuredTags
from backfield.metrics.tally import Metrics, Tally
from backfield.scikit_learn import get_tags

_Scorer: Any = type(get_scorer("accuracy"))


class RaggedScorer(_Scorer):
    """A scorer of scikit-learn that also knows predictions of one array per example.

    ``value`` names what is read from the :class:`Metrics` of all examples: an attribute, or (attribute, class).
    """

    def __init__(self, score_func: Any, sign: int, kwargs: Any, response_method: Any, value: Any) -> None:
        super().__init__(score_func, sign, kwargs, response_method)
        self._value = value

    def _score(self, method_caller: Any, estimator: Any, X: Any, y_true: Any, **kwargs: Any) -> float:
        if not isinstance(get_tags(estimator).classifier_tags, StructuredTags):
            return super()._score(method_caller, estimator, X, y_true, **kwargs)
        proba = self._response_method == "predict_proba"
        found = _metrics(estimator, X, y_true, proba, kwargs.get("sample_weight"))
        if isinstance(self._value, str):
            return self._sign * float(getattr(found, self._value))
        attribute, label = self._value
        if label not in found.classes:
            raise InputError(f"there is no class {label!r} to score; the classes are {found.classes}.")
        return self._sign * float(getattr(found, attribute)[found.classes.index(label)])


def _metrics(estimator: Any, X: Any, y: Any, proba: bool, sample_weight: Any) -> Metrics:
    """Return the scores of an estimator's predictions of X."""
    if len(X) != len(y):
        raise InputError(f"received {len(X)} examples but {len(y)} labelings.")
    weight = np.ones(len(y), dtype=np.int64) if sample_weight is None else np.asarray(sample_weight, dtype=np.float64)
    if weight.shape != (len(y),) or not np.isfinite(weight).all() or (weight < 0).any():
        raise InputError(f"sample_weight must be {len(y)} finite numbers >= 0.")
    tally, classes = Tally(estimator.classes_), np.asarray(estimator.classes_)
    found = estimator.predict_proba(X) if proba else estimator.predict(X)
    for truth, each, w in zip(y, found, weight, strict=True):
        labels = classes[np.asarray(each).argmax(axis=-1)] if proba else each
        tally.add(truth, labels, each if proba else None, w)
    return tally.metrics()


def _only_structured(y_true: Any, y_pred: Any, sample_weight: Any = None) -> float:
    raise InputError("this scorer is for estimators with one label array per example, such as GridCRF.")


#: Share of the labelled variables that have the right label.
accuracy = RaggedScorer(_only_structured, 1, {}, "predict", "accuracy")
#: Minus the mean of -log p(true label).
neg_log_loss = RaggedScorer(_only_structured, -1, {}, "predict_proba", "log_loss")
#: Minus the expected calibration error.
neg_ece = RaggedScorer(_only_structured, -1, {}, "predict_proba", "ece")
#: Intersection over union, the mean over the classes that occur in truth or prediction.
mean_iou = RaggedScorer(_only_structured, 1, {}, "predict", "mean_iou")


def class_iou(label: Any) -> RaggedScorer:
    """Return the scorer of one class's intersection over union; nan where it occurs nowhere."""
    return RaggedScorer(_only_structured, 1, {}, "predict", ("iou", label))


#: Scorers of scikit-learn -> the number of :class:`Metrics` that is theirs.
_SAME = {"accuracy": "accuracy", "neg_log_loss": "log_loss", "f1_macro": "macro_f1", "jaccard_macro": "mean_iou"}


def register() -> None:
    """Let the names of scikit-learn's scorers take structured outputs, too; ``neg_ece`` and ``mean_iou`` are new names."""
    table = _scorer._SCORERS
    for name, value in _SAME.items():
        plain = table[name]
        if not isinstance(plain, RaggedScorer):
            parts = (plain._score_func, plain._sign, plain._kwargs, plain._response_method)
            table[name] = RaggedScorer(*parts, value)
    table.setdefault("neg_ece", neg_ece)
    table.setdefault("mean_iou", mean_iou)


register()
