"""Loopy belief propagation: [D13] eq. (18) with rho = 1, [S11] §2.1.

Exact on trees after two iterations of the sequential schedule; elsewhere log Z is Bethe's approximation.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from backfield.graph import Graph
from backfield.inference.message_passing.families import MessagePassing


@dataclass(frozen=True, repr=False)
class LoopyBP(MessagePassing, name="loopy_bp"):
    """Loopy belief propagation on any graph; parameters as in :class:`TreeReweighted`."""

    n_iter: int = 50
    tol: float | None = None
    damping: float = 0.0
    schedule: str = "auto"
    order: Any = None
    family: str = "auto"

    symmetric: ClassVar[bool] = True
    bound: ClassVar[str] = "bethe"

    def counting_numbers(self, graph: Graph) -> np.ndarray:
        """Return ones."""
        return np.broadcast_to(np.float64(1), graph.n_factors)
