"""Bayesian networks in the interchange format (``.bif``, also ``.bif.gz``), as the bnlearn repository has them.

::

    network name { ... }
    variable rain { type discrete [ 2 ] { no, yes }; }
    probability ( wet | rain, sprinkler ) { (no, off) 1.0, 0.0;  (yes, off) 0.2, 0.8;  ... }

A block holds rows by the parents' states, a ``default`` row, or one ``table`` with the variable itself **slowest**. Here
tables have the parents' axes first and that of the variable last. Comments are ``//`` and ``/* */``; ``property`` lines
are skipped.

Cost: one pass over the text; a row is one match of a regular expression.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import NamedTuple, NoReturn

import numpy as np

from backfield.data.formats._text import MAX_UNLISTED_ENTRIES, write_packed
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

_COMMENT = re.compile(r'"[^"\n]*"|//[^\n]*|/\*.*?(?:\*/|\Z)', re.DOTALL)
_TOKEN = re.compile(r'\s*("[^"\n]*"|[{}()\[\]|,;]|[^\s{}()\[\]|,;"]+)')
_ROW = re.compile(r'\s*\(([^"(){};]*(?:"[^"\n]*"[^"(){};]*)*)\)\s*([^"(){};]*);')
_WORDS = re.compile(r'"[^"\n]*"|[^\s,"]+')
_PLAIN = re.compile(r'[^\s{}()\[\]|,;"/]+')


def read_bif(path: str | Path) -> NamedTables:
    """Read a Bayesian network.

    Raises
    ------
    InputError
        Where the file is not such a network: with its name, the line, and what was needed there.
    """
    return _Reader(path, read_text(path)).read()


class _Block(NamedTuple):
    """The text of ``probability ( child | parents ) { ... }``."""

    child: str
    parents: list[str]
    at: int


class _Reader:
    def __init__(self, path: str | Path, text: str) -> None:
        self.path = path
        self.text = _COMMENT.sub(_blank, text)
        self.at = 0
        self.tables = NamedTables()
        self.places: dict[str, dict[str, int]] = {}  # of the states of each variable

    def error(self, message: str, at: int | None = None) -> InputError:
        line = self.text.count("\n", 0, self.at if at is None else at) + 1
        return InputError(f"{self.path}, line {line}: {message}")

    def read(self) -> NamedTables:
        if self._peek() != "network":
            raise self.error(f"a BIF file starts with 'network', not with {self._peek()[:20]!r}.")
        where: dict[str, int] = {}
        while word := self._peek():
            start = self.at
            self._next()
            if word == "network":
                self._skip_block()
            elif word == "variable":
                self._variable()
            elif word == "probability":
                where[self._probability()] = start
            else:
                raise self.error(f"'network', 'variable' or 'probability' is needed, not {word[:20]!r}.", start)
        check_complete(self.path, self.tables)
        cycle = find_cycle({name: parents for name, (parents, _) in self.tables.conditionals.items()})
        if cycle:
            raise self.error(f"the network has a cycle: {' -> '.join(cycle)}.", where[cycle[1]] + 1)
        return self.tables

    # Tokens

    def _peek(self) -> str:
        found = _TOKEN.match(self.text, self.at)
        return found[1] if found else ""

    def _next(self, wanted: str = "") -> str:
        found = _TOKEN.match(self.text, self.at)
        if found is None:
            left = self.text[self.at :].strip()
            if left:
                raise self.error(f"{left[:20]!r} cannot be read.")
            end = len(self.text.rstrip())
            raise self.error(f"the file ends early: {wanted or 'more'} is needed.", end)
        if wanted and found[1] != wanted and len(wanted) == 1:
            raise self.error(f"{wanted!r} is needed, not {found[1][:20]!r}.", found.start(1))
        self.at = found.end()
        return found[1]

    def _name(self, what: str) -> str:
        word = self._next(what)
        if word in "{}()[]|,;":
            raise self.error(f"{what} is needed, not {word!r}.")
        return word.strip('"')

    def _skip_block(self) -> None:
        self._skip_to("{")
        self._skip_to("}")

    def _skip_to(self, end: str) -> None:
        while self._next(f"'{end}'") != end:
            pass

    # Variables

    def _variable(self) -> None:
        start = self.at
        name = self._name("the name of a variable")
        if name in self.tables.states:
            raise self.error(f"variable {name!r} is described twice.", start)
        states: list[str] | None = None
        self._next("{")
        while (word := self._next("'}'")) != "}":
            if word == "type":
                states = self._states(name)
            else:
                self._skip_to(";")
        if states is None:
            raise self.error(f"variable {name!r} has no states: 'type discrete [ n ] {{ ... }};' is needed.", start)
        self.tables.states[name] = states
        self.places[name] = {state: k for k, state in enumerate(states)}

    def _states(self, name: str) -> list[str]:
        kind = self._name("'discrete'")
        if kind != "discrete":
            raise self.error(f"variable {name!r} is {kind!r}; only discrete variables are read.")
        self._next("[")
        count = self._name("the number of states")
        self._next("]")
        self._next("{")
        states = self._list("a state", "}")
        self._next(";")
        if not count.isdecimal() or len(count) > 9 or int(count) != len(states):
            raise self.error(f"variable {name!r} announces {count[:20]} states and lists {len(states)}.")
        if len(set(states)) < len(states):
            twice = next(state for state in states if states.count(state) > 1)
            raise self.error(f"variable {name!r} lists the state {twice!r} twice.")
        if not 1 <= len(states) <= MAX_STATES:
            raise self.error(f"variable {name!r} has {len(states)} states; 1 to {MAX_STATES:,} are needed.")
        return states

    def _list(self, what: str, end: str) -> list[str]:
        out: list[str] = []
        while self._peek() != end:
            out.append(self._name(what))
            if self._peek() == ",":
                self._next()
        self._next(end)
        return out

    # Probabilities

    def _probability(self) -> str:
        start = self.at
        self._next("(")
        child = self._name("a variable")
        parents: list[str] = []
        if self._peek() == "|":
            self._next()
            parents = self._list("a parent", ")")
        else:
            self._next(")")
        block = _Block(child, parents, start)
        self._check_names(block)
        self._next("{")
        shape = [len(self.tables.states[name]) for name in (*parents, child)]
        room = len(self.text) // 2 + MAX_UNLISTED_ENTRIES
        table_size(shape, room, lambda message: self.error(f"P({child} | ...): {message}", start))
        self.tables.conditionals[child] = parents, self._entries(block, shape)
        return child

    def _check_names(self, block: _Block) -> None:
        for name in (block.child, *block.parents):
            if name not in self.tables.states:
                raise self.error(f"there is no variable {name!r}; {nearest(name, self.tables.states)}", block.at)
        if len({block.child, *block.parents}) <= len(block.parents):
            raise self.error(f"P({block.child} | ...) names a variable twice.", block.at)
        if block.child in self.tables.conditionals:
            raise self.error(f"the probabilities of {block.child!r} are given twice.", block.at)

    def _entries(self, block: _Block, shape: list[int]) -> np.ndarray:
        """Read the rows of a block: (parents' states) numbers; or ``table``, or ``default``."""
        table = np.full(shape, np.nan)
        where = np.full(shape[:-1], -1, dtype=np.int64)
        default: tuple[int, np.ndarray] | None = None
        while self._peek() != "}":
            row = _ROW.match(self.text, self.at)
            if row is not None:
                self._row(block, row, table, where)
                continue
            start, word = self.at, self._next("'}'")
            if word == "table":
                values = self._list_of_numbers(table.size, f"the table of P({block.child} | ...)")
                table[...] = np.moveaxis(values.reshape(shape[-1], *shape[:-1]), 0, -1)
                where[...] = start + 1
            elif word == "default":
                default = start + 1, self._list_of_numbers(shape[-1], f"the default of P({block.child} | ...)")
            elif word == "property":
                self._skip_to(";")
            else:
                raise self.error(f"a row '(states) numbers;', 'table' or 'default' is needed, not {word[:20]!r}.", start + 1)
        self._next("}")
        if default is not None:
            table[where < 0] = default[1]
            where[where < 0] = default[0]
        if (where < 0).any():
            self._missing(block, np.argwhere(where < 0)[0])
        flat = where.reshape(-1)
        return normalised_rows(table, block.child, lambda message, row: self.error(message, int(flat[row])))

    def _missing(self, block: _Block, index: np.ndarray) -> NoReturn:
        states = [self.tables.states[name][k] for name, k in zip(block.parents, index.tolist(), strict=True)]
        where = f" for ({', '.join(states)})" if states else ""
        raise self.error(f"P({block.child} | ...) has no row{where}.", block.at)

    def _row(self, block: _Block, row: re.Match[str], table: np.ndarray, where: np.ndarray) -> None:
        self.at = row.end()
        states = [word.strip('"') for word in _WORDS.findall(row[1])]
        if len(states) != len(block.parents):
            message = f"a row of P({block.child} | ...) names {len(states)} states of {len(block.parents)} parents."
            raise self.error(message, row.start(1))
        index = []
        for name, state in zip(block.parents, states, strict=True):
            place = self.places[name].get(state)
            if place is None:
                message = f"variable {name!r} has no state {state!r}; {nearest(state, self.places[name])}"
                raise self.error(message, row.start(1))
            index.append(place)
        if where[tuple(index)] >= 0:
            raise self.error(f"the row ({', '.join(states)}) of P({block.child} | ...) is given twice.", row.start(1))
        table[tuple(index)] = self._numbers(row[2], row.start(2), table.shape[-1], f"a row of P({block.child} | ...)")
        where[tuple(index)] = row.start(1)

    def _list_of_numbers(self, count: int, what: str) -> np.ndarray:
        start, end = self.at, self.text.find(";", self.at)
        if end < 0:
            raise self.error("the file ends early: ';' is needed.", len(self.text.rstrip()))
        self.at = end + 1
        return self._numbers(self.text[start:end], start, count, what)

    def _numbers(self, text: str, at: int, count: int, what: str) -> np.ndarray:
        words = text.replace(",", " ").split()
        if len(words) != count:
            raise self.error(f"{what} has {len(words)} numbers; {count} are needed.", at)
        try:
            return np.array(list(map(float, words)))
        except ValueError:
            bad = next(word for word in words if not _is_number(word))
            raise self.error(f"{bad[:20]!r} in {what} is not a number.", at) from None


def _blank(found: re.Match[str]) -> str:
    """Keep quoted names; put blanks in the place of comments, so lines and places stay."""
    return found[0] if found[0].startswith('"') else re.sub(r"[^\n]", " ", found[0])


def _is_number(word: str) -> bool:
    try:
        float(word)
    except ValueError:
        return False
    return True


def write_bif(tables: NamedTables, path: str | Path) -> None:
    """Write a Bayesian network; probabilities survive the round trip to the bit."""
    write_packed(path, "\n".join(_lines(tables)) + "\n")


def _lines(tables: NamedTables) -> Iterator[str]:
    yield "network unknown {\n}"
    for name, states in tables.states.items():
        listed = ", ".join(_quoted(state) for state in states)
        yield f"variable {_quoted(name)} {{\n  type discrete [ {len(states)} ] {{ {listed} }};\n}}"
    for name, (parents, table) in tables.conditionals.items():
        given = f" | {', '.join(_quoted(parent) for parent in parents)}" if parents else ""
        yield f"probability ( {_quoted(name)}{given} ) {{"
        rows = table.reshape(-1, table.shape[-1]).tolist()
        if not parents:
            yield f"  table {', '.join(map(repr, rows[0]))};"
        else:
            for key, row in zip(product(*(tables.states[parent] for parent in parents)), rows, strict=True):
                yield f"  ({', '.join(_quoted(state) for state in key)}) {', '.join(map(repr, row))};"
        yield "}"


def _quoted(name: str) -> str:
    if '"' in name or "\n" in name:
        raise InputError(f"BIF cannot hold the name {name!r}: it has a quotation mark or a line break.")
    return name if _PLAIN.fullmatch(name) else f'"{name}"'
