"""From a path to examples: every structure is asked whether its formats hold it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from backfield.data.format import Data, Format, Preprocessing
from backfield.data.kinds import COLUMN_ENDINGS, ArrayFile, PackedFolder, listed_keys
from backfield.errors import InputError
from backfield.registry import get, lookup, names
from backfield.structures.base import Structure


def read_data(
    path: str | Path,
    with_labels: bool = True,
    n_columns: int | None = None,
    lazy: bool = False,
    structure: str | None = None,
    positive: int | None = None,
) -> Data:
    """Read examples.

    Parameters
    ----------
    path
        A folder with ``images/`` and ``masks/``, an ``.npz`` (see ``backfield.data.formats.npz``), a CoNLL column file, a
        packed folder, or what a structure of a plugin reads.
    with_labels
        Labels must be there. Else they are not looked at, and need not be.
    n_columns
        Columns of features in a column file; ``None``: all but the last.
    lazy
        Images are read when they are asked for; packed examples always are.
    structure
        Name or spec; by default the first whose formats hold the path.
    positive
        Number in masks that is class 1, where all others are class 0; else masks hold classes, and 255 = don't care.
    """
    path = Path(path)
    if PackedFolder().holds(path):
        return _packed(path, with_labels, structure)
    if not path.exists():
        raise InputError(f"{path}: no such file or folder.")
    found = _find(path) if structure is None else _find_as(path, structure)
    if found is None:
        raise _unknown(path, structure)
    part, form = found
    if positive is not None:
        form = form.with_positive(positive)
    data = form.read(path, with_labels, n_columns, lazy)
    return replace(data, structure=repr(part), unit=form.unit or part.unit)


def other_unit(path: str | Path, wanted: Structure) -> str | None:
    """Return what the examples at a path are called, if they are of another structure than ``wanted``."""
    path = Path(path)
    if PackedFolder().holds(path):
        part: Structure = get("structures", PackedFolder().read(path, with_labels=False).structure)
        return None if part.name == wanted.name else part.unit[0]
    found = (_find_as(path, repr(wanted)) or _find(path)) if path.exists() else None
    return None if found is None or found[0].name == wanted.name else (found[1].unit or found[0].unit)[0]


def choose_preprocessing(data: Data, features: str | None = None, edges: str | None = None) -> Preprocessing:
    """Decide how features are made of training data; what is not asked for is chosen by the form of the data."""
    return data.format.choose(data, features, edges)


def _claimants() -> list[str]:
    """Return the structures that files may be of, where nobody names one."""
    return [name for name in names("structures") if lookup("structures", name).claims_files]  # type: ignore[attr-defined]


def _find(path: Path) -> tuple[Structure, Format] | None:
    """Return the first structure that claims a path, and the format."""
    for name in _claimants():
        part: Structure = get("structures", name)
        for form in part.files:
            if form.holds(path):
                return part, form
    return None


def _find_as(path: Path, structure: str) -> tuple[Structure, Format] | None:
    """Return a structure that was named, and the format in which it reads a path."""
    part: Structure = get("structures", structure)
    found = (form for form in (*part.files, *part.files_if_named) if form.holds(path))
    return next(((part, form) for form in found), None)


def _packed(path: Path, with_labels: bool, structure: str | None) -> Data:
    data = PackedFolder().read(path, with_labels)
    part: Structure = get("structures", data.structure)
    if structure is not None and get("structures", structure).name != part.name:
        raise _other(path, part, structure)
    packed_from = (data.preprocessing or {}).get("format")
    forms = [*part.files, ArrayFile()]
    like = next((form for form in forms if form.name == packed_from), forms[0])
    if structure is not None and structure != part.name:  # with parameters that the folder was not packed with
        data = replace(data, structure=repr(get("structures", structure)))
    return replace(data, format=PackedFolder(like), unit=like.unit or part.unit)


def _other(path: Path, part: Structure, wanted: str) -> InputError:
    return InputError(f"{path} holds {part.unit[0]}s, which need --model {part.name}, not {wanted}.")


def _unknown(path: Path, structure: str | None) -> InputError:
    other = None if structure is None else _find(path)
    if other is not None and structure is not None:
        return _other(path, other[0], structure)
    ending = path.suffix.lower()
    if ending == ".npz":
        needed = "'images' (and 'masks'), 'X' (and 'y'), or 'node_features' and 'edges'"
        return InputError(f"{path} needs the key {needed}; it has {listed_keys(path)}.")
    assert ending not in COLUMN_ENDINGS or structure is not None
    return InputError(
        f"{path}: unknown type of file {ending!r}; data are a folder with images/ and masks/, an .npz file, a CoNLL column "
        "file (.txt, .conll, .tsv, ...), or graphs (.jsonl, .graphml)."
    )
