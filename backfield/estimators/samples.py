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
    outputs : (n,) bools, optional
        The variables that are asked for; decoders of a whole labeling, such as those for the F-measure, leave out others.
        In training, variables whose label is -1 are no outputs.
    """

    graph: Graph
    node_features: Any
    factor_features: Any = None
    node_types: Any = None
    factor_types: Any = None
    observed: Any = None
    weights: Any = None
    outputs: Any = None


@dataclass
class GridSample:
    """An image with edge features of your own: (H, W, F), (H, W-1, D), (H-1, W, D)."""

    features: Any
    horizontal: Any
    vertical: Any


def n_columns(features: Any, rows: int, where: str) -> int:
    """Return F of features that have shape (rows, F), without looking at their values."""
    try:
        shape = np.shape(features) if not hasattr(features, "shape") else features.shape
    except ValueError as error:
        raise InputError(f"{where}: features must be a rectangular array.") from error
    if len(shape) != 2 or shape[0] != rows:
        raise InputError(f"{where}: features must have shape ({rows}, F), got {shape}.")
    return int(shape[1])


def checked_features(features: Any, rows: int, dtype: Any, where: str) -> Any:
    """Return features as (rows, F) of the type asked for, dense or CSR, all finite."""
    n_columns(features, rows, where)
    if hasattr(features, "tocsr"):
        matrix = features.tocsr().astype(dtype)
        values = matrix.data
    else:
        matrix = np.asarray(features)
        if matrix.dtype.kind not in "biuf":
            raise InputError(f"{where}: features must be numbers, got dtype {matrix.dtype}.")
        matrix = np.ascontiguousarray(matrix, dtype=dtype)
        values = matrix
    if not np.isfinite(values).all():
        raise InputError(f"{where}: features hold NaN or infinity.")
    return matrix
