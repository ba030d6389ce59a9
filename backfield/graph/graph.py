"""The structure of a random field: variables, their label counts, and factors of any arity.

A graph is compiled once, on first use, to flat read-only arrays (:class:`Layout`), which every kernel reads.

Conventions
-----------
=================  ============================================================================
``n``, ``F``       number of variables and of factors
``slot``           one variable inside one factor, ``(c, i)``; slot ``k`` is also the directed message
                   from factor ``c`` to variable ``i``; slots are numbered factor by factor, in scope order
flat unary         the tables of all variables one after the other; variable ``i`` owns
                   ``[var_ptr[i], var_ptr[i + 1])``
flat factors       the tables of all factors one after the other, each in C order (last variable of the
                   scope fastest); factor ``c`` owns ``[table_ptr[c], table_ptr[c + 1])``
flat messages      one block of ``labels[scope[k]]`` numbers for each slot ``k``
=================  ============================================================================
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Hashable, Iterable, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from backfield.errors import InputError
from backfield.graph.lattice import Lattice
from backfield.indices import are_pointers

#: Larger label counts are assumed to be a mistake.
_MOST_LABELS = 2**31 - 1


class Layout(NamedTuple):
    """Flat, read-only arrays of a graph (see *Conventions*)."""

    labels: np.ndarray  # (n,) int64 label count of each variable
    var_ptr: np.ndarray  # (n + 1,)
    scope_ptr: np.ndarray  # (F + 1,) slots of a factor
    scope: np.ndarray  # (S,) variable of a slot
    slot_factor: np.ndarray  # (S,) factor of a slot
    stride: np.ndarray  # (S,) step in the factor's table when the slot's label grows by one
    table_ptr: np.ndarray  # (F + 1,)
    msg_ptr: np.ndarray  # (S + 1,)
    inc_ptr: np.ndarray  # (n + 1,) slots of a variable ...
    inc: np.ndarray  # (S,) ... in rising order of the slot


class FactorGroup(NamedTuple):
    """Factors ``start .. stop - 1``, for which :class:`~backfield.graph.Potentials` holds one thing (tables, tied).

    ``arity`` and ``shape`` (of one table) are ``None`` where the factors of the group have different ones.
    """

    name: str
    start: int
    stop: int
    arity: int | None
    shape: tuple[int, ...] | None

    @property
    def n_factors(self) -> int:
        """Number of factors."""
        return self.stop - self.start


class Graph:
    """Variables ``0 .. n-1`` with ``labels[i]`` labels each, and factors over them.

    Parameters
    ----------
    labels : sequence of int
        Label count of each variable.
    factors : sequence of sequences of int
        The scope of each factor: at least two different variables. Order, orientation and duplicates
        are kept.

    Examples
    --------
    >>> Graph(labels=[2, 3, 2], factors=[(0, 1), (0, 1, 2)])
    Graph(3 variables, 2 factors)
    """

    #: Shape and offsets of a grid in the order of :meth:`grid`, else ``None``.
    lattice: Lattice | None
    #: Label count of each variable.
    labels: np.ndarray
    #: Number of factors.
    n_factors: int
    #: Number of (factor, variable) pairs, which is the number of directed messages.
    n_slots: int

    #: Where the variables of each graph of a union start, and their number; ``None`` for a graph that is not one.
    parts: np.ndarray | None = None
    #: The graphs of a stack (``graph.stacking``), for what is computed once for each; else ``None``.
    members: tuple[Graph, ...] | None = None
    #: Name and number of factors of each group, where there is more than one.
    _group_sizes: tuple[tuple[str, int], ...] | None = None

    def __init__(self, labels: Sequence[int] | np.ndarray, factors: Iterable[Sequence[int]] = ()) -> None:
        counts = _label_counts(labels)
        try:
            listed = list(factors)
        except TypeError as error:
            raise InputError(f"factors must list the variables of each factor, received {factors!r}.") from error
        scopes = [np.asarray(_scope(scope, c), dtype=np.int64) for c, scope in enumerate(listed)]
        sizes = np.array([len(scope) for scope in scopes], dtype=np.int64)
        flat = np.concatenate(scopes) if scopes else np.empty(0, dtype=np.int64)
        ptr = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
        _check_scopes(flat, ptr, len(counts))
        self._setup(counts, ptr, flat)

    def _setup(self, labels: np.ndarray, scope_ptr: np.ndarray, scope: np.ndarray) -> None:
        self.labels = labels
        self.labels.flags.writeable = False
        self._scope_ptr = _frozen(scope_ptr)
        self._scope = _frozen(scope)
        self.lattice = None
        self.n_factors = len(scope_ptr) - 1
        self.n_slots = len(scope)

    @classmethod
    def _from_arrays(cls, labels: np.ndarray, scope_ptr: np.ndarray, scope: np.ndarray) -> Graph:
        """Build from checked arrays; the fast path of the builders."""
        graph = cls.__new__(cls)
        graph._setup(labels, scope_ptr, scope)
        return graph

    @classmethod
    def from_scopes(cls, labels: Any, scope_ptr: Any, scope: Any) -> Graph:
        """Return the graph whose factor c has the variables ``scope[scope_ptr[c]:scope_ptr[c + 1]]``."""
        counts, ptr, flat = _label_counts(labels), np.asarray(scope_ptr), np.asarray(scope)
        if flat.ndim != 1 or flat.dtype.kind not in "iu" or not are_pointers(ptr, len(flat)) or (np.diff(ptr) < 2).any():
            raise InputError("scope_ptr must cut scope, integers, into factors of at least two variables.")
        ptr, flat = ptr.astype(np.int64), flat.astype(np.int64)
        _check_scopes(flat, ptr, len(counts))
        return cls._from_arrays(counts, ptr, flat)

    @classmethod
    def of_lattice(cls, lattice: Lattice, labels: int | np.ndarray) -> Graph:
        """Return a grid of variables with so many labels each; scopes are written out only when somebody asks."""
        graph = cls.__new__(cls)
        each = labels if isinstance(labels, np.ndarray) else _label_counts([labels])
        graph.labels = np.broadcast_to(each, lattice.n_variables)
        graph.lattice = lattice
        graph.n_factors = sum(lattice.sizes)
        graph._group_sizes = tuple(zip(lattice.names, lattice.sizes, strict=True))
        graph.n_slots = 2 * graph.n_factors
        return graph

    # A grid needs no scopes for its own kernels; at 3000x3000 they would be most of its memory.
    @cached_property
    def _scope(self) -> np.ndarray:
        assert self.lattice is not None
        return _frozen(self.lattice.scope().ravel())

    @cached_property
    def _scope_ptr(self) -> np.ndarray:
        return _frozen(np.arange(0, self.n_slots + 1, 2))

    @classmethod
    def chain(cls, length: int, labels: int | Sequence[int] = 2, order: int = 1) -> Graph:
        """Return a chain ``0 - 1 - ... - length-1``; of order 2 with factors (t, t + 1), then (t, t + 1, t + 2)."""
        from backfield.graph import builders

        return builders.chain(length, labels, order)

    @classmethod
    def grid(
        cls, rows: Any, columns: Any = None, labels: Any = None, neighbours: int | None = None, offsets: Any = None
    ) -> Graph:
        """Return a grid of row-major variables: ``grid(H, W)``, or ``grid(shape)`` of any number of dimensions.

        Parameters
        ----------
        rows, columns : int
            Or a shape, such as (D, H, W), in the place of both.
        labels : int
            Label count of all variables, 2 by default.
        neighbours : int, optional
            4 or 8 in two dimensions, 6, 18 or 26 in three; by default those along the axes.
        offsets : list of tuples of int, optional
            Instead of ``neighbours``, the steps from a variable to those it is joined to: ``[(0, 1), (1, 0), (0, 3)]``.
            One of a step and its opposite is given.

        Factors follow offset by offset, each row-major by their first end: the axes, last axis first, (horizontal edges,
        then vertical ones), then the diagonals; of 8 neighbours (1, 1), then (1, -1). Each offset is a group.
        """
        from backfield.graph import builders

        return builders.grid(rows, columns, labels, neighbours, offsets)

    @classmethod
    def from_edges(cls, edges: Any, n_variables: int | None = None, labels: int | Sequence[int] = 2) -> Graph:
        """Return a pairwise graph of ``edges`` (E, 2); order, orientation and duplicates are kept."""
        from backfield.graph import builders

        return builders.from_edges(edges, n_variables, labels)

    @classmethod
    def from_networkx(cls, graph: Any, labels: int | Sequence[int] = 2) -> Graph:
        """Return the pairwise graph of a networkx graph; variables follow the order of ``graph.nodes``."""
        from backfield.graph import builders

        return builders.from_networkx(graph, labels)

    @classmethod
    def from_regions(cls, regions: Any, labels: int = 2, connectivity: int = 1) -> Graph:
        """Return the region adjacency graph of an (H, W) map of superpixel numbers ``0 .. n-1``."""
        from backfield.graph import builders

        return builders.from_regions(regions, labels, connectivity)

    @property
    def n_variables(self) -> int:
        """Number of variables."""
        return len(self.labels)

    @property
    def shape(self) -> tuple[int, ...] | None:
        """Number of variables along each axis of a grid, else ``None``."""
        return None if self.lattice is None else self.lattice.shape

    @property
    def offsets(self) -> tuple[tuple[int, ...], ...] | None:
        """Steps from the first to the second variable of the factors of a grid, group by group, else ``None``."""
        return None if self.lattice is None else self.lattice.offsets

    @cached_property
    def image_shape(self) -> tuple[int, int] | None:
        """(rows, columns) of a 4-connected two-dimensional grid, which has dedicated kernels, else ``None``."""
        return None if self.lattice is None else self.lattice.image_shape

    @cached_property
    def image_stack(self) -> tuple[int, int, int] | None:
        """(images, rows, columns) of such a grid, or of several of one size as one graph, else ``None``."""
        return None if self.lattice is None else self.lattice.image_stack

    @cached_property
    def factors(self) -> Any:
        """Scopes: an (F, arity) array where all arities are equal, else a list of tuples."""
        if self.arity is not None:
            return self._scope.reshape(-1, self.arity)
        ptr = self._scope_ptr
        return [tuple(self._scope[ptr[c] : ptr[c + 1]].tolist()) for c in range(self.n_factors)]

    @cached_property
    def arity(self) -> int | None:
        """The arity of all factors where they share one, else ``None``."""
        if self.lattice is not None:
            return 2 if self.n_factors else None
        sizes = np.diff(self._scope_ptr)
        return int(sizes[0]) if len(sizes) and (sizes == sizes[0]).all() else None

    @cached_property
    def n_labels(self) -> int | None:
        """The label count of all variables where they share one, else ``None``."""
        first = int(self.labels[0])
        return first if self.labels.strides == (0,) or (self.labels == first).all() else None

    @cached_property
    def is_lattice(self) -> bool:
        """Whether it is a grid with factors of more than one offset: those of one are chains."""
        return self.lattice is not None and self.lattice.n_covers > 1

    @property
    def is_pairwise(self) -> bool:
        """Whether every factor has two variables and all variables share a label count."""
        return self.n_labels is not None and (self.arity == 2 or self.n_factors == 0)

    @cached_property
    def layout(self) -> Layout:
        """The flat arrays that the kernels read; computed on first use."""
        labels, scope = self.labels, self._scope
        slot_labels = labels[scope]
        slot_factor = np.repeat(np.arange(self.n_factors), np.diff(self._scope_ptr))
        stride, sizes = _strides(slot_labels, self._scope_ptr)
        inc = np.argsort(scope, kind="stable")
        degree = np.bincount(scope, minlength=self.n_variables)
        return Layout(
            *map(
                _frozen,
                (
                    labels,
                    _ptr(labels),
                    self._scope_ptr,
                    scope,
                    slot_factor,
                    stride,
                    _ptr(sizes),
                    _ptr(slot_labels),
                    _ptr(degree),
                    inc,
                ),
            )
        )

    @cached_property
    def groups(self) -> tuple[FactorGroup, ...]:
        """The groups of factors: contiguous ranges that together hold every factor once."""
        sizes = self._group_sizes or (("", self.n_factors),)
        stops = np.cumsum([size for _, size in sizes]).tolist()
        return tuple(self._group(name, stop - size, stop) for (name, size), stop in zip(sizes, stops, strict=True))

    def _group(self, name: str, start: int, stop: int) -> FactorGroup:
        if self.n_labels is not None and (self.arity is not None or start == stop):
            arity = self.arity or 2
            return FactorGroup(name, start, stop, arity, (self.n_labels,) * arity)
        sizes = np.diff(self._scope_ptr[start : stop + 1])
        if len(sizes) == 0 or (sizes != sizes[0]).any():
            return FactorGroup(name, start, stop, None, None)
        counts = self.labels[self._scope[self._scope_ptr[start] : self._scope_ptr[stop]]].reshape(len(sizes), -1)
        shape = tuple(counts[0].tolist()) if (counts == counts[0]).all() else None
        return FactorGroup(name, start, stop, int(sizes[0]), shape)

    @cached_property
    def digest(self) -> bytes:
        """A fingerprint: graphs that have it in common are the same in everything."""
        found = hashlib.blake2b(repr((self.lattice, self._group_sizes, self.n_labels)).encode(), digest_size=16)
        found.update(b"" if self.parts is None else np.ascontiguousarray(self.parts).tobytes())
        found.update(
            np.ascontiguousarray(self.labels).tobytes() if self.n_labels is None else str(self.n_variables).encode()
        )
        if self.lattice is None:
            found.update(self._scope_ptr.tobytes() if self.arity is None else str(self.arity).encode())
            found.update(self._scope.tobytes())
        return found.digest()

    def compiled(self, key: Hashable, build: Callable[[], Any]) -> Any:
        """Return what ``build`` made of this graph when ``key`` was first asked for (orders, index arrays)."""
        memo = self.__dict__.setdefault("_memo", {})
        if key not in memo:
            memo[key] = build()
        return memo[key]

    def __getstate__(self) -> dict[str, Any]:
        return {key: value for key, value in self.__dict__.items() if key not in ("_memo", "layout")}

    @cached_property
    def degree(self) -> np.ndarray:
        """Number of factors around each variable."""
        return _frozen(np.bincount(self._scope, minlength=self.n_variables))

    def __repr__(self) -> str:
        kind = f"grid {'x'.join(map(str, self.shape))}, " if self.shape else ""
        return f"Graph({kind}{self.n_variables} variables, {self.n_factors} factors)"

    def _repr_html_(self) -> str:
        from backfield import drawing

        low, high = (int(self.labels.min()), int(self.labels.max())) if self.n_variables else (0, 0)
        rows = {
            "variables": self.n_variables,
            "labels": low if low == high else f"{low} to {high}",
            "factors": self.n_factors,
        }
        rows |= {"grid": " x ".join(map(str, self.shape))} if self.shape else {}
        return drawing.html_table("Graph", rows)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Graph):
            return NotImplemented
        if self is other:
            return True
        if self.n_slots != other.n_slots or not np.array_equal(self.labels, other.labels):
            return False
        same_grid = self.lattice is not None and self.lattice == other.lattice  # whose scopes need not be written out
        return same_grid or (np.array_equal(self._scope_ptr, other._scope_ptr) and np.array_equal(self._scope, other._scope))

    def __hash__(self) -> int:
        # Sizes only: nothing is written out for it, and graphs of one size that differ are told apart by ==.
        return hash((self.n_variables, self.n_factors, self.n_slots, int(self.labels[0]), int(self.labels[-1])))


def union(graphs: Sequence[Graph], merge: bool = True) -> Graph:
    """Return the disjoint union of graphs: variables and factors follow one another.

    Where every graph has one group and their tables have one shape (chains), the union has one group; else, and without
    ``merge``, the groups follow one another.
    """
    if not graphs:
        raise InputError("a batch needs at least one graph.")
    starts = np.cumsum([0] + [graph.n_variables for graph in graphs])
    slots = np.cumsum([0] + [graph.n_slots for graph in graphs])
    scope = np.concatenate([graph._scope + start for graph, start in zip(graphs, starts, strict=False)])
    ptr = np.concatenate([graph._scope_ptr[:-1] + slot for graph, slot in zip(graphs, slots, strict=False)])
    labels = np.concatenate([graph.labels for graph in graphs])
    graph = Graph._from_arrays(labels, np.append(ptr, slots[-1]).astype(np.int64), scope.astype(np.int64))
    graph.parts = starts
    groups = [group for part in graphs for group in part.groups]
    alike = len(groups) == len(graphs) and len({group.shape for group in groups if group.n_factors}) <= 1
    if not (merge and alike):
        graph._group_sizes = tuple((group.name, group.n_factors) for group in groups)
    return graph


def _frozen(array: np.ndarray) -> np.ndarray:
    # Graph arrays are always contiguous int64 and read-only: a writeable one would compile every kernel twice.
    array = np.ascontiguousarray(array, dtype=np.int64)
    if array.flags.writeable:
        array = array.view()
        array.flags.writeable = False
    return array


def _ptr(sizes: np.ndarray) -> np.ndarray:
    out = np.zeros(len(sizes) + 1, dtype=np.int64)
    np.cumsum(sizes, out=out[1:])
    return out


def _strides(slot_labels: np.ndarray, scope_ptr: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Strides of each slot in its C-ordered table, and the table sizes."""
    stride = np.ones(len(slot_labels), dtype=np.int64)
    arity = np.diff(scope_ptr)
    size = np.ones(len(arity), dtype=np.int64)
    for back in range(1, int(arity.max(initial=0)) + 1):
        has = arity >= back
        slot = scope_ptr[1:][has] - back
        stride[slot] = size[has]
        size[has] *= slot_labels[slot]
    return stride, size


def _label_counts(labels: Any) -> np.ndarray:
    try:
        counts = np.asarray(labels)
    except ValueError as error:
        raise InputError("labels must be one label count per variable.") from error
    if counts.ndim != 1 or len(counts) == 0:
        raise InputError(f"labels must list at least one label count, received shape {counts.shape}.")
    if counts.dtype.kind not in "iu":
        raise InputError(f"label counts must be integers, received dtype {counts.dtype}.")
    if counts.min() < 1:
        bad = int(np.argmin(counts))
        raise InputError(f"variable {bad} has {counts[bad]} labels; at least 1 is needed.")
    if counts.max() > _MOST_LABELS:
        bad = int(np.argmax(counts))
        raise InputError(f"variable {bad} has {counts[bad]} labels; at most {_MOST_LABELS} can be handled.")
    return counts.astype(np.int64)


def _scope(scope: Any, c: int) -> np.ndarray:
    try:
        array = np.asarray(scope)
    except ValueError as error:
        raise InputError(f"factor {c} is {scope!r}; variables are named by integers.") from error
    if array.ndim != 1 or len(array) < 2:
        raise InputError(f"factor {c} is {scope!r}; a factor names at least two variables (one goes into unary).")
    if array.dtype.kind not in "iu":
        raise InputError(f"factor {c} is {scope!r}; variables are named by integers.")
    return array


def _check_scopes(scope: np.ndarray, ptr: np.ndarray, n: int) -> None:
    bad = np.flatnonzero((scope < 0) | (scope >= n))
    if len(bad):
        c = int(np.searchsorted(ptr, bad[0], side="right") - 1)
        raise InputError(f"factor {c} names variable {scope[bad[0]]}, but variables are 0 .. {n - 1}.")
    factor = np.repeat(np.arange(len(ptr) - 1), np.diff(ptr))
    order = np.lexsort((scope, factor))
    twice = np.flatnonzero((np.diff(scope[order]) == 0) & (np.diff(factor[order]) == 0))
    if len(twice):
        c = int(factor[order[twice[0]]])
        raise InputError(f"factor {c} names variable {scope[order[twice[0]]]} twice.")
