"""What must be the same when a fit goes on from a checkpoint: digests of examples, labels, weights and settings.

Each example is digested where it is (in a thread, on a worker), and the digests are digested in order: the same text for any
number of threads and workers, and for data in memory or not. Cost: one pass over the examples, only where a checkpoint is
written.
"""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np

from backfield import __version__
from backfield.constraints import is_sparse
from backfield.gradients import Truncated
from backfield.graph import Graph
from backfield.training.evaluators.general import Task
from backfield.training.examples import Example
from backfield.training.weights import Ridge


def example_digests(task: Task, number: int) -> tuple[str, str, str, str]:
    """Return digests of one example: graph and features, labels, weights, constraints."""
    example = task.examples[number]
    rows: list[Any] = [None if rows is None else (rows.index, rows.features) for rows in (*example.unary, *example.factors)]
    rows += [tuple(points) for points in example.kernels]
    target = example.target
    if target is None:
        return _digest(_graph(example.graph), rows), _digest(None), _digest(example.weight), _forbidden(example)
    labeling = target.labeling
    mask = labeling.allowed if labeling.has_sets else None
    observed = None if target.observed is None else target.observed.allowed
    return (
        _digest(_graph(example.graph), rows, observed),
        _digest(labeling.labels, mask, labeling.soft),
        _digest(example.weight, target.weights),
        _forbidden(example),
    )


def summary(task: Task, penalty: Ridge, n_chunks: int, digests: list[tuple[str, str, str, str]]) -> dict[str, str]:
    """Return what a checkpoint holds: a text for each thing that must be the same, by name."""
    features, labels, weights, constraints = (_digest(list(each)) for each in zip(*digests, strict=True))
    setting = task.setting
    gradient = "truncated" if isinstance(setting.gradient, Truncated) else repr(setting.gradient)  # whatever its memory
    return {
        "version": __version__,
        "loss": repr(task.objective),
        "dtype": str(task.dtype),
        "energies": ", ".join(repr(block.energy) for block in task.layout.blocks),
        "layout": ", ".join(f"{b.n_features} x {b.n_outputs}{' + 1' * b.intercept}" for b in task.layout.blocks),
        "n_chunks": str(n_chunks),
        "examples": features,
        "labels": labels,
        "weights of examples": weights,
        "constraints": constraints,
        # Last, as what is chosen from the data differs wherever these do.
        "inference": repr(setting.inference),
        "gradient": gradient,
        "l2": repr(penalty.r) if isinstance(penalty.r, float) else _digest(penalty.r),
    }


def _forbidden(example: Example) -> str:
    forbidden = example.forbidden
    return "none" if forbidden is None else _digest(forbidden.unary, forbidden.table)


def _graph(graph: Graph) -> Any:
    if graph.lattice is not None:  # the arrays of a grid are many times its labels
        offsets = () if graph.image_shape else (graph.offsets,)
        return "grid", graph.shape, *offsets, graph.n_factors, graph.labels
    return "graph", graph.labels, graph.layout.scope_ptr, graph.layout.scope


def _digest(*values: Any) -> str:
    digest = hashlib.blake2b(digest_size=16)
    for value in values:
        _add(digest, value)
    return digest.hexdigest()


def _add(digest: Any, value: Any) -> None:
    if isinstance(value, tuple | list):
        digest.update(f"({len(value)}".encode())
        for each in value:
            _add(digest, each)
    elif is_sparse(value):
        matrix = value.tocsr()
        _add(digest, (matrix.shape, matrix.indptr, matrix.indices, matrix.data))
    elif isinstance(value, np.ndarray):
        digest.update(f"{value.dtype.str}{value.shape}".encode())
        digest.update(np.ascontiguousarray(value).view(np.uint8).data if value.size else b"")
    else:
        digest.update(f"{type(value).__name__}:{value!r};".encode())
