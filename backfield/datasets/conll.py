"""Column files as of the CoNLL tasks: a token per line, columns apart by blanks, an empty line between sentences.

Features of tokens come from window templates: a template is a tuple of (column, offset), and the token at t has the
feature "w[-1]|w[0]=the|cat" where the columns around t hold these texts, none where the window leaves the sentence.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from backfield.datasets._files import locate
from backfield.errors import InputError

URL = "https://www.clips.uantwerpen.be/conll2000/chunking/"

Token = tuple[str, ...]
Template = tuple[tuple[int, int], ...]


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

    Every token must have ``n_columns`` columns; ``None``: as many as the first one.
    """
    where = ""
    sentences: list[list[Token]] = [[]]
    for number, line in enumerate(_read(path).splitlines(), start=1):
        token = tuple(line.split())
        if not token:
            if sentences[-1]:
                sentences.append([])
            continue
        if n_columns is None:
            n_columns, where = len(token), f" as on line {number}"
        if len(token) != n_columns:
            columns = "1 column" if len(token) == 1 else f"{len(token)} columns"
            raise InputError(f"{path} line {number}: got {columns}, {n_columns} are needed{where}.")
        sentences[-1].append(tuple(map(sys.intern, token)))
    if not sentences[-1]:
        sentences.pop()
    if not sentences:
        raise InputError(f"{path}: has no sentences; lines of columns are needed, an empty line between sentences.")
    return sentences


def _read(path: str | Path) -> str:
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


def window_features(sentence: Sequence[Token], templates: Sequence[Template] | None = None) -> list[dict[str, float]]:
    """Return the features {name: 1.0} of each token of a sentence, by default from :func:`window_template`.

    The first token also has ``__BOS__`` and the last ``__EOS__``. Equal names are one string in memory.
    """
    if not sentence:
        return []
    if templates is None:
        templates = window_template(len(sentence[0]))
    prefixes = ["|".join(f"{_column_name(column)}[{t}]" for column, t in template) + "=" for template in templates]
    features: list[dict[str, float]] = [{} for _ in sentence]
    for prefix, template in zip(prefixes, templates, strict=True):
        first, last = min(t for _, t in template), max(t for _, t in template)
        for at in range(max(0, -first), min(len(sentence), len(sentence) - last)):
            features[at][sys.intern(prefix + "|".join(sentence[at + t][column] for column, t in template))] = 1.0
    features[0]["__BOS__"] = 1.0
    features[-1]["__EOS__"] = 1.0
    return features


def _column_name(column: int) -> str:
    return ("w", "pos")[column] if column < 2 else f"c{column}"
