"""A mixture of two losses ([S11] §7): a smooth one leads into a good region, the other is what is wanted.

share · first + (1 - share) · second
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from backfield.errors import InputError
from backfield.graph import Potentials
from backfield.graph.labeling import Labeling
from backfield.losses.base import Loss
from backfield.registry import get


@dataclass(frozen=True, repr=False)
class Hybrid(Loss, name="hybrid"):
    """A mixture of two losses on marginals, given by their specs; both see the same inference.

    Parameters
    ----------
    first, second : str
        Specs of losses.
    share : float
        Weight of the first; the second has the rest.
    """

    first: str = "l1"
    second: str = "mse"
    share: float = 0.5

    def __post_init__(self) -> None:
        if isinstance(self.share, bool) or not (isinstance(self.share, int | float) and 0 <= self.share <= 1):
            raise InputError(f"hybrid: share must be a number in [0, 1], received {self.share!r}.")
        a, b = self._parts()
        if a.per_example != b.per_example:
            raise InputError(
                f"hybrid: {a.name} and {b.name} do not mix: one is a sum over variables, one a mean per example."
            )

    def _parts(self) -> tuple[Loss, Loss]:
        return get("losses", self.first), get("losses", self.second)

    @property
    def per_example(self) -> bool:  # type: ignore[override]
        """Whether both are one number per example."""
        return self._parts()[0].per_example

    @property
    def cliques(self) -> bool:  # type: ignore[override]
        """Whether one looks at the marginals of factors."""
        return any(part.cliques for part in self._parts())

    @property
    def smooth(self) -> bool:  # type: ignore[override]
        """Whether both can be differentiated twice."""
        return all(part.smooth for part in self._parts())

    def check_seen(self, seen: np.ndarray) -> None:
        """Refuse data that teach one of them nothing."""
        for part in self._parts():
            part.check_seen(seen)

    def value_and_dmu(self, mu: Potentials, labeling: Labeling, weights: np.ndarray | None) -> tuple[Any, Potentials]:
        """Return the mixture and its derivative."""
        (a, d_a), (b, d_b) = (part.value_and_dmu(mu, labeling, weights) for part in self._parts())
        flat = [self.share * x + (1 - self.share) * y for x, y in zip(_filled(mu, d_a), _filled(mu, d_b), strict=True)]
        if not self.cliques:
            flat[1] = flat[1][:0]
        return self.share * a + (1 - self.share) * b, Potentials.from_flat(mu.graph, *flat)


def _filled(mu: Potentials, d_mu: Potentials) -> tuple[np.ndarray, np.ndarray]:
    """Return the adjoints with factor tables that were left empty as zeros."""
    tables = d_mu.factors_flat
    return d_mu.unary_flat, np.zeros_like(mu.factors_flat) if len(tables) == 0 else tables
