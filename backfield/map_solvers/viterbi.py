r"""Viterbi's algorithm: exact max-product on chains, trees and forests, factors of any arity.

    h_i(x_i) = theta(x_i) + sum_{c below i} max_{x_c\i} ( theta(x_c) + sum_{j in c\i} h_j(x_j) )

from the leaves to the roots, then labels from the roots to the leaves. Roots are the last variables; ties go to
the lowest label, roots first.

Cost O(table · arity) per factor; memory O(sum of label counts).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from backfield.errors import InputError
from backfield.graph import Graph, Potentials
from backfield.graph.chains import second_order, tied_order_two
from backfield.kernels.compile import exact_kernel, exact_part
from backfield.map_solvers import _messages
from backfield.map_solvers._order import order_of
from backfield.map_solvers.base import MapResult, MapSolver


@dataclass(frozen=True, repr=False)
class Viterbi(MapSolver, name="viterbi"):
    """Exact MAP on graphs without cycles."""

    exact: ClassVar[bool] = True

    def supports(self, theta: Potentials) -> bool:
        """Whether theta holds tables, or one for all edges of chains, or for all pairs and all triples of order two."""
        if theta.has_tables_only or tied_order_two(theta) is not None:
            return True
        return theta.shared is not None and _links_of(theta) is not None

    def solve(self, theta: Potentials) -> MapResult:
        """Return the best labels; refuses graphs with cycles."""
        graph, exact = theta.graph, theta.astype(np.float64)
        labels = np.empty(graph.n_variables, dtype=np.int64)
        links = _links_of(theta)
        if links is not None:
            bad = _solve_chains(links, exact.unary, _tables_of(exact), labels)
        elif second_order(graph) is not None:
            bad = _solve_order_two(*_order_two(exact), exact.unary, labels)
        else:
            bad = _solve_forest(exact, labels)
        if bad >= 0:
            raise _messages.impossible(bad)
        return MapResult(labels, theta.score(labels), optimal=True, n_iter=1)


class Changes(NamedTuple):
    """Labelings that differ from a common one: variables ``where[ptr[t]:ptr[t + 1]]`` get the labels ``new``."""

    ptr: np.ndarray
    where: np.ndarray
    new: np.ndarray


def fix_each(theta: Potentials, best: np.ndarray, variables: np.ndarray, labels: np.ndarray) -> Changes | None:
    """Return how the best labels change with one variable fixed to a label, for each; None where these are no chains.

    Cost: the rest of the chain behind the variable, and as far before it as labels change.
    """
    links, exact = _links_of(theta), theta.astype(np.float64)
    if links is None:
        return None
    return Changes(*_fix_each(links, exact.unary, _tables_of(exact), best, variables, labels))


def _links_of(theta: Potentials) -> np.ndarray | None:
    """Return the table that joins each variable i to i + 1 (-1: none) where all factors do that, else None."""
    graph = theta.graph
    links: np.ndarray | None = graph.compiled(("map_solvers", "links"), lambda: _chain_links(graph))
    if links is None or theta.shared is None:
        return links
    one: np.ndarray = graph.compiled(("map_solvers", "one table"), lambda: _frozen(np.minimum(links, 0)))
    return one


def _tables_of(theta: Potentials) -> np.ndarray:
    """Return the tables to which links point: that of each factor, or the one that all share."""
    shared, count = theta.shared, theta.graph.n_labels
    tables: np.ndarray = theta.factors if shared is None else shared.tables.reshape(1, count, count)
    return tables


def _chain_links(graph: Graph) -> np.ndarray | None:
    """Return the factor (i, i + 1) of each variable i (-1: none) where these are all factors, else None."""
    if not graph.is_pairwise:
        return None
    scope = graph.layout.scope
    left = scope[::2]
    if (scope[1::2] != left + 1).any() or len(np.unique(left)) < len(left):
        return None
    links = np.full(graph.n_variables, -1, dtype=np.int64)
    links[left] = np.arange(graph.n_factors)
    return _frozen(links)


def _order_two(theta: Potentials) -> tuple[np.ndarray, ...]:
    """Return where the tables of the pair and the triple that end at each position start (-1: none), and the tables."""
    chains, shared = second_order(theta.graph), tied_order_two(theta)
    assert chains is not None
    if shared is not None:
        return np.minimum(chains.pair, 0), np.minimum(chains.triple, 0), shared[0].reshape(-1), shared[1].reshape(-1)
    ptr, flat = np.append(theta.graph.layout.table_ptr[:-1], -1), theta.factors_flat
    return ptr[chains.pair], ptr[chains.triple], flat, flat


def _frozen(array: np.ndarray) -> np.ndarray:
    array.flags.writeable = False
    return array


def _solve_forest(theta: Potentials, labels: np.ndarray) -> int:
    """Write the best labels; return a variable without a possible label, -1 if there is none."""
    graph = theta.graph
    layout, order = graph.layout, order_of(graph)
    if not order.acyclic:
        raise InputError(
            f"viterbi needs a graph without cycles, and factor {order.cycle} closes one; use graph_cut (binary and "
            "submodular), else alpha_expansion, max_product or icm."
        )
    state = np.zeros(int(layout.msg_ptr[-1]))
    _, slot = _messages.send(layout, order.up, False, theta.unary_flat, theta.factors_flat, 0.0, state, state)
    if slot >= 0:
        return int(layout.scope[slot])
    return int(_messages.decode(layout, order.variables, theta.unary_flat, theta.factors_flat, state, labels))


@exact_kernel
def _solve_chains(links, theta_u, theta_c, labels):
    """Chains of consecutive variables, theta_u (n, L) and theta_c (F, L, L); returns as :func:`_solve_forest`."""
    h = theta_u.copy()
    n, count = h.shape
    out = np.empty(count)
    start = 0
    while start < n:  # chain by chain, so the way back finds the tables in the cache
        stop = start
        while links[stop] >= 0:
            table = theta_c[links[stop]]
            out[:] = -np.inf
            for y in range(count):
                row, shift = table[y], h[stop, y]
                for x in range(count):
                    value = row[x] + shift
                    out[x] = value if value > out[x] else out[x]  # max() would also look for NaN
            stop += 1
            for x in range(count):
                h[stop, x] += out[x]
        labels[stop] = np.argmax(h[stop])
        if h[stop, labels[stop]] == -np.inf:
            return stop
        for i in range(stop - 1, start - 1, -1):
            labels[i] = np.argmax(h[i] + theta_c[links[i], :, labels[i + 1]])
        start = stop + 1
    return -1


@exact_kernel
def _solve_order_two(pair, triple, pairs, triples, theta_u, labels):
    """Chains of order two: h(x, y) is the best score up to t that ends in x, y; returns as :func:`_solve_forest`."""
    n, count = theta_u.shape
    h, new = np.empty((count, count)), np.empty((count, count))
    back = np.zeros((n, count, count), np.int64)  # w before x, y
    for t in range(n):
        for x in range(count):
            for y in range(count):
                new[x, y] = theta_u[t, y]
                if pair[t] < 0:
                    continue
                new[x, y] += pairs[pair[t] + x * count + y]
                best, at = -np.inf, 0
                for w in range(count if pair[t - 1] >= 0 else 1):
                    value = h[w, x]
                    if triple[t] >= 0:
                        value += triples[triple[t] + (w * count + x) * count + y]
                    if value > best:
                        best, at = value, w
                new[x, y] += best
                back[t, x, y] = at
        h, new = new, h
        if t + 1 < n and pair[t + 1] >= 0:
            continue
        best, at = -np.inf, 0
        for y in range(count):
            for x in range(count if pair[t] >= 0 else 1):
                if h[x, y] > best:
                    best, at = h[x, y], x * count + y
        if best == -np.inf:
            return t
        i, x, y = t, at // count, at % count
        labels[i] = y
        while pair[i] >= 0:
            labels[i - 1] = x
            x, y, i = back[i, x, y], x, i - 1
    return -1


@exact_kernel
def _fix_each(links, theta_u, theta_c, best, variables, labels):
    """Write where the best labels change; h holds the forward messages of the free model, g those behind a fixed label."""
    n, count = theta_u.shape
    h, g, out = theta_u.copy(), np.empty((n, count)), np.empty(count)
    for i in range(n):
        if links[i] >= 0:
            _pass_on(theta_c[links[i]], h[i], out)
            for x in range(count):
                h[i + 1, x] += out[x]
    new = best.copy()
    ptr, where, found, total = np.zeros(len(variables) + 1, np.int64), np.empty(n, np.int64), np.empty(n, np.int64), 0
    for t in range(len(variables)):
        stop = variables[t]
        g[stop] = -np.inf
        g[stop, labels[t]] = h[stop, labels[t]]
        while links[stop] >= 0:
            _pass_on(theta_c[links[stop]], g[stop], out)
            stop += 1
            for x in range(count):
                g[stop, x] = theta_u[stop, x] + out[x]
        new[stop] = np.argmax(g[stop])
        first = stop
        while first > 0 and links[first - 1] >= 0 and (first > variables[t] or new[first] != best[first]):
            first -= 1
            message = g[first] if first >= variables[t] else h[first]
            new[first] = np.argmax(message + theta_c[links[first], :, new[first + 1]])
        if total + stop - first + 1 > len(where):
            where, found = np.append(where, np.empty_like(where)), np.append(found, np.empty_like(found))
        for i in range(first, stop + 1):
            if new[i] != best[i]:
                where[total], found[total] = i, new[i]
                total += 1
                new[i] = best[i]
        ptr[t + 1] = total
    return ptr, where[:total], found[:total]


@exact_part
def _pass_on(table, message, out):
    """Write max_y message(y) + table(y, x)."""
    out[:] = -np.inf
    for y in range(len(message)):
        shift = message[y]
        for x in range(len(out)):
            value = table[y, x] + shift
            out[x] = value if value > out[x] else out[x]
