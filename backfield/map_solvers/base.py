"""What a MAP solver is: theta -> the labels that maximise theta·f(labels)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from backfield.graph import Potentials
from backfield.registry import Component


@dataclass
class MapResult:
    """Labels, their value theta·f(labels), and whether the solver guarantees that no labels are better.

    ``bound`` is a number that no value exceeds, inf where the solver knows none but is not ``optimal``.
    ``n_truncated`` counts the couplings that a cut had to truncate.
    """

    labels: np.ndarray
    value: float
    optimal: bool
    n_iter: int = 0
    bound: float = np.inf
    n_truncated: int = 0

    @property
    def gap(self) -> float:
        """How much better than ``value`` any labels can be; 0 where they are known to be the best."""
        return 0.0 if self.optimal else self.bound - self.value


class MapSolver(Component):
    """A method that finds probable labels."""

    room: ClassVar[str] = "map_solvers"
    #: Gives the best labels on every model that it accepts.
    exact: ClassVar[bool] = False

    def supports(self, theta: Potentials) -> bool:
        """Whether the solver runs on the groups of ``theta`` as they are; others it reads as tables, written out."""
        return theta.has_tables_only

    def solve(self, theta: Potentials) -> MapResult:
        """Return the labels found for ``theta``."""
        raise NotImplementedError
