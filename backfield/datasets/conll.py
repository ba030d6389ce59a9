"""Column files as of the CoNLL tasks: a token per line, columns apart by blanks, an empty line between sentences."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from backfield.data.formats.columns import read_columns as read_columns
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


def split_labels(sentences: Sequence[Sequence[Token]]) -> tuple[list[list[Token]], list[list[str]]]:
    """Split the last column off: sentences without it, and the labels that it holds."""
    if any(len(token) < 2 for sentence in sentences for token in sentence):
        raise InputError("tokens have one column; at least one of features and one of labels are needed.")
    tokens = [[token[:-1] for token in sentence] for sentence in sentences]
    return tokens, [[token[-1] for token in sentence] for sentence in sentences]
