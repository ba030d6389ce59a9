"""Kernel groups written out: a factor for every pair, O(n^2 L^2). For small models, and the truth in tests."""

from __future__ import annotations

import numpy as np

from backfield.errors import InputError
from backfield.graph.graph import Graph
from backfield.graph.potentials import Potentials

#: Entries of tables that are written out at most.
_MOST = 2**27


def all_pairs(theta: Potentials) -> Potentials:
    """Return the model of the graph's own factors and, after them, one factor for each pair that kernels join."""
    if not theta.kernels:
        return theta.written_out()
    graph = theta.graph
    n, n_labels = graph.n_variables, graph.n_labels
    assert n_labels is not None
    if n * (n - 1) // 2 * n_labels**2 > _MOST:
        raise InputError(f"the pairs of {n:,} variables with {n_labels} labels are too many to write out.")
    if not all(kernel.operator().has_model for kernel in theta.kernels):
        raise InputError("kernels with self terms or directed ones are no pairs of a model; they cannot be written out.")
    first, second = np.triu_indices(n, 1)
    tables = np.zeros((len(first), n_labels, n_labels), theta.dtype)
    for kernel in theta.kernels:
        operator = kernel.operator()
        tables += operator.pair_matrix()[first, second, None, None] * operator.matrix
    own, layout = theta.without_kernels(), graph.layout
    scope = np.concatenate([layout.scope, np.stack([first, second], axis=1).reshape(-1)])
    ptr = np.concatenate([layout.scope_ptr, layout.scope_ptr[-1] + 2 * np.arange(1, len(first) + 1)])
    bigger = Graph.from_scopes(graph.labels, ptr, scope)
    return Potentials.from_flat(bigger, theta.unary_flat, np.concatenate([own.factors_flat, tables.reshape(-1)]))
