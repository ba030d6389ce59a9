"""What an energy is: features, w -> scores, one row per variable (or factor), one column per label (or table entry)."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from backfield._component import Component


class Energy(Component):
    """A function of features with weights, and its derivative with respect to the weights.

    ``features`` is (N, F), dense or CSR; ``w`` is flat; scores are (N, K) in the type of the features.
    """

    room: ClassVar[str] = "energies"

    def n_weights(self, n_features: int, n_outputs: int, intercept: bool) -> int:
        """Return the number of weights."""
        raise NotImplementedError

    def scores(self, w: np.ndarray, features: Any, n_outputs: int, intercept: bool) -> np.ndarray:
        """Return the scores (N, K)."""
        raise NotImplementedError

    def vjp(self, features: Any, d_scores: np.ndarray, intercept: bool) -> np.ndarray:
        """Return the adjoint of the weights, flat, float64."""
        raise NotImplementedError
