"""Log-potentials theta of a graph, stored flat; also the shape of marginals and of gradients."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import numpy as np

from backfield.errors import InputError
from backfield.graph.graph import Graph, union


class Potentials:
    """One table per variable and one per factor: log-potentials, marginals, or their adjoints.

    Parameters
    ----------
    graph : Graph
    unary : (n, L) array, or list of arrays (L_i,)
    factors : (F, L, ..., L) array, or list of arrays shaped by the label counts of the scope
        Axes follow the scope. ``-inf`` forbids a configuration; NaN and ``+inf`` are refused.
    """

    def __init__(self, graph: Graph, unary: Any, factors: Any = ()) -> None:
        if not isinstance(graph, Graph):
            raise InputError(f"potentials need a Graph, got {type(graph).__name__}.")
        self.graph = graph
        rows: list[tuple[int, ...]] | None = None
        if graph.n_labels is None:
            rows = [(int(count),) for count in graph.labels]
        self.unary_flat = _flatten(unary, (graph.n_variables, graph.n_labels), rows, "unary")
        uniform, shapes = _factor_shapes(graph)
        self.factors_flat = _flatten(factors, uniform, shapes, "factors")
        dtype = np.result_type(self.unary_flat, self.factors_flat) if graph.n_factors else self.unary_flat.dtype
        self.unary_flat = self.unary_flat.astype(dtype, copy=False)
        self.factors_flat = self.factors_flat.astype(dtype, copy=False)
        _check_values(self)

    #: Whether it is known that no entry is forbidden; False where nobody has looked.
    known_finite: bool = False

    @classmethod
    def from_flat(cls, graph: Graph, unary_flat: np.ndarray, factors_flat: np.ndarray) -> Self:
        """Wrap flat arrays without a check or a copy."""
        out = cls.__new__(cls)
        out.graph, out.unary_flat, out.factors_flat = graph, unary_flat, factors_flat
        return out

    @property
    def unary(self) -> Any:
        """(n, L) array where label counts are equal, else a list of arrays; views of the flat tables."""
        if self.graph.n_labels is not None:
            return self.unary_flat.reshape(self.graph.n_variables, self.graph.n_labels)
        ptr = np.cumsum(self.graph.labels)[:-1]
        return np.split(self.unary_flat, ptr)

    @property
    def factors(self) -> Any:
        """(F, L, ..., L) array where label counts and arities are equal, else a list of arrays; views."""
        uniform, shapes = _factor_shapes(self.graph)
        if uniform is not None:
            return self.factors_flat.reshape(uniform)
        ptr = self.graph.layout.table_ptr
        return [self.factors_flat[ptr[c] : ptr[c + 1]].reshape(shape) for c, shape in enumerate(shapes or [])]

    @property
    def dtype(self) -> np.dtype:
        """Type of the numbers."""
        return self.unary_flat.dtype

    def astype(self, dtype: Any) -> Potentials:
        """Return the same numbers in another type (the same object where nothing changes)."""
        if self.dtype == np.dtype(dtype):
            return self
        return Potentials.from_flat(self.graph, self.unary_flat.astype(dtype), self.factors_flat.astype(dtype))

    def vector(self) -> np.ndarray:
        """All numbers in one array: unary tables, then factor tables."""
        return np.concatenate([self.unary_flat, self.factors_flat])

    def like(self, vector: np.ndarray) -> Potentials:
        """Return potentials of the same graph from one array laid out as by :meth:`vector`."""
        vector = np.asarray(vector)
        cut = len(self.unary_flat)
        if vector.shape != (cut + len(self.factors_flat),):
            raise InputError(f"need {cut + len(self.factors_flat)} numbers, got shape {vector.shape}.")
        return Potentials.from_flat(self.graph, vector[:cut], vector[cut:])

    def dot(self, other: Potentials) -> float:
        """Inner product over all tables, with ``0 * -inf = 0``."""
        return float(_dot(self.unary_flat, other.unary_flat) + _dot(self.factors_flat, other.factors_flat))

    def score(self, labels: np.ndarray) -> Any:
        """theta·f(labels): the sum of the table entries that a labeling selects, in double precision."""
        layout = self.graph.layout
        exact = np.result_type(self.dtype, np.float64)
        total = self.unary_flat[layout.var_ptr[:-1] + labels].sum(dtype=exact)
        if self.graph.n_factors:
            entry = np.add.reduceat(labels[layout.scope] * layout.stride, layout.scope_ptr[:-1])
            total = total + self.factors_flat[layout.table_ptr[:-1] + entry].sum(dtype=exact)
        return total.item()

    @property
    def is_finite(self) -> bool:
        """Whether no entry is forbidden (-inf): almost always answered by one sum."""
        if self.known_finite:
            return True
        total = self.unary_flat.sum() + self.factors_flat.sum()
        return bool(np.isfinite(total) or (np.isfinite(self.unary_flat).all() and np.isfinite(self.factors_flat).all()))

    def verify(self) -> None:
        """Refuse numbers that are none: asked by methods that come across them; who makes potentials has looked."""

    def __repr__(self) -> str:
        return f"Potentials({self.graph!r}, {self.dtype})"


def batch(thetas: Sequence[Potentials]) -> Potentials:
    """Return the disjoint union of several potentials."""
    if not isinstance(thetas, Sequence) or not all(isinstance(theta, Potentials) for theta in thetas):
        raise InputError("a batch is made of a list of Potentials.")
    graph = union([theta.graph for theta in thetas])
    unary = np.concatenate([theta.unary_flat for theta in thetas])
    return Potentials.from_flat(graph, unary, np.concatenate([theta.factors_flat for theta in thetas]))


def _dot(a: np.ndarray, b: np.ndarray) -> Any:
    product = np.multiply(a, b, where=(a != 0) & (b != 0), out=np.zeros_like(a, dtype=np.result_type(a, b)))
    return product.sum()


def _factor_shapes(graph: Graph) -> tuple[tuple[int, ...] | None, list[tuple[int, ...]] | None]:
    """Return the shape of the stacked tables where uniform, else the shape of each."""
    if graph.n_labels is not None and (graph.arity is not None or graph.n_factors == 0):
        return (graph.n_factors,) + (graph.n_labels,) * (graph.arity or 2), None
    return None, [tuple(int(graph.labels[i]) for i in scope) for scope in graph.factors]


def _flatten(
    tables: Any, uniform: tuple[int | None, ...] | None, shapes: list[tuple[int, ...]] | None, what: str
) -> np.ndarray:
    if uniform is not None and None not in uniform:
        if uniform[0] == 0 and (tables is None or np.size(tables) == 0):
            return np.empty(0)
        array = _numbers(tables, what)
        if array.shape != uniform:
            raise InputError(f"{what} must have shape {uniform}, got {array.shape}.")
        return array.reshape(-1)
    assert shapes is not None
    try:
        count = len(tables)
    except TypeError as error:
        raise InputError(f"{what} must be a list of {len(shapes)} arrays, got {type(tables).__name__}.") from error
    if count != len(shapes):
        raise InputError(f"{what} must hold {len(shapes)} tables, got {count}.")
    parts = []
    for index, (table, shape) in enumerate(zip(tables, shapes, strict=True)):
        array = _numbers(table, f"{what}[{index}]")
        if array.shape != shape:
            raise InputError(f"{what}[{index}] must have shape {shape}, got {array.shape}.")
        parts.append(array.reshape(-1))
    return np.concatenate(parts) if parts else np.empty(0)


def _numbers(table: Any, what: str) -> np.ndarray:
    try:
        array = np.asarray(table)
    except ValueError as error:
        raise InputError(f"{what} must hold tables of one shape.") from error
    if array.dtype.kind not in "iuf":
        raise InputError(f"{what} must hold real numbers, got dtype {array.dtype}.")
    if array.dtype not in (np.float32, np.float64):
        array = array.astype(np.float64)
    # Read-only numbers are another type to numba, which would compile every kernel again.
    return np.ascontiguousarray(array) if array.flags.writeable else array.copy(order="C")


def _check_values(theta: Potentials) -> None:
    layout = theta.graph.layout if theta.graph.n_labels is None or theta.graph.arity is None else None
    for what, flat in (("unary", theta.unary_flat), ("factors", theta.factors_flat)):
        if flat.size == 0 or np.max(flat) < np.inf:  # False for NaN too
            continue
        bad = int(np.flatnonzero(~(flat < np.inf))[0])
        count = theta.graph.n_variables if what == "unary" else theta.graph.n_factors
        if layout is None:
            index = bad // (flat.size // count)
        else:
            ptr = layout.var_ptr if what == "unary" else layout.table_ptr
            index = int(np.searchsorted(ptr, bad, side="right") - 1)
        raise InputError(f"{what}[{index}] holds {flat[bad]}; potentials are finite or -inf.")
