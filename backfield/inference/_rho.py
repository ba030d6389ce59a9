"""Counting numbers rho_c of tree-reweighted methods: a number, one per factor, or from acyclic subsets of factors."""

from __future__ import annotations

from typing import Any

import numpy as np

from backfield._numeric import exact_kernel
from backfield.errors import InputError
from backfield.graph import Graph

_ROUNDS = 20


def counting_numbers(graph: Graph, rho: Any) -> np.ndarray:
    """Return rho (F,) as float64; constant where a number (or a grid's ``"trees"``) was asked for."""
    if isinstance(rho, str):
        if rho != "trees":
            raise InputError(f"rho must be a positive number, one number per factor, or 'trees'; got {rho!r}.")
        return np.asarray(graph.compiled("trees", lambda: from_trees(graph)))
    array = np.asarray(rho)
    if array.dtype.kind not in "iuf" or not (np.isfinite(array).all() and (array > 0).all()):
        raise InputError(f"rho must be positive and finite; got {rho!r}.")
    if array.ndim == 0:
        return np.broadcast_to(np.float64(array), graph.n_factors)
    if array.shape != (graph.n_factors,):
        raise InputError(f"rho must be one number or one per factor ({graph.n_factors}); got shape {array.shape}.")
    return array.astype(np.float64)


def from_trees(graph: Graph) -> np.ndarray:
    """Return the share of acyclic factor subsets that contain each factor.

    Such rho make the entropy an upper bound ([D13] §3.3). A grid is covered by its rows and its columns, half and
    half. Elsewhere subsets are grown greedily, factors taken least often first, until all are covered.
    """
    if graph.shape is not None and min(graph.shape) > 1:
        return np.broadcast_to(np.float64(0.5), graph.n_factors)
    layout = graph.layout
    count = np.zeros(graph.n_factors, dtype=np.int64)
    rng = np.random.default_rng(0)
    rounds = 0
    while rounds < _ROUNDS or count.min(initial=1) == 0:
        order = np.lexsort((rng.random(graph.n_factors), count))
        _grow_forest(layout.scope_ptr, layout.scope, order, graph.n_variables, count)
        rounds += 1
        if rounds == 1 and count.min(initial=1) == 1:
            break  # the graph is a forest itself
    return count / rounds


def is_upper_bound(graph: Graph, rho: np.ndarray) -> bool:
    """Whether rho is known to give an upper bound: at most what the acyclic subsets give."""
    return bool((rho <= counting_numbers(graph, "trees") + 1e-12).all())


@exact_kernel
def _grow_forest(scope_ptr, scope, order, n, count):  # type: ignore[no-untyped-def]
    """Add factors in the given order while their factor graph stays acyclic; count those taken."""
    parent = np.arange(n)
    roots = np.empty(len(scope), np.int64)
    for c in order:
        first, last = scope_ptr[c], scope_ptr[c + 1]
        free = True
        for k in range(first, last):
            root = scope[k]
            while parent[root] != root:
                parent[root] = parent[parent[root]]
                root = parent[root]
            roots[k] = root
            for other in range(first, k):
                if roots[other] == root:
                    free = False
        if free:
            for k in range(first + 1, last):
                parent[roots[k]] = roots[first]
            count[c] += 1
