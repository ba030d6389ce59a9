"""Tokens of a sentence -> named features: windows, the form of words, templates of CRF++ and Wapiti.

A token is a tuple of its columns: the word first, then whatever a file has. Features are names; a sentence becomes a list of
{name: 1.0} dicts, what :class:`backfield.ChainCRF` takes.

    window_features   "w[-1]|w[0]=the|cat" where the columns around a token hold these strings
    word_features     lower case, shape "Xxx-dd", prefixes, suffixes, digits, hyphens
    Templates         lines "U05:%x[-1,0]/%x[0,0]" of CRF++ or Wapiti
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from backfield.errors import InputError

Token = tuple[str, ...]
Template = tuple[tuple[int, int], ...]
Features = dict[str, float]

_MACRO = re.compile(r'%([xXtTmM])\[\s*(-?\d+)\s*,\s*(\d+)\s*(?:,\s*"((?:[^"\\]|\\.)*)"\s*)?\]')


def window_template(n_columns: int = 2) -> list[Template]:
    """Return the usual templates of chunking (those of CRFsuite's example) for ``n_columns`` columns of features.

    The first column, of many values: positions -2..2 and the pairs -1|0, 0|1. Each further one: positions -2..2, the
    four pairs and the three triples of neighbours within them.
    """
    around = range(-2, 3)
    templates: list[Template] = [((0, t),) for t in around] + [((0, -1), (0, 0)), ((0, 0), (0, 1))]
    for column in range(1, n_columns):
        for length in (1, 2, 3):
            templates += [tuple((column, t + k) for k in range(length)) for t in range(-2, 4 - length)]
    return templates


def window_features(sentence: Sequence[Token], templates: Sequence[Template] | None = None) -> list[Features]:
    """Return the features {name: 1.0} of each token of a sentence, by default from :func:`window_template`.

    Parameters
    ----------
    sentence : list of tuples of str
        The columns of each token.
    templates : list of tuples of (column, offset), optional
        Each is one feature: the strings of these columns around the token; none where the window leaves the sentence.

    The first token also has ``__BOS__`` and the last ``__EOS__``. Equal names are one string in memory.
    """
    if not sentence:
        return []
    if templates is None:
        templates = window_template(len(sentence[0]))
    prefixes = ["|".join(f"{_column_name(column)}[{t}]" for column, t in template) + "=" for template in templates]
    features: list[Features] = [{} for _ in sentence]
    for prefix, template in zip(prefixes, templates, strict=True):
        first, last = min(t for _, t in template), max(t for _, t in template)
        for at in range(max(0, -first), min(len(sentence), len(sentence) - last)):
            features[at][sys.intern(prefix + "|".join(sentence[at + t][column] for column, t in template))] = 1.0
    features[0]["__BOS__"] = 1.0
    features[-1]["__EOS__"] = 1.0
    return features


def word_features(
    sentence: Sequence[Token | str], column: int = 0, affixes: int = 4, around: Sequence[int] = (-1, 0, 1)
) -> list[Features]:
    """Return features of the form of each word and of those ``around`` it, such as "low[0]=york" and "shape[-1]=Xxx".

    Parameters
    ----------
    sentence : list of tuples of str, or of str
    column : int
        Where the word is.
    affixes : int
        Length of the longest prefixes and suffixes, of the word itself alone.
    around : list of int
        Offsets; beyond the ends of the sentence there are no features.
    """
    words = [token if isinstance(token, str) else token[column] for token in sentence]
    forms = [_forms(word) for word in words]
    out: list[Features] = []
    for t, word in enumerate(words):
        found: Features = {}
        for offset in around:
            if 0 <= t + offset < len(words):
                for name in forms[t + offset]:
                    found[sys.intern(name.replace("[0]", f"[{offset}]", 1))] = 1.0
        for size in range(1, min(affixes, len(word)) + 1):
            found[sys.intern(f"prefix{size}={word[:size]}")] = found[sys.intern(f"suffix{size}={word[-size:]}")] = 1.0
        out.append(found)
    if out:
        out[0]["__BOS__"] = out[-1]["__EOS__"] = 1.0
    return out


def word_shape(word: str, short: bool = False) -> str:
    """Return "Xxx-dd" for "Nov-17": X upper case, x lower case, d digit; ``short`` joins equal neighbours ("Xx-d")."""
    shape = "".join("X" if c.isupper() else "x" if c.islower() else "d" if c.isdigit() else c for c in word)
    return re.sub(r"(.)\1+", r"\1", shape) if short else shape


def _forms(word: str) -> list[str]:
    out = [f"low[0]={word.lower()}", f"shape[0]={word_shape(word)}", f"short[0]={word_shape(word, short=True)}"]
    tests: dict[str, Callable[[str], bool]] = {
        "upper": str.isupper,
        "title": str.istitle,
        "digits": str.isdigit,
        "digit": lambda w: any(c.isdigit() for c in w),
        "hyphen": lambda w: "-" in w,
        "symbols": lambda w: not any(c.isalnum() for c in w),
    }
    return out + [f"{name}[0]" for name, test in tests.items() if test(word)]


class _Macro(NamedTuple):
    kind: str  # x: the text, t: whether it matches, m: what matches; in upper case: of lower-case text
    row: int
    column: int
    pattern: re.Pattern[str] | None


@dataclass(frozen=True)
class Templates:
    """Templates of CRF++ or Wapiti: lines such as ``U05:%x[-1,0]/%x[0,0]``; %x[row,column] is a text around the token.

    ``%X`` is the text in lower case, ``%t[row,column,"regex"]`` whether it matches, ``%m`` what matches (Wapiti). Beyond the
    ends of a sentence the text is ``_B-1``, ``_B+1``, ... A line ``B`` asks for transitions, which are always there; those
    of observations (``B01:%x[0,0]``, ``b``, ``*``) are not here.
    """

    lines: tuple[str, ...]

    @classmethod
    def parse(cls, text: str, what: str = "the template") -> Templates:
        """Read a file of templates; comments (#) and empty lines are left out."""
        lines = []
        for number, raw in enumerate(text.splitlines(), start=1):
            line = raw.strip()
            if line and not line.startswith("#"):
                _check_line(line, f"{what} line {number}")
                lines.append(line)
        chosen = tuple(line for line in lines if line[0] in "Uu")
        if not chosen:
            raise InputError(f"{what}: has no line that starts with U, such as U00:%x[0,0].")
        return cls(chosen)

    def __call__(self, sentence: Sequence[Token]) -> list[Features]:
        """Return the features {name: 1.0} of each token."""
        if not sentence:
            return []
        width, out = len(sentence[0]), [dict[str, float]() for _ in sentence]
        for line in self.lines:
            parts = _parts(line)
            for macro in parts[1::2]:
                assert isinstance(macro, _Macro)
                if macro.column >= width:
                    raise InputError(f"the template {line} asks for column {macro.column}; tokens have {width}.")
            for at, features in enumerate(out):
                name = "".join(part if isinstance(part, str) else _text(sentence, at, part) for part in parts)
                features[sys.intern(name)] = 1.0
        return out


def _check_line(line: str, where: str) -> None:
    if line[0] in "Bb" and "%" not in line:
        return
    if line[0] in "Bb*":
        raise InputError(f"{where}: {line!r} combines observations with transitions, which is not supported; use a plain B.")
    if line[0] not in "Uu":
        raise InputError(f"{where}: {line!r} starts neither with U nor with B.")
    _parts(line, where)


def _parts(line: str, where: str = "the template") -> list[str | _Macro]:
    """Return literal text and macros in turn, text first and last."""
    out: list[str | _Macro] = []
    at = 0
    for found in _MACRO.finditer(line):
        kind, row, column, pattern = found.groups()
        if (kind in "xX") != (pattern is None):
            raise InputError(f'{where}: {found.group()} must be %x[row,column], or %t or %m[row,column,"regex"].')
        try:
            regex = None if pattern is None else re.compile(pattern)
        except re.error as error:
            raise InputError(f"{where}: {found.group()} has a bad regular expression: {error}.") from None
        out += [line[at : found.start()], _Macro(kind, int(row), int(column), regex)]
        at = found.end()
    rest = line[at:]
    if "%" in "".join(part for part in [*out, rest] if isinstance(part, str)):
        raise InputError(f"{where}: {line!r} has a % that is not a macro such as %x[-1,0].")
    return [*out, rest]


def _text(sentence: Sequence[Token], at: int, macro: _Macro) -> str:
    place = at + macro.row
    if place < 0 or place >= len(sentence):
        text = f"_B{place}" if place < 0 else f"_B+{place - len(sentence) + 1}"
    else:
        text = sentence[place][macro.column]
    if macro.kind.isupper():
        text = text.lower()
    if macro.pattern is None:
        return text
    found = macro.pattern.search(text)
    if macro.kind in "tT":
        return "true" if found else "false"
    return found.group() if found else ""


def joined(*parts: Iterable[Features]) -> list[Features]:
    """Return the features of several functions together: ``joined(window_features(s), word_features(s))``."""
    out = []
    for each in zip(*parts, strict=True):
        both: Features = {}
        for features in each:
            both |= features
        out.append(both)
    return out


def _column_name(column: int) -> str:
    return ("w", "pos")[column] if column < 2 else f"c{column}"
