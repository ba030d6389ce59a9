"""One training example: a graph, the features of its rows, and what is known about its labels."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

from backfield.graph import Graph
from backfield.objectives import Target
from backfield.structures.constraints import Forbidden
from backfield.structures.kernel_specs import Points


class Rows(NamedTuple):
    """Rows of one block in one example: which variables (or factors) they are, and their features."""

    index: Any  # slice or int array
    features: Any  # (N, F), dense or CSR; (H, W, F) where the energy looks at a whole image


@dataclass
class Example:
    """One graph with features, and what is known about its labels."""

    graph: Graph
    unary: list[Rows | None]  # one entry per block of the layout's variables
    factors: list[Rows | None]
    target: Target | None = None
    weight: float = 1.0
    forbidden: Forbidden | None = None
    kernels: list[Points] = field(default_factory=list)  # what each kernel over all pairs sees

    def of(self, kind: str) -> list[Rows | None]:
        """Return the rows of ``unary`` or ``factors``."""
        return {"unary": self.unary, "factors": self.factors}[kind]
