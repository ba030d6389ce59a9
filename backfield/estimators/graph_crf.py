"""GraphCRF: labels of the variables of any graph."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from backfield.errors import InputError
from backfield.estimators._base import CRF
from backfield.estimators._survey import Survey
from backfield.estimators.samples import Sample
from backfield.graph import Graph


class GraphCRF(CRF):
    """A conditional random field on graphs of your own, given as :class:`Sample` s; parameters as in :class:`GridCRF`.

    Labels of variable i are 0 .. graph.labels[i] - 1. Weights are tied per node type and per factor type.
    """

    def _sample(self, x: Any, number: int) -> Sample:
        if not isinstance(x, Sample) or not isinstance(x.graph, Graph):
            raise InputError(f"example {number} must be a backfield.Sample with a Graph, got {type(x).__name__}.")
        return Sample(**vars(x))

    def _survey(self, samples: Sequence[Sample], labels: Sequence[np.ndarray]) -> Survey:
        survey = super()._survey(samples, labels)
        self._largest = survey.largest
        return survey

    def _learn_classes(self, labels: list[np.ndarray]) -> None:
        self.classes_ = np.arange(self._largest)

    def _encoded(self, labels: np.ndarray, number: int) -> np.ndarray:
        return labels

    def _flat_labels(self, y: Any, number: int) -> np.ndarray:
        labels = np.asarray(y)
        if labels.ndim == 2 and labels.dtype.kind in "bf":
            return labels
        if labels.ndim != 1 or labels.dtype.kind not in "biu":
            raise InputError(f"example {number}: labels must be (n,) integers, got {labels.dtype} of shape {labels.shape}.")
        return labels.astype(np.int64)
