"""Loopy belief propagation: [D13] eq. (18) with rho = 1, [S11] §2.1.

Exact on trees after two iterations of the sequential schedule; elsewhere log Z is Bethe's approximation.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from backfield.errors import InputError
from backfield.graph import Graph
from backfield.graph.conditioning import Restriction
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

    def restricted(self, restriction: Restriction) -> LoopyBP:
        """Return the method for a conditioned graph; an order of one's own cannot be kept."""
        if self.order is not None:
            raise InputError("an explicit order cannot be combined with observed variables; use a schedule.")
        schedule = "auto" if self.schedule == "lattice" else self.schedule
        family = "auto" if self.family in ("lattice", "copies", "pairwise") else self.family
        return replace(self, schedule=schedule, family=family)
