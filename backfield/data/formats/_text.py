"""Files of numbers: read them whole, say where they are wrong, write them whole or not at all."""

from __future__ import annotations

import gzip
import re
import zlib
from pathlib import Path

import numpy as np

from backfield.atomic import write_bytes
from backfield.errors import InputError

#: Most labels (or variables) that a file may announce without a table for them, and most zeros it may leave out. Beyond
#: these, a few damaged bytes would ask for more memory than there is.
MAX_UNLISTED_LABELS = 1_000_000
MAX_UNLISTED_ENTRIES = 20_000_000
#: Most bytes that a packed file may unpack to; a few bytes of gzip can announce any number of them.
MAX_UNPACKED = 2**30

_NUMBER = re.compile(rb"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?|[+-]?(nan|inf|infinity)", re.IGNORECASE)


class Numbers:
    """The whitespace-separated numbers of a text, and the line on which each of them stands.

    Parameters
    ----------
    path : path of the file, for messages
    text : the whole file
    start : where the numbers begin in it
    """

    def __init__(self, path: str | Path, text: bytes, start: int = 0) -> None:
        self.path = path
        self._text = text
        self._starts = _token_starts(text, start)
        self.values = self._parse(start)

    def _parse(self, start: int) -> np.ndarray:
        if len(self._starts) == 0:  # numpy reads blanks as [-1.]
            return np.empty(0)
        try:
            values = np.fromstring(self._text[start:], dtype=np.float64, sep=" ")
        except ValueError:
            values = np.empty(0)
        if len(values) == len(self._starts):
            return values
        bad = next((k for k in range(len(self._starts)) if not _NUMBER.fullmatch(self.token(k))), 0)
        raise self.error(bad, f"{shown(self.token(bad))} is not a number.")

    def __len__(self) -> int:
        return len(self.values)

    def token(self, index: int) -> bytes:
        """Return number ``index`` as it is written."""
        return self._text[self._starts[index] : self._starts[index] + 400].split(maxsplit=1)[0]

    def error(self, index: int, message: str) -> InputError:
        """Return an error about number ``index`` (the end of the file where there is no such number)."""
        end = self._starts[index] if index < len(self._starts) else len(self._text.rstrip())
        line = self._text.count(b"\n", 0, end) + 1
        return InputError(f"{self.path}, line {line}: {message}")

    def need(self, index: int, count: int, what: str) -> None:
        """Refuse a file that ends before numbers ``index .. index + count - 1``, which are ``what``."""
        if index + count > len(self):
            left = max(len(self) - index, 0)
            raise self.error(len(self), f"the file ends early: needs {what}, has {left} numbers left.")

    def integers(self, index: int, count: int, what: str, step: int = 1) -> np.ndarray:
        """Return ``count`` numbers from ``index`` on as integers >= 0; each of them is ``what``."""
        values = self.values[index : index + step * count : step]
        with np.errstate(invalid="ignore"):
            bad = np.flatnonzero(~((values >= 0) & (values < 2**53) & (values == np.floor(values))))
        if len(bad):
            at = index + step * int(bad[0])
            raise self.error(at, f"{what} must be an integer >= 0, received {shown(self.token(at))}.")
        return values.astype(np.int64)

    def integer(self, index: int, what: str) -> int:
        """Return number ``index`` as an integer >= 0."""
        self.need(index, 1, what)
        return int(self.integers(index, 1, what)[0])

    def finished(self, index: int) -> None:
        """Refuse numbers that follow what the file should hold."""
        if index < len(self):
            raise self.error(index, f"{len(self) - index} numbers too many, from {shown(self.token(index))} on.")


def read_bytes(path: str | Path) -> bytes:
    """Return a whole file, unpacked where its name ends in .gz."""
    path = Path(path)
    try:
        if path.suffix.lower() != ".gz":
            return path.read_bytes()
        with gzip.open(path) as packed:
            data = packed.read(MAX_UNPACKED + 1)
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise InputError(f"{path} is not a complete gzip file: {error}.") from error
    if len(data) > MAX_UNPACKED:
        raise InputError(f"{path} unpacks to more than {MAX_UNPACKED:,} bytes.")
    return data


def split_header(path: str | Path, text: bytes, known: tuple[str, ...], what: str) -> int:
    """Check the word with which a file begins and return where the rest begins."""
    found = re.match(rb"\s*(\S{1,100})", text)
    if found is None:
        raise InputError(f"{path}: the file is empty; {what} starts with {' or '.join(known)}.")
    if found[1].upper() not in [word.encode() for word in known]:
        raise InputError(f"{path}: the file starts with {shown(found[1])}; {what} starts with {' or '.join(known)}.")
    return found.end()


def shown(token: bytes) -> str:
    """Return a token for a message: printable and short."""
    text = repr(token[:20].decode("ascii", errors="backslashreplace"))
    return text if len(token) <= 20 else f"{text[:-1]}...'"


def write_packed(path: str | Path, text: str) -> None:
    """Write a text; packed where its name ends in .gz."""
    data = text.encode()
    write_bytes(path, gzip.compress(data, mtime=0) if Path(path).suffix.lower() == ".gz" else data)


def _token_starts(text: bytes, start: int) -> np.ndarray:
    codes = np.frombuffer(text, dtype=np.uint8)[start:]
    blank = (codes == 32) | ((codes >= 9) & (codes <= 13))
    first = ~blank
    first[1:] &= blank[:-1]
    return np.flatnonzero(first) + start
