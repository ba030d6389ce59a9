"""Labels as people have them: one per variable, hidden (-1), or a set of allowed ones."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from backfield.errors import InputError
from backfield.graph.graph import Graph
from backfield.kernels.compile import kernel


@dataclass(frozen=True, eq=False)
class Labeling:
    """What is known about each variable.

    ``labels`` (n,) holds the label, or -1 where the variable is hidden or known only as a set. ``mask`` is flat as the
    unary tables: which labels are possible; None where ``labels`` say it all, of variables with ``counts`` labels each.
    ``soft``, laid out the same, holds target probabilities of the variables whose label is -1.
    """

    labels: np.ndarray
    mask: np.ndarray | None
    has_sets: bool
    soft: np.ndarray | None = None
    counts: int | np.ndarray = 0

    @cached_property
    def allowed(self) -> np.ndarray:
        """Which labels are possible, flat; made when it is asked for, as most losses look at the labels alone."""
        return self.mask if self.mask is not None else _mask_of(self.labels, self.counts)

    @property
    def known(self) -> np.ndarray:
        """Variables with exactly one label."""
        return self.labels >= 0


def as_labeling(graph: Graph, labels: Any, what: str = "labels") -> Labeling:
    """Check labels: (n,) integers with -1 for hidden, or (n, L) per label: booleans for what is allowed, or probabilities.

    Rows of different length come as a list. A row of probabilities with a 1 is a label like any other.
    """
    if isinstance(labels, Labeling):
        return labels
    n = graph.n_variables
    if isinstance(labels, list) and graph.n_labels is None and len(labels) == n and np.ndim(labels[0]) == 1:
        return _from_rows(graph, [np.asarray(row) for row in labels], what)
    try:
        array = np.asarray(labels)
    except ValueError as error:
        raise InputError(f"{what} must be ({n},) integers or a mask of allowed labels.") from error
    if array.ndim == 2:
        return _from_rows(graph, list(array), what)
    if array.shape != (n,):
        raise InputError(f"{what} must have shape ({n},), one per variable; received {array.shape}.")
    if array.dtype.kind not in "iu":
        raise InputError(f"{what} must be integers (-1 = hidden) or a boolean mask (n, L); received dtype {array.dtype}.")
    array = array.astype(np.int64)
    counts = graph.labels if graph.n_labels is None else graph.n_labels
    i = int(_first_unknown(array, graph.labels) if graph.n_labels is None else _first_outside(array, graph.n_labels))
    if i < n:
        raise InputError(f"{what}[{i}] is {array[i]}; variable {i} has labels 0 .. {graph.labels[i] - 1} (-1 = hidden).")
    return Labeling(array, None, False, counts=counts)


def is_known(labels: np.ndarray) -> np.ndarray:
    """Return which labels, numbers or strings, are not hidden (-1 or "")."""
    return labels != ("" if labels.dtype.kind == "U" else -1)


def checked_weights(graph: Graph, weights: Any) -> np.ndarray | None:
    """Return weights per variable (n,) or flat per variable and label."""
    if weights is None:
        return None
    ragged = isinstance(weights, list) and graph.n_labels is None and np.ndim(weights[0]) == 1
    try:
        array = np.concatenate(weights) if ragged else np.asarray(weights)
    except ValueError as error:
        raise InputError("weights must be one number per variable, or one per variable and label.") from error
    if array.dtype.kind not in "iuf" or not np.isfinite(array).all() or (array < 0).any():
        raise InputError("weights must be finite numbers >= 0.")
    if array.size and not array.any():
        raise InputError("weights are all zero: the loss would see nothing; leave the example out, or hide labels by -1.")
    n = graph.n_variables
    if array.shape not in ((n,), (n, graph.n_labels)) and not (ragged and array.size == graph.labels.sum()):
        raise InputError(f"weights must have shape ({n},) or ({n}, labels); received {array.shape}.")
    return array.astype(np.float64).reshape(-1)


def one_hot(graph: Graph, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return f(labels): flat unary and factor indicators; hidden variables and their factors are zero."""
    layout = graph.layout
    unary = np.zeros(int(layout.var_ptr[-1]))
    factors = np.zeros(int(layout.table_ptr[-1]))
    known = labels >= 0
    unary[layout.var_ptr[:-1][known] + labels[known]] = 1
    entries, complete = factor_entries(graph, labels)
    factors[entries[complete]] = 1
    return unary, factors


def factor_entries(graph: Graph, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the flat table entry that labels select in each factor, and which factors have no hidden variable."""
    layout = graph.layout
    if graph.n_factors == 0:
        return np.empty(0, dtype=np.int64), np.empty(0, dtype=bool)
    at = labels[layout.scope]
    if graph.arity == 2 and graph.n_labels is not None:
        first, second = at[::2], at[1::2]
        return layout.table_ptr[:-1] + (first * graph.n_labels + second), np.minimum(first, second) >= 0
    complete = np.minimum.reduceat(at, layout.scope_ptr[:-1]) >= 0
    return layout.table_ptr[:-1] + np.add.reduceat(at * layout.stride, layout.scope_ptr[:-1]), complete


def _mask_of(labels: np.ndarray, counts: int | np.ndarray) -> np.ndarray:
    """Return which labels are allowed, flat."""
    if isinstance(counts, np.ndarray):
        allowed = np.empty(int(counts.sum()), dtype=bool)
        _fill(labels, counts, allowed)
    else:
        allowed = np.ones(len(labels) * counts, dtype=bool)
        _forbid(labels, counts, allowed)
    return allowed


@kernel
def _fill(labels, counts, allowed):
    at = 0
    for i in range(len(labels)):
        for label in range(counts[i]):
            allowed[at + label] = labels[i] == label or labels[i] < 0
        at += counts[i]


@kernel
def _forbid(labels, count, allowed):
    """Do the same for variables of one label count; most of them are often free."""
    for i in range(len(labels)):
        if labels[i] >= 0:
            for a in range(i * count, (i + 1) * count):
                allowed[a] = False
            allowed[i * count + labels[i]] = True


@kernel
def _first_unknown(labels, counts):
    """Return the first variable whose label it does not have, or the number of variables."""
    for i in range(len(labels)):
        if labels[i] < -1 or labels[i] >= counts[i]:
            return i
    return len(labels)


def _first_outside(labels: np.ndarray, count: int) -> int:
    """Do the same for variables of one label count."""
    if labels.min(initial=0) >= -1 and labels.max(initial=-1) < count:
        return len(labels)
    return int(np.argmax((labels < -1) | (labels >= count)))


def _from_rows(graph: Graph, rows: list[np.ndarray], what: str) -> Labeling:
    if not rows or rows[0].dtype.kind != "f":
        return _from_mask(graph, rows, what)
    for i, row in enumerate(rows[: graph.n_variables]):
        good = row.shape == (graph.labels[i],) and row.dtype.kind == "f" and (row >= 0).all()
        if not good or not abs(row.sum() - 1) < 1e-4:
            got = np.array2string(row, threshold=6)
            raise InputError(f"{what}[{i}] must be {graph.labels[i]} probabilities that sum to 1; received {got}.")
    certain = _from_mask(graph, [row == 1 if (row == 1).any() else np.ones(len(row), dtype=bool) for row in rows], what)
    if certain.known.all():
        return certain
    soft = np.concatenate(rows).astype(np.float64) * np.repeat(~certain.known, graph.labels)
    return replace(certain, soft=soft)


def _from_mask(graph: Graph, rows: list[np.ndarray], what: str) -> Labeling:
    if len(rows) != graph.n_variables:
        raise InputError(f"{what} must hold {graph.n_variables} rows of allowed labels, received {len(rows)}.")
    for i, row in enumerate(rows):
        if row.dtype != bool or row.shape != (graph.labels[i],):
            raise InputError(
                f"{what}[{i}] must be a boolean mask of {graph.labels[i]} labels, received {row.dtype} of shape {row.shape}."
            )
        if not row.any():
            raise InputError(f"{what}[{i}] allows no label at all; all true means hidden.")
    allowed = np.concatenate(rows)
    ptr = np.concatenate([[0], np.cumsum(graph.labels)])
    count = np.add.reduceat(allowed.astype(np.int64), ptr[:-1])
    single = (count == 1) & (graph.labels > 1)
    labels = np.full(graph.n_variables, -1, dtype=np.int64)
    true = np.flatnonzero(allowed)
    owner = np.searchsorted(ptr, true, side="right") - 1
    pick = single[owner] | (graph.labels[owner] == 1)
    labels[owner[pick]] = true[pick] - ptr[owner[pick]]
    has_sets = bool(((count > 1) & (count < graph.labels)).any())
    return Labeling(labels, allowed, has_sets)
