"""Files of tagged sentences beside plain columns: CoNLL-U and JSON lines."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from backfield.data.format import Data, Preprocessing
from backfield.data.formats._text import write_packed
from backfield.data.formats.graphs import are_graph_lines
from backfield.data.kinds import ColumnFile
from backfield.datasets.conll import read_text
from backfield.errors import InputError
from backfield.limits import parse_json

_WORDS = ("tokens", "words", "features", "x")
_LABELS = ("labels", "tags", "ner_tags", "y")
_COLUMNS = 10
#: Formats of tagged sentences: a model of one of them reads the others.
SENTENCES = ("columns", "conllu", "jsonl")


class ConlluFile(ColumnFile):
    """CoNLL-U: ten columns apart by tabs. The feature is the word (FORM), the label its part of speech (UPOS).

    Comments, ranges of words (1-2) and empty nodes (8.1) are left out of sentences, and written as they are.
    """

    name: ClassVar[str] = "conllu"

    def holds(self, path: Path) -> bool:
        """Whether a path is a file that ends in .conllu."""
        return path.is_file() and path.suffix.lower() == ".conllu"

    def read(self, path: Path, with_labels: bool = True, n_columns: int | None = None, lazy: bool = False) -> Data:
        """Read words and parts of speech."""
        sentences = [[row for row in block if row is not None] for block in _blocks(path)]
        sentences = [sentence for sentence in sentences if sentence]
        if not sentences:
            raise InputError(f"{path}: has no sentences; CoNLL-U has a word per line, {_COLUMNS} columns apart by tabs.")
        labels = [np.array(["" if row[3] == "_" else row[3] for row in sentence]) for sentence in sentences]
        if with_labels and not any((each != "").any() for each in labels):
            raise InputError(f"{path}: has no labels: the fourth column, UPOS, is _ everywhere.")
        names = [f"sentence {k + 1}" for k in range(len(sentences))]
        tokens = [[(row[1],) for row in sentence] for sentence in sentences]
        return Data(path, self, names, tokens, labels if with_labels else None)

    def write(self, path: Path, data: Data, labels: list[Any], probabilities: list[Any] | None) -> str:
        """Write the file again with the predictions as UPOS, and their probabilities in MISC."""
        lines, sentence = [], -1
        for block in _blocks(data.path, keep=True):
            sentence += any(row is not None and len(row) == _COLUMNS for row in block)
            at = 0
            for row in block:
                if row is not None and len(row) == _COLUMNS:
                    row = [*row[:3], str(labels[sentence][at]), *row[4:]]
                    if probabilities is not None:
                        more = f"Prob={probabilities[sentence][at].max():.4f}"
                        row[9] = more if row[9] == "_" else f"{row[9]}|{more}"
                    at += 1
                lines.append("\t".join(row or ()))
            lines.append("")
        write_packed(path, "\n".join(lines) + "\n")
        return f"{path}; the column UPOS is the prediction" + (", MISC has its probability" * (probabilities is not None))


def _blocks(path: Path, keep: bool = False) -> list[list[list[str] | None]]:
    """Return the sentences as lists of rows; comments and other lines without a word are None, or kept as one column."""
    out: list[list[list[str] | None]] = [[]]
    text = read_text(path)
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip():
            if out[-1]:
                out.append([])
            continue
        row = line.split("\t")
        if line.startswith("#") or not row[0].isdecimal():
            if not line.startswith("#") and not row[0].replace("-", "").replace(".", "").isdecimal():
                raise InputError(f"{path} line {number}: the first column is the number of the word, received {row[0]!r}.")
            out[-1].append([line] if keep else None)
            continue
        if len(row) != _COLUMNS:
            raise InputError(f"{path} line {number}: received {len(row)} columns, {_COLUMNS} apart by tabs are needed.")
        out[-1].append(row)
    return out if out[-1] else out[:-1]


class JsonLines(ColumnFile):
    """JSON lines: {"tokens": [...], "labels": [...]} per sentence.

    Tokens are strings, lists of strings (columns), or dicts of features, used as they are. A label is a string, or null
    (hidden).
    """

    name: ClassVar[str] = "jsonl"

    def holds(self, path: Path) -> bool:
        """Whether a path is a file that ends in .jsonl or .ndjson, and holds no graphs."""
        return path.is_file() and path.suffix.lower() in (".jsonl", ".ndjson") and not are_graph_lines(path)

    def read(self, path: Path, with_labels: bool = True, n_columns: int | None = None, lazy: bool = False) -> Data:
        """Read tokens and labels."""
        inputs, labels = [], []
        for number, content in _objects(path):
            where = f"{path} line {number}"
            tokens = _tokens(content, where)
            inputs.append(tokens)
            if with_labels:
                labels.append(_labels(content, len(tokens), where))
        if not inputs:
            raise InputError(f'{path}: has no sentences; a line is {{"tokens": [...], "labels": [...]}}.')
        kinds = {(type(token), len(token) if isinstance(token, tuple) else 0) for tokens in inputs for token in tokens}
        if len(kinds) > 1:
            raise InputError(f"{path}: all tokens must be strings, lists of strings of one length, or dicts of features.")
        if n_columns is not None and isinstance(inputs[0][0], tuple) and len(inputs[0][0]) != n_columns:
            raise InputError(f"{path}: tokens have {len(inputs[0][0])} columns; {n_columns} are needed.")
        names = [f"sentence {k + 1}" for k in range(len(inputs))]
        return Data(path, self, names, inputs, labels if with_labels else None)

    def choose(self, data: Data, features: str | None, edges: str | None) -> Preprocessing:
        """Choose windows around each token; features that the file brings are taken as they are."""
        if not isinstance(data.inputs[0][0], dict):
            return super().choose(data, features, edges)
        return replace(super().choose(replace(data, inputs=[[("",)]]), features, edges), templates=None, n_columns=None)

    def inputs(self, data: Data, preprocessing: Preprocessing) -> Any:
        """Return dicts of features."""
        if isinstance(data.inputs[0][0], dict):
            return list(data.inputs)
        return super().inputs(data, preprocessing)

    def write(self, path: Path, data: Data, labels: list[Any], probabilities: list[Any] | None) -> str:
        """Write each line again with the predictions, and their probabilities."""
        lines = []
        for k, (_, content) in enumerate(_objects(data.path)):
            found = {"predicted": [str(label) for label in labels[k]]}
            more = {} if probabilities is None else {"probabilities": [round(float(p.max()), 6) for p in probabilities[k]]}
            lines.append(json.dumps(content | found | more, ensure_ascii=False))
        write_packed(path, "\n".join(lines) + "\n")
        return f"{path}; predicted holds the prediction" + (", probabilities its probability" * (probabilities is not None))


def _objects(path: Path) -> list[tuple[int, dict[str, Any]]]:
    out = []
    try:
        lines = path.read_bytes().splitlines()
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror or error}.") from error
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            content = parse_json(line)
        except (ValueError, RecursionError) as error:
            raise InputError(f"{path} line {number}: is not JSON ({error}).") from None
        if not isinstance(content, dict):
            raise InputError(f'{path} line {number}: must be an object {{"tokens": [...], "labels": [...]}}.')
        out.append((number, content))
    return out


def _value(content: dict[str, Any], keys: tuple[str, ...], where: str) -> list[Any]:
    found = next((content[key] for key in keys if key in content), None)
    if not isinstance(found, list):
        raise InputError(f"{where}: needs a list {keys[0]!r}; it has {', '.join(map(repr, content)) or 'nothing'}.")
    return found


def _tokens(content: dict[str, Any], where: str) -> list[Any]:
    tokens = _value(content, _WORDS, where)
    if not tokens:
        raise InputError(f"{where}: has no tokens.")
    return [_token(token, where) for token in tokens]


def _token(token: Any, where: str) -> Any:
    if isinstance(token, str):
        return (token,)
    if isinstance(token, list) and token and all(isinstance(text, str) for text in token):
        return tuple(token)
    if isinstance(token, dict):
        return token
    raise InputError(f"{where}: a token is a string, a list of strings or a dict of features, received {token!r}.")


def _labels(content: dict[str, Any], count: int, where: str) -> np.ndarray:
    labels = _value(content, _LABELS, where)
    if len(labels) != count:
        raise InputError(f"{where}: has {count} tokens and {len(labels)} labels.")
    for label in labels:
        if label is not None and not isinstance(label, str):
            raise InputError(f"{where}: a label is a string or null (hidden), received {label!r}.")
    return np.array([label or "" for label in labels])
