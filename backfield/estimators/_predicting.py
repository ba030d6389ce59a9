"""Predictions as a stream: one example (per thread, or per batch on a worker) in memory, results in order as they come."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from backfield.estimators._lazy import is_lazy
from backfield.training.execution.cluster import Cluster
from backfield.training.execution.threads import in_order

#: Examples of one task on a cluster.
BATCH = 4


def stream(estimator: Any, what: str, X: Any, n_jobs: int, cluster: Cluster | None) -> Iterator[Any]:
    """Yield ``estimator.what`` of each example."""
    if cluster is not None:
        yield from _on_workers(estimator, what, X, cluster)
    elif n_jobs == 1:
        for number in range(len(X)):
            yield one(estimator, what, X[number], number)
    else:
        yield from in_order(lambda first, last: one(estimator, what, X[first], first), _singly(len(X)), n_jobs)


def one(estimator: Any, what: str, x: Any, number: int) -> Any:
    """Return what is asked about one entry of X."""
    sample = estimator._sample(x, number)
    return getattr(estimator, what)(sample, estimator._example(sample, None, None, None, number), number)


def _singly(count: int) -> list[tuple[int, int]]:
    return [(number, number + 1) for number in range(count)]


def _on_workers(estimator: Any, what: str, X: Any, cluster: Cluster) -> Iterator[Any]:
    """Send the model once, and of X what is in memory here; lazy data are opened on the workers."""
    cluster.slots()
    lazy = is_lazy(X)
    shared = cluster.hold((estimator, X if lazy else None))
    batches = [range(first, min(first + BATCH, len(X))) for first in range(0, len(X), BATCH)]
    tasks = ((shared, what, numbers, None if lazy else [X[k] for k in numbers]) for numbers in batches)
    for results in cluster.map(_batch, tasks):
        yield from results


def _batch(shared: tuple[Any, Any], what: str, numbers: range, given: list[Any] | None) -> list[Any]:
    """Predict some examples on a worker."""
    estimator, X = shared
    entries = given if given is not None else [X[number] for number in numbers]
    return [one(estimator, what, x, number) for x, number in zip(entries, numbers, strict=True)]
