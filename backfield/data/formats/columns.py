"""Column files as of the CoNLL tasks, with labels in the last column or without them, and with predictions beside them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from backfield.data.formats._text import write_packed
from backfield.datasets.conll import Token, read_columns
from backfield.errors import InputError


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


def write_column_file(path: str | Path, sentences: Sequence[Sequence[Sequence[str]]]) -> None:
    """Write sentences of tokens, each a sequence of its columns."""
    blocks = ("".join(" ".join(token) + "\n" for token in sentence) for sentence in sentences)
    write_packed(path, "\n".join(blocks))
