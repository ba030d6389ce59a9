"""The models that speed is measured on; the same numbers as the C kernels read, from the same seeds.

w1: binary 100x100 grid; w2: 60x80 grid with 8 labels; w4: random graph of 200 variables and 800 edges. All potentials
are N(0, 1).
"""

from __future__ import annotations

import numpy as np

from backfield import Graph, Potentials


def workload(name: str, dtype: str = "float64", labels: int | None = None) -> Potentials:
    """Return the potentials of w1, w2 or w4; w2 also with another number of labels."""
    if name == "w4":
        return _random_graph().astype(dtype)
    if name == "w1":
        return _grid(100, 100, 2, seed=1).astype(dtype)
    return _grid(60, 80, labels or 8, seed=2).astype(dtype)


def _grid(rows: int, columns: int, labels: int, seed: int) -> Potentials:
    rng = np.random.default_rng(seed)
    graph = Graph.grid(rows, columns, labels=labels)
    unary = rng.standard_normal((rows * columns, labels))
    factors = np.empty((graph.n_factors, labels, labels))
    # The models draw tables for edges sorted by their ends; a grid has all horizontal edges first.
    factors[np.lexsort((graph.factors[:, 1], graph.factors[:, 0]))] = rng.standard_normal(factors.shape)
    return Potentials(graph, unary, factors)


def _random_graph() -> Potentials:
    rng = np.random.default_rng(4)
    pairs = np.stack(np.triu_indices(200, 1), axis=1)
    graph = Graph.from_edges(pairs[np.sort(rng.choice(len(pairs), 800, replace=False))], 200, 2)
    return Potentials(graph, rng.standard_normal((200, 2)), rng.standard_normal((800, 2, 2)))


def as_general(theta: Potentials) -> Potentials:
    """Return a grid's model on a graph that does not know that it is a grid, edges sorted as in the C kernels."""
    edges = theta.graph.factors
    order = np.lexsort((edges[:, 1], edges[:, 0]))
    graph = Graph.from_edges(edges[order], theta.graph.n_variables, theta.graph.n_labels or 2)
    return Potentials(graph, theta.unary, theta.factors[order])


def square(side: int) -> Potentials:
    """Return a binary grid of ``side`` rows and columns in float32."""
    rng = np.random.default_rng(0)
    graph = Graph.grid(side, side)
    unary = rng.standard_normal((graph.n_variables, 2), dtype=np.float32)
    return Potentials(graph, unary, rng.standard_normal((graph.n_factors, 2, 2), dtype=np.float32))
