"""The best MAP solver for a model: exact where one is, else loopy max-product."""

from __future__ import annotations

from backfield._component import get
from backfield.errors import InputError
from backfield.graph import Potentials
from backfield.map_solvers._base import MapResult


def solve(theta: Potentials, solver: str = "auto") -> MapResult:
    """Return MAP labels by ``solver``; ``auto`` is viterbi, else graph_cut, else max_product, whichever takes the model."""
    if solver != "auto":
        return get("map_solvers", solver).solve(theta)
    graph = theta.graph
    exact = ["viterbi"] + (["graph_cut"] if graph.is_pairwise and graph.n_labels == 2 else [])
    for name in exact:
        try:
            return get("map_solvers", name).solve(theta)
        except InputError:  # the model has cycles, or is not submodular
            continue
    return get("map_solvers", "max_product").solve(theta)
