"""A kernel group applied: z += K q (w C), its adjoints, and its energy 1/2 <q, K q (w C)>.

With d_z the adjoint of z and B = K' d_z (one filter), d_(w C) = q' B and d_q = B (w C)'. Where bandwidths are learned, q C
is blurred as well: two filters. A number as compatibility needs no product with a matrix.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from backfield.kernels.compile import kernel
from backfield.kernels.gaussian import Collector, Normalised, make_filter

if TYPE_CHECKING:
    from backfield.graph.kernel_groups import Kernel

#: Smaller than this the curvature of a field needs no damping.
_SMALL = 1e-3


@dataclass
class KernelAdjoint:
    """The adjoint of w C: of its trace, its diagonal or all of it; and what the bandwidths need."""

    matrix: np.ndarray
    collector: Collector


class KernelOperator:
    """A kernel with its filter."""

    def __init__(self, group: Kernel) -> None:
        self.group = group
        base = make_filter(group.filter, group.features, group.bandwidths, group.dtype)
        self.normalised = Normalised(base, group.normalisation or "none", self_terms=group.self_terms)
        #: The filter is symmetric as it is, or used as if it were.
        self.one_way = group.directed or (self.normalised.symmetric and group.filter != "published")
        self.is_number = group.compatibility.ndim == 0
        self.matrix = np.ascontiguousarray(group.matrix, dtype=group.dtype)
        #: What multiplies the filter where C is a number.
        self.gain = float(self.matrix[0, 0]) if self.is_number else 1.0

    @property
    def has_model(self) -> bool:
        """Whether updates are those of a model with such pairs: no self terms, nothing directed."""
        symmetric = self.normalised.symmetric and self.group.filter != "published"
        return not self.group.self_terms and (symmetric or not self.group.directed)

    def add(self, q: np.ndarray, z: np.ndarray) -> None:
        """Add K q (w C) to z."""
        mixed = q if self.is_number else q @ self.matrix
        if self.one_way:
            self.normalised.apply(mixed, z, self.gain)
        else:
            self.normalised.apply(mixed, z, self.gain / 2)
            self.normalised.transpose(mixed, z, self.gain / 2)

    def adjoint(self) -> KernelAdjoint:
        """Return an empty collector."""
        c = self.group.compatibility
        return KernelAdjoint(np.zeros(c.shape if c.ndim else 1), self.normalised.collector())

    def vjp(self, q: np.ndarray, d_z: np.ndarray, d_q: np.ndarray, d: KernelAdjoint) -> None:
        """Add the adjoints of q and of the parameters that ``d_z`` causes."""
        back = np.zeros_like(q)
        if self.group.fixed_bandwidths:
            self._transpose(d_z, back)
        else:
            self._filter_vjp(q if self.is_number else q @ self.matrix, d_z, back, d.collector)
        if self.is_number:
            d.matrix[0] += _add_and_dot(q, back, d_q.dtype.type(self.gain), d_q)
            return
        d_q += back @ self.matrix.T
        d.matrix += np.einsum("ia,ia->a", q, back, dtype=np.float64) if d.matrix.ndim == 1 else q.T @ back

    def _transpose(self, d_z: np.ndarray, back: np.ndarray) -> None:
        if self.one_way:
            self.normalised.transpose(d_z, back)
        else:
            self.normalised.transpose(d_z, back, 0.5)
            self.normalised.apply(d_z, back, 0.5)

    def _filter_vjp(self, mixed: np.ndarray, d_z: np.ndarray, back: np.ndarray, d: Collector) -> None:
        """Collect what bandwidths need; of numbers as compatibility without the gain, which :meth:`gradient` multiplies."""
        if self.one_way:
            self.normalised.vjp(mixed, d_z, back, d)
            return
        half = d_z * d_z.dtype.type(0.5)
        self.normalised.vjp(mixed, half, back, d)
        self.normalised.vjp(half, mixed, np.zeros_like(back), d)  # <d_z, K' q> = <q, K d_z>
        self.normalised.apply(half, back)

    def gradient(self, d: KernelAdjoint) -> Kernel:
        """Return the adjoint of the group's numbers; ``d`` is used up."""
        group, g = self.group, d.matrix
        sigma = np.zeros(np.shape(group.bandwidths))
        if not group.fixed_bandwidths:
            each = self.gain * np.asarray(self.normalised.bandwidths_vjp(d.collector), dtype=np.float64)
            sigma = each.reshape(sigma.shape) if sigma.size == each.size else np.reshape(each.sum(), sigma.shape)
        matrix = (g + g.T) / 2 if g.ndim == 2 else g.reshape(group.compatibility.shape)
        weight = float((matrix * group.compatibility).sum())
        return replace(group, weight=weight, compatibility=group.weight * matrix, bandwidths=sigma, is_adjoint=True)

    def energy(self, q: np.ndarray) -> float:
        """Return 1/2 <q, K q (w C)> in double precision."""
        pairs = np.zeros_like(q)
        self.add(q, pairs)
        return 0.5 * float(np.einsum("ia,ia->", q, pairs, dtype=np.float64))

    def energy_vjp(self, q: np.ndarray, scale: float = 1.0) -> Kernel:
        """Return the adjoint of the group's numbers from that of :meth:`energy`."""
        d = self.adjoint()
        self.add_energy_vjp(q, scale, d)
        return self.gradient(d)

    def add_energy_vjp(self, q: np.ndarray, scale: float, d: KernelAdjoint) -> None:
        """Add the adjoints of the parameters that ``scale`` times :meth:`energy` causes."""
        self.vjp(q, q.dtype.type(scale / 2) * q, np.zeros_like(q), d)

    def pair_matrix(self) -> np.ndarray:
        """Return K (n, n) as it is applied."""
        eye = np.eye(self.normalised.n, dtype=self.group.dtype)
        k = self.normalised.filter(eye)
        return k if self.one_way else (k + k.T) / 2

    def curvature(self) -> float:
        """Return lambda: no eigenvalue of the energy's quadratic form is below -lambda, for differences of distributions.

        For C = C+ - C- and K = P - D with P positive semidefinite: C+ loses at most D, C- at most the largest row sum.
        """
        # A constant in a row or a column of C cancels in differences of q.
        centre = np.eye(len(self.matrix)) - 1 / len(self.matrix)
        eigenvalues = np.linalg.eigvalsh(centre @ self.matrix.astype(np.float64) @ centre)
        ones = np.ones((self.normalised.n, 1), self.normalised.dtype)
        sums = self.normalised.filter(ones)
        if not self.one_way:
            self.normalised.transpose(ones, sums)
            sums /= 2
        low, high = max(-eigenvalues[0], 0.0), max(eigenvalues[-1], 0.0)
        # One side normalised is no positive semidefinite kernel: both lose the largest row sum.
        lost = self.normalised.largest_self_term if self.normalised.symmetric else float(sums.max())
        found = high * lost + low * float(sums.max())
        return found if found > _SMALL else 0.0


@kernel
def _add_and_dot(q, back, gain, d_q):
    """Add gain back to d_q; return <q, back> in double precision."""
    total = 0.0
    for i in range(len(q)):
        part = q.dtype.type(0)
        for a in range(q.shape[1]):
            part += q[i, a] * back[i, a]
            d_q[i, a] += gain * back[i, a]
        total += part
    return total
