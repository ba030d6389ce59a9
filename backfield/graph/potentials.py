"""Log-potentials theta of a graph, stored flat; also the shape of marginals and of gradients."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from copy import copy
from dataclasses import replace
from typing import Any, Self

import numpy as np

from backfield.errors import InputError
from backfield.graph.graph import FactorGroup, Graph, union
from backfield.graph.groups import Group, ListedGroup, Tables, Tied, bound
from backfield.graph.kernel_groups import Kernel, bound_kernel
from backfield.graph.labeling import factor_entries, one_hot


class Potentials:
    """One table per variable, and one thing per group of factors: log-potentials, marginals, or their adjoints.

    Parameters
    ----------
    graph : Graph
    unary : (n, L) array, or list of arrays (L_i,)
    factors : (F, L, ..., L) array, or list of arrays shaped by the label counts of the scope
        Axes follow the scope. ``-inf`` forbids a configuration; NaN and ``+inf`` are refused.
    groups : list, optional
        Instead of ``factors``: for each of ``graph.groups`` its tables, as in ``factors``, or a :class:`Tied`; and then any
        number of :class:`Kernel` s, each over all pairs of variables, which the graph does not list.
    """

    def __init__(self, graph: Graph, unary: Any, factors: Any = None, *, groups: Sequence[Any] | None = None) -> None:
        if not isinstance(graph, Graph):
            raise InputError(f"potentials need a Graph, received {type(graph).__name__}.")
        if groups is not None and factors is not None:
            raise InputError("give potentials factors= or groups=, not both.")
        if groups is not None and not isinstance(groups, Sequence):
            raise InputError(f"groups must be a list of tables, Tied and Kernel, received {type(groups).__name__}.")
        self.graph = graph
        rows: list[tuple[int, ...]] | None = None
        if graph.n_labels is None:
            rows = [(int(count),) for count in graph.labels]
        self.unary_flat = _flatten(unary, (graph.n_variables, graph.n_labels), rows, "unary")
        if groups is None:
            uniform, shapes = _factor_shapes(graph)
            self._tables = _flatten(() if factors is None else factors, uniform, shapes, "factors")
            parts = [self._tables]
        else:
            self.kernels = tuple(bound_kernel(x, graph, k) for k, x in enumerate(groups) if isinstance(x, Kernel))
            self._groups = _read_groups(graph, [x for x in groups if not isinstance(x, Kernel)])
            parts = [group.vector() for group in self._groups]
        dtype = np.result_type(self.unary_flat, *parts) if graph.n_factors else self.unary_flat.dtype
        self.unary_flat = self.unary_flat.astype(dtype, copy=False)
        if self._groups is None:
            self._tables = parts[0].astype(dtype, copy=False)
        else:
            self._set_groups(tuple(group.astype(dtype) for group in self._groups))
        self.kernels = tuple(kernel.astype(dtype) for kernel in self.kernels)
        _check_values(self)

    #: Whether it is known that no entry is forbidden; False where nobody has looked.
    known_finite: bool = False
    #: Whether the model ties no tables of one form, such as Potts; those of a part of it may have one by chance.
    formless: bool = False
    #: The variables with one possible label of several, where that is known (``graph.clamping``).
    clamp: Any = None
    #: Groups over all pairs of variables, beside the factors of the graph.
    kernels: tuple[Kernel, ...] = ()
    #: Groups of the graph's factors, where one of them is not of tables.
    _groups: tuple[ListedGroup, ...] | None = None
    #: The tables of all factors, flat; of other groups only once they are written out.
    _tables: np.ndarray | None = None

    @classmethod
    def from_flat(cls, graph: Graph, unary_flat: np.ndarray, factors_flat: np.ndarray) -> Self:
        """Wrap flat arrays without a check or a copy."""
        out = cls.__new__(cls)
        out.graph, out.unary_flat, out._tables = graph, unary_flat, factors_flat
        return out

    @classmethod
    def from_groups(cls, graph: Graph, unary_flat: np.ndarray, groups: Sequence[Group]) -> Self:
        """Wrap flat unary tables and one thing per group without a check."""
        out = cls.__new__(cls)
        out.graph, out.unary_flat = graph, unary_flat
        out.kernels = tuple(group for group in groups if isinstance(group, Kernel))
        out._set_groups(tuple(group for group in groups if isinstance(group, ListedGroup)))
        return out

    def with_kernels(self, kernels: Sequence[Kernel]) -> Potentials:
        """Return the same tables with these groups over all pairs instead of those that there are."""
        out = copy(self)
        out.kernels = tuple(kernels)
        return out

    def without_kernels(self) -> Potentials:
        """Return unary tables and the graph's own factors alone (the same object where there is nothing else)."""
        return self.with_kernels(()) if self.kernels else self

    def _set_groups(self, groups: tuple[ListedGroup, ...]) -> None:
        """Keep groups; where all hold tables, as one array."""
        if not groups:
            self._groups, self._tables = None, np.empty(0, self.dtype)
            return
        if all(isinstance(group, Tables) for group in groups):
            self._groups, self._tables = None, _joined(groups, self.dtype)
        else:
            self._groups = groups

    @property
    def unary(self) -> Any:
        """(n, L) array where label counts are equal, else a list of arrays; views of the flat tables."""
        if self.graph.n_labels is not None:
            return self.unary_flat.reshape(self.graph.n_variables, self.graph.n_labels)
        ptr = np.cumsum(self.graph.labels)[:-1]
        return np.split(self.unary_flat, ptr)

    @property
    def factors_flat(self) -> np.ndarray:
        """The tables of all factors, flat: the one place where groups are written out."""
        self.refuse_kernels()
        if self._tables is None:
            assert self._groups is not None
            self._tables = _joined(self._groups, self.dtype)
        return self._tables

    @property
    def factors(self) -> Any:
        """(F, L, ..., L) array where label counts and arities are equal, else a list of arrays; views."""
        uniform, shapes = _factor_shapes(self.graph)
        if uniform is not None:
            return self.factors_flat.reshape(uniform)
        ptr = self.graph.layout.table_ptr
        return [self.factors_flat[ptr[c] : ptr[c + 1]].reshape(shape) for c, shape in enumerate(shapes or [])]

    def refuse_kernels(self, part: str = "") -> None:
        """Refuse kernel groups, which have no tables, on behalf of a part."""
        if self.kernels:
            raise InputError(
                f"{part or 'this part'} takes no kernel groups, which join all pairs of {self.graph.n_variables:,} "
                "variables: use mean_field, or theta.pairs_written_out() of a small model."
            )

    @property
    def groups(self) -> tuple[Group, ...]:
        """What is held for each of ``graph.groups`` (tables are views), then the kernels."""
        return (*self._listed, *self.kernels)

    @property
    def _listed(self) -> tuple[ListedGroup, ...]:
        """What is held for each of ``graph.groups``."""
        if self._groups is not None:
            return self._groups
        assert self._tables is not None
        graph = self.graph
        starts: list[int] = graph.compiled("group starts", lambda: _group_ptr(graph))
        at = starts if len(self._tables) else [0] * (len(graph.groups) + 1)
        spans = zip(at[:-1], at[1:], self.graph.groups, strict=True)
        return tuple(Tables(self._tables[start:stop], group.n_factors) for start, stop, group in spans)

    @property
    def has_tables_only(self) -> bool:
        """Whether every group holds a table per factor."""
        return self._groups is None and not self.kernels

    @property
    def shared(self) -> Tied | None:
        """The tied group of all factors, where one table serves them all (chains); else None."""
        group = self._groups[0] if self._groups is not None and len(self._groups) == 1 else None
        if self.kernels:
            return None
        return group if isinstance(group, Tied) and group.scales is None else None

    def written_out(self) -> Potentials:
        """Return the same potentials with a table for every factor (the same object where they have)."""
        self.refuse_kernels()
        return self if self._groups is None else Potentials.from_flat(self.graph, self.unary_flat, self.factors_flat)

    def pairs_written_out(self) -> Potentials:
        """Return the same model with a factor for every pair that kernels join: of small models, and the truth in tests."""
        from backfield.graph.kernel_pairs import all_pairs

        return all_pairs(self)

    def contract(self, d_theta: Potentials) -> Potentials:
        """Return an adjoint in the kinds of these potentials; one of tables is contracted where these are not tables."""
        if self._groups is None or d_theta._groups is not None:
            return d_theta
        listed = [mine.vjp(d.write_out()) for mine, d in zip(self._groups, d_theta._listed, strict=True)]
        return Potentials.from_groups(self.graph, d_theta.unary_flat, [*listed, *d_theta.kernels])

    @property
    def dtype(self) -> np.dtype:
        """Type of the numbers."""
        return self.unary_flat.dtype

    def astype(self, dtype: Any) -> Potentials:
        """Return the same numbers in another type (the same object where nothing changes)."""
        if self.dtype == np.dtype(dtype):
            return self
        unary = self.unary_flat.astype(dtype)
        if not self.has_tables_only:
            return Potentials.from_groups(self.graph, unary, [group.astype(dtype) for group in self.groups])
        out = Potentials.from_flat(self.graph, unary, self.factors_flat.astype(dtype))
        out.formless = self.formless
        return out

    def with_unary(self, unary_flat: np.ndarray) -> Potentials:
        """Return potentials with other unary tables and the same groups."""
        if self.has_tables_only:
            return Potentials.from_flat(self.graph, unary_flat, self.factors_flat)
        return Potentials.from_groups(self.graph, unary_flat, [group.astype(unary_flat.dtype) for group in self.groups])

    def possible(self) -> Potentials:
        """Return potentials that are 0 where these are finite, and -inf elsewhere."""
        theta = self if self.shared is not None else self.written_out()
        values = theta.vector()
        return theta.like(np.where(values > -np.inf, values.dtype.type(0), values))

    def vector(self) -> np.ndarray:
        """All numbers in one array: unary tables, then those of each group (tables; those and the scales of tied groups)."""
        if self.has_tables_only:
            return np.concatenate([self.unary_flat, self.factors_flat])
        return np.concatenate([self.unary_flat, *(group.vector() for group in self.groups)])

    def like(self, vector: np.ndarray) -> Potentials:
        """Return potentials of the same graph and kinds from one array laid out as by :meth:`vector`."""
        vector = np.asarray(vector)
        cut = len(self.unary_flat)
        sizes = [len(self.factors_flat)] if self.has_tables_only else [len(group.vector()) for group in self.groups]
        if vector.shape != (cut + sum(sizes),):
            raise InputError(f"need {cut + sum(sizes)} numbers, received shape {vector.shape}.")
        if self.has_tables_only:
            return Potentials.from_flat(self.graph, vector[:cut], vector[cut:])
        parts = np.split(vector[cut:], np.cumsum(sizes)[:-1])
        moved = [group.like(part) for group, part in zip(self.groups, parts, strict=True)]
        return Potentials.from_groups(self.graph, vector[:cut], moved)

    def adjoint(self, vector: np.ndarray) -> Potentials:
        """Return an adjoint of these potentials from one array laid out as by :meth:`vector`."""
        out = self.like(vector)
        if out._groups is not None:
            out._groups = tuple(group.as_adjoint() for group in out._groups)
        out.kernels = tuple(kernel.as_adjoint() for kernel in out.kernels)
        return out

    def minus(self, other: Potentials) -> Potentials:
        """Return the difference of two adjoints of the same kinds."""
        unary = self.unary_flat - other.unary_flat
        if self.has_tables_only:
            return Potentials.from_flat(self.graph, unary, self.factors_flat - other.factors_flat)
        pairs = zip(self.groups, other.groups, strict=True)
        return Potentials.from_groups(self.graph, unary, [a.like(a.vector() - b.vector()) for a, b in pairs])

    def dot(self, other: Potentials) -> float:
        """Inner product over all tables, with ``0 * -inf = 0``."""
        return float(_dot(self.unary_flat, other.unary_flat) + _dot(self.factors_flat, other.factors_flat))

    def score(self, labels: np.ndarray) -> Any:
        """theta·f(labels): the sum of the table entries that a labeling selects, in double precision."""
        layout = self.graph.layout
        exact = np.result_type(self.dtype, np.float64)
        total = self.unary_flat[layout.var_ptr[:-1] + labels].sum(dtype=exact)
        for kernel in self.kernels:
            total = total + kernel.operator().energy(self._rows_of(labels))
        if self.graph.n_factors == 0:
            return total.item()
        entry, _ = factor_entries(self.graph, labels)
        if self._groups is None:
            assert self._tables is not None
            total = total + self._tables[entry].sum(dtype=exact)
        else:
            for values, entries, starts in self._each(entry - layout.table_ptr[:-1]):
                total = total + values.pick(entries, starts).sum(dtype=exact)
        return total.item()

    def indicators(self, labels: np.ndarray) -> Potentials:
        """Return f(labels), the gradient of :meth:`score`, in these kinds and this type; hidden (-1) ones are zero."""
        if self.kernels:
            rows = self._rows_of(labels)
            return (
                self.without_kernels().indicators(labels).with_kernels([k.operator().energy_vjp(rows) for k in self.kernels])
            )
        if self._groups is None:
            unary, factors = (part.astype(self.dtype, copy=False) for part in one_hot(self.graph, labels))
            return Potentials.from_flat(self.graph, unary, factors)
        layout = self.graph.layout
        known = labels >= 0
        unary = np.zeros_like(self.unary_flat)
        unary[layout.var_ptr[:-1][known] + labels[known]] = 1
        entries, complete = factor_entries(self.graph, labels)
        ones, entry = complete.astype(self.dtype), np.where(complete, entries - layout.table_ptr[:-1], 0)
        spans = zip(self._each(entry), self.graph.groups, strict=True)
        groups = [values.pick_vjp(at, starts, ones[span.start : span.stop]) for (values, at, starts), span in spans]
        return Potentials.from_groups(self.graph, unary, groups)

    def _rows_of(self, labels: np.ndarray) -> np.ndarray:
        """Return labels as rows (n, L) with one 1; zeros where hidden."""
        assert self.graph.n_labels is not None
        return (labels[:, None] == np.arange(self.graph.n_labels)).astype(self.dtype)

    def _each(self, entry: np.ndarray) -> Iterator[tuple[ListedGroup, np.ndarray, np.ndarray]]:
        """Yield each group with the entries of its factors' tables, and where the tables start in the group."""
        table_ptr = self.graph.layout.table_ptr
        for values, span in zip(self._listed, self.graph.groups, strict=True):
            yield values, entry[span.start : span.stop], table_ptr[span.start : span.stop] - table_ptr[span.start]

    @property
    def is_finite(self) -> bool:
        """Whether no entry is forbidden (-inf): almost always answered by one sum."""
        if self.known_finite:
            return True
        if not self.has_tables_only:
            return bool(np.isfinite(self.unary_flat).all()) and all(group.is_finite for group in self.groups)
        total = self.unary_flat.sum() + self.factors_flat.sum()
        return bool(np.isfinite(total) or (np.isfinite(self.unary_flat).all() and np.isfinite(self.factors_flat).all()))

    def magnitude(self) -> np.ndarray:
        """Return the largest |theta| of variables and of factors; NaN where there is one."""
        tables = self.unary_flat, self.factors_flat
        return np.array([max(-float(table.min(initial=0)), float(table.max(initial=0))) for table in tables])

    def marked_finite(self) -> Potentials:
        """Return the same tables as potentials of which it is known that no entry is forbidden."""
        out = copy(self)
        out.known_finite = True
        return out

    def marked_formless(self) -> Potentials:
        """Return the same tables as potentials whose kernels are those for tables of any form."""
        out = copy(self)
        out.formless = True
        return out

    def verify(self) -> None:
        """Refuse numbers that are none: asked by methods that come across them; who makes potentials has looked."""

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ if self._groups is None else {k: v for k, v in self.__dict__.items() if k != "_tables"}

    def __repr__(self) -> str:
        return f"Potentials({self.graph!r}, {self.dtype})"

    def _repr_html_(self) -> str:
        from backfield import drawing

        kinds = ", ".join(type(group).__name__ for group in self.groups) or "none"
        return drawing.html_table("Potentials", {"graph": self.graph, "groups": kinds, "dtype": self.dtype})


def batch(thetas: Sequence[Potentials]) -> Potentials:
    """Return the disjoint union of several potentials; groups tied to one and the same array of tables become one group."""
    if not isinstance(thetas, Sequence) or not all(isinstance(theta, Potentials) for theta in thetas):
        raise InputError("a batch is made of a list of Potentials.")
    for theta in thetas:
        theta.refuse_kernels("a batch")
    shared = _shared_group(thetas)
    tables = all(theta.has_tables_only for theta in thetas)
    graph = union([theta.graph for theta in thetas], merge=tables or shared is not None)
    unary = np.concatenate([theta.unary_flat for theta in thetas])
    if tables:
        return Potentials.from_flat(graph, unary, np.concatenate([theta.factors_flat for theta in thetas]))
    if shared is not None and len(graph.groups) == 1:
        return Potentials.from_groups(graph, unary, [shared])
    graph = union([theta.graph for theta in thetas], merge=False)
    return Potentials.from_groups(graph, unary, [group for theta in thetas for group in theta.groups])


def _shared_group(thetas: Sequence[Potentials]) -> Tied | None:
    """Return the group of all factors where each of the potentials has one, tied to the same tables; else None."""
    groups = [group for theta in thetas for group in theta._listed]
    first = groups[0] if groups else None
    if len(groups) != len(thetas) or not isinstance(first, Tied):
        return None
    scales = []
    for group in groups:
        if not isinstance(group, Tied) or group.tables is not first.tables or group.fixed_scales != first.fixed_scales:
            return None
        scales.append(group.scales)
    if any((each is None) != (first.scales is None) for each in scales):
        return None
    joined = None if first.scales is None else np.concatenate(scales)
    return replace(first, scales=joined, n_factors=sum(group.n_factors for group in groups))


def _read_groups(graph: Graph, groups: Sequence[Any]) -> tuple[ListedGroup, ...]:
    """Return one checked group for each of ``graph.groups``."""
    spans = graph.groups
    if graph.n_factors == 0 and len(groups) == 0:
        groups = [() for _ in spans]
    if len(groups) != len(spans):
        names = ", ".join(f"{span.name or 'factors'} ({span.n_factors})" for span in spans)
        raise InputError(
            f"groups must hold {len(spans)} entries, one for each group of the graph: {names}; received {len(groups)}."
        )
    out: list[ListedGroup] = []
    for number, (values, span) in enumerate(zip(groups, spans, strict=True)):
        if isinstance(values, Tied):
            out.append(bound(values, span, number))
        else:
            uniform, shapes = _group_shapes(graph, span)
            flat = _flatten(values, uniform, shapes, f"groups[{number}]")
            if flat.size and not np.max(flat) < np.inf:
                raise InputError(f"groups[{number}] holds NaN or +inf; potentials are finite or -inf.")
            out.append(Tables(flat, span.n_factors))
    return tuple(out)


def _group_shapes(graph: Graph, span: FactorGroup) -> tuple[tuple[int, ...] | None, list[tuple[int, ...]] | None]:
    if span.shape is not None:
        return (span.n_factors, *span.shape), None
    scopes = graph.factors[span.start : span.stop]
    return None, [tuple(int(graph.labels[i]) for i in scope) for scope in scopes]


def _group_ptr(graph: Graph) -> list[int]:
    """Return where the tables of each group start in the flat tables, and their number."""
    shapes = [group.shape for group in graph.groups if group.shape is not None]
    if len(shapes) == len(graph.groups):
        sizes = [group.n_factors * int(np.prod(shape)) for group, shape in zip(graph.groups, shapes, strict=True)]
        return [0, *np.cumsum(sizes).tolist()]
    ptr = graph.layout.table_ptr
    return [0, *(int(ptr[group.stop]) for group in graph.groups)]


def _joined(groups: Sequence[ListedGroup], dtype: np.dtype) -> np.ndarray:
    parts = [group.write_out() for group in groups]
    return (parts[0] if len(parts) == 1 else np.concatenate(parts)).astype(dtype, copy=False)


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
            raise InputError(f"{what} must have shape {uniform}, received {array.shape}.")
        return array.reshape(-1)
    assert shapes is not None
    try:
        count = len(tables)
    except TypeError as error:
        raise InputError(f"{what} must be a list of {len(shapes)} arrays, received {type(tables).__name__}.") from error
    if count != len(shapes):
        raise InputError(f"{what} must hold {len(shapes)} tables, received {count}.")
    parts = []
    for index, (table, shape) in enumerate(zip(tables, shapes, strict=True)):
        array = _numbers(table, f"{what}[{index}]")
        if array.shape != shape:
            raise InputError(f"{what}[{index}] must have shape {shape}, received {array.shape}.")
        parts.append(array.reshape(-1))
    return np.concatenate(parts) if parts else np.empty(0)


def _numbers(table: Any, what: str) -> np.ndarray:
    try:
        array = np.asarray(table)
    except ValueError as error:
        raise InputError(f"{what} must hold tables of one shape.") from error
    if array.dtype.kind not in "iuf":
        raise InputError(f"{what} must hold real numbers, received dtype {array.dtype}.")
    if array.dtype not in (np.float32, np.float64):
        array = array.astype(np.float64)
    # Read-only numbers are another type to numba, which would compile every kernel again.
    return np.ascontiguousarray(array) if array.flags.writeable else array.copy(order="C")


def _check_values(theta: Potentials) -> None:
    layout = theta.graph.layout if theta.graph.n_labels is None or theta.graph.arity is None else None
    tables = [("factors", theta._tables)] if theta._groups is None else []  # other groups were checked one by one
    for what, flat in [("unary", theta.unary_flat), *tables]:
        assert flat is not None
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
