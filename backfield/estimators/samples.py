"""What people hand to an estimator: graphs with features."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from backfield.errors import InputError
from backfield.graph import Graph


@dataclass
class Sample:
    """A graph with features of its variables and factors.

    Parameters
    ----------
    graph : Graph
    node_features : (n, F) array or CSR matrix
    factor_features : (F, D) array, optional
        Without it, factors have a constant only.
    node_types, factor_types : int arrays, optional
        Weights are tied per type.
    observed : (n,) ints, optional
        Labels that are given as input, -1 = free.
    weights : (n,) or (n, L) array, optional
        Weights of the variables in the loss.
    """

    graph: Graph
    node_features: Any
    factor_features: Any = None
    node_types: Any = None
    factor_types: Any = None
    observed: Any = None
    weights: Any = None


@dataclass
class GridSample:
    """An image with edge features of your own: (H, W, F), (H, W-1, D), (H-1, W, D)."""

    features: Any
    horizontal: Any
    vertical: Any


def checked_features(features: Any, rows: int, dtype: Any, where: str) -> Any:
    """Return features as (rows, F) of the type asked for, dense or CSR, all finite."""
    if hasattr(features, "tocsr"):
        matrix = features.tocsr().astype(dtype)
        values = matrix.data
    else:
        try:
            matrix = np.asarray(features)
        except ValueError as error:
            raise InputError(f"{where}: features must be a rectangular array.") from error
        if matrix.dtype.kind not in "biuf":
            raise InputError(f"{where}: features must be numbers, got dtype {matrix.dtype}.")
        matrix = np.ascontiguousarray(matrix, dtype=dtype)
        values = matrix
    if matrix.ndim != 2 or matrix.shape[0] != rows:
        raise InputError(f"{where}: features must have shape ({rows}, F), got {matrix.shape}.")
    if not np.isfinite(values).all():
        raise InputError(f"{where}: features hold NaN or infinity.")
    return matrix
