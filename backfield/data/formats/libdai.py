"""Factor graphs in the format of libDAI (``.fg``).

A file lists factors of *potentials* (not logs); ``#`` starts a comment::

    F     then, for each factor:   arity   v_1 .. v_arity   L_1 .. L_arity   count   (index value) * count

An index counts through the table with the **first** variable fastest; entries that are not listed are zero. Here
theta = log value, with log 0 = -inf, and scopes keep the order of the file. Variables keep their numbers: a number that
no factor names becomes a variable with one label, which changes neither log Z nor any marginal. Factors of one variable
are added into its unary table; constants (no variable) to all labels of variable 0.

Cost: one pass over the text and one over the dense tables.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

import numpy as np

from backfield.data.formats._tables import log_potentials, potential_tables
from backfield.data.formats._text import MAX_UNLISTED_ENTRIES, MAX_UNLISTED_LABELS, Numbers, read_bytes, write_packed
from backfield.errors import InputError
from backfield.graph import Potentials


class _Block(NamedTuple):
    scope: np.ndarray
    table: np.ndarray  # dense, C order


def read_fg(path: str | Path) -> Potentials:
    """Read a libDAI factor graph as log-potentials; factors keep the order of the file.

    Raises
    ------
    InputError
        Where the file is not a factor graph: with its name, the line, and what was needed there.
    """
    text = re.sub(rb"#[^\n]*", b"", read_bytes(path))
    numbers = Numbers(path, text)
    if len(numbers) == 0:
        raise InputError(f"{path}: the file is empty; a factor graph starts with the number of its factors.")
    count = numbers.integer(0, "the number of factors")
    numbers.need(1, 2 * count, f"{count} factors")
    labels: dict[int, int] = {}
    blocks, at, budget = [], 1, float(len(numbers) + MAX_UNLISTED_ENTRIES)
    for c in range(count):
        block, at = _read_block(numbers, at, c, labels, budget)
        budget -= len(block.table)
        blocks.append(block)
    numbers.finished(at)
    if not labels:
        raise InputError(f"{path}: the factor graph names no variable; at least 1 is needed.")
    counts = np.ones(max(labels) + 1, dtype=np.int64)
    counts[list(labels)] = list(labels.values())
    arity = np.array([len(block.scope) for block in blocks])
    size = np.array([len(block.table) for block in blocks])
    variables = np.concatenate([block.scope for block in blocks])
    return log_potentials(counts, arity, variables, size, np.concatenate([block.table for block in blocks]))


def _read_block(numbers: Numbers, at: int, c: int, labels: dict[int, int], budget: float) -> tuple[_Block, int]:
    arity = numbers.integer(at, f"the arity of factor {c}")
    numbers.need(at + 1, 2 * arity + 1, f"{arity} variables and label counts of factor {c}")
    scope = numbers.integers(at + 1, arity, f"a variable of factor {c}")
    shape = numbers.integers(at + 1 + arity, arity, f"a label count of factor {c}")
    _learn_labels(numbers, at + 1, c, scope, shape, labels)
    at += 1 + 2 * arity
    with np.errstate(over="ignore"):
        size = float(np.prod(shape.astype(np.float64)))
    if size > budget:
        raise numbers.error(at, f"the table of factor {c} has {size:.4g} entries, too many to fit in memory.")
    listed = numbers.integer(at, f"the number of entries of factor {c}")
    numbers.need(at + 1, 2 * listed, f"{listed} pairs of index and value in factor {c}")
    table = _read_entries(numbers, at + 1, c, listed, int(size))
    return _Block(scope, table.reshape(shape[::-1]).T.ravel()), at + 1 + 2 * listed


def _learn_labels(numbers: Numbers, at: int, c: int, scope: np.ndarray, shape: np.ndarray, labels: dict[int, int]) -> None:
    if len(set(scope.tolist())) < len(scope):
        raise numbers.error(at, f"factor {c} names a variable twice.")
    for k, (i, count) in enumerate(zip(scope.tolist(), shape.tolist(), strict=True)):
        if i >= MAX_UNLISTED_LABELS:
            raise numbers.error(at + k, f"factor {c} names variable {i}; the largest number is {MAX_UNLISTED_LABELS - 1}.")
        if count < 1:
            raise numbers.error(at + len(scope) + k, f"variable {i} has {count} labels; at least 1 is needed.")
        if labels.setdefault(i, count) != count:
            message = f"variable {i} has {count} labels in factor {c} and {labels[i]} before."
            raise numbers.error(at + len(scope) + k, message)


def _read_entries(numbers: Numbers, at: int, c: int, listed: int, size: int) -> np.ndarray:
    """Return a table with its first variable fastest."""
    index = numbers.integers(at, listed, f"an index of factor {c}", step=2)
    values = numbers.values[at + 1 : at + 2 * listed : 2]
    bad = np.flatnonzero(index >= size)
    if len(bad):
        raise numbers.error(at + 2 * int(bad[0]), f"factor {c} lists entry {index[bad[0]]}; it has 0 .. {size - 1}.")
    bad = np.flatnonzero(~((values >= 0) & (values < np.inf)))
    if len(bad):
        message = f"factor {c} holds {values[bad[0]]}; potentials are finite and >= 0."
        raise numbers.error(at + 1 + 2 * int(bad[0]), message)
    if len(np.unique(index)) < listed:
        raise numbers.error(at, f"factor {c} lists an entry twice.")
    table = np.zeros(size)
    table[index] = values
    return table


def write_fg(theta: Potentials, path: str | Path) -> None:
    """Write log-potentials as a factor graph: unary tables, then the factors in order; zeros are left out.

    A variable that no table mentions gets one of ones, as the file would not know its label count. Tables that span more
    than exp(700) are refused.
    """
    labels = theta.graph.labels.tolist()
    tables = potential_tables(theta, path, "a factor graph")
    named = {i for scope, _ in tables for i in scope}
    tables += [([i], [1.0] * count) for i, count in enumerate(labels) if i not in named]
    write_packed(
        path, "\n\n".join([str(len(tables)), *(_block_text(scope, table, labels) for scope, table in tables)]) + "\n"
    )


def _block_text(scope: list[int], table: list[float], labels: list[int]) -> str:
    shape = [labels[i] for i in scope]
    values = np.array(table).reshape(shape).T.ravel()
    listed = np.flatnonzero(values)
    lines = [str(len(scope)), " ".join(map(str, scope)), " ".join(map(str, shape)), str(len(listed))]
    return "\n".join(lines + [f"{k} {value!r}" for k, value in zip(listed.tolist(), values[listed].tolist(), strict=True)])
