"""Which regions of a graph contain which ([L13] §3): variables 0 .. n-1, then factors n .. n+F-1, and links between them.

A link (alpha, beta) says that factor alpha strictly contains region beta: a variable of its scope, or a factor whose
variables are some of its own, in any order. Factors of one scope do not contain each other. Each link carries one message,
of the size of beta's table. Links to variables come first and are the slots of the graph, those to factors follow.

Memory: maps from the entries of alpha to those of beta, one for each different pair (shape of alpha, axes of beta in it),
not for each link.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from backfield.graph import Graph
from backfield.inference.smoothed_lp.engine import frozen


class Links(NamedTuple):
    """Flat, read-only arrays of R regions and K links."""

    table_ptr: np.ndarray  # (R + 1,) tables of all regions, one after the other
    upper: np.ndarray  # (K,) the region that contains ...
    lower: np.ndarray  # (K,) ... this one
    msg_ptr: np.ndarray  # (K + 1,)
    map_start: np.ndarray  # (K,) in ``maps``, which has the entry of ``lower`` for each entry of ``upper``
    maps: np.ndarray
    down_ptr: np.ndarray  # (R + 1,) links of a region to those in it ...
    down: np.ndarray
    up_ptr: np.ndarray  # (R + 1,) ... and to those that contain it
    up: np.ndarray


class Nesting(NamedTuple):
    """Links, and the regions that others contain: variables, then factors by size, and the same backward."""

    links: Links
    stars: tuple[np.ndarray, np.ndarray]


def nesting(graph: Graph) -> Nesting | None:
    """Return the links of a graph, computed once; None where no factor contains another one."""
    if graph.arity is not None or graph.n_factors == 0:
        return None
    found: Nesting | None = graph.compiled("nesting", lambda: _nesting(graph))
    return found


def _nesting(graph: Graph) -> Nesting | None:
    layout, n = graph.layout, graph.n_variables
    upper, lower, slots = _contained(graph)
    if len(upper) == 0:
        return None
    arity = np.diff(layout.scope_ptr)
    axis = np.arange(graph.n_slots) - layout.scope_ptr[layout.slot_factor]
    counts = layout.labels[layout.scope].tolist()
    shapes = [tuple(counts[a:b]) for a, b in zip(layout.scope_ptr[:-1], layout.scope_ptr[1:], strict=True)]
    axes: list[tuple[int, ...]] = [(a,) for a in axis.tolist()]
    axes += [tuple(part.tolist()) for part in np.split(axis[slots], np.cumsum(arity[lower])[:-1])]
    upper, lower = np.append(layout.slot_factor, upper), np.append(layout.scope, lower + n)
    maps, map_start = _maps([shapes[c] for c in upper], axes)
    table_ptr = np.append(layout.var_ptr[:-1], layout.var_ptr[-1] + layout.table_ptr)
    pointers = table_ptr, upper + n, lower, _ptr(np.diff(table_ptr)[lower]), map_start, maps
    n_regions = len(table_ptr) - 1
    links = Links(*(frozen(x) for x in (*pointers, *_grouped(upper + n, n_regions), *_grouped(lower, n_regions))))
    size = np.append(np.ones(n, np.int64), arity)
    stars = np.flatnonzero(np.diff(links.up_ptr))
    stars = stars[np.argsort(size[stars], kind="stable")]
    return Nesting(links, (frozen(stars), frozen(stars[::-1])))


def _contained(graph: Graph) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return factors, factors in them, and for each variable of the latter the slot of the former that has it."""
    layout, n = graph.layout, graph.n_variables
    arity, degree = np.diff(layout.scope_ptr), graph.degree
    rarest = np.lexsort((degree[layout.scope], layout.slot_factor))[layout.scope_ptr[:-1]]
    variable = layout.scope[rarest]  # of each factor, the one with the fewest factors around it
    lower, place = _ranges(layout.inc_ptr[variable], degree[variable])
    upper = layout.slot_factor[layout.inc[place]]
    upper, lower = upper[arity[upper] > arity[lower]], lower[arity[upper] > arity[lower]]
    rising = np.lexsort((lower, upper))
    upper, lower = upper[rising], lower[rising]
    key = layout.slot_factor * n + layout.scope
    order = np.argsort(key)
    pair, slot = _ranges(layout.scope_ptr[lower], arity[lower])
    wanted = upper[pair] * n + layout.scope[slot]
    at = np.minimum(np.searchsorted(key, wanted, sorter=order), len(key) - 1)
    found = order[at]
    whole = np.bincount(pair, weights=key[found] == wanted, minlength=len(lower)) == arity[lower]
    return upper[whole], lower[whole], found[whole[pair]]


def _maps(shapes: list[tuple[int, ...]], axes: list[tuple[int, ...]]) -> tuple[np.ndarray, list[int]]:
    """Return the different maps, end to end, and where that of each link starts."""
    starts: dict[tuple[tuple[int, ...], tuple[int, ...]], int] = {}
    maps: list[np.ndarray] = []
    end = 0
    for shape, some in zip(shapes, axes, strict=True):
        if (shape, some) not in starts:
            starts[shape, some] = end
            labels = np.indices(shape, sparse=True)
            entry = np.ravel_multi_index(np.broadcast_arrays(*(labels[a] for a in some)), [shape[a] for a in some])
            maps.append(np.broadcast_to(entry, shape).ravel())
            end += maps[-1].size
    return np.concatenate(maps), [starts[each] for each in zip(shapes, axes, strict=True)]


def _grouped(region: np.ndarray, n_regions: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the links of each region, end to end."""
    return _ptr(np.bincount(region, minlength=n_regions)), np.argsort(region, kind="stable")


def _ranges(start: np.ndarray, size: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return, for start[k] .. start[k] + size[k] - 1 end to end, each k and each number."""
    owner = np.repeat(np.arange(len(size)), size)
    return owner, np.arange(len(owner)) + (start - _ptr(size)[:-1])[owner]


def _ptr(sizes: np.ndarray) -> np.ndarray:
    return np.append(0, np.cumsum(sizes))
