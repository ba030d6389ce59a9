"""Whether a graph has a cycle."""

from __future__ import annotations

import numpy as np

from backfield.graph.graph import Graph
from backfield.kernels.setup import SetupKernel


def is_forest(graph: Graph) -> bool:
    """Whether a graph of pairs has no cycle; two factors over one pair are one."""
    if graph.n_factors >= graph.n_variables:
        return False
    return bool(_is_forest(graph._scope, np.arange(graph.n_variables)))


@SetupKernel
def _is_forest(scope, root):
    """Join the two ends of each pair; an end that is joined already closes a cycle."""
    for k in range(0, len(scope), 2):
        a, b = scope[k], scope[k + 1]
        while root[a] != a:
            root[a] = root[root[a]]
            a = root[a]
        while root[b] != b:
            root[b] = root[root[b]]
            b = root[b]
        if a == b:
            return False
        root[a] = b
    return True
