"""Tables over variables that have names: what files of Bayesian networks hold, before it becomes a model.

Readers check everything before they allocate: sizes are compared with what the file lists, and each refusal is one
sentence with the line on which the mistake stands.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from backfield.data.formats._text import read_bytes
from backfield.errors import InputError

#: Most states of a variable, and most entries of a table.
MAX_STATES = 100_000
MAX_ENTRIES = 50_000_000
#: Rows of probabilities must sum to one as well as this; published networks are rounded to four digits and more.
ROW_TOLERANCE = 5e-3


@dataclass
class NamedTables:
    """Named variables with named states, and for each of them P(variable | parents).

    Attributes
    ----------
    states : dict
        The states of each variable, in the order of the file.
    conditionals : dict
        For each variable its parents and its table, of shape (states of the parents ..., states of the variable).
    """

    states: dict[str, list[str]] = field(default_factory=dict)
    conditionals: dict[str, tuple[list[str], np.ndarray]] = field(default_factory=dict)


def nearest(name: str, known: Iterable[object]) -> str:
    """Return a hint: the known name that is nearest to ``name``, or the first few of them."""
    words = [str(word) for word in known]
    lower: dict[str, str] = {}
    for word in words:
        lower.setdefault(word.lower(), word)
    near = difflib.get_close_matches(str(name).lower(), lower, n=1)
    if near:
        return f"did you mean {lower[near[0]]!r}?"
    shown = ", ".join(words[:8]) + (", ..." if len(words) > 8 else "")
    return f"known: {shown}." if words else "there is none."


def read_text(path: str | Path) -> str:
    """Return the text of a file, unpacked where its name ends in .gz."""
    data = read_bytes(path)
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return data.decode("latin-1")  # older networks


def table_size(shape: Sequence[int], listed: int, error: Callable[[str], InputError]) -> int:
    """Return the number of entries of a table, refused where it is hopeless or far beyond what the file can list."""
    size = math.prod(shape)
    if size > MAX_ENTRIES:
        raise error(f"the table has {size:,} entries; at most {MAX_ENTRIES:,} can be held.")
    if size > listed:
        raise error(f"the table has {size:,} entries, but the file is too short to list them.")
    return size


def normalised_rows(table: np.ndarray, name: str, error: Callable[[str, int], InputError]) -> np.ndarray:
    """Return (..., states) probabilities whose rows sum to one; refuses rows that do not, to ``ROW_TOLERANCE``.

    ``error`` takes the sentence and the number of the row that it is about.
    """
    rows = table.reshape(-1, table.shape[-1])
    with np.errstate(invalid="ignore", over="ignore"):
        legal = (rows >= 0) & (rows < np.inf)
        total = rows.sum(axis=1)
    if not legal.all():
        row, state = (int(part[0]) for part in np.nonzero(~legal))
        raise error(f"P({name} | ...) holds {rows[row, state]}; probabilities are finite and >= 0.", row)
    off = np.abs(total - 1)
    if off.max() > ROW_TOLERANCE:
        row = int(np.argmax(off))
        raise error(f"a row of P({name} | ...) sums to {total[row]:.6g}, not to 1.", row)
    # Rows that are right to rounding stay as they are, so what is written is read back to the bit.
    return np.where(off[:, None] > 1e-12, rows / total[:, None], rows).reshape(table.shape)


def check_complete(path: str | Path, tables: NamedTables) -> None:
    """Refuse a network that lacks a table."""
    if not tables.states:
        raise InputError(f"{path}: the network has no variables; at least 1 is needed.")
    for name in tables.states:
        if name not in tables.conditionals:
            raise InputError(f"{path}: variable {name!r} has no probabilities.")


def find_cycle(parents: dict[str, list[str]]) -> list[str]:
    """Return names along a cycle of a directed graph, each a parent of the next, the first one again last; else none."""
    state: dict[str, int] = {}
    for start in parents:
        stack = [(start, iter(parents[start]))] if start not in state else []
        state.setdefault(start, 1)
        while stack:
            name, rest = stack[-1]
            above = next((p for p in rest if state.get(p) != 2), None)
            if above is None:
                state[name] = 2
                stack.pop()
            elif state.get(above) == 1:
                path = [n for n, _ in stack]
                return [above, *path[path.index(above) :][::-1]]
            else:
                state[above] = 1
                stack.append((above, iter(parents[above])))
    return []
