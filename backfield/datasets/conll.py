"""Column files as of the CoNLL tasks: a token per line, columns apart by blanks, an empty line between sentences."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from backfield.datasets._files import locate
from backfield.errors import InputError
from backfield.features.tokens import Token as Token
from backfield.features.tokens import window_features as window_features
from backfield.features.tokens import window_template as window_template

URL = "https://www.clips.uantwerpen.be/conll2000/chunking/"


class Conll(NamedTuple):
    """Sentences as lists of (word, part of speech), and their chunk tags."""

    train: list[list[Token]]
    train_labels: list[list[str]]
    test: list[list[Token]]
    test_labels: list[list[str]]


def load(data: str | Path | None = None) -> Conll:
    """Return the CoNLL-2000 chunking task from ``conll2000/{train,test}.txt``."""
    folder = locate("conll2000", data, "CoNLL-2000 sentences", URL)
    parts = [split_labels(read_columns(folder / f"{name}.txt", n_columns=3)) for name in ("train", "test")]
    return Conll(*parts[0], *parts[1])


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


def split_labels(sentences: Sequence[Sequence[Token]]) -> tuple[list[list[Token]], list[list[str]]]:
    """Split the last column off: sentences without it, and the labels that it holds."""
    if any(len(token) < 2 for sentence in sentences for token in sentence):
        raise InputError("tokens have one column; at least one of features and one of labels are needed.")
    tokens = [[token[:-1] for token in sentence] for sentence in sentences]
    return tokens, [[token[-1] for token in sentence] for sentence in sentences]
