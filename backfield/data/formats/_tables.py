"""From tables of potentials of any arity, as files have them, to theta and back."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np

from backfield.errors import InputError
from backfield.graph import Graph, Potentials

#: exp(-700) is the smallest round power that float64 still holds to full precision.
MAX_RANGE = 700.0


def log_potentials(
    labels: np.ndarray, arity: np.ndarray, variables: np.ndarray, size: np.ndarray, entries: np.ndarray
) -> Potentials:
    """Return theta = log of checked tables.

    Tables of two and more variables stay factors, in order. Those of one variable are added into its unary table. Those
    of none are constants, and are added to all labels of variable 0: theta has no other place for them.

    Parameters
    ----------
    labels : (n,) int array
        Label counts.
    arity : (F,) int array
        Number of variables of each table.
    variables : int array
        The scopes, one after the other.
    size : (F,) int array
        Number of entries of each table.
    entries : array
        Potentials >= 0: the tables one after the other, each with its last variable fastest.
    """
    with np.errstate(divide="ignore"):
        log_entries = np.log(entries)
    kept, single = arity >= 2, arity == 1
    ptr = np.append(0, np.cumsum(arity[kept]))
    graph = Graph._from_arrays(labels, ptr, variables[np.repeat(kept, arity)])
    var_ptr = np.append(0, np.cumsum(labels))
    owner = variables[np.repeat(single, arity)]
    # Entry x of a table of variable i belongs to var_ptr[i] + x.
    shift = np.repeat(var_ptr[owner] - (np.cumsum(size[single]) - size[single]), size[single])
    unary = np.zeros(int(var_ptr[-1]))
    np.add.at(unary, shift + np.arange(len(shift)), log_entries[np.repeat(single, size)])
    unary[: labels[0]] += log_entries[np.repeat(arity == 0, size)].sum()
    return Potentials.from_flat(graph, unary, log_entries[np.repeat(kept, size)])


def potential_tables(
    theta: Potentials, path: str | Path, what: str, used: np.ndarray | None = None
) -> list[tuple[list[int], list[float]]]:
    """Return scopes and potentials: unary tables that are not all zero, or ``used``, then the factors, then constants.

    Potentials that exp would take out of the range of a float64 are shifted, and the shifts become constants (tables of
    no variable), so log Z stays the same. Tables that span more than 700 are refused; ``what`` is the kind of file.
    """
    graph, layout = theta.graph, theta.graph.layout
    ptr = np.append(layout.var_ptr, layout.var_ptr[-1] + layout.table_ptr[1:])
    flat = theta.written_out().vector().astype(np.float64)
    shift = _shifts(flat, ptr[:-1], graph.n_variables, f"{path}: {{}} spans {{:.4g}}; {what} holds potentials within")
    constants = _constants(float(shift.sum()))
    values = np.exp(flat - np.repeat(shift, np.diff(ptr))).tolist()
    listed = np.logical_or.reduceat(flat != 0, ptr[:-1])
    listed[: graph.n_variables] = listed[: graph.n_variables] if used is None else used
    listed[graph.n_variables :] = True
    scopes = [[i] for i in range(graph.n_variables)]
    scopes += [scope.tolist() for scope in np.split(layout.scope, layout.scope_ptr[1:-1])] if graph.n_factors else []
    tables = [(scopes[k], values[ptr[k] : ptr[k + 1]]) for k in np.flatnonzero(listed)]
    return tables + [([], [math.exp(part)]) for part in constants]


def _shifts(flat: np.ndarray, starts: np.ndarray, n: int, refusal: str) -> np.ndarray:
    """Return what to subtract from each table to keep exp from overflowing or underflowing; 0 where there is no need."""
    possible = flat > -np.inf
    low = np.minimum.reduceat(np.where(possible, flat, np.inf), starts)
    high = np.maximum.reduceat(flat, starts)
    some = high > -np.inf
    span = np.subtract(high, low, where=some, out=np.zeros(len(starts)))
    if span.max() > MAX_RANGE:
        k = int(np.argmax(span))
        where = f"unary[{k}]" if k < n else f"factors[{k - n}]"
        raise InputError(f"{refusal.format(where, span[k])} exp({MAX_RANGE:g}).")
    return np.where(some & (np.maximum(-low, high) > MAX_RANGE), high, 0.0)


def _constants(total: float) -> list[float]:
    """Split a log constant into parts that exp can take; none where it is zero."""
    count = int(np.ceil(abs(total) / MAX_RANGE))
    return [total / count] * count if count else []
