"""Graphs that people have: chains, grids, edge lists, networkx graphs, superpixel maps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from backfield.errors import InputError
from backfield.graph.graph import Graph, _check_scopes, _label_counts
from backfield.graph.lattice import Lattice, checked_offsets, checked_shape, neighbourhood


def chain(length: int, labels: int | Sequence[int] = 2, order: int = 1) -> Graph:
    """Return the chain ``0 - 1 - ... - length-1`` (see :meth:`Graph.chain`)."""
    n = _positive(length, "length")
    if not isinstance(order, int | np.integer) or isinstance(order, bool) or order not in (1, 2):
        raise InputError(f"a chain is of order 1 or 2, received {order!r}.")
    return chains((n,), labels, order)


def chains(lengths: Sequence[int], labels: int | Sequence[int] = 2, order: int = 1) -> Graph:
    """Return chains end to end: all pairs of neighbours and, of order 2, then all triples."""
    sizes = np.asarray(lengths, dtype=np.int64)
    starts = np.concatenate([[0], np.cumsum(sizes)])
    left = np.repeat(starts[1:], sizes) - np.arange(starts[-1])  # positions from here to the end of the chain
    pairs = np.flatnonzero(left > 1)[:, None] + np.arange(2)
    triples = np.flatnonzero(left > 2)[:, None] + np.arange(3) if order == 2 else np.empty((0, 3), dtype=np.int64)
    counts = _counts(labels, int(starts[-1]))
    if len(triples) == 0:
        graph = _pairwise(counts, pairs)
    else:
        ptr = np.concatenate([np.arange(len(pairs) + 1) * 2, pairs.size + np.arange(1, len(triples) + 1) * 3])
        graph = Graph._from_arrays(counts, ptr, np.concatenate([pairs.ravel(), triples.ravel()]))
        graph._group_sizes = (("pairs", len(pairs)), ("triples", len(triples)))
    if len(sizes) > 1:
        graph.parts = starts
    return graph


def grid(rows: Any, columns: Any = None, labels: Any = None, neighbours: Any = None, offsets: Any = None) -> Graph:
    """Return a grid of row-major variables (see :meth:`Graph.grid`)."""
    if isinstance(rows, int | np.integer) or not np.iterable(rows):
        shape: tuple[int, ...] = (_positive(rows, "rows"), _positive(columns, "columns"))
    else:
        shape = checked_shape(rows)
        if columns is not None and labels is not None:
            raise InputError(f"a grid of shape {shape} takes labels once, received {columns!r} and {labels!r}.")
        labels = columns if labels is None else labels
    if offsets is not None and neighbours is not None:
        raise InputError(f"a grid takes neighbours or offsets, received both, {neighbours!r} and {offsets!r}.")
    chosen = neighbourhood(len(shape), neighbours) if offsets is None else checked_offsets(len(shape), offsets)
    lattice = Lattice(shape, chosen)
    return Graph.of_lattice(lattice, _counts(2 if labels is None else labels, lattice.n_variables))


def from_edges(edges: Any, n_variables: int | None = None, labels: int | Sequence[int] = 2) -> Graph:
    """Return the pairwise graph of ``edges`` (E, 2)."""
    try:
        pairs = np.asarray(edges)
    except ValueError as error:
        raise InputError("edges must be an (E, 2) array of variables.") from error
    if pairs.size == 0:
        pairs = np.empty((0, 2), dtype=np.int64)
    if pairs.ndim != 2 or pairs.shape[1] != 2:
        raise InputError(f"edges must have shape (E, 2), received {pairs.shape}.")
    if pairs.dtype.kind not in "iu":
        raise InputError(f"edges must hold integers, received dtype {pairs.dtype}.")
    pairs = pairs.astype(np.int64)
    if n_variables is None:
        listed = isinstance(labels, list | tuple) or (isinstance(labels, np.ndarray) and labels.ndim > 0)
        n_variables = len(labels) if listed else int(pairs.max(initial=-1)) + 1  # type: ignore[arg-type]
    n = _positive(n_variables, "n_variables")
    _check_scopes(pairs.ravel(), np.arange(0, 2 * len(pairs) + 1, 2), n)
    return _pairwise(_counts(labels, n), pairs)


def from_networkx(graph: Any, labels: int | Sequence[int] = 2) -> Graph:
    """Return the pairwise graph of a networkx graph; variables follow the order of ``graph.nodes``."""
    if not (hasattr(graph, "nodes") and hasattr(graph, "edges")):
        raise InputError(f"from_networkx needs a networkx graph, received {type(graph).__name__}.")
    number = {node: i for i, node in enumerate(graph.nodes)}
    edges = [(number[a], number[b]) for a, b in graph.edges()]
    return from_edges(edges, len(number), labels)


def from_regions(regions: Any, labels: int = 2, connectivity: int = 1) -> Graph:
    """Return the region adjacency graph of an (H, W) map of region numbers ``0 .. n-1``.

    Two regions are joined where they touch along a side (``connectivity=1``) or also at a corner (2);
    edges ``(a, b)`` have ``a < b`` and are sorted.
    """
    try:
        parts = np.asarray(regions)
    except ValueError as error:
        raise InputError("regions must be an (H, W) array of integers, received rows of different lengths.") from error
    if parts.ndim != 2 or parts.size == 0 or parts.dtype.kind not in "iu":
        raise InputError(f"regions must be an (H, W) array of integers, received {parts.dtype} of shape {parts.shape}.")
    if not isinstance(connectivity, int | np.integer) or connectivity not in (1, 2):
        raise InputError(f"connectivity is 1 (sides) or 2 (sides and corners), received {connectivity!r}.")
    n = int(parts.max()) + 1
    if parts.min() < 0 or len(np.unique(parts)) != n:
        raise InputError("regions must use every number 0 .. n-1 (skimage counts from 1: subtract it, or relabel).")
    touching = [(parts[:, :-1], parts[:, 1:]), (parts[:-1], parts[1:])]
    if connectivity == 2:
        touching += [(parts[:-1, :-1], parts[1:, 1:]), (parts[:-1, 1:], parts[1:, :-1])]
    pairs = np.concatenate([np.stack([a.ravel(), b.ravel()], axis=1) for a, b in touching]).astype(np.int64)
    pairs.sort(axis=1)
    return _pairwise(_counts(labels, n), np.unique(pairs[pairs[:, 0] != pairs[:, 1]], axis=0))


def _pairwise(labels: np.ndarray, edges: np.ndarray) -> Graph:
    ptr = np.arange(0, 2 * len(edges) + 1, 2, dtype=np.int64)
    return Graph._from_arrays(labels, ptr, np.ascontiguousarray(edges, dtype=np.int64).ravel())


def _counts(labels: Any, n: int) -> np.ndarray:
    single = (
        not hasattr(labels, "__len__")
        or isinstance(labels, str | bytes)
        or (isinstance(labels, np.ndarray) and labels.ndim == 0)
    )
    if single:
        return np.broadcast_to(_label_counts([labels]), n)
    counts = _label_counts(labels)
    if len(counts) != n:
        raise InputError(f"received {len(counts)} label counts for {n} variables.")
    return counts


def _positive(value: Any, what: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 1:
        raise InputError(f"{what} must be a positive integer, received {value!r}.")
    if value >= 2**31:
        raise InputError(f"{what} must be below 2**31, received {value!r}.")
    return int(value)
