"""Labels of sequences that are known in part: sets of possible labels, None (or -1 or "") where one is hidden."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from backfield.errors import InputError


@dataclass(frozen=True, eq=False)
class LabelSets:
    """Possible labels of each variable: those of variable i are ``members[ptr[i]:ptr[i + 1]]``; none: hidden."""

    members: np.ndarray
    ptr: np.ndarray

    @classmethod
    def of(cls, y: Sequence[Any]) -> LabelSets:
        """Read labels, sets of labels, and None (or "" or -1) where a label is hidden."""
        sets = [_members(entry, number) for number, entry in enumerate(y)]
        flat = [label for each in sets for label in each]
        texts = {isinstance(label, str) for label in flat}
        if len(texts) > 1:
            raise InputError("the labels of one sequence are all strings or all integers, received both.")
        members = np.array(flat, dtype=np.str_) if texts == {True} else np.array(flat, dtype=np.int64)
        return cls(members, np.cumsum([0, *map(len, sets)]))

    def __len__(self) -> int:
        return len(self.ptr) - 1

    @property
    def sizes(self) -> np.ndarray:
        """Number of possible labels of each variable; 0: hidden."""
        return np.diff(self.ptr)


def has_sets(y: Any) -> bool:
    """Whether labels hold sets, or None for hidden ones."""
    if not isinstance(y, list | tuple):
        return False
    kinds = set(map(type, y))
    if kinds & {type(None), set, frozenset}:
        return True
    return bool(kinds & {list, tuple}) and any(isinstance(entry, list | tuple) and _has_texts(entry) for entry in y)


def _has_texts(entry: list[Any] | tuple[Any, ...]) -> bool:
    return any(isinstance(label, str) for label in entry)


def _members(entry: Any, number: int) -> list[Any]:
    """Return the possible labels of a variable, sorted."""
    if entry is None:
        return []
    several = isinstance(entry, set | frozenset | list | tuple)
    labels = list(entry) if several else [entry]
    for label in labels:
        if isinstance(label, bool) or not isinstance(label, str | int | np.integer):
            raise InputError(f"position {number}: a label is a string or an integer, received {label!r}.")
    if not several:
        return [] if entry in ("", -1) else labels
    if not labels or any(label in ("", -1) for label in labels):
        what = "hidden" if labels else "empty"
        raise InputError(f"position {number}: a set of labels needs at least one and no {what} one; None means hidden.")
    return sorted(set(labels), key=lambda label: (isinstance(label, str), label))
