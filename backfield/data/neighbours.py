"""Features of the neighbours of a node as further features of the node."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from typing import Any, Self

import numpy as np
from scipy.sparse import coo_matrix, csr_matrix, hstack, issparse

from backfield.data.samples import Sample
from backfield.errors import InputError
from backfield.graph import Graph
from backfield.scikit_learn import BaseEstimator, TransformerMixin


class NeighbourMeans(TransformerMixin, BaseEstimator, auto_wrap_output_keys=None):  # type: ignore[call-arg]
    """Samples -> samples whose nodes have, beside their features, the means over their neighbours.

    Parameters
    ----------
    hops : int
        Means over the neighbours, then means of these over the neighbours, and so on: F (1 + hops) features.
    """

    def __init__(self, hops: int = 1) -> None:
        self.hops = hops

    def fit(self, X: Any = None, y: Any = None) -> Self:
        """Do nothing: there is nothing to learn."""
        return self

    def set_output(self, *, transform: str | None = None) -> Self:
        """Return self: samples stay samples."""
        return self

    def transform(self, X: Sequence[Any]) -> list[Sample]:
        """Return the samples with more features."""
        if isinstance(X, str | bytes | dict) or not isinstance(X, Iterable):
            raise InputError(f"NeighbourMeans needs a list of backfield.Sample, got {type(X).__name__}.")
        out = []
        for number, x in enumerate(X):
            if not isinstance(x, Sample):
                raise InputError(f"example {number}: NeighbourMeans needs backfield.Sample, received {type(x).__name__}.")
            out.append(dataclasses.replace(x, node_features=neighbour_means(x.graph, x.node_features, self.hops)))
        return out


def neighbour_means(graph: Graph, features: Any, hops: int = 1) -> Any:
    """Return (n, F) features with means over neighbours beside them; nodes without neighbours have zeros there.

    Neighbours are variables that share a factor, as often as they do.
    """
    if isinstance(hops, bool) or not isinstance(hops, int | np.integer) or hops < 1:
        raise InputError(f"hops must be an integer >= 1, received {hops!r}.")
    rows = features.tocsr() if issparse(features) else np.asarray(features, dtype=np.float64)
    if rows.ndim != 2 or rows.shape[0] != graph.n_variables:
        raise InputError(f"features must have shape ({graph.n_variables}, F), received {rows.shape}.")
    parts, mean = [rows], _averaging(graph)
    for _ in range(hops):
        parts.append(mean @ parts[-1])
    return hstack(parts, format="csr") if issparse(rows) else np.concatenate(parts, axis=1)


def _averaging(graph: Graph) -> csr_matrix:
    """Return the matrix whose row i averages over the neighbours of i."""
    layout = graph.layout
    sizes = np.diff(layout.scope_ptr)
    factor = np.repeat(np.arange(len(sizes)), sizes)
    member = coo_matrix((np.ones(len(factor)), (layout.scope, factor)), shape=(graph.n_variables, len(sizes))).tocsr()
    joined = (member @ member.T).tocsr()
    joined.setdiag(0)
    joined.eliminate_zeros()
    count = np.asarray(joined.sum(axis=1)).reshape(-1)
    scale = np.divide(1.0, count, out=np.zeros_like(count), where=count > 0)
    return csr_matrix(joined.multiply(scale[:, None]))
