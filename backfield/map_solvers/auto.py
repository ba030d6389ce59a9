"""The best MAP solver for a model: exact where one is, or where the model is tiny; else loopy max-product."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from backfield.errors import InputError
from backfield.graph import Potentials
from backfield.map_solvers.base import MapResult, MapSolver
from backfield.registry import get, lookup

#: Models of at most 2^TINY labelings are enumerated.
_TINY = 14


def solve(theta: Potentials, solver: str = "auto") -> MapResult:
    """Return MAP labels by ``solver``; ``auto`` is viterbi, graph_cut, brute_force (of few labelings) or max_product.

    It is the first of these that takes the model.
    """
    theta.refuse_kernels("a MAP solver")
    if solver != "auto":
        return _part(solver).solve(theta)
    graph = theta.graph
    exact = ["viterbi"] + (["graph_cut"] if graph.is_pairwise and graph.n_labels == 2 else [])
    for name in exact:
        try:
            return _default(name).solve(theta)
        except InputError:  # the model has cycles, or is not submodular
            continue
    if float(np.log2(graph.labels).sum()) <= _TINY:
        return _default("brute_force").solve(theta)
    return _default("max_product").solve(theta)


def chain_solver_supports(solver: str, theta: Potentials) -> bool:
    """Whether ``solver`` is Viterbi's algorithm on this model, which runs on its groups as they are."""
    return solver in ("auto", "viterbi") and _default("viterbi").supports(theta)


def check_solver(solver: Any) -> None:
    """Refuse what is no solver."""
    if not isinstance(solver, str):
        get("map_solvers", solver)
    elif solver != "auto":
        _part(solver)


@lru_cache(maxsize=64)
def _part(solver: str) -> MapSolver:
    """Return a solver by its spec, which takes longer to read than a small model to solve."""
    part: MapSolver = get("map_solvers", solver)
    return part


def _default(name: str) -> MapSolver:
    part: MapSolver = lookup("map_solvers", name)()  # type: ignore[assignment]
    return part
