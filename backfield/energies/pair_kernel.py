"""The weights of a kernel group: how strong it is, which labels go together, and how far it reaches.

    C = v I + M,   sigma_g = sigma0_g exp(2 tanh(t_g / 2))

v starts at the spec's weight, M (symmetric, diagonal or nothing) and t at 0: a ridge pulls towards no coupling at all, and
the bandwidths, which stay within a factor of 7.4, towards those of the spec.
"""

from __future__ import annotations

from copy import copy
from typing import Any, ClassVar

import numpy as np

from backfield.energies.base import Energy
from backfield.graph import Kernel
from backfield.kernels.gaussian import choose

COMPATIBILITIES = ("full", "diagonal", "potts")


class PairKernel(Energy):
    """The weights of one kernel. Not registered: the structure makes it from its spec.

    Parameters
    ----------
    spec : str
        What the kernel is called in reports.
    bandwidths : tuple of float
        To start from; each serves several features of an example (its ``widths``).
    weight : float
        To start from.
    compatibility : {"full", "diagonal", "potts"}
    learn_scales : bool
    filter : str
        As of :class:`backfield.Kernel`.
    """

    linear: ClassVar[bool] = False
    #: Bandwidths stay where they are, with their weights.
    frozen: bool = False

    def __init__(
        self,
        spec: str,
        bandwidths: tuple[float, ...],
        weight: float,
        compatibility: str = "full",
        learn_scales: bool = True,
        filter: str = "auto",
    ) -> None:
        self.spec, self.bandwidths, self.weight = spec, np.array(bandwidths, dtype=np.float64), float(weight)
        self.compatibility, self.learn_scales, self.filter = compatibility, learn_scales, filter

    def __repr__(self) -> str:
        return f"{self.spec}, {self.compatibility}, {'learned' if self.learn_scales else 'fixed'} scales, {self.filter}"

    def freeze(self) -> PairKernel:
        """Return the same with bandwidths that stay where they are."""
        out = copy(self)
        out.frozen = True
        return out

    def scale_weights(self, n_labels: int) -> slice:
        """Return which of the weights are those of the bandwidths."""
        return slice(1 + self._n_entries(n_labels), None)

    def n_weights(self, n_features: int, n_outputs: int, intercept: bool) -> int:
        """Return 1, those of M, and one for each bandwidth that is learned."""
        return 1 + self._n_entries(n_outputs) + len(self.bandwidths) * self.learn_scales

    def _n_entries(self, n_labels: int) -> int:
        return {"potts": 0, "diagonal": n_labels, "full": n_labels * (n_labels + 1) // 2}[self.compatibility]

    def start(self, n_features: int, n_outputs: int, intercept: bool) -> np.ndarray:
        """Return the spec's weight, and zeros."""
        w = np.zeros(self.n_weights(n_features, n_outputs, intercept))
        w[0] = self.weight
        return w

    def matrix(self, w: np.ndarray, n_labels: int) -> np.ndarray:
        """Return C, of Potts as a number and of a diagonal as a vector."""
        if self.compatibility == "potts":
            return np.asarray(w[0])
        entries = w[1 : 1 + self._n_entries(n_labels)]
        if self.compatibility == "diagonal":
            return np.asarray(w[0] + entries)
        upper = np.zeros((n_labels, n_labels))
        upper[np.triu_indices(n_labels)] = entries
        return np.asarray(w[0] * np.eye(n_labels) + upper + np.triu(upper, 1).T)

    def scales(self, w: np.ndarray, n_labels: int) -> np.ndarray:
        """Return the bandwidths."""
        if not self.learn_scales:
            return self.bandwidths
        return self.bandwidths * np.exp(2 * np.tanh(w[self.scale_weights(n_labels)] / 2))

    def group(self, w: np.ndarray, features: Any, widths: tuple[int, ...], n_labels: int, dtype: Any) -> Kernel:
        """Return the kernel group of an example."""
        sigma = np.repeat(self.scales(w, n_labels), widths)
        # That of the start: what is learned must not jump from one filter to another.
        filter = choose(self.filter, features, np.repeat(self.bandwidths, widths))
        return Kernel(
            features, self.matrix(w, n_labels), sigma, 1.0, filter=filter,
            fixed_bandwidths=self.frozen or not self.learn_scales, n_labels=n_labels, value_type=np.dtype(dtype),
        )  # fmt: skip

    def group_vjp(self, w: np.ndarray, d: Kernel, widths: tuple[int, ...], n_labels: int) -> np.ndarray:
        """Return the adjoint of the weights from that of the group."""
        g = d.compatibility
        parts = [np.reshape(np.trace(g) if g.ndim == 2 else g.sum(), 1)]
        if self.compatibility == "diagonal":
            parts.append(g)
        elif self.compatibility == "full":
            parts.append((g + g.T - np.diag(np.diag(g)))[np.triu_indices(n_labels)])
        if self.frozen and self.learn_scales:
            parts.append(np.zeros(len(self.bandwidths)))
        elif self.learn_scales:
            t = w[self.scale_weights(n_labels)]
            each = np.add.reduceat(d.bandwidths, np.concatenate([[0], np.cumsum(widths)[:-1]]).astype(np.int64))
            parts.append(each * self.scales(w, n_labels) * (1 - np.tanh(t / 2) ** 2))
        return np.concatenate(parts)
