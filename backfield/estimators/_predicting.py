"""Predictions as a stream: one example (per thread, or per batch on a worker) in memory, results in order as they come."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np

from backfield.api import infer
from backfield.data.sequences import is_lazy
from backfield.errors import InputError
from backfield.estimators._assembly import Assembler, located
from backfield.estimators._decode import decode, unary_marginals
from backfield.graph import Potentials
from backfield.graph.conditioning import evidence
from backfield.inference import Result
from backfield.inference.base import ExactInference
from backfield.structures import Instance, Structure
from backfield.training.execution.cluster import Cluster
from backfield.training.execution.threads import in_order

#: Examples of one task on a cluster.
BATCH = 4
#: Examples that are predicted at once where the structure joins them.
JOINED = 256
#: Rows of such a group at the most: scores and labels of more would leave the cache.
_ROWS = 2**14


@dataclass(frozen=True, eq=False)
class Predictor:
    """A model that answers for one entry of X at a time."""

    assembler: Assembler
    weights: np.ndarray

    def theta(self, sample: Instance, number: int = 0) -> Potentials:
        """Return the log-potentials of an instance."""
        layout, settings = self.assembler.learned.layout, self.assembler.settings
        theta = layout.theta(self.weights, self.assembler.example(sample, number), settings.dtype)
        layout.forget()
        return theta.with_kernels([kernel for kernel in theta.kernels if kernel.matrix.any()]) if theta.kernels else theta

    def sample(self, x: Any, number: int = 0) -> Instance:
        """Return the instance of an entry of X."""
        return self.assembler.learned.reader.sample(x, number)

    def labels(self, x: Any, number: int) -> Any:
        """Return the labels of an entry of X, in its shape."""
        return self._predict(self.sample(x, number), number, proba=False)[0]

    def marginals(self, x: Any, number: int) -> Any:
        """Return the marginals of an entry of X, in its shape."""
        return self._marginals(self.sample(x, number), number)

    def _marginals(self, sample: Instance, number: int) -> Any:
        settings, theta = self.assembler.settings, self.theta(sample, number)
        given = evidence(theta.graph, sample.observed)
        return self._shaped(unary_marginals(theta, settings.inference, given, settings.dtype).unary, sample)

    def both(self, x: Any, number: int) -> tuple[Any, Any]:
        """Return labels and marginals of an entry of X."""
        return self._predict(self.sample(x, number), number, proba=True)

    @property
    def joins(self) -> bool:
        """Whether several entries of X may be predicted at once, exactly as one by one."""
        settings = self.assembler.settings
        return isinstance(settings.inference, ExactInference) and settings.decoder.separable and settings.classifier is None

    def many_labels(self, X: list[Any], first: int) -> list[Any]:
        """Return the labels of some entries of X, the first of which has the number ``first``."""
        return self._many(X, first, self.labels, lambda sample: [self._predict(sample, first, proba=False)[0]])

    def many_marginals(self, X: list[Any], first: int) -> list[Any]:
        """Return the marginals of some entries of X."""
        return self._many(X, first, self.marginals, lambda sample: [self._marginals(sample, first)])

    def many_both(self, X: list[Any], first: int) -> list[Any]:
        """Return labels and marginals of some entries of X."""
        return self._many(X, first, self.both, lambda sample: self._predict(sample, first, proba=True))

    def _many(self, X: list[Any], first: int, one: Callable[..., Any], answer: Callable[[Instance], Any]) -> list[Any]:
        """Answer at once where the structure joins the entries, else one by one."""
        if self.joins and len(X) > 1 and sum(len(x) for x in X if isinstance(x, list)) > _ROWS:
            half = len(X) // 2
            return self._many(X[:half], first, one, answer) + self._many(X[half:], first + half, one, answer)
        sample = None
        if self.joins:
            with suppress(InputError):  # one by one, the error says where it is
                sample = self._structure.join(X, self.assembler.learned.reader.names)
        if sample is None or sample.parts is None:
            return [one(x, first + k) for k, x in enumerate(X)]
        stops = np.cumsum(sample.parts).tolist()
        parts = list(zip([0, *stops], stops, strict=False))
        found = [[each[start:stop] for start, stop in parts] for each in answer(sample)]
        return found[0] if len(found) == 1 else list(zip(*found, strict=True))

    def scored(self, pair: tuple[Any, Any], number: int) -> tuple[int, int]:
        """Return how many labels of an entry of X and y are right, and how many are known."""
        x, y = pair
        sample = self.sample(x, number)
        with located(number):
            truth = self.observed(y, sample)  # an unknown class is an error, not a wrong guess
            found = self.observed(self._predict(sample, number, proba=False)[0], sample)
            return _count_right(truth, found)

    def observed(self, given: Any, sample: Instance) -> np.ndarray:
        """Return labels to condition on, as positions."""
        return self.assembler.learned.classes.encode(self._structure.flat(given, sample))

    def infer(self, sample: Instance, number: int = 0) -> Result:
        """Return marginals and log Z of an instance."""
        settings = self.assembler.settings
        return infer(self.theta(sample, number), settings.inference, observed=sample.observed, dtype=settings.dtype)

    def _predict(self, sample: Instance, number: int, proba: bool) -> tuple[Any, Any]:
        settings, classes = self.assembler.settings, self.assembler.learned.classes
        self.assembler.learned.check_decoder(settings.decoder)
        theta = self.theta(sample, number)
        found, p = decode(settings.decoder, settings.inference, theta, sample, settings.dtype, proba)
        if getattr(found, "ndim", 1) == 1 and theta.graph.n_labels is not None:
            found = classes.values[found]
        return self._shaped(found, sample), None if p is None else self._shaped(p, sample)

    @property
    def _structure(self) -> Structure:
        return self.assembler.learned.reader.structure

    def _shaped(self, values: Any, sample: Instance) -> Any:
        return self._structure.shaped(values, sample)


def _count_right(truth: np.ndarray, found: np.ndarray) -> tuple[int, int]:
    """Return how many labels are right (one of a set is), and how many are known; all as positions."""
    if truth.ndim == 1:
        known = truth >= 0
        return int((found[known] == truth[known]).sum()), int(known.sum())
    if truth.dtype != bool or found.ndim != 1:
        raise InputError(f"score needs labels or sets of labels, received {truth.dtype} of shape {truth.shape}.")
    known = np.logical_not(truth.all(axis=1))
    return int(truth[np.arange(len(found)), found][known].sum()), int(known.sum())


def stream(answer: Callable[[Any, int], Any], X: Any, n_jobs: int, cluster: Cluster | None) -> Iterator[Any]:
    """Yield ``answer`` of each entry of X and its number."""
    if cluster is not None:
        yield from _on_workers(answer, X, cluster)
    else:
        yield from stream_many(lambda some, first: [answer(x, first + k) for k, x in enumerate(some)], X, n_jobs, 1)


def stream_many(answer: Callable[[list[Any], int], list[Any]], X: Any, n_jobs: int, size: int = JOINED) -> Iterator[Any]:
    """Yield the answers for ``size`` entries of X at a time, and the number of the first of them."""

    def part(first: int, last: int) -> list[Any]:
        return answer([X[number] for number in range(first, last)], first)

    parts = [(first, min(first + size, len(X))) for first in range(0, len(X), size)]
    for found in (part(*each) for each in parts) if n_jobs == 1 else in_order(part, parts, n_jobs):
        yield from found


def _on_workers(answer: Callable[[Any, int], Any], X: Any, cluster: Cluster) -> Iterator[Any]:
    """Send the model once, and of X what is in memory here; lazy data are opened on the workers."""
    cluster.slots()
    lazy = is_lazy(X)
    shared = cluster.hold((answer, X if lazy else None))
    batches = [range(first, min(first + BATCH, len(X))) for first in range(0, len(X), BATCH)]
    tasks = ((shared, numbers, None if lazy else [X[k] for k in numbers]) for numbers in batches)
    for results in cluster.map(_batch, tasks):
        yield from results


def _batch(shared: tuple[Callable[[Any, int], Any], Any], numbers: range, given: list[Any] | None) -> list[Any]:
    """Predict some examples on a worker."""
    answer, X = shared
    entries = given if given is not None else [X[number] for number in numbers]
    return [answer(x, number) for x, number in zip(entries, numbers, strict=True)]
