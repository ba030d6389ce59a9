"""Factors over all pairs of variables, which nobody lists: Gaussian kernels of features ([KK11]).

    theta_ij(a, b) = w C(a, b) k(f_i, f_j),   k(f_i, f_j) = exp(-|(f_i - f_j) / sigma|^2 / 2), normalised

The pair potentials are those of the filter that is chosen, so a bound of log Z is one of the model with them; the
lattice is some percent off the Gaussian itself. ``before`` and ``after`` normalise one side; the pair then has the mean of
both ways.

Numbers that can be moved: w, C (a number, a diagonal, or the upper triangle of a symmetric matrix) and sigma.

[KK11] Krähenbühl and Koltun, "Efficient inference in fully connected CRFs with Gaussian edge potentials" (2011).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from backfield.errors import InputError
from backfield.graph.graph import Graph
from backfield.graph.groups import Group

if TYPE_CHECKING:
    from backfield.graph.kernel_operator import KernelOperator


@dataclass(frozen=True, eq=False)
class Kernel(Group):
    """A Gaussian kernel over all pairs of variables, with a compatibility of their labels.

    Parameters
    ----------
    features : (n, d) array
        Of each variable: positions, positions and colours, anything. The filters take up to 16; ``exact`` any number.
    compatibility : number, (L,) or (L, L) array
        C, added to log-potentials: a number c stands for c where labels are equal (Potts; positive: equal labels are
        likelier), a vector for a diagonal, a matrix must be symmetric.
    bandwidths : number or (d,) array
        sigma: one for all features, or one for each.
    weight : number
        w, which multiplies C.
    normalisation : {"symmetric", "before", "after"} or None
        Divide by the square roots of both row sums (the usual one), by the row sum of the other, or by the own row sum.
    filter : {"auto", "exact", "lattice", "published", "grid"}
        ``exact`` costs O(n^2); ``lattice`` is the permutohedral one; ``published`` the same without its symmetry, as in the
        paper; ``grid`` filters along the axes of a regular grid. ``auto``: exact up to 512 points, the narrow kernels of a
        grid along its axes, else the lattice.
    self_terms : bool
        Count a variable as its own neighbour, as pydensecrf does. Updates are then those of no model.
    directed : bool
        Use kernels that are not symmetric (``before``, ``after``, ``published``) one way, as published.
    fixed_bandwidths : bool
        Bandwidths are data: they are no part of ``vector`` and have no adjoint.
    n_labels, value_type, is_adjoint
        Known once the group is part of potentials.
    """

    features: Any
    compatibility: Any = 1.0
    bandwidths: Any = 1.0
    weight: Any = 1.0
    normalisation: str | None = "symmetric"
    filter: str = "auto"
    self_terms: bool = False
    directed: bool = False
    fixed_bandwidths: bool = False
    n_labels: int = -1
    value_type: Any = np.float64
    is_adjoint: bool = False

    kind: ClassVar[str] = "kernel"

    @property
    def dtype(self) -> np.dtype:
        """Type of the values that are filtered; parameters are float64."""
        return np.dtype(self.value_type)

    def astype(self, dtype: Any) -> Self:
        """Return the same kernel for values of another type."""
        return self if self.dtype == dtype else replace(self, value_type=np.dtype(dtype))

    @property
    def matrix(self) -> np.ndarray:
        """The compatibility as a matrix (L, L), times the weight."""
        c = self.compatibility
        full = c if c.ndim == 2 else np.diag(np.broadcast_to(c, self.n_labels))
        return np.asarray(self.weight * full)

    def vector(self) -> np.ndarray:
        """Return weight, compatibility (of a matrix the upper triangle), and bandwidths unless these are fixed."""
        c = self.compatibility
        if c.ndim == 2:
            # Both entries of an adjoint move with the one that is kept.
            c = (c + c.T * (1 - np.eye(len(c))) if self.is_adjoint else c)[np.triu_indices(len(c))]
        parts = [np.reshape(self.weight, 1), np.reshape(c, -1)]
        if not self.fixed_bandwidths:
            parts.append(np.reshape(self.bandwidths, -1))
        return np.concatenate(parts).astype(self.dtype)

    def like(self, vector: np.ndarray) -> Self:
        """Return a kernel of the same features with other numbers."""
        if vector.dtype.kind == "c":
            raise InputError("kernel groups have no second derivatives; use a learner or a loss that needs none.")
        numbers = vector.astype(np.float64)
        c, size = self.compatibility, self.compatibility.size
        if c.ndim == 2:
            size = len(c) * (len(c) + 1) // 2
            upper = np.zeros_like(c)
            upper[np.triu_indices(len(c))] = numbers[1 : 1 + size]
            full = upper + np.triu(upper, 1).T
            c = full * np.where(np.eye(len(c)) == 1, 1.0, 0.5) if self.is_adjoint else full
        else:
            c = numbers[1 : 1 + size].reshape(c.shape)
        sigma = self.bandwidths if self.fixed_bandwidths else numbers[1 + size :].reshape(np.shape(self.bandwidths))
        return replace(self, weight=float(numbers[0]), compatibility=c, bandwidths=sigma)

    def as_adjoint(self) -> Self:
        """Return the same numbers as an adjoint."""
        if self.is_adjoint:
            return self
        return replace(self, is_adjoint=True).like(self.vector())

    def operator(self) -> KernelOperator:
        """Return what applies the kernel; prepared once."""
        if self.is_adjoint:
            raise InputError(
                "the gradient of a kernel group is not a kernel; its weight, compatibility and bandwidths hold it."
            )
        return self._operator

    @cached_property
    def _operator(self) -> KernelOperator:
        from backfield.graph.kernel_operator import KernelOperator

        return KernelOperator(self)

    def __getstate__(self) -> dict[str, Any]:
        return {key: value for key, value in self.__dict__.items() if key != "_operator"}

    @property
    def is_finite(self) -> bool:
        """Whether all parameters are finite numbers."""
        return bool(np.isfinite(self.vector()).all())

    @property
    def largest(self) -> float:
        """The largest |w C|."""
        return float(np.abs(self.weight * self.compatibility).max())


def bound_kernel(values: Kernel, graph: Graph, number: int) -> Kernel:
    """Check a kernel group against the variables that it is for."""
    try:
        return _bound(values, graph)
    except InputError as error:
        raise InputError(f"groups[{number}]: {error}") from error


def _bound(values: Kernel, graph: Graph) -> Kernel:
    from backfield.kernels.gaussian import NORMALISATIONS, choose  # filters, which few graphs need
    from backfield.kernels.gaussian.base import check_bandwidths, check_features

    if graph.n_labels is None:
        raise InputError("a kernel needs variables with one label count; these have different ones.")
    points = check_features(values.features)
    if len(points) != graph.n_variables:
        raise InputError(f"features must have one row for each of {graph.n_variables} variables, received {len(points)}.")
    bad = np.flatnonzero(~np.isfinite(points).all(axis=1))
    if len(bad):
        raise InputError(f"features hold NaN or infinity, first in row {bad[0]}.")
    if values.normalisation is not None and values.normalisation not in NORMALISATIONS:
        raise InputError(
            f"normalisation must be None or one of {', '.join(NORMALISATIONS[1:])}, received {values.normalisation!r}."
        )
    for name in ("self_terms", "directed", "fixed_bandwidths"):
        if not isinstance(getattr(values, name), bool):
            raise InputError(f"{name} of a kernel must be True or False, received {getattr(values, name)!r}.")
    sigma = check_bandwidths(values.bandwidths, points.shape[1])
    choose(values.filter, points, sigma)
    return replace(
        values,
        features=points,
        compatibility=checked_compatibility(values.compatibility, graph.n_labels),
        bandwidths=np.asarray(values.bandwidths, dtype=np.float64),
        weight=_checked_weight(values.weight),
        n_labels=graph.n_labels,
    )


def checked_compatibility(values: Any, n_labels: int) -> np.ndarray:
    """Return a compatibility of finite numbers: (), (L,) or a symmetric (L, L)."""
    c = np.asarray(values)
    if c.dtype.kind not in "iuf" or c.shape not in ((), (n_labels,), (n_labels, n_labels)):
        raise InputError(
            f"a compatibility of {n_labels} labels is a number, ({n_labels},) or ({n_labels}, {n_labels}) real numbers, "
            "received "
            f"{c.dtype} {c.shape}."
        )
    c = c.astype(np.float64)
    if not np.isfinite(c).all():
        raise InputError("a compatibility must hold finite numbers.")
    if c.ndim == 2 and not np.array_equal(c, c.T):
        a, b = np.argwhere(c != c.T)[0]
        raise InputError(
            f"a compatibility must be symmetric, received {c[a, b]:g} at [{a}, {b}] and {c[b, a]:g} at [{b}, {a}]."
        )
    return c


def _checked_weight(value: Any) -> float:
    weight = np.asarray(value)
    if weight.shape != () or weight.dtype.kind not in "iuf" or not np.isfinite(weight):
        raise InputError(f"the weight of a kernel must be a finite number, received {value!r}.")
    return float(weight)
