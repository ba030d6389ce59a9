"""Potts energies: one number per pair, added where both labels are the same.

    theta_ij(x, x') = s_ij [x = x'],   s_ij = v·mu_ij

One weight per feature whatever the number of labels: what few labelled pairs can teach. Contrast-sensitive smoothing
(Boykov and Jolly 2001) is this with the feature exp(-|difference of colours|^2 / ...). Messages through such
tables cost O(L).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from backfield.energies.base import Energy
from backfield.energies.linear import Linear
from backfield.errors import InputError


@dataclass(frozen=True, repr=False)
class Potts(Energy, name="potts"):
    """One weight per feature of a pair: how much more likely equal labels are."""

    def n_weights(self, n_features: int, n_outputs: int, intercept: bool) -> int:
        """Return F + intercept."""
        _diagonal(n_outputs)
        return n_features + intercept

    def scores(self, w: np.ndarray, features: Any, n_outputs: int, intercept: bool) -> np.ndarray:
        """Return the score of each row where the labels agree, and zero elsewhere."""
        out = np.zeros((features.shape[0], n_outputs), features.dtype)
        out[:, _diagonal(n_outputs)] = Linear().scores(w, features, 1, intercept)
        return out

    def vjp(self, features: Any, d_scores: np.ndarray, intercept: bool, w: np.ndarray | None = None) -> np.ndarray:
        """Return the adjoint of the weights."""
        own = d_scores[:, _diagonal(d_scores.shape[1])].sum(axis=1, keepdims=True)
        return Linear().vjp(features, own, intercept)

    def gram(self, features: Any, intercept: bool) -> np.ndarray | None:
        """Return X'X of the features."""
        return Linear().gram(features, intercept)


def _diagonal(n_outputs: int) -> slice:
    """Return the entries of a table of pairs whose labels agree."""
    n_labels = math.isqrt(n_outputs)
    if n_labels < 2 or n_labels * n_labels != n_outputs:
        raise InputError(f"potts joins pairs of variables with the same labels; received a table of {n_outputs} entries.")
    return slice(0, n_outputs, n_labels + 1)
