"""Mean field of a dense field: all pairs of variables coupled by Gaussian kernels, filtered instead of written out.

    theta_ij(a, b) = sum_m C_m(a, b) k_m(i, j),   z_i(a) = u_i(a) + sum_m sum_b C_m(a, b) (K_m q)_i(b),   q' ∝ exp(z)

([KK11] Krähenbühl and Koltun, "Efficient inference in fully connected CRFs with Gaussian edge potentials", Alg. 1; all
variables at once). A(q) = u·q + 1/2 sum_m <q, K_m q C_m> + H(q) is a lower bound of log Z of the written-out model, within
the error of the filter, if the kernels have no self terms and are symmetric. With self terms it is another function, which
parallel updates never lower where all C_m and K_m are positive semidefinite.

Without them the update may oscillate. The convergent one ([KK13] Krähenbühl and Koltun, "Parameter learning and convergent
inference for dense random fields") bounds the quadratic form from below. Let no eigenvalue of it be below -lambda. As q sums
to one, |q - p|^2 <= KL(q | p) (Pinsker), and the maximum of the bound

    u·q + <q, K p C> + H(q) - (lambda / 2) KL(q | p)

is the parallel update damped in the logarithm by lambda / (2 + lambda): closed, and A never falls.
Differs from [KK13]: there the bound is quadratic and every variable solves an equation of its own.

Adjoints: with d_z that of z, d_C_m = q' K_m' d_z (q is not filtered again), d_q = sum_m K_m' d_z C_m. Cost of a sweep: one
filter for each kernel; of its adjoint: one more, and two more where bandwidths are learned.

A reference in numpy around the filters: no group of :class:`~backfield.graph.Potentials` speaks of it yet.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from backfield.errors import InputError
from backfield.kernels.gaussian import Collector, Normalised


@dataclass(frozen=True, eq=False)
class Coupling:
    """One kernel and its compatibility C (L, L), symmetric; a number w stands for w [a = b], a vector for a diagonal."""

    kernel: Normalised
    compatibility: Any

    def matrix(self, n_labels: int) -> np.ndarray:
        """Return C as a checked matrix."""
        c = np.asarray(self.compatibility, dtype=self.kernel.dtype)
        c = np.diag(np.broadcast_to(c, n_labels)) if c.ndim < 2 else c
        if c.shape != (n_labels, n_labels):
            raise InputError(f"a compatibility of {n_labels} labels is ({n_labels}, {n_labels}), got {c.shape}.")
        if not np.isfinite(c).all():
            raise InputError("a compatibility must hold finite numbers.")
        if not np.array_equal(c, c.T):
            a, b = np.argwhere(c != c.T)[0]
            raise InputError(
                f"a compatibility must be symmetric, got {c[a, b]:g} at [{a}, {b}] and {c[b, a]:g} at [{b}, {a}]."
            )
        return c


@dataclass
class DenseAdjoint:
    """Adjoints of the unary terms, of each compatibility, and what the bandwidths of each kernel need."""

    unary: np.ndarray
    compatibilities: list[np.ndarray]
    kernels: list[Collector] = field(default_factory=list)


class DenseField:
    """Unary terms (n, L) and couplings; the state of its sweeps is log q (n, L).

    Parameters
    ----------
    unary
        Log-potentials; -inf forbids a label.
    couplings
        Kernels with their compatibilities, over the same n points.
    convergent
        Damp the parallel update so that :meth:`bound` never falls; needs symmetric kernels.
    """

    def __init__(self, unary: np.ndarray, couplings: Sequence[Coupling], *, convergent: bool = False) -> None:
        self.unary = np.ascontiguousarray(unary)
        self.kernels = [each.kernel for each in couplings]
        self.compatibilities = [each.matrix(self.unary.shape[1]) for each in couplings]
        for m, kernel in enumerate(self.kernels):
            if kernel.n != len(self.unary) or kernel.dtype != self.unary.dtype:
                raise InputError(
                    f"kernel {m} filters {kernel.n} points in {kernel.dtype}, the unary terms are {self.unary.shape} in "
                    f"{self.unary.dtype}."
                )
            if convergent and not kernel.symmetric:
                raise InputError(
                    f"convergent updates need symmetric kernels; kernel {m} is normalised {kernel.normalise!r}."
                )
        bound = self._curvature() if convergent else 0.0
        #: Share of the old log q that a sweep keeps.
        self.damping = self.unary.dtype.type(bound / (2 + bound))

    def uniform(self) -> np.ndarray:
        """Return the state of uniform marginals."""
        return np.full_like(self.unary, -np.log(self.unary.shape[1]))

    def from_unary(self) -> np.ndarray:
        """Return the state of the unary terms alone, where [KK11] starts."""
        return _normalised(self.unary)

    def sweep(self, state: np.ndarray) -> np.ndarray:
        """Return log q after an update of all variables."""
        return _normalised(self._damped(self._add_pairs(np.exp(state), self.unary.copy()), state))

    def sweep_vjp(
        self, before: np.ndarray, after: np.ndarray, d_after: np.ndarray, d: DenseAdjoint, *, bandwidths: bool = False
    ) -> np.ndarray:
        """Return the adjoint of the state before, from that after; add those of all terms to ``d``."""
        d_damped = d_after - np.exp(after) * d_after.sum(axis=1, keepdims=True)
        d_z = (1 - self.damping) * d_damped
        q, d_q = np.exp(before), np.zeros_like(before)
        d.unary += d_z
        for m, (kernel, c) in enumerate(zip(self.kernels, self.compatibilities, strict=True)):
            back = np.zeros_like(q)
            kernel.transpose(d_z, back)
            d.compatibilities[m] += q.T @ back
            if bandwidths:
                kernel.vjp(q, d_z @ c, d_q, d.kernels[m])
            else:
                d_q += back @ c
        return self.damping * d_damped + q * d_q

    def adjoint(self) -> DenseAdjoint:
        """Return an empty collector."""
        return DenseAdjoint(
            np.zeros_like(self.unary),
            [np.zeros_like(c) for c in self.compatibilities],
            [kernel.collector() for kernel in self.kernels],
        )

    def bound(self, state: np.ndarray) -> float:
        """Return A(q) in double precision."""
        q = np.exp(state)
        possible = q > 0
        own = np.subtract(self.unary, state, out=np.zeros_like(q), where=possible)
        return float((q * (own + self._add_pairs(q, np.zeros_like(q)) / 2)).sum(dtype=np.float64))

    def _add_pairs(self, q: np.ndarray, z: np.ndarray) -> np.ndarray:
        """Add sum_m K_m q C_m to z, and return it."""
        for kernel, c in zip(self.kernels, self.compatibilities, strict=True):
            kernel.apply(np.ascontiguousarray(q @ c), z)
        return z

    def _damped(self, z: np.ndarray, state: np.ndarray) -> np.ndarray:
        return z if self.damping == 0 else np.where(z > -np.inf, (1 - self.damping) * z + self.damping * state, z)

    def _curvature(self) -> float:
        """Return lambda: minus a lower bound of the eigenvalues of the quadratic form, for q that sum to one.

        For C = C+ - C- and K = P - D with P positive semidefinite: C+ loses at most D, C- at most the largest row sum.
        """
        total = 0.0
        for kernel, c in zip(self.kernels, self.compatibilities, strict=True):
            # A constant in a row or a column of C cancels in differences of q.
            centre = np.eye(len(c)) - 1 / len(c)
            eigenvalues = np.linalg.eigvalsh(centre @ c.astype(np.float64) @ centre)
            sums = kernel.filter(np.ones((kernel.n, 1), kernel.dtype))
            total += max(eigenvalues[-1], 0) * kernel.largest_self_term + max(-eigenvalues[0], 0) * float(sums.max())
        return total


def _normalised(z: np.ndarray) -> np.ndarray:
    """Return z minus the log of its sum of exponentials, row by row."""
    top = z.max(axis=1, keepdims=True)
    if not np.isfinite(top).all():
        i = int(np.flatnonzero(~np.isfinite(top[:, 0]))[0])
        raise InputError(f"mean field needs a label that is possible for each variable; variable {i} has {z[i].max()}.")
    return np.asarray(z - top - np.log(np.exp(z - top).sum(axis=1, keepdims=True)))
