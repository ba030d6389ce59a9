"""From tables by name to potentials, and from tables back to names."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from backfield.data.formats.named_tables import find_cycle, normalised_rows
from backfield.errors import InputError
from backfield.graph import Graph, Potentials
from backfield.models.naming import Variables
from backfield.models.reduced import NONE, UNARY


def assemble(variables: Variables, factors: Any, conditionals: Any) -> tuple[Potentials, np.ndarray]:
    """Return theta, and which table is P(v | parents) of each variable.

    Parameters
    ----------
    variables : Variables
    factors : iterable of (names, table)
        Potentials >= 0, one axis for each name.
    conditionals : mapping
        For each variable (parents, table) with the parents' axes first, or its table alone.
    """
    scopes: list[list[int]] = []
    tables: list[np.ndarray] = []
    unary = [np.zeros(count) for count in variables.labels]
    conditional = np.full(len(variables), NONE, dtype=np.int64)
    parents: dict[str, list[str]] = {name: [] for name in variables.names}
    for child, (given, table) in _conditionals(variables, conditionals).items():
        i = variables.number(child)
        parents[child] = [variables.names[j] for j in given]
        if given:
            conditional[i] = len(scopes)
            scopes.append([*given, i])
            tables.append(_log(table))
        else:
            conditional[i] = UNARY
            unary[i] = _log(table)
    cycle = find_cycle(parents)
    if cycle:
        raise InputError(f"the network has a cycle: {' -> '.join(cycle)}.")
    for scope, table in _factors(variables, factors):
        if len(scope) == 1:
            unary[scope[0]] = unary[scope[0]] + _log(table)
            conditional[scope[0]] = NONE if conditional[scope[0]] == UNARY else conditional[scope[0]]
        else:
            scopes.append(scope)
            tables.append(_log(table))
    graph = Graph(variables.labels.tolist(), scopes)
    flat = np.concatenate([table.ravel() for table in tables]) if tables else np.zeros(0)
    return Potentials.from_flat(graph, np.concatenate(unary), flat), conditional


def _conditionals(variables: Variables, given: Any) -> dict[str, tuple[list[int], np.ndarray]]:
    if not isinstance(given, Mapping):
        raise InputError(f"conditionals must map variables to (parents, table), received {type(given).__name__}.")
    out = {}
    for child, entry in given.items():
        i = variables.number(child)
        parents, table = entry if isinstance(entry, tuple) and len(entry) == 2 else ((), entry)
        numbers = variables.numbers(parents, f"the parents of {child!r}")
        if i in numbers:
            raise InputError(f"variable {child!r} is a parent of itself.")
        array = _table(variables, [*numbers, i], table, f"P({child} | ...)")
        out[child] = numbers, normalised_rows(array, child, lambda message, row: InputError(message))
    return out


def _factors(variables: Variables, given: Any) -> Iterable[tuple[list[int], np.ndarray]]:
    for entry in given:
        if not (isinstance(entry, tuple | list) and len(entry) == 2):
            raise InputError(f"a factor is a pair of names and a table, received {entry!r:.60}.")
        names, table = entry
        scope = variables.numbers(names, "a factor")
        if not scope:
            raise InputError("a factor names no variable; at least 1 is needed.")
        array = _table(variables, scope, table, f"the table of ({', '.join(variables.names[i] for i in scope)})")
        if not ((array >= 0) & (array < np.inf)).all():
            bad = array[~((array >= 0) & (array < np.inf))][0]
            raise InputError(f"the factor over {', '.join(variables.names[i] for i in scope)} holds {bad}; "
                             "potentials are finite and >= 0.")  # fmt: skip
        yield scope, array


def _table(variables: Variables, scope: list[int], table: Any, what: str) -> np.ndarray:
    try:
        array = np.asarray(table, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(f"{what} must hold numbers in an array.") from error
    shape = tuple(variables.labels[scope].tolist())
    if array.shape != shape:
        raise InputError(f"{what} has shape {array.shape}; {shape} is needed.")
    return array


def _log(table: np.ndarray) -> np.ndarray:
    with np.errstate(divide="ignore"):
        return np.log(table)


def bayes_tables(theta: Potentials, conditional: np.ndarray) -> np.ndarray | None:
    """Return which table is P(v | parents), where each factor is that of its last variable; None where one is not.

    ``conditional`` is what is known so far; unary tables count as P(v) where no factor ends in v.
    """
    graph, layout = theta.graph, theta.graph.layout
    out = np.full_like(conditional, UNARY)
    for c in range(graph.n_factors):
        child = int(layout.scope[layout.scope_ptr[c + 1] - 1])
        if out[child] >= 0:
            return None
        out[child] = c
    sums = [np.exp(table).sum(axis=-1) for table in theta.factors]
    unary = [np.exp(row).sum() if out[i] == UNARY else 1 + np.abs(row).max() for i, row in enumerate(theta.unary)]
    if any(np.abs(total - 1).max() > 1e-9 for total in [*sums, *unary]):
        return None
    parents: dict[str, list[str]] = {str(i): [] for i in range(graph.n_variables)}
    for scope in graph.factors:
        parents[str(int(scope[-1]))] = [str(int(i)) for i in scope[:-1]]
    return None if find_cycle(parents) else out


def frame(columns: dict[str, list[Any]], index: Any = None) -> Any:
    """Return a DataFrame (with an index, if given) where pandas is installed, else the columns."""
    if importlib.util.find_spec("pandas") is None:
        return columns
    import pandas

    return pandas.DataFrame(columns, index=index)
