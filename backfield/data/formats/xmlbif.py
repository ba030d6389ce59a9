"""Bayesian networks in XMLBIF 0.3 (``.xmlbif``, ``.xml``, also ``.gz``).

::

    <VARIABLE TYPE="nature"><NAME>rain</NAME><OUTCOME>no</OUTCOME><OUTCOME>yes</OUTCOME></VARIABLE>
    <DEFINITION><FOR>wet</FOR><GIVEN>rain</GIVEN><TABLE>1.0 0.0 0.2 0.8</TABLE></DEFINITION>

The variable itself is **fastest** in a table, the last parent next. Declarations of entities are refused: they can make
a small file expand without end.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from html import escape
from pathlib import Path
from xml.parsers import expat

import numpy as np

from backfield.data.formats._text import write_packed
from backfield.data.formats.named_tables import (
    MAX_STATES,
    NamedTables,
    check_complete,
    find_cycle,
    nearest,
    normalised_rows,
    read_text,
    table_size,
)
from backfield.errors import InputError

#: Elements whose text is used; others (PROPERTY, ...) are skipped.
_TEXT = ("NAME", "OUTCOME", "VALUE", "FOR", "GIVEN", "TABLE")
#: As of xml.sax.saxutils, whose import takes longer than all of this file.
_escaped = partial(escape, quote=False)


@dataclass
class _Element:
    """A VARIABLE or a DEFINITION, with the text of what stands in it."""

    kind: str
    line: int
    texts: dict[str, list[str]] = field(default_factory=dict)


def read_xmlbif(path: str | Path) -> NamedTables:
    """Read a Bayesian network.

    Raises
    ------
    InputError
        Where the file is not such a network: with its name, the line, and what was needed there.
    """
    elements = _Elements(path).read(read_text(path))
    tables, lines = NamedTables(), {}
    for element in (e for e in elements if e.kind == "VARIABLE"):
        _add_variable(path, tables, element)
    for element in (e for e in elements if e.kind != "VARIABLE"):
        lines[_add_definition(path, tables, element)] = element.line
    check_complete(path, tables)
    cycle = find_cycle({name: parents for name, (parents, _) in tables.conditionals.items()})
    if cycle:
        raise _error(path, lines[cycle[1]], f"the network has a cycle: {' -> '.join(cycle)}.")
    return tables


def _error(path: str | Path, line: int, message: str) -> InputError:
    return InputError(f"{path}, line {line}: {message}")


class _Elements:
    """Collects variables and definitions while expat reads."""

    def __init__(self, path: str | Path) -> None:
        self.path = path
        self.found: list[_Element] = []
        self.open: _Element | None = None
        self.text: list[str] | None = None
        self.parser = expat.ParserCreate()
        self.parser.StartElementHandler = self._start
        self.parser.EndElementHandler = self._end
        self.parser.CharacterDataHandler = self._characters
        self.parser.EntityDeclHandler = self._entity
        self.parser.buffer_text = True

    def read(self, text: str) -> list[_Element]:
        try:
            self.parser.Parse(text, True)
        except expat.ExpatError as error:
            raise _error(self.path, error.lineno, f"malformed XML: {expat.ErrorString(error.code)}.") from error
        return self.found

    def _line(self) -> int:
        return self.parser.CurrentLineNumber

    def _entity(self, name: str, *_: object) -> None:
        raise _error(self.path, self._line(), f"the entity {name[:20]!r} is declared; a network needs none.")

    def _start(self, tag: str, attributes: dict[str, str]) -> None:
        tag = tag.upper()
        if tag in ("VARIABLE", "DEFINITION", "PROBABILITY"):
            self.open = _Element(tag, self._line())
        self.text = [] if tag in _TEXT else None

    def _characters(self, text: str) -> None:
        if self.text is not None:
            self.text.append(text)

    def _end(self, tag: str) -> None:
        tag = tag.upper()
        if tag in ("VARIABLE", "DEFINITION", "PROBABILITY") and self.open is not None:
            self.found.append(self.open)
            self.open = None
        elif self.text is not None and self.open is not None:
            self.open.texts.setdefault(tag, []).append("".join(self.text).strip())
        self.text = None


def _add_variable(path: str | Path, tables: NamedTables, element: _Element) -> None:
    names = element.texts.get("NAME", [])
    if len(names) != 1 or not names[0]:
        raise _error(path, element.line, f"a variable needs one name, not {len(names)}.")
    states = element.texts.get("OUTCOME", []) + element.texts.get("VALUE", [])
    if names[0] in tables.states:
        raise _error(path, element.line, f"variable {names[0]!r} is described twice.")
    if not 1 <= len(states) <= MAX_STATES:
        raise _error(path, element.line, f"variable {names[0]!r} has {len(states)} states; 1 to {MAX_STATES:,} are needed.")
    if len(set(states)) < len(states):
        twice = next(state for state in states if states.count(state) > 1)
        raise _error(path, element.line, f"variable {names[0]!r} lists the state {twice!r} twice.")
    tables.states[names[0]] = states


def _add_definition(path: str | Path, tables: NamedTables, element: _Element) -> str:
    child, parents, numbers = (element.texts.get(tag, []) for tag in ("FOR", "GIVEN", "TABLE"))
    if len(child) != 1 or len(numbers) != 1:
        message = f"a definition needs one FOR and one TABLE, not {len(child)} and {len(numbers)}."
        raise _error(path, element.line, message)
    name = child[0]
    for other in (name, *parents):
        if other not in tables.states:
            raise _error(path, element.line, f"there is no variable {other!r}; {nearest(other, tables.states)}")
    if len({name, *parents}) <= len(parents):
        raise _error(path, element.line, f"P({name} | ...) names a variable twice.")
    if name in tables.conditionals:
        raise _error(path, element.line, f"the probabilities of {name!r} are given twice.")
    shape = [len(tables.states[other]) for other in (*parents, name)]
    table = _table(path, element, name, numbers[0], shape)
    tables.conditionals[name] = (
        parents,
        normalised_rows(table, name, lambda message, row: _error(path, element.line, message)),
    )
    return name


def _table(path: str | Path, element: _Element, name: str, text: str, shape: list[int]) -> np.ndarray:
    words = text.split()
    size = table_size(shape, len(text), lambda message: _error(path, element.line, f"P({name} | ...): {message}"))
    if len(words) != size:
        raise _error(path, element.line, f"the table of P({name} | ...) has {len(words)} numbers; {size} are needed.")
    try:
        return np.array(list(map(float, words))).reshape(shape)
    except ValueError as error:
        raise _error(path, element.line, f"the table of P({name} | ...) holds what is not a number: {error}.") from error


def write_xmlbif(tables: NamedTables, path: str | Path) -> None:
    """Write a Bayesian network; probabilities survive the round trip to the bit."""
    write_packed(path, "\n".join(_lines(tables)) + "\n")


def _lines(tables: NamedTables) -> Iterator[str]:
    yield '<?xml version="1.0"?>\n<BIF VERSION="0.3">\n<NETWORK>\n<NAME>network</NAME>'
    for name, states in tables.states.items():
        listed = "".join(f"<OUTCOME>{_escaped(state)}</OUTCOME>" for state in states)
        yield f'<VARIABLE TYPE="nature"><NAME>{_escaped(name)}</NAME>{listed}</VARIABLE>'
    for name, (parents, table) in tables.conditionals.items():
        given = "".join(f"<GIVEN>{_escaped(parent)}</GIVEN>" for parent in parents)
        numbers = " ".join(map(repr, table.reshape(-1).tolist()))
        yield f"<DEFINITION><FOR>{_escaped(name)}</FOR>{given}<TABLE>{numbers}</TABLE></DEFINITION>"
    yield "</NETWORK>\n</BIF>"
