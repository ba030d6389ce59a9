"""One training example: a graph, the features of its rows, and what is known about its labels."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

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

    @property
    def n_labelled(self) -> int:
        """Number of variables about which something is known."""
        if self.target is None:
            return 0
        labeling = self.target.labeling
        if labeling.soft is not None:
            given = np.add.reduceat(labeling.soft, self.graph.layout.var_ptr[:-1]) > 0
            return int((given | labeling.known).sum())
        if not labeling.has_sets:
            return int((labeling.labels >= 0).sum())
        count = np.add.reduceat(labeling.allowed.astype(np.int64), self.graph.layout.var_ptr[:-1])
        return int((count < self.graph.labels).sum())
