"""Sum variables out of a model: v_1, v_2, ... one by one, each out of the product of the tables over it."""

from __future__ import annotations

import math

import numpy as np

from backfield.errors import InputError
from backfield.graph import Potentials
from backfield.models.reduced import NONE, UNARY, relevant

#: Largest table that summing out may leave behind.
MAX_ENTRIES = 2**24


def summed_out(
    theta: Potentials, conditional: np.ndarray, gone: list[int]
) -> tuple[list[tuple[int, ...]], list[np.ndarray], list[np.ndarray], np.ndarray]:
    """Return scopes, tables and unary tables when ``gone`` are summed out, and which table is still P(v | parents).

    Barren variables go for nothing. Of the others the one with the smallest table goes first.
    """
    needed = np.ones(theta.graph.n_variables, dtype=bool)
    needed[gone] = False
    keep, factors = relevant(theta, conditional, needed)
    unary = [np.array(row) for row in theta.unary]
    tables = {c: np.array(theta.factors[c]) for c in np.flatnonzero(factors).tolist()}
    scopes = {c: tuple(int(i) for i in theta.graph.factors[c]) for c in tables}
    conditional = conditional.copy()
    left = {i for i in gone if keep[i]}
    while left:
        v = min(left, key=lambda i: (_size(theta, scopes, i), i))
        left.remove(v)
        _sum_out(theta, v, scopes, tables, unary, conditional)
    place = {c: k for k, c in enumerate(scopes)}
    conditional = np.array([place.get(int(c), NONE) if c >= 0 else c for c in conditional], dtype=np.int64)
    return list(scopes.values()), list(tables.values()), unary, conditional


def _around(scopes: dict[int, tuple[int, ...]], v: int) -> list[int]:
    return sorted({i for scope in scopes.values() if v in scope for i in scope if i != v})


def _size(theta: Potentials, scopes: dict[int, tuple[int, ...]], v: int) -> int:
    return math.prod(theta.graph.labels[[v, *_around(scopes, v)]].tolist())


def _sum_out(theta, v, scopes, tables, unary, conditional):  # type: ignore[no-untyped-def]
    """Replace all tables over v by one over its neighbours; none of them is P(. | .) any more."""
    around = _around(scopes, v)
    if _size(theta, scopes, v) > MAX_ENTRIES:
        raise InputError(
            f"summing out a variable leaves a table of {_size(theta, scopes, v):,} entries, too many to fit in memory."
        )
    axes = [*around, v]
    total = unary[v].reshape([1] * len(around) + [-1])
    for c in [c for c, scope in scopes.items() if v in scope]:
        order = np.argsort([axes.index(i) for i in scopes[c]])
        shape = [int(theta.graph.labels[i]) if i in scopes[c] else 1 for i in axes]
        total = total + tables.pop(c).transpose(order).reshape(shape)
        conditional[[i for i in scopes.pop(c) if conditional[i] == c]] = NONE
    with np.errstate(divide="ignore"):
        top = total.max(axis=-1, keepdims=True)
        top[top == -np.inf] = 0
        out = np.log(np.exp(total - top).sum(axis=-1)) + top[..., 0]
    if len(around) == 1:
        unary[around[0]] = unary[around[0]] + out
        conditional[around[0]] = NONE if conditional[around[0]] == UNARY else conditional[around[0]]
    elif around:
        number = max(max(scopes, default=-1), theta.graph.n_factors) + 1
        scopes[number], tables[number] = tuple(around), out
    else:  # a constant: theta has no other place for it
        i = next(i for i in range(len(unary)) if i != v)
        unary[i] = unary[i] + float(out)
        conditional[i] = NONE if conditional[i] == UNARY else conditional[i]
