"""What potentials hold for a group of factors: a table for each factor, or few tables for all of them.

    Tables   theta_c = T_c
    Tied     theta_c = sum_k s_ck T_k        d_T_k = sum_c s_ck d_theta_c,   d_s_ck = <T_k, d_theta_c>

A :class:`Group` says which numbers it holds as a vector. A :class:`ListedGroup` belongs to factors of the graph: it also
says how its numbers become tables (``write_out``), and how an adjoint of those tables becomes the adjoint of its numbers
(``vjp``). Kernels over all pairs (``kernel_groups``) are groups whose factors nobody lists.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np

from backfield.errors import InputError
from backfield.graph.graph import FactorGroup
from backfield.kernels.arrays import column_sums, product, row_products


class Group(ABC):
    """The numbers of one group of factors: log-potentials, or their adjoint."""

    #: Name of the kind: "tables", "tied", "kernel".
    kind: ClassVar[str]

    @property
    @abstractmethod
    def dtype(self) -> np.dtype:
        """Type of the numbers."""

    @abstractmethod
    def astype(self, dtype: Any) -> Self:
        """Return the same numbers in another type."""

    @abstractmethod
    def vector(self) -> np.ndarray:
        """All numbers that can be moved, flat."""

    @abstractmethod
    def like(self, vector: np.ndarray) -> Self:
        """Return a group of the same kind with the numbers of such a vector."""

    @abstractmethod
    def as_adjoint(self) -> Self:
        """Return the same numbers as an adjoint."""

    @property
    @abstractmethod
    def is_finite(self) -> bool:
        """Whether no entry of a table is forbidden (-inf) or too large for the type."""

    @property
    @abstractmethod
    def largest(self) -> float:
        """A bound of |theta_c| over all finite entries."""


class ListedGroup(Group):
    """The numbers of factors that the graph lists."""

    #: Number of factors.
    n_factors: int

    @abstractmethod
    def write_out(self) -> np.ndarray:
        """Return the tables of all factors, flat, each in C order."""

    @abstractmethod
    def vjp(self, d_tables: np.ndarray) -> ListedGroup:
        """Return the adjoint of the group's numbers from that of the tables that ``write_out`` returns."""

    @abstractmethod
    def pick(self, entries: np.ndarray, starts: np.ndarray) -> np.ndarray:
        """Return the number at one entry of the table of each factor; written out, the tables would begin at ``starts``."""

    @abstractmethod
    def pick_vjp(self, entries: np.ndarray, starts: np.ndarray, d_picked: np.ndarray) -> ListedGroup:
        """Return the adjoint of the group's numbers from that of :meth:`pick`."""


@dataclass(frozen=True, eq=False)
class Tables(ListedGroup):
    """A table for each factor; ``flat`` holds them one after the other."""

    flat: np.ndarray
    n_factors: int

    kind: ClassVar[str] = "tables"

    @property
    def dtype(self) -> np.dtype:
        """Type of the numbers."""
        return self.flat.dtype

    def astype(self, dtype: Any) -> Self:
        """Return the same numbers in another type."""
        return replace(self, flat=self.flat.astype(dtype, copy=False))

    def vector(self) -> np.ndarray:
        """Return the tables."""
        return self.flat

    def like(self, vector: np.ndarray) -> Self:
        """Return other tables of the same sizes."""
        return replace(self, flat=vector)

    def as_adjoint(self) -> Self:
        """Return the tables."""
        return self

    def write_out(self) -> np.ndarray:
        """Return the tables."""
        return self.flat

    def vjp(self, d_tables: np.ndarray) -> Self:
        """Return the adjoint of the tables, which is its own."""
        return self.like(d_tables)

    def pick(self, entries: np.ndarray, starts: np.ndarray) -> np.ndarray:
        """Return the number at one entry of each table."""
        return self.flat[starts + entries]

    def pick_vjp(self, entries: np.ndarray, starts: np.ndarray, d_picked: np.ndarray) -> Self:
        """Return zeros with ``d_picked`` at those entries."""
        out = np.zeros_like(self.flat, dtype=d_picked.dtype)
        out[starts + entries] = d_picked
        return self.like(out)

    @property
    def is_finite(self) -> bool:
        """Whether no entry is forbidden (-inf): almost always answered by one sum."""
        return bool(np.isfinite(self.flat.sum()) or np.isfinite(self.flat).all())

    @property
    def largest(self) -> float:
        """The largest |theta_c| over all finite entries."""
        return _largest(self.flat)


@dataclass(frozen=True, eq=False)
class Tied(ListedGroup):
    """Few tables for all factors of a group: theta_c = sum_k s_ck T_k.

    Parameters
    ----------
    tables : (K, *shape) or (*shape) array
        The tables T_k; axes follow the scopes. ``-inf`` forbids an entry in every factor whose scale is not zero.
    scales : (n_factors, K) or (n_factors, K - 1) array, optional
        The numbers s_ck. A table without a column enters every factor once: without scales, the one table is that of all.
    fixed_scales : bool
        The scales are data (features of edges): they are no part of ``vector`` and have no adjoint.
    n_factors, n_tables : int
        Known once the group is part of potentials.
    is_adjoint : bool
        The numbers are an adjoint (d_tables, d_scales), which has no tables per factor.
    """

    tables: Any
    scales: Any = None
    fixed_scales: bool = False
    n_factors: int = -1
    n_tables: int = -1
    is_adjoint: bool = False

    kind: ClassVar[str] = "tied"

    @property
    def matrix(self) -> np.ndarray:
        """The tables, one per row."""
        flat: np.ndarray = self.tables.reshape(self.n_tables, -1)
        return flat

    @property
    def has_constant(self) -> bool:
        """Whether the last table enters every factor once."""
        return self.scales is None or self.scales.shape[1] < self.n_tables

    @property
    def moves_scales(self) -> bool:
        """Whether the scales are numbers that can be moved."""
        return self.scales is not None and not self.fixed_scales

    @property
    def dtype(self) -> np.dtype:
        """Type of the numbers."""
        found: np.dtype = self.tables.dtype
        return found

    def astype(self, dtype: Any) -> Self:
        """Return the same numbers in another type (the same object where nothing changes)."""
        if self.tables.dtype == dtype and (self.scales is None or self.scales.dtype == dtype):
            return self
        scales = None if self.scales is None else self.scales.astype(dtype, copy=False)
        return replace(self, tables=self.tables.astype(dtype, copy=False), scales=scales)

    def vector(self) -> np.ndarray:
        """Return the tables, then the scales unless these are fixed."""
        tables: np.ndarray = self.tables.reshape(-1)
        return np.concatenate([tables, self.scales.reshape(-1)]) if self.moves_scales else tables

    def like(self, vector: np.ndarray) -> Self:
        """Return a group of the same kind with other numbers."""
        cut = self.tables.size
        scales = vector[cut:].reshape(self.scales.shape) if self.moves_scales else self.scales
        return replace(self, tables=vector[:cut].reshape(self.tables.shape), scales=scales)

    def as_adjoint(self) -> Self:
        """Return the same numbers as an adjoint, which has no scales where they are fixed."""
        return replace(self, scales=self.scales if self.moves_scales else None, is_adjoint=True)

    def write_out(self) -> np.ndarray:
        """Return the tables of all factors, flat."""
        if self.is_adjoint:
            raise InputError(
                "the gradient of a tied group has no tables per factor; groups[k].tables and groups[k].scales hold it."
            )
        matrix = self.matrix
        forbidden = np.real(matrix) == -np.inf
        if not forbidden.any():
            return self._mix(matrix)
        out = self._mix(np.where(forbidden, 0, matrix)).reshape(self.n_factors, matrix.shape[1])
        wide = np.ones(self.n_factors, dtype=bool)
        for k in range(self.n_tables):
            where = wide if self.scales is None or k == self.scales.shape[1] else self.scales[:, k] != 0
            out[np.ix_(where, forbidden[k])] = -np.inf
        return out.reshape(-1)

    def _mix(self, matrix: np.ndarray) -> np.ndarray:
        """Return sum_k s_ck T_k of finite tables, as the linear energies compute it."""
        if self.scales is None or self.scales.shape[1] == 0:
            return np.repeat(matrix[-1:], self.n_factors, axis=0).reshape(-1)
        bias = matrix[-1] if self.has_constant else None
        return row_products(self.scales, matrix[: self.scales.shape[1]], bias).reshape(-1)

    def vjp(self, d_tables: np.ndarray) -> Self:
        """Return d_T_k = sum_c s_ck d_theta_c and d_s_ck = <T_k, d_theta_c>."""
        d = d_tables.reshape(self.n_factors, self.matrix.shape[1])
        parts = [] if self.scales is None else [product(self.scales.T, d)]
        if self.has_constant:
            parts.append(column_sums(d)[None])
        d_scales = None
        if self.moves_scales:
            finite = np.where(np.real(self.matrix) == -np.inf, 0, self.matrix)
            d_scales = product(d, finite[: self.scales.shape[1]].T)
        return self.adjoint(np.concatenate(parts), d_scales)

    def adjoint(self, d_matrix: np.ndarray, d_scales: np.ndarray | None = None) -> Self:
        """Return the group that holds adjoints of the tables, one per row, and of the scales."""
        return replace(self, tables=d_matrix.reshape(self.tables.shape), scales=d_scales, is_adjoint=True)

    def pick(self, entries: np.ndarray, starts: np.ndarray) -> np.ndarray:
        """Return sum_k s_ck T_k(entry of c)."""
        matrix = self.matrix
        out = matrix[-1, entries] if self.has_constant else np.zeros(self.n_factors, matrix.dtype)
        for k in range(0 if self.scales is None else self.scales.shape[1]):
            scale = self.scales[:, k]
            out = out + np.multiply(scale, matrix[k, entries], out=np.zeros_like(out), where=scale != 0)
        return out

    def pick_vjp(self, entries: np.ndarray, starts: np.ndarray, d_picked: np.ndarray) -> Self:
        """Return the adjoint of the tables and scales from that of the numbers picked."""
        size = self.matrix.shape[1]
        columns = [] if self.scales is None else list(self.scales.T)
        rows = [_sums(entries, d_picked * column, size) for column in columns]
        if self.has_constant:
            rows.append(_sums(entries, d_picked, size))
        d_scales = None
        if self.moves_scales:
            finite = np.where(np.real(self.matrix) == -np.inf, 0, self.matrix)
            d_scales = finite[: len(columns), entries].T * d_picked[:, None]
        return self.adjoint(np.array(rows), d_scales)

    @property
    def is_finite(self) -> bool:
        """Whether no entry of a table is forbidden (-inf) or too large for the type."""
        finite = bool(np.isfinite(self.tables).all())
        if not finite or self.scales is None:
            return finite
        # Almost always answered by one product of the scales with themselves, which bounds the largest.
        with np.errstate(over="ignore", invalid="ignore"):
            scale = np.sqrt(np.vdot(self.scales, self.scales).real)
            bound = (scale + 1) * np.abs(self.tables).sum()
        return bool(np.isfinite(bound) or np.isfinite(self.write_out()).all())

    @property
    def largest(self) -> float:
        """A bound of |theta_c| over all finite entries."""
        each = np.array([_largest(row) for row in self.matrix])
        if self.scales is None:
            return float(each[-1])
        scaled = np.abs(self.scales).astype(np.float64) @ each[: self.scales.shape[1]]
        return float(scaled.max(initial=0.0) + (each[-1] if self.has_constant else 0.0))


def bound(values: Any, group: FactorGroup, number: int) -> Tied:
    """Check a tied group against the factors that it is for."""
    what = f"groups[{number}]"
    shape = group.shape
    if shape is None:
        raise InputError(f"{what} is tied, but its factors have tables of different shapes.")
    tables = _checked(values.tables, f"{what}.tables")
    if tables.shape[-len(shape) :] != shape or tables.ndim not in (len(shape), len(shape) + 1) or not tables.size:
        raise InputError(f"{what}.tables must have shape {shape} or (K, *{shape}), received {tables.shape}.")
    if not np.max(tables) < np.inf:
        raise InputError(f"{what}.tables hold NaN or +inf; potentials are finite or -inf.")
    n_tables = tables.size // int(np.prod(shape))
    scales = values.scales
    if scales is None and n_tables > 1:
        raise InputError(f"{what} has {n_tables} tables; it needs scales ({group.n_factors}, {n_tables}).")
    if scales is not None:
        scales = _scales(scales, tables.reshape(n_tables, -1), group.n_factors, what)
        dtype = np.result_type(tables, scales)
        tables, scales = tables.astype(dtype, copy=False), scales.astype(dtype, copy=False)
    return Tied(tables, scales, bool(values.fixed_scales), group.n_factors, n_tables)


def _scales(values: Any, matrix: np.ndarray, n_factors: int, what: str) -> np.ndarray:
    scales = _checked(values, f"{what}.scales")
    count = len(matrix)
    if scales.shape not in ((n_factors, count), (n_factors, count - 1)):
        wanted = f"({n_factors}, {count}) or ({n_factors}, {count - 1})"
        raise InputError(f"{what}.scales must have shape {wanted}, received {scales.shape}.")
    if not np.isfinite(scales).all():
        raise InputError(f"{what}.scales must hold finite numbers.")
    for k in range(scales.shape[1]):
        if np.min(matrix[k]) == -np.inf and (scales[:, k] < 0).any():
            raise InputError(f"{what}.tables[{k}] forbids entries (-inf); its scales must not be negative.")
    return scales


def _checked(values: Any, what: str) -> np.ndarray:
    try:
        array = np.asarray(values)
    except ValueError as error:
        raise InputError(f"{what} must be an array of numbers.") from error
    if array.dtype.kind not in "iuf":
        raise InputError(f"{what} must hold real numbers, received dtype {array.dtype}.")
    if array.dtype not in (np.float32, np.float64):
        array = array.astype(np.float64)
    return np.ascontiguousarray(array) if array.flags.writeable else array.copy(order="C")


def _sums(entries: np.ndarray, weights: np.ndarray, size: int) -> np.ndarray:
    """Return the sum of the weights at each entry, in their type."""
    if weights.dtype.kind == "c":
        return np.bincount(entries, weights.real, size) + 1j * np.bincount(entries, weights.imag, size)
    return np.bincount(entries, weights, size).astype(weights.dtype, copy=False)


def _largest(values: np.ndarray) -> float:
    low, high = float(values.min(initial=0)), float(values.max(initial=0))
    if low == -np.inf:
        low = float(values[values > -np.inf].min(initial=0))
    return max(-low, high)
