"""Chains of order two: factors (t, t + 1) and (t, t + 1, t + 2), the pairs first, then the triples."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from backfield.graph.graph import Graph, _frozen
from backfield.graph.groups import Tied
from backfield.graph.potentials import Potentials


class SecondOrder(NamedTuple):
    """Where the chains of a graph start (and its number of variables), and the factors that end at each position."""

    starts: np.ndarray  # (B + 1,)
    pair: np.ndarray  # (n,) number of (t - 1, t), -1 where a chain starts
    triple: np.ndarray  # (n,) number of (t - 2, t - 1, t), -1 where there is none


def second_order(graph: Graph) -> SecondOrder | None:
    """Return the chains of a graph that consists of pairs and triples of neighbours, some triples at least; else None."""
    found: SecondOrder | None = graph.compiled("second order", lambda: _find(graph))
    return found


def _find(graph: Graph) -> SecondOrder | None:
    if graph.n_labels is None or graph.lattice is not None or graph.arity == 2:
        return None
    arity = np.diff(graph._scope_ptr)
    if len(arity) == 0 or arity.max() != 3:
        return None
    last = graph._scope[graph._scope_ptr[1:] - 1]
    steps = np.diff(graph._scope)
    inner = np.ones(len(steps), dtype=bool)
    inner[graph._scope_ptr[1:-1] - 1] = False  # between two factors
    if (steps[inner] != 1).any():
        return None
    places = []
    for size in (2, 3):
        chosen = np.flatnonzero(arity == size)
        place = np.full(graph.n_variables, -1, dtype=np.int64)
        place[last[chosen]] = chosen
        if (place >= 0).sum() < len(chosen):
            return None  # one of them twice
        places.append(_frozen(place))
    pair, triple = places
    deep = triple >= 0
    if (pair[deep] < 0).any() or (pair[np.flatnonzero(deep) - 1] < 0).any():
        return None
    return SecondOrder(_frozen(np.append(np.flatnonzero(pair < 0), graph.n_variables)), pair, triple)


def tied_order_two(theta: Potentials) -> tuple[np.ndarray, np.ndarray] | None:
    """Return the table of all pairs and that of all triples of chains of order two; None where there are more."""
    if theta.has_tables_only or second_order(theta.graph) is None or len(theta.groups) != 2:
        return None
    pairs, triples = theta.groups
    if not (isinstance(pairs, Tied) and isinstance(triples, Tied)) or pairs.scales is not None or triples.scales is not None:
        return None
    arity = [group.arity for group in theta.graph.groups]
    count = theta.graph.n_labels or 0
    return (pairs.tables.reshape(count, count), triples.tables.reshape((count,) * 3)) if arity == [2, 3] else None
