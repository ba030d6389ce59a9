"""The files of the UAI inference competitions: models, evidence, marginals and log10 Z.

A model lists label counts, scopes, and one table of *potentials* (not logs) for each scope, last variable fastest::

    MARKOV   n   L_0 .. L_{n-1}   F   (arity v_1 .. v_arity) * F   (count value_1 .. value_count) * F

``BAYES`` differs only in that tables are conditional probabilities. Here potentials become theta = log value, with
log 0 = -inf. Factors of one variable are added into its unary table. Factors of no variable are constants; theta has
no place for them, so their logs are added to all labels of variable 0, which keeps log Z right.

Cost: one pass over the text; memory: about 25 bytes per number.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from backfield.data.formats._tables import log_potentials, potential_tables
from backfield.data.formats._text import MAX_UNLISTED_LABELS, Numbers, read_bytes, shown, split_header, write_packed
from backfield.errors import InputError
from backfield.graph import Potentials


def read_uai(path: str | Path) -> Potentials:
    """Read a model (``MARKOV`` or ``BAYES``) as log-potentials; factors keep the order of the file.

    Raises
    ------
    InputError
        Where the file is not such a model: with its name, the line, and what was needed there.
    """
    text = read_bytes(path)
    numbers = Numbers(path, text, split_header(path, text, ("MARKOV", "BAYES"), "a UAI model"))
    labels, at = _read_labels(numbers)
    scopes, at = _read_scopes(numbers, len(labels), at)
    size, entries = _read_tables(numbers, labels, scopes, at)
    return log_potentials(labels, scopes.arity, scopes.variables, size, entries)


class _Scopes(NamedTuple):
    arity: np.ndarray  # (F,) of the factors as the file has them, arity 0 and 1 included
    at: np.ndarray  # (F,) where a scope stands in the file's numbers
    variables: np.ndarray  # all scopes one after the other


def _read_labels(numbers: Numbers) -> tuple[np.ndarray, int]:
    n = numbers.integer(0, "the number of variables")
    if n == 0:
        raise numbers.error(0, "the model has no variables; at least 1 is needed.")
    numbers.need(1, n, f"{n} label counts")
    labels = numbers.integers(1, n, "a label count")
    if labels.min() < 1:
        bad = int(np.argmin(labels))
        raise numbers.error(1 + bad, f"variable {bad} has {labels[bad]} labels; at least 1 is needed.")
    if labels.astype(np.float64).sum() > len(numbers) + MAX_UNLISTED_LABELS:
        bad = int(np.argmax(labels))
        raise numbers.error(1 + bad, f"variable {bad} has {labels[bad]} labels, more than the file can have tables for.")
    return labels, 1 + n


def _read_scopes(numbers: Numbers, n: int, at: int) -> tuple[_Scopes, int]:
    count = numbers.integer(at, "the number of factors")
    at += 1
    numbers.need(at, 2 * count, f"scopes and tables of {count} factors")
    first, end, number = at, len(numbers), numbers.values.item
    where = np.empty(count, dtype=np.int64)
    for c in range(count):  # the only loop over factors: where a scope stands depends on all before it
        arity = number(at) if at < end else np.nan
        if not (arity.is_integer() and 0 <= arity < end - at):
            wanted = numbers.integer(at, f"the arity of factor {c}")
            numbers.need(at + 1, wanted, f"the {wanted} variables of factor {c}")
        where[c] = at + 1
        at += 1 + int(arity)
    is_variable = np.ones(at - first, dtype=bool)
    is_variable[where - 1 - first] = False
    variables = numbers.integers(first, at - first, "a variable")[is_variable]
    scopes = _Scopes(np.diff(np.append(where, at + 1)) - 1, where, variables)
    _check_scopes(numbers, scopes, n)
    return scopes, at


def _check_scopes(numbers: Numbers, scopes: _Scopes, n: int) -> None:
    factor = np.repeat(np.arange(len(scopes.arity)), scopes.arity)
    bad = np.flatnonzero(scopes.variables >= n)
    if len(bad):
        c, i = factor[bad[0]], scopes.variables[bad[0]]
        raise numbers.error(int(scopes.at[c]), f"factor {c} names variable {i}, but variables are 0 .. {n - 1}.")
    order = np.lexsort((scopes.variables, factor))
    same = (np.diff(scopes.variables[order]) == 0) & (np.diff(factor[order]) == 0)
    if same.any():
        slot = order[np.argmax(same)]
        c, i = factor[slot], scopes.variables[slot]
        raise numbers.error(int(scopes.at[c]), f"factor {c} names variable {i} twice.")


def _read_tables(numbers: Numbers, labels: np.ndarray, scopes: _Scopes, at: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the size of each table and all entries, one table after the other."""
    wanted = _table_sizes(labels, scopes)
    _check_counts(numbers, wanted, at)
    size = wanted.astype(np.int64)
    end = at + int(size.sum()) + len(size)
    numbers.finished(end)
    is_count = np.zeros(end - at, dtype=bool)
    is_count[np.cumsum(size + 1) - size - 1] = True
    where = np.flatnonzero(~is_count) + at
    entries = numbers.values[where]
    bad = np.flatnonzero(~((entries >= 0) & (entries < np.inf)))
    if len(bad):
        c = int(np.searchsorted(np.cumsum(size), bad[0], side="right"))
        message = f"factor {c} holds {entries[bad[0]]}; potentials are finite and >= 0."
        raise numbers.error(int(where[bad[0]]), message)
    return size, entries


def _table_sizes(labels: np.ndarray, scopes: _Scopes) -> np.ndarray:
    """Return table sizes as floats, which announced sizes cannot overflow."""
    size = np.ones(len(scopes.arity))
    has = scopes.arity > 0
    if has.any():
        first = np.cumsum(scopes.arity) - scopes.arity
        with np.errstate(over="ignore"):
            size[has] = np.multiply.reduceat(labels.astype(np.float64)[scopes.variables], first[has])
    return size


def _check_counts(numbers: Numbers, size: np.ndarray, at: int) -> None:
    """Check the count before each table, as far as the file goes, and that all tables are there."""
    ends = np.append(at, at + np.cumsum(size + 1))
    starts = ends[:-1][ends[:-1] < len(numbers)].astype(np.int64)
    bad = np.flatnonzero(numbers.values[starts] != size[: len(starts)])
    if len(bad):
        c, k = int(bad[0]), int(starts[bad[0]])
        got = shown(numbers.token(k))
        raise numbers.error(k, f"the table of factor {c} has {size[c]:.15g} entries by its scope; {got} are announced.")
    if ends[-1] > len(numbers):
        c = int(np.searchsorted(ends, len(numbers), side="right")) - 1
        what = f"{ends[-1] - at:.15g} numbers for the tables"
        numbers.need(at, len(numbers) - at + 1, f"{what} ({size[c]:.15g} entries in that of factor {c})")


def write_uai(theta: Potentials, path: str | Path, priors: np.ndarray | None = None) -> None:
    """Write log-potentials as a ``MARKOV`` model: unary tables that are not all zero, then the factors in order.

    With ``priors`` (n,) bools the model is ``BAYES``: unary tables of these variables are P(x_i), no others are written,
    and each factor is P(its last variable | the others).

    Potentials that exp would take out of the range of a float64 are shifted, and the shifts written as constants
    (factors of no variable), so log Z stays the same. Tables that span more than 700 are refused.
    """
    tables = potential_tables(theta, path, "a UAI file", priors)
    counts = theta.graph.labels.tolist()
    lines = ["MARKOV" if priors is None else "BAYES", str(len(counts)), " ".join(map(str, counts)), str(len(tables))]
    lines += [" ".join(map(str, [len(scope), *scope])) for scope, _ in tables]
    lines += [f"\n{len(table)}\n{' '.join(map(repr, table))}" for _, table in tables]
    write_packed(path, "\n".join(lines) + "\n")


def read_evidence(path: str | Path, n: int | None = None) -> np.ndarray:
    """Read observed labels: (n,) integers, -1 where a variable is free.

    Both forms of the format are read: ``k v_1 x_1 .. v_k x_k``, and the older one in which the number of evidence sets,
    which must be 1, stands before that. Without ``n`` the result ends with the last observed variable.
    """
    numbers = Numbers(path, read_bytes(path))
    if len(numbers) == 0:
        raise InputError(f"{path}: the file is empty; no evidence is written as 0.")
    values = numbers.integers(0, len(numbers), "evidence")
    # A set has an odd number of integers; the older form puts one before it.
    start = 1 - len(values) % 2
    if start == 1 and values[0] != 1:
        raise numbers.error(0, f"{values[0]} observations are announced and {len(values) - 1} numbers follow, not pairs.")
    if len(values) != start + 1 + 2 * values[start]:
        got = (len(values) - start - 1) // 2
        raise numbers.error(start, f"{values[start]} observations are announced, {got} follow.")
    return _observed(numbers, values[start + 1 :: 2], values[start + 2 :: 2], start + 1, n)


def _observed(numbers: Numbers, variables: np.ndarray, labels: np.ndarray, at: int, n: int | None) -> np.ndarray:
    limit = MAX_UNLISTED_LABELS if n is None else n
    bad = np.flatnonzero(variables >= limit)
    if len(bad):
        message = f"variable {variables[bad[0]]} is observed, but variables are 0 .. {limit - 1}."
        raise numbers.error(at + 2 * int(bad[0]), message)
    observed = np.full(int(variables.max(initial=-1)) + 1 if n is None else n, -1, dtype=np.int64)
    observed[variables] = labels
    bad = np.flatnonzero(observed[variables] != labels)
    if len(bad):
        i = variables[bad[0]]
        raise numbers.error(at + 2 * int(bad[0]), f"variable {i} is observed as {labels[bad[0]]} and as {observed[i]}.")
    return observed


def write_evidence(observed: Any, path: str | Path) -> None:
    """Write observed labels (n,), -1 where a variable is free."""
    observed = np.asarray(observed)
    if observed.ndim != 1 or observed.dtype.kind not in "iu":
        raise InputError(f"{path}: observed must be (n,) integers, received {observed.dtype} of shape {observed.shape}.")
    known = np.flatnonzero(observed >= 0)
    pairs = np.stack([known, observed[known]], axis=1).ravel().tolist()
    write_packed(path, " ".join(map(str, [len(known), *pairs])) + "\n")


def read_mar(path: str | Path) -> list[np.ndarray]:
    """Read marginals (``MAR``): one array for each variable."""
    text = read_bytes(path)
    numbers = Numbers(path, text, split_header(path, text, ("MAR",), "a file of marginals"))
    try:
        return _marginals(numbers, 0)
    except InputError:
        if len(numbers) > 1 and numbers.values[0] == 1:  # the older form: the number of solutions comes first
            return _marginals(numbers, 1)
        raise


def _marginals(numbers: Numbers, at: int) -> list[np.ndarray]:
    out = []
    n = numbers.integer(at, "the number of variables")
    at += 1
    for i in range(n):
        count = numbers.integer(at, f"the label count of variable {i}")
        numbers.need(at + 1, count, f"{count} probabilities of variable {i}")
        mu = numbers.values[at + 1 : at + 1 + count]
        if not ((mu >= 0) & (mu <= 1 + 1e-6)).all():
            raise numbers.error(at + 1, f"variable {i} has marginals that are not probabilities.")
        out.append(mu.copy())
        at += 1 + count
    numbers.finished(at)
    return out


def write_mar(marginals: Iterable[Sequence[float] | np.ndarray], path: str | Path) -> None:
    """Write marginals, one row of probabilities for each variable."""
    rows = [np.asarray(row, dtype=np.float64).tolist() for row in marginals]
    words = [" ".join([str(len(row)), *map(repr, row)]) for row in rows]
    write_packed(path, "MAR\n" + " ".join([str(len(rows)), *words]) + "\n")


def read_pr(path: str | Path) -> float:
    """Read log10 Z (``PR``)."""
    text = read_bytes(path)
    numbers = Numbers(path, text, split_header(path, text, ("PR",), "a file with log10 Z"))
    at = 1 if len(numbers) == 2 and numbers.values[0] == 1 else 0  # the older form: the number of solutions first
    numbers.need(at, 1, "log10 Z")
    numbers.finished(at + 1)
    if not numbers.values[at] < np.inf:
        raise numbers.error(at, f"log10 Z is {numbers.values[at]}; it must be finite or -inf.")
    return float(numbers.values[at])


def write_pr(log10_z: float, path: str | Path) -> None:
    """Write log10 Z (the natural log divided by ``log(10)``)."""
    write_packed(path, f"PR\n{float(log10_z)!r}\n")
