"""The most probable labels together (MAP)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from backfield.decoders.base import Decoder
from backfield.graph import Potentials
from backfield.map_solvers.auto import check_solver, solve


@dataclass(frozen=True, repr=False)
class Map(Decoder, name="map"):
    """The labels that maximise theta·f(labels), by a ``solver`` (``auto``: the best one for the model)."""

    solver: str = "auto"

    needs_marginals: ClassVar[bool] = False
    separable: ClassVar[bool] = True
    keeps_constraints: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_solver(self.solver)

    def decode(self, theta: Potentials, mu: Potentials | None, outputs: np.ndarray | None = None) -> np.ndarray:
        """Return the solver's labels."""
        return solve(theta, self.solver).labels
