"""Column files as of the CoNLL tasks, with labels in the last column or without them, and with predictions beside them."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from backfield.data.formats._text import write_packed
from backfield.errors import InputError

if TYPE_CHECKING:
    from backfield.features.tokens import Token


class ColumnFile(NamedTuple):
    """Sentences of tokens, each a tuple of its columns of features, and the labels of each sentence if the file has them."""

    sentences: list[list[Token]]
    labels: list[list[str]] | None


def read_column_file(path: str | Path, n_features: int | None = None, with_labels: bool = True) -> ColumnFile:
    """Read a column file: one token per line, columns apart by blanks, an empty line between sentences.

    Parameters
    ----------
    path
        The file, in UTF-8.
    n_features
        Columns of features that a model needs; ``None``: all columns but the last.
    with_labels
        The last column must be the label. Else a file with ``n_features`` columns has no labels.
    """
    rows = read_columns(path)
    count = len(rows[0][0])
    if n_features is None:
        n_features = count - 1
    if n_features < 1:
        raise InputError(f"{path} has one column; at least one of features and, last, one of labels are needed.")
    if count == n_features and not with_labels:
        return ColumnFile(rows, None)
    if count != n_features + 1:
        columns = f"{n_features + 1} columns are needed ({n_features} of features and, last, the label)"
        raise InputError(f"{path} has {count} columns; {columns}.")
    sentences = [[token[:-1] for token in sentence] for sentence in rows]
    return ColumnFile(sentences, [[token[-1] for token in sentence] for sentence in rows])


def read_columns(path: str | Path, n_columns: int | None = None) -> list[list[Token]]:
    """Return the sentences of a column file, each a list of tokens, each a tuple of its columns.

    Every token must have ``n_columns`` columns; ``None``: as many as the first one. Lines ``-DOCSTART-`` are left out.
    """
    where = ""
    sentences: list[list[Token]] = [[]]
    for number, line in enumerate(read_text(path).splitlines(), start=1):
        token = tuple(line.split())
        if not token:
            if sentences[-1]:
                sentences.append([])
            continue
        if n_columns is None:
            n_columns, where = len(token), f" as on line {number}"
        if len(token) != n_columns:
            columns = "1 column" if len(token) == 1 else f"{len(token)} columns"
            raise InputError(f"{path} line {number}: received {columns}, {n_columns} are needed{where}.")
        sentences[-1].append(tuple(map(sys.intern, token)))
    sentences = [sentence for sentence in sentences if sentence and sentence[0][0] != "-DOCSTART-"]
    if not sentences:
        raise InputError(f"{path}: has no sentences; lines of columns are needed, an empty line between sentences.")
    return sentences


def read_text(path: str | Path) -> str:
    """Return the text of a file in UTF-8."""
    try:
        return Path(path).read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: is not a text file in UTF-8 (byte {error.start}).") from error
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror or error}.") from error


def write_column_file(path: str | Path, sentences: Sequence[Sequence[Sequence[str]]]) -> None:
    """Write sentences of tokens, each a sequence of its columns."""
    blocks = ("".join(" ".join(token) + "\n" for token in sentence) for sentence in sentences)
    write_packed(path, "\n".join(blocks))
