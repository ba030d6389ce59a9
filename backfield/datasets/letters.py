"""Handwritten words (Taskar et al. 2003): 6877 words of letters of 16 x 8 bits, 26 classes, ten folds."""

from __future__ import annotations

import gzip
import zipfile
from pathlib import Path
from typing import NamedTuple

import numpy as np

from backfield.datasets._files import locate
from backfield.errors import InputError

URL = "https://ai.stanford.edu/~btaskar/ocr/"


class Letters(NamedTuple):
    """Words (T, 128) float32 of 0 and 1, labels (T,) int64 with 0 = a, and the fold 0..9 of each word.

    The first letter of every word is missing, as in the original.
    """

    words: list[np.ndarray]
    labels: list[np.ndarray]
    folds: np.ndarray


def load(data: str | Path | None = None) -> Letters:
    """Return the words of ``ocr_letters``: from ``letters.npz``, or from ``letter.data.gz`` as the authors give it."""
    folder = locate("ocr_letters", data, "OCR letters", URL)
    if (folder / "letters.npz").is_file():
        return _read_npz(folder / "letters.npz")
    if (folder / "letter.data.gz").is_file():
        return _read_original(folder / "letter.data.gz")
    raise InputError(f"the OCR letters are missing: {folder} has no letters.npz and no letter.data.gz; get it from {URL}.")


def _read_npz(path: Path) -> Letters:
    try:
        with np.load(path, allow_pickle=False) as file:
            pixels, labels, ptr, folds = (file[key] for key in ("pixels", "labels", "word_ptr", "folds"))
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
        raise InputError(f"{path}: is not a file with pixels, labels, word_ptr and folds.") from error
    if pixels.shape != (len(labels), 16) or ptr[-1] != len(labels) or len(folds) != len(ptr) - 1:
        raise InputError(f"{path}: pixels, labels, word_ptr and folds do not belong together.")
    return _split(np.unpackbits(pixels, axis=1), labels, ptr[1:-1], folds)


def _read_original(path: Path) -> Letters:
    """Read lines of id, letter, next id (-1 at the end of a word), word, position, fold and 128 bits."""
    try:
        with gzip.open(path, "rt", encoding="ascii") as file:
            rows = [line.split() for line in file]
        bits = np.array([row[6:134] for row in rows], dtype=np.uint8)
        labels = np.array([ord(row[1]) - ord("a") for row in rows])
        ends = np.flatnonzero([row[2] == "-1" for row in rows]) + 1
        folds = np.array([int(row[5]) for row in rows])[ends - 1]
    except (OSError, EOFError, ValueError, IndexError, TypeError) as error:
        raise InputError(f"{path}: is not the file of the OCR letters.") from error
    if bits.shape != (len(rows), 128) or len(ends) == 0 or ends[-1] != len(rows):
        raise InputError(f"{path}: is not the whole file of the OCR letters.")
    return _split(bits, labels, ends[:-1], folds)


def _split(bits: np.ndarray, labels: np.ndarray, starts: np.ndarray, folds: np.ndarray) -> Letters:
    words = np.split(bits.astype(np.float32), starts)
    return Letters(words, np.split(labels.astype(np.int64), starts), folds.astype(np.int64))
