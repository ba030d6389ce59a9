"""From tables of potentials of any arity, as files have them, to theta."""

from __future__ import annotations

import numpy as np

from backfield.graph import Graph, Potentials


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
