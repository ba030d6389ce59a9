"""Maximum posterior marginals ([D13] eq. (2)): the best guess when wrong variables are counted."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from backfield.decoders.base import Decoder
from backfield.graph import Potentials


@dataclass(frozen=True, repr=False)
class MaxMarginal(Decoder, name="max_marginal"):
    """The most probable label of each variable."""

    def decode(self, theta: Potentials, mu: Potentials | None, outputs: np.ndarray | None = None) -> np.ndarray:
        """Return the labels with the largest marginals."""
        assert mu is not None
        if mu.graph.n_labels is not None:
            return mu.unary.argmax(axis=1)
        return np.array([int(row.argmax()) for row in mu.unary])
