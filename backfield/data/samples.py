"""What people hand to an estimator: graphs with features."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

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
