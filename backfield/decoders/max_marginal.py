"""Maximum posterior marginals ([D13] eq. (2)): the best guess when wrong variables are counted.

Where theta forbids these labels together (-inf in tables), the labels that it allows with the largest product of marginals:
posterior Viterbi decoding (Fariselli, Martelli and Casadio 2005).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from backfield.decoders.base import Decoder
from backfield.graph import Potentials
from backfield.map_solvers.auto import solve


@dataclass(frozen=True, repr=False)
class MaxMarginal(Decoder, name="max_marginal"):
    """The most probable label of each variable; of all labelings that are possible, where some are not."""

    separable: ClassVar[bool] = True
    keeps_constraints: ClassVar[bool] = True

    local: ClassVar[bool] = True

    def decode(self, theta: Potentials, mu: Potentials | None, outputs: np.ndarray | None = None) -> np.ndarray:
        """Return the labels with the largest marginals."""
        assert mu is not None
        labels = _largest(mu)
        if theta.is_finite or theta.score(labels) > -np.inf:
            return labels
        allowed = solve(_posterior(theta, mu)).labels
        return allowed if theta.score(allowed) > -np.inf else labels


def _largest(mu: Potentials) -> np.ndarray:
    if mu.graph.n_labels is not None:
        labels: np.ndarray = mu.unary.argmax(axis=1)
        return labels
    return np.array([int(row.argmax()) for row in mu.unary])


def _posterior(theta: Potentials, mu: Potentials) -> Potentials:
    """Return log marginals, finite where theta is, with tables of 0 where something is possible and -inf elsewhere."""
    tiny = np.finfo(np.float64).tiny
    unary = np.where(theta.unary_flat > -np.inf, np.log(np.maximum(mu.unary_flat.astype(np.float64), tiny)), -np.inf)
    return theta.astype(np.float64).possible().with_unary(unary)
