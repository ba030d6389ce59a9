"""The junction tree in the probability domain: a few nanoseconds per entry where logarithms cost thirty.

    psi(x_C) = product of the tables of C,   m(x_S) = sum_{x_R} psi(x_C),   p(x_C) = psi(x_C) p(x_S) / m(x_S)

Each table is divided by its maximum, and each message by its own, whose logs add up to log Z. What underflows is then
below 1e-300 of something that is summed, unless a whole message is tiny: then :meth:`Products.run` gives up, and
``exact``, in the log domain, has to answer. The tables of cliques are never stored, only products of blocks of them
(``clique_plan``). Memory: theta's tables, and all messages twice.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from backfield.graph import Graph
from backfield.inference.exact.clique_kernels import TINY, load, run, store
from backfield.inference.exact.clique_plan import fill_indices, plan
from backfield.inference.exact.elimination import Adjacency, Elimination, TooLargeError, cheapest

#: Below this many entries a second order of elimination takes longer to find than it saves.
CHEAP = 2**17


class Tables(NamedTuple):
    """Potentials divided by the maximum of their table, axes sorted, and the sum of the logs of the maxima."""

    values: np.ndarray
    constant: float


class Products:
    """The compiled junction tree of a graph.

    Parameters
    ----------
    graph : Graph
    limit : int
        Most entries of all cliques, which take time but are not stored.
    order : Elimination, optional
        An order of the variables with more than one label, by their places among them.
    allowed : flat bools, as unary tables
        The labels that are possible; at least one of each variable.
    variables_only : bool
        Marginals of variables alone are needed, not those of factors.
    memory : int
        Bytes that tables and messages may take.
    tries : int
        Orders of elimination that are tried at the most.

    Raises
    ------
    TooLargeError
        Where more are needed.
    """

    def __init__(
        self,
        graph: Graph,
        limit: int,
        order: Elimination | None = None,
        allowed: np.ndarray | None = None,
        variables_only: bool = False,
        memory: int = 2**30,
        tries: int | None = None,
    ) -> None:
        layout = graph.layout
        n, n_unary = graph.n_variables, int(layout.var_ptr[-1])
        possible = np.ones(n_unary, dtype=bool) if allowed is None else allowed
        count = np.add.reduceat(possible.astype(np.int64), layout.var_ptr[:-1])
        flat = np.flatnonzero(possible)
        first = np.cumsum(count) - count
        label = flat - np.repeat(layout.var_ptr[:-1], count)
        free = count > 1
        number = np.cumsum(free) - 1
        variable = np.concatenate([np.arange(n), layout.scope])
        stride = np.concatenate([np.ones(n, dtype=np.int64), layout.stride])
        table = np.concatenate([np.arange(n), n + layout.slot_factor])
        n_tables = n + graph.n_factors
        inner = free[variable]
        fixed = np.zeros(n_tables, dtype=np.int64)
        np.add.at(fixed, table[~inner], (label[first[variable]] * stride)[~inner])
        self.base = np.concatenate([layout.var_ptr[:-1], n_unary + layout.table_ptr[:-1]]) + fixed
        self.tab_ptr = np.concatenate([[0], np.cumsum(np.bincount(table[inner], minlength=n_tables))])
        self.tab_var, self.tab_stride = number[variable[inner]], stride[inner]
        self.label_ptr = np.concatenate([[0], np.cumsum(count[free])])
        self.label = label[np.repeat(free, count)]
        labels = count[free]
        self.n_theta = n_unary + int(layout.table_ptr[-1])
        self.n_out = n_unary if variables_only else self.n_theta
        wanted = np.zeros(n_tables, dtype=bool)
        wanted[: n if variables_only else n_tables] = True
        self._plan(labels, limit, order, wanted, tries)
        if self.size * 8 > memory:
            raise TooLargeError(self.size)

    def _plan(
        self, labels: np.ndarray, limit: int, order: Elimination | None, wanted: np.ndarray, tries: int | None
    ) -> None:
        if order is None and len(labels):
            order = cheapest(
                Adjacency(labels, self.tab_ptr, self.tab_var), cheap=CHEAP, hopeless=limit, weigh_largest=0, tries=tries
            )
        if order is not None and order.entries > limit:
            raise TooLargeError(order.entries)
        self.entries = 0 if order is None else order.entries
        size = np.ones(len(wanted), dtype=np.int64)
        several = np.flatnonzero(np.diff(self.tab_ptr))
        if len(several):
            size[several] = np.multiply.reduceat(labels[self.tab_var], self.tab_ptr[several])
        self.address = np.cumsum(size) - size
        self.n_loaded = int(size.sum())
        self.constants = self.address[np.diff(self.tab_ptr) == 0]
        self.is_empty = not len(labels)
        self.place = np.where(wanted, -2, -1)
        self.slots, self.size = np.arange(0), self.n_loaded
        if order is not None and not self.is_empty:
            arrays = plan(
                labels, order.order, order.ends, order.flat, self.tab_ptr, self.tab_var, wanted, self.address, self.n_loaded
            )
            self.up, self.down, *self.views, self.slots, out, self.roots, self.size, self.buffer, length = arrays
            self.views.append(fill_indices(*self.views, length))
            self.place = np.where(np.diff(self.tab_ptr) > 0, out, self.place)

    @property
    def _tables(self) -> tuple[np.ndarray, ...]:
        return self.base, self.tab_ptr, self.slots, self.tab_var, self.tab_stride, self.label_ptr, self.label

    def tables(self, unary: np.ndarray, factors: np.ndarray) -> Tables:
        """Return the flat tables of theta as :meth:`run` needs them."""
        values = np.empty(self.n_loaded)
        return Tables(values, load(unary, factors, len(unary), *self._tables, self.address, values))

    def run(self, tables: Tables) -> tuple[float, np.ndarray] | None:
        """Return log Z and marginals laid out as theta (or as its unary part); None where underflow is possible."""
        constants = tables.values[self.constants]
        if self.is_empty or tables.constant == -np.inf or (constants < TINY).any():
            return None
        values = np.empty(self.size)
        values[: self.n_loaded] = tables.values
        buffer = np.empty(self.buffer)
        log_scale = run(self.up, *self.views, buffer, values)
        if not np.isfinite(log_scale):
            return None
        values[self.roots] = 1
        run(self.down, *self.views, buffer, values)
        out = np.zeros(self.n_out)
        store(*self._tables, self.place, values, out)
        return log_scale + tables.constant + float(np.log(constants).sum()), out
