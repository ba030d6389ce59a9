"""What people hand to an estimator: graphs with features."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

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

    def __post_init__(self) -> None:
        if not isinstance(self.graph, Graph):
            raise InputError(f"a Sample needs a backfield.Graph, received {type(self.graph).__name__}.")
        for key, count, what in _lengths(self.graph):
            value = getattr(self, key)
            if value is not None and _length(value) != count:
                raise InputError(f"{key} of a Sample needs one entry for each of {count} {what}, received {_length(value)}.")


def _lengths(graph: Graph) -> list[tuple[str, int, str]]:
    """Return which parts of a sample have one entry for each variable or factor of its graph."""
    of_variables = ("node_features", "node_types", "observed", "weights", "outputs")
    rows = [(key, graph.n_variables, "variables") for key in of_variables]
    return [*rows, *((key, graph.n_factors, "factors") for key in ("factor_features", "factor_types"))]


def _length(value: Any) -> int:
    if hasattr(value, "shape") and len(value.shape):
        return int(value.shape[0])
    if not hasattr(value, "__len__") or hasattr(value, "shape"):
        raise InputError(f"a Sample takes arrays or lists, received {type(value).__name__}.")
    return len(value)


@dataclass
class GridSample:
    """An image with your own edge features: (H, W, F), (H, W-1, D), (H-1, W, D)."""

    features: Any
    horizontal: Any
    vertical: Any
