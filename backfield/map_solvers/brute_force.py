"""MAP by enumeration: the reference for everything small.

Depth-first over the labelings in lexicographic order; a factor is added when its last variable gets a label, and a
prefix that is already impossible (-inf) is left at once. Ties go to the lexicographically smallest labels.

Cost O(number of labelings · degree); memory O(n).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from backfield.errors import InputError
from backfield.graph import Potentials
from backfield.kernels.compile import exact_kernel
from backfield.map_solvers.base import MapResult, MapSolver


@dataclass(frozen=True, repr=False)
class BruteForce(MapSolver, name="brute_force"):
    """Exact MAP by enumeration.

    Parameters
    ----------
    max_states : int
        Models with more labelings are refused.
    """

    max_states: int = 2**22

    exact: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if isinstance(self.max_states, bool) or not isinstance(self.max_states, int) or self.max_states < 1:
            raise InputError(f"brute_force: max_states must be an integer >= 1, received {self.max_states!r}.")

    def solve(self, theta: Potentials) -> MapResult:
        """Return the best labels."""
        count = math.prod(theta.graph.labels[theta.graph.labels > 1].tolist())
        if count > self.max_states:
            shown = str(count) if count < 10**12 else f"about 10^{int(math.log10(count))}"
            raise InputError(
                f"brute_force would enumerate {shown} labelings and max_states is {self.max_states}; use viterbi (no "
                "cycles), graph_cut (binary and submodular) or max_product."
            )
        exact = theta.astype(np.float64)
        labels = np.zeros(theta.graph.n_variables, dtype=np.int64)
        if _enumerate(theta.graph.layout, exact.unary_flat, exact.factors_flat, labels) == -np.inf:
            raise InputError("no configuration is possible: the potentials together forbid them all (-inf).")
        return MapResult(labels, theta.score(labels), optimal=True)


@exact_kernel
def _enumerate(layout, theta_u, theta_c, best):
    n = len(layout.labels)
    deepest = np.zeros(len(layout.scope_ptr) - 1, dtype=np.int64)
    for k in range(len(layout.scope)):
        deepest[layout.slot_factor[k]] = max(deepest[layout.slot_factor[k]], layout.scope[k])
    x = np.full(n, -1, dtype=np.int64)
    prefix = np.zeros(n)
    top = -np.inf
    d = 0
    while d >= 0:
        x[d] += 1
        if x[d] == layout.labels[d]:
            d -= 1
            continue
        value = prefix[d] + theta_u[layout.var_ptr[d] + x[d]]
        for s in range(layout.inc_ptr[d], layout.inc_ptr[d + 1]):
            c = layout.slot_factor[layout.inc[s]]
            if deepest[c] == d:
                entry = layout.table_ptr[c]
                for k in range(layout.scope_ptr[c], layout.scope_ptr[c + 1]):
                    entry += layout.stride[k] * x[layout.scope[k]]
                value += theta_c[entry]
        if value == -np.inf:
            continue
        if d < n - 1:
            d += 1
            prefix[d] = value
            x[d] = -1
        elif value > top:
            top = value
            best[:] = x
    return top
