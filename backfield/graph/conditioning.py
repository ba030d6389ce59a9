"""Conditioning: a model restricted to the labels that are allowed ("clamping", [D13] §4.1.2).

Iterative methods keep the graph: :meth:`Evidence.forbid` puts -inf into unary tables (see ``clamping``). Exact methods and
MAP solvers run on the reduced model, a :class:`Restriction`: variables with one allowed label disappear, others keep their
allowed labels. Every entry of theta adds to exactly one number of the reduced model (a table entry, or the constant), or is
forbidden. So reducing is a scatter-add over one index array, and both the marginals of the full model and the adjoint of
reducing are the gather over the same array.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np

from backfield.errors import InputError
from backfield.graph.clamping import Clamp, clamp_to
from backfield.graph.graph import Graph
from backfield.graph.labeling import Labeling, as_labeling
from backfield.graph.potentials import Potentials
from backfield.kernels.compile import exact_kernel

_FORBIDDEN = -1


class Evidence:
    """What is known about the variables of a graph: which labels are ``allowed``, flat as the unary tables.

    ``labels`` (n,), where somebody has them, are those of the variables with one allowed label, -1 elsewhere. Evidence
    belongs to an example, and what is compiled for it is compiled once, whichever examples share the graph.
    """

    def __init__(self, graph: Graph, allowed: np.ndarray, labels: np.ndarray | None = None) -> None:
        self.graph, self.allowed, self._labels = graph, allowed, labels

    @cached_property
    def restriction(self) -> Restriction:
        """The reduced model."""
        return Restriction(self.graph, self.allowed)

    @cached_property
    def clamp(self) -> Clamp | None:
        """The variables that it leaves one label of several."""
        if self._labels is None or self.graph.labels.min() == 1:  # one label of one is not fixed
            return clamp_to(self.graph, self.allowed)
        return Clamp(self.graph, self._labels) if (self._labels >= 0).any() else None

    def forbid(self, theta: Potentials) -> Potentials:
        """Return theta with -inf for the labels that are not allowed."""
        unary = np.where(self.allowed, theta.unary_flat, theta.dtype.type(-np.inf))
        out = theta.with_unary(unary)
        if theta.known_finite:
            out.clamp = self.clamp
        return out

    def contradiction(self, theta: Potentials) -> str:
        """Return why the allowed labels have probability zero; empty where they do not."""
        if theta.is_finite:
            return ""
        reduced, constant = self.restriction.reduce(theta.without_kernels())  # which forbid nothing
        if np.real(constant) == -np.inf:
            return "the known labels together have probability zero (-inf)."
        try:
            if reduced is not None:
                check_possible(reduced)
        except InputError as error:
            return self.restriction.in_full(str(error))
        return ""

    def intersect(self, allowed: np.ndarray) -> Evidence:
        """Return this evidence together with other allowed labels."""
        allowed = self.allowed & allowed
        count = np.add.reduceat(allowed.astype(np.int64), self.graph.layout.var_ptr[:-1])
        if count.min() == 0:
            raise InputError(f"variable {int(np.argmin(count))} is observed with a label that labels forbid.")
        return Evidence(self.graph, allowed)


def evidence(graph: Graph, observed: Any) -> Evidence | None:
    """Read observed labels (-1 = free) or a mask of allowed labels; None where they leave everything free."""
    if observed is None:
        return None
    return known_labels(graph, as_labeling(graph, observed, "observed"))


def known_labels(graph: Graph, labeling: Labeling) -> Evidence | None:
    """Return labels as evidence; None where they leave everything free."""
    return None if labeling.allowed.all() else Evidence(graph, labeling.allowed, labeling.labels)


class Restriction:
    """The structure of a graph restricted to ``allowed`` labels (flat, as unary tables).

    Attributes
    ----------
    graph : Graph or None
        The reduced graph; ``None`` when every variable has one allowed label.
    kept_factors : ndarray
        Old numbers of the factors that are left.
    """

    def __init__(self, full: Graph, allowed: np.ndarray) -> None:
        layout = full.layout
        self.full, self.allowed = full, allowed
        count = np.add.reduceat(allowed.astype(np.int64), layout.var_ptr[:-1])
        free = count > 1
        self.kept_variables = np.flatnonzero(free)
        before = np.cumsum(allowed) - allowed  # allowed labels before each entry, over all variables
        rank = np.where(allowed, before - np.repeat(before[layout.var_ptr[:-1]], full.labels), _FORBIDDEN)
        n_free = np.bincount(layout.slot_factor, weights=free[layout.scope], minlength=full.n_factors).astype(np.int64)
        self.kept_factors = np.flatnonzero(n_free >= 2)
        self._build_graph(free, count, n_free)
        self.target = self._targets(allowed, free, count, rank, n_free)

    def _build_graph(self, free: np.ndarray, count: np.ndarray, n_free: np.ndarray) -> None:
        layout = self.full.layout
        if not free.any():
            self.graph: Graph | None = None
            self.n_unary = self.n_table = 0
            return
        number = np.cumsum(free) - 1
        keep = free[layout.scope] & (n_free >= 2)[layout.slot_factor]
        ptr = np.concatenate([[0], np.cumsum(n_free[self.kept_factors])]).astype(np.int64)
        self.graph = Graph._from_arrays(count[free], ptr, number[layout.scope[keep]])
        if self.full.parts is not None:
            self.graph.parts = np.searchsorted(self.kept_variables, self.full.parts)
        self.n_unary = int(self.graph.layout.var_ptr[-1])
        self.n_table = int(self.graph.layout.table_ptr[-1])

    def _targets(
        self, allowed: np.ndarray, free: np.ndarray, count: np.ndarray, rank: np.ndarray, n_free: np.ndarray
    ) -> np.ndarray:
        """Return, for every entry of theta, its place in [unary, tables, constant] of the reduced model."""
        layout = self.full.layout
        constant = self.n_unary + self.n_table
        start = np.full(self.full.n_variables, constant, dtype=np.int64)
        base = np.full(self.full.n_factors, constant, dtype=np.int64)
        if self.graph is not None:
            start[free] = self.graph.layout.var_ptr[:-1]
            base[self.kept_factors] = self.n_unary + self.graph.layout.table_ptr[:-1]
        alone = free[layout.scope] & (n_free == 1)[layout.slot_factor]
        base[layout.slot_factor[alone]] = start[layout.scope[alone]]
        owner = np.repeat(np.arange(self.full.n_variables), self.full.labels)
        target = np.empty(len(allowed) + int(layout.table_ptr[-1]), dtype=np.int64)
        target[: len(allowed)] = np.where(allowed, start[owner] + np.where(free[owner], rank, 0), _FORBIDDEN)
        tables, step = target[len(allowed) :], self._new_strides(free, count, n_free)
        _table_targets(
            layout.var_ptr, layout.scope_ptr, layout.scope, layout.stride, layout.table_ptr, free, rank, base, step, tables
        )
        return target

    def _new_strides(self, free: np.ndarray, count: np.ndarray, n_free: np.ndarray) -> np.ndarray:
        """Strides of free slots in reduced tables (1 where a factor became unary)."""
        layout = self.full.layout
        step = np.ones(self.full.n_slots, dtype=np.int64)
        keep = free[layout.scope] & (n_free >= 2)[layout.slot_factor]
        if self.graph is not None:
            step[keep] = self.graph.layout.stride
        return step

    @cached_property
    def kept_slots(self) -> np.ndarray:
        """Old numbers of the slots that are left."""
        left = np.zeros(self.full.n_factors, dtype=bool)
        left[self.kept_factors] = True
        free = np.zeros(self.full.n_variables, dtype=bool)
        free[self.kept_variables] = True
        return np.flatnonzero(left[self.full.layout.slot_factor] & free[self.full.layout.scope])

    def reduce(self, theta: Potentials) -> tuple[Potentials | None, float]:
        """Return the reduced potentials and the constant that the fixed labels contribute."""
        theta = theta.written_out()
        # The constant may be a sum over most of the model: float32 would lose it in rounding.
        out = np.zeros(self.n_unary + self.n_table + 1, dtype=np.result_type(theta.dtype, np.float64))
        cut = len(theta.unary_flat)
        _add_up(self.target[:cut], theta.unary_flat, out)
        _add_up(self.target[cut : cut + len(theta.factors_flat)], theta.factors_flat, out)  # which adjoints leave empty
        reduced = None
        if self.graph is not None:
            tables = out[:-1].astype(theta.dtype, copy=False)
            reduced = Potentials.from_flat(self.graph, tables[: self.n_unary], tables[self.n_unary :])
        return reduced, out[-1]

    def expand(self, reduced: Potentials | None, constant: float = 1.0) -> Potentials:
        """Return full marginals from reduced ones (fixed labels get ``constant``, forbidden ones 0)."""
        dtype = np.dtype(np.float64) if reduced is None else reduced.dtype
        parts = np.zeros(0) if reduced is None else reduced.vector()
        values = np.concatenate([parts, [constant, 0.0]]).astype(dtype)
        full = np.where(self.target >= 0, values[self.target], 0)
        cut = int(self.full.layout.var_ptr[-1])
        return Potentials.from_flat(self.full, full[:cut], full[cut:])

    def expand_unary(self, beliefs: np.ndarray) -> np.ndarray:
        """Return full marginals of the variables, flat, from reduced ones."""
        values = np.zeros(self.n_unary + self.n_table + 2, beliefs.dtype)  # the last one of forbidden labels
        values[: self.n_unary], values[-2] = beliefs, 1
        return values[self.target[: len(self.allowed)]]

    def expand_vjp(self, d_full: Potentials) -> Potentials | None:
        """Return the adjoint of reduced marginals from that of full ones, whose factor tables may be empty."""
        return self.reduce(d_full)[0]

    def select(self, mu: Potentials) -> Potentials:
        """Return the marginals of free variables and of factors that are left, from full ones."""
        assert self.graph is not None
        cut = len(self.allowed)
        unary, tables = self._own[: self.n_unary], self._own[self.n_unary :] - cut
        return Potentials.from_flat(self.graph, mu.unary_flat[unary], mu.factors_flat[tables])

    def select_vjp(self, d_mu: Potentials) -> Potentials:
        """Return the adjoint of full marginals from that of those selected."""
        full = np.zeros(len(self.target), d_mu.dtype)
        full[self._own] = d_mu.vector()
        return Potentials.from_flat(self.full, full[: len(self.allowed)], full[len(self.allowed) :])

    @cached_property
    def _own(self) -> np.ndarray:
        """The entry of theta that each number of the reduced model is the marginal of."""
        own = (self.target >= 0) & (self.target < self.n_unary + self.n_table)
        own &= (self.target < self.n_unary) == (np.arange(len(self.target)) < len(self.allowed))
        places = np.empty(self.n_unary + self.n_table, dtype=np.int64)
        entries = np.flatnonzero(own)[::-1]  # of several entries of a table, the first
        places[self.target[entries]] = entries
        return places

    def in_full(self, message: str) -> str:
        """Translate the number of a variable or factor, the second word of a message, to that of the full model."""
        kind, number, rest = message.split(" ", 2)
        table = self.kept_variables if kind == "variable" else self.kept_factors
        return f"{kind} {table[int(number)]} {rest}"


@exact_kernel
def _table_targets(var_ptr, scope_ptr, scope, stride, table_ptr, free, rank, base, step, target):
    """Write the places of table entries: ``base`` of the factor + rank of each free label * its new stride."""
    for c in range(len(base)):
        first, last = table_ptr[c], table_ptr[c + 1]
        target[first:last] = base[c]
        for k in range(scope_ptr[c], scope_ptr[c + 1]):
            i = scope[k]
            count = var_ptr[i + 1] - var_ptr[i]
            for block in range(first, last, count * stride[k]):
                for x in range(count):
                    new, at = rank[var_ptr[i] + x], block + x * stride[k]
                    if new < 0:
                        target[at : at + stride[k]] = _FORBIDDEN
                    elif free[i]:
                        for e in range(at, at + stride[k]):
                            if target[e] != _FORBIDDEN:
                                target[e] += new * step[k]


@exact_kernel
def _add_up(target, values, out):
    """Add every value to its place."""
    for a in range(len(target)):
        if target[a] != _FORBIDDEN:
            out[target[a]] += values[a]


def check_possible(theta: Potentials) -> None:
    """Refuse potentials that forbid every label of a variable or every entry of a factor."""
    if theta.is_finite:
        return
    check_labels(theta)
    theta = theta.without_kernels()
    if theta.graph.n_factors and not all(group.is_finite for group in theta.groups):
        c = _first_forbidden(theta.graph.layout.table_ptr, theta.factors_flat)
        if c >= 0:
            raise InputError(f"factor {c} forbids everything: its table is all -inf.")


def check_labels(theta: Potentials, why: str = "its unary potentials are all -inf") -> None:
    """Refuse unary tables that forbid every label of a variable."""
    with np.errstate(all="ignore"):
        if np.isfinite(theta.unary_flat.sum()):
            return
    i = _first_forbidden(theta.graph.layout.var_ptr, theta.unary_flat)
    if i >= 0:
        raise InputError(f"variable {i} has no allowed label: {why}.")


@exact_kernel
def _first_forbidden(ptr, values):
    """Return the first table whose entries are all -inf, or -1."""
    for i in range(len(ptr) - 1):
        possible = False
        for a in range(ptr[i], ptr[i + 1]):
            possible |= values[a].real != -np.inf
        if not possible:
            return i
    return -1
