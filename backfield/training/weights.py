"""The weights: which part of w serves which rows, and the ridge penalty on them.

    theta(w) = scores of each block's energy on its rows, side by side;     penalty(w) = sum_k r_k w_k^2

A :class:`WeightLayout` has one block per type of variable and per type of factor. r is one number, or one for the weights
of variables and another for those of factors; "auto" is u_k^2 / (2 n), n the labelled variables and u_k the unit of the
feature: scikit-learn's C = 1 on standardised features. Sparse features (words) are as large as their largest value, the
constants of factors are 1.
"""

from __future__ import annotations

import operator
from dataclasses import dataclass, field, replace
from functools import reduce
from numbers import Real
from typing import Any, NamedTuple

import numpy as np

from backfield.energies import Energy
from backfield.errors import InputError
from backfield.graph import Graph, Kernel, Potentials, Tied
from backfield.inference.exact.tied_chains import starts_in
from backfield.training.examples import Example, Rows


class Block(NamedTuple):
    """The weights of one type of variable or factor: ``w[start:stop]``."""

    energy: Any  # an Energy
    n_features: int
    n_outputs: int
    intercept: bool
    start: int
    stop: int

    def scores(self, w: np.ndarray, rows: Rows) -> np.ndarray:
        """Return scores (N, K)."""
        return self.energy.scores(w[self.start : self.stop], rows.features, self.n_outputs, self.intercept)


@dataclass
class WeightLayout:
    """Which part of w serves which rows."""

    unary: list[Block] = field(default_factory=list)
    factors: list[Block] = field(default_factory=list)
    n_weights: int = 0
    kernels: list[Block] = field(default_factory=list)

    def add(self, kind: str, energy: Energy, n_features: int, n_outputs: int, intercept: bool) -> None:
        """Append a block of ``unary``, ``factors`` or ``kernels``."""
        stop = self.n_weights + energy.n_weights(n_features, n_outputs, intercept)
        self.of(kind).append(Block(energy, n_features, n_outputs, intercept, self.n_weights, stop))
        self.n_weights = stop

    def of(self, kind: str) -> list[Block]:
        """Return the blocks of ``unary``, ``factors`` or ``kernels``."""
        return {"unary": self.unary, "factors": self.factors, "kernels": self.kernels}[kind]

    def check(self, graph: Graph, unary: list[Rows | None], factors: list[Rows | None]) -> None:
        """Refuse rows whose features or tables have other sizes than the weights: kernels would go beyond arrays."""
        for blocks, parts, kind, what in ((self.unary, unary, "unary", "node"), (self.factors, factors, "factors", "edge")):
            where = _rows_of(graph, kind)
            for block, rows in zip(blocks, parts, strict=True):
                if rows is None:
                    continue
                if rows.features.shape[-1] != block.n_features:
                    raise InputError(f"received {rows.features.shape[-1]} {what} features; {block.n_features} were learned.")
                other = _other_size(where, rows.index, block.n_outputs)
                if other is not None:
                    tables = "variables" if kind == "unary" else "factors"
                    raise InputError(f"{tables} have tables of {other} entries; those of {block.n_outputs} were learned.")

    def theta(self, w: np.ndarray, example: Example, dtype: Any, binary_chains: bool = True) -> Potentials:
        """Return the potentials of an example; factors are tied where their energies are few tables for all rows.

        Those of binary chains, whose tables cost no more, only with ``binary_chains``.
        """
        graph = example.graph
        unary = _assemble(self.unary, w, example.unary, _rows_of(graph, "unary"), dtype)
        groups = None if _is_binary(graph) and not binary_chains else self._tied_groups(w, example, dtype)
        if example.forbidden is not None:
            unary[example.forbidden.unary] = -np.inf
        kernels = self._kernel_groups(w, example, dtype)
        if groups is not None:
            return Potentials.from_groups(graph, unary, [*groups, *kernels])
        factors = _assemble(self.factors, w, example.factors, _rows_of(graph, "factors"), dtype)
        if example.forbidden is not None:
            factors[_forbidden_entries(graph, example.forbidden.table)] = -np.inf
        theta = Potentials.from_flat(graph, unary, factors)
        return theta.with_kernels(kernels) if kernels else theta

    def _kernel_groups(self, w: np.ndarray, example: Example, dtype: Any) -> list[Kernel]:
        """Return the kernels over all pairs of an example; one that couples nothing has a gradient all the same."""
        pairs = zip(self.kernels, example.kernels, strict=True) if example.kernels else ()
        return [b.energy.group(w[b.start : b.stop], *points, b.n_outputs, dtype) for b, points in pairs]

    def _tied_groups(self, w: np.ndarray, example: Example, dtype: Any) -> list[Tied] | None:
        """Return a tied group for each group of the graph, where each is the rows of one block; else None."""
        owners = _owners(example)
        if owners is None:
            return None
        groups = []
        for number, span in zip(owners, example.graph.groups, strict=True):
            block, rows = self.factors[number], example.factors[number]
            assert rows is not None and span.shape is not None
            found = block.energy.tables(w[block.start : block.stop], rows.features, block.n_outputs, block.intercept)
            if found is None:
                return None
            tables = found.tables.reshape(-1, *span.shape)
            if example.forbidden is not None and span.arity == 2:
                tables = np.where(example.forbidden.table.reshape(span.shape), -np.inf, tables)
            groups.append(Tied(tables, found.scales, True, span.n_factors, len(tables)).astype(dtype))
        return groups

    @property
    def blocks(self) -> list[Block]:
        """All blocks: of variables, then of factors, then of kernels."""
        return [*self.unary, *self.factors, *self.kernels]

    def with_fixed_scales(self) -> WeightLayout:
        """Return the same weights, of which the bandwidths of kernels do not move."""
        kernels = [block._replace(energy=block.energy.freeze()) for block in self.kernels]
        return replace(self, kernels=kernels)

    @property
    def scale_weights(self) -> np.ndarray:
        """Which weights are those of the bandwidths of kernels."""
        out = np.zeros(self.n_weights, dtype=bool)
        for block in self.kernels:
            out[block.start : block.stop][block.energy.scale_weights(block.n_outputs)] = True
        return out

    def uncoupled(self, w: np.ndarray) -> np.ndarray:
        """Return the weights with kernels that couple nothing."""
        w = w.copy()
        for block in self.kernels:
            w[block.start : block.stop] = 0
        return w

    def strengthened(self, w: np.ndarray, strength: float) -> np.ndarray:
        """Return the weights with kernels that couple so many times as strongly."""
        w, fixed = w.copy(), self.scale_weights
        for block in self.kernels:
            part = slice(block.start, block.stop)
            w[part] = np.where(fixed[part], w[part], strength * w[part])
        return w

    def start(self) -> np.ndarray:
        """Return the weights to start from: zero, or those that a network has."""
        w = np.zeros(self.n_weights)
        for block in self.blocks:
            if not block.energy.linear:
                w[block.start : block.stop] = block.energy.start(block.n_features, block.n_outputs, block.intercept)
        return w

    def forget(self) -> None:
        """Drop what energies keep for a way back that will not come."""
        for block in self.blocks:
            block.energy.forget()

    def vjp(self, example: Example, d_theta: Potentials, w: np.ndarray | None = None) -> np.ndarray:
        """Return d_w from d_theta, of tables or tied as :meth:`theta`; without ``w``, energies must be linear in it."""
        d_w = np.zeros(self.n_weights)
        for block, points, group in zip(self.kernels, example.kernels, d_theta.kernels, strict=False):
            assert w is not None
            own = w[block.start : block.stop]
            d_w[block.start : block.stop] = block.energy.group_vjp(own, group, points.widths, block.n_outputs)
        d_theta = d_theta.without_kernels()
        todo = [(self.unary, example.unary, "unary", d_theta.unary_flat)]
        if d_theta.has_tables_only:
            todo.append((self.factors, example.factors, "factors", d_theta.factors_flat))
        else:
            self._add_tied(example, d_theta, d_w)
        for blocks, parts, kind, flat in todo:
            where = _rows_of(example.graph, kind)
            for block, rows in zip(blocks, parts, strict=True):
                if rows is not None and block.stop > block.start:
                    part = flat[_entries(where, rows.index, block.n_outputs)].reshape(-1, block.n_outputs)
                    here = None if w is None else w[block.start : block.stop]
                    d_w[block.start : block.stop] = block.energy.vjp(rows.features, part, block.intercept, here)
        return d_w

    def _add_tied(self, example: Example, d_theta: Potentials, d_w: np.ndarray) -> None:
        """Write what tied groups hold: the adjoints of the weights themselves."""
        owners = _owners(example)
        assert owners is not None
        for number, group in zip(owners, d_theta.groups, strict=True):
            block = self.factors[number]
            if isinstance(group, Tied) and block.stop > block.start:
                d_w[block.start : block.stop] = block.energy.tables_vjp(group.tables)


def _forbidden_entries(graph: Graph, table: np.ndarray) -> np.ndarray:
    """Return the flat entries of all factors of two variables that a table forbids."""
    layout = graph.layout
    starts = layout.table_ptr[:-1][np.diff(layout.scope_ptr) == 2]
    return (starts[:, None] + np.flatnonzero(table)).reshape(-1)


def _is_binary(graph: Graph) -> bool:
    return graph.n_labels == 2 and graph.arity is not None


def _owners(example: Example) -> list[int] | None:
    """Return the block whose rows are each group of the graph; None where groups and blocks do not match one to one."""
    groups, binary = example.graph.groups, _is_binary(example.graph)
    if binary and len(groups) > 1:
        return None
    given = [(number, rows) for number, rows in enumerate(example.factors) if rows is not None]
    if len(given) != len(groups):
        return None
    # Binary tables cost no more than tied ones, which only chains of one table go through as they are.
    if binary and (given[0][1].features.shape[-1] or starts_in(example.graph) is None):
        return None
    for (_, rows), group in zip(given, groups, strict=True):
        match = isinstance(rows.index, slice) and (rows.index.start, rows.index.stop) == (group.start, group.stop)
        if not match or group.shape is None:
            return None
    return [number for number, _ in given]


class _Table(NamedTuple):
    """Where the tables of all variables (or factors) lie in flat arrays: a common size, or a start for each."""

    size: int | None
    ptr: np.ndarray | None
    total: int


def _rows_of(graph: Graph, kind: str) -> _Table:
    if kind == "unary" and graph.n_labels is not None:
        return _Table(graph.n_labels, None, graph.n_variables * graph.n_labels)
    if kind == "factors" and graph.n_labels is not None and (graph.arity is not None or graph.n_factors == 0):
        size = graph.n_labels ** (graph.arity or 2)
        return _Table(size, None, graph.n_factors * size)
    ptr = graph.layout.var_ptr if kind == "unary" else graph.layout.table_ptr
    return _Table(None, ptr, int(ptr[-1]))


def _other_size(where: _Table, index: Any, wanted: int) -> int | None:
    """Return the largest table size of some rows where not all have the one that is wanted; None where they have."""
    if where.size is not None:
        return where.size if where.total and where.size != wanted else None
    assert where.ptr is not None
    sizes = np.diff(where.ptr)[index]
    return int(sizes.max()) if (sizes != wanted).any() else None


def _entries(where: _Table, index: Any, n_outputs: int) -> Any:
    """Return the flat entries of some rows: a slice where they are contiguous and of one size."""
    if where.size is not None and isinstance(index, slice):
        return slice(index.start * where.size, index.stop * where.size)
    numbers = np.arange(index.start, index.stop) if isinstance(index, slice) else index
    starts = numbers * where.size if where.size is not None else where.ptr[numbers]  # type: ignore[index]
    return (starts[:, None] + np.arange(n_outputs)).reshape(-1)


def _assemble(blocks: list[Block], w: np.ndarray, parts: list[Rows | None], where: _Table, dtype: Any) -> np.ndarray:
    present = [rows for rows in parts if rows is not None]
    if present and where.size is not None and _in_turn([rows.index for rows in present], where.total // where.size):
        # The usual case: the blocks follow each other and leave nothing out.
        flat = [b.scores(w, rows).reshape(-1) for b, rows in zip(blocks, parts, strict=True) if rows is not None]
        return (flat[0] if len(flat) == 1 else np.concatenate(flat)).astype(dtype, copy=False)
    out = np.zeros(where.total, dtype)
    for block, rows in zip(blocks, parts, strict=True):
        if rows is not None:
            out[_entries(where, rows.index, block.n_outputs)] = block.scores(w, rows).reshape(-1)
    return out


def _in_turn(indices: list[Any], total: int) -> bool:
    """Whether slices follow each other from 0 to ``total``."""
    at = 0
    for index in indices:
        if not isinstance(index, slice) or index.start != at:
            return False
        at = index.stop
    return at == total


#: A larger penalty leaves nothing to learn, and its square overflows.
MAX_RIDGE = 1e30


#: Entries of features that are copied to double precision at a time.
BLOCK = 2**20


#: Of sums of squares, relative to the largest.
_ROUNDING = 1e-9


@dataclass(frozen=True)
class Spread:
    """Of the columns of some rows: their number, means, sums of squared deviations, largest absolute values."""

    count: int
    mean: np.ndarray
    squares: np.ndarray
    largest: np.ndarray
    sparse: bool

    @classmethod
    def of(cls, features: Any) -> Spread:
        """Return the spread of (N, F) features; of sparse ones the largest values only."""
        width = features.shape[-1]
        if hasattr(features, "tocsr"):
            largest = np.asarray(abs(features).max(axis=0).todense(), dtype=np.float64).reshape(-1)
            return cls(features.shape[0], np.zeros(width), np.zeros(width), largest, True)
        rows = features.reshape(-1, width)
        height = max(BLOCK // width, 1)
        return reduce(operator.add, (cls._of_block(rows[k : k + height]) for k in range(0, len(rows), height)))

    @classmethod
    def _of_block(cls, rows: np.ndarray) -> Spread:
        rows = rows.astype(np.float64)
        mean = rows.mean(axis=0)
        largest = np.abs(rows).max(axis=0)
        rows -= mean
        return cls(len(rows), mean, np.einsum("ij,ij->j", rows, rows), largest, False)

    def __add__(self, other: Spread) -> Spread:
        """Join the spreads of two sets of rows (Chan, Golub and LeVeque 1983)."""
        count = self.count + other.count
        apart, share = other.mean - self.mean, other.count / count
        squares = self.squares + other.squares + apart * apart * (self.count * share)
        largest = np.maximum(self.largest, other.largest)
        return Spread(count, self.mean + share * apart, squares, largest, self.sparse or other.sparse)

    def units(self) -> np.ndarray:
        """Return standard deviations; of sparse columns and indicators the largest values, of constant ones the constant."""
        by_size = self._indicators() | self.sparse
        units = np.where(by_size, self.largest, np.sqrt(self.squares / self.count))
        units = np.where(units > 1e-6 * self.largest, units, self.largest)
        return np.where(units > 0, units, 1.0)

    def _indicators(self) -> np.ndarray:
        """Return which columns hold 0 and one other number: of all columns within these bounds they vary most."""
        middle = np.abs(self.mean)
        most = middle * (self.largest - middle)
        return np.abs(self.squares / self.count - most) <= _ROUNDING * self.largest**2


#: What "auto" takes for the unit of the intercepts of variables: small, so the means of features do not matter.
INTERCEPT = 1e-3


@dataclass(frozen=True)
class Ridge:
    """The penalty sum_k r_k w_k^2."""

    r: Any  # one number, or one per weight
    n_weights: int

    @classmethod
    def of(cls, layout: WeightLayout, l2: Any, auto: float = 0.0, units: np.ndarray | None = None) -> Ridge:
        """Return the penalty of ``l2``: one number, or ``{"unary": a, "pairwise": b}``; "auto" is ``auto * units**2``."""
        given = l2 if isinstance(l2, dict) else {"unary": l2, "pairwise": l2}
        if not set(given) <= {"unary", "pairwise"} or not all(_is_ridge(value) for value in given.values()):
            raise InputError(f"l2 must be 'auto', a finite number >= 0 or {{'unary': a, 'pairwise': b}}, received {l2!r}.")
        if max((value for value in given.values() if value != "auto"), default=0) > MAX_RIDGE:
            raise InputError(f"l2 must be at most {MAX_RIDGE:g}, received {l2!r}: nothing is learned beyond.")
        if not isinstance(l2, dict) and (l2 != "auto" or units is None):
            return cls(auto if l2 == "auto" else float(l2), layout.n_weights)
        r = np.zeros(layout.n_weights)
        squares = np.ones(layout.n_weights) if units is None else units**2
        for kind, blocks in (("unary", layout.unary), ("pairwise", [*layout.factors, *layout.kernels])):
            for block in blocks:
                value, part = given.get(kind, 0.0), slice(block.start, block.stop)
                r[part] = auto * squares[part] if value == "auto" else value
        return cls(r, layout.n_weights)

    @property
    def least(self) -> float:
        """The smallest r: the penalty is 2 r strongly convex."""
        return float(np.min(self.r, initial=np.inf)) if self.n_weights else 0.0

    def each(self) -> np.ndarray:
        """Return r of every weight."""
        return np.broadcast_to(np.asarray(self.r, dtype=np.float64), self.n_weights)

    def without(self, weights: np.ndarray) -> Ridge:
        """Return the penalty of all but some weights."""
        return Ridge(np.where(weights, 0.0, self.each()), self.n_weights)

    def stronger(self, layout: WeightLayout, factor: float) -> Ridge:
        """Return the penalty with that of the weights of variables times a factor."""
        if factor == 1:
            return self
        r = self.each().copy()
        for block in layout.unary:
            r[block.start : block.stop] *= factor
        return Ridge(r, self.n_weights)

    def times(self, factor: float) -> Ridge:
        """Return the penalty times a factor."""
        return Ridge(factor * self.r, self.n_weights)


def _is_ridge(value: Any) -> bool:
    return (isinstance(value, str) and value == "auto") or (isinstance(value, Real) and 0 <= float(value) < np.inf)


def is_auto(l2: Any) -> bool:
    """Whether a ridge, or a part of it, is to be chosen from the data."""
    return "auto" in [each for each in (l2.values() if isinstance(l2, dict) else [l2]) if isinstance(each, str)]
