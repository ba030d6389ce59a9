"""Transitions between labels that cannot be, and labels that cannot start or end a chain.

"BIO"      I-X follows B-X or I-X, and does not start a chain
"BIOES"    B-X and I-X are followed by I-X or E-X, which follow nothing else; E-X and S-X end a span
pairs      of labels; None before the first position, and after the last
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Any

import numpy as np

from backfield.errors import InputError
from backfield.graph.labeling import Labeling

_INSIDE = {"BIO": ("I",), "BIOES": ("I", "E")}  # they go on with a span
_OPEN = {"BIO": ("B", "I"), "BIOES": ("B", "I")}  # a span may go on after them
_NEED = "constraints are None, 'BIO', 'BIOES', a list of forbidden pairs, {'forbidden': pairs} or {'allowed': pairs}"


@dataclass(frozen=True, eq=False)
class Forbidden:
    """Entries of log-potentials that are -inf.

    Parameters
    ----------
    unary : int array
        Entries of the flat log-potentials of the variables.
    table : (L * L,) booleans
        Entries of the table of every factor of two variables.
    """

    unary: np.ndarray
    table: np.ndarray


@dataclass(frozen=True, eq=False)
class Rules:
    """What the labels of a model may do: booleans that forbid."""

    start: np.ndarray  # (L,)
    end: np.ndarray  # (L,)
    table: np.ndarray  # (L, L), earlier and later

    def of(self, *lengths: int) -> Forbidden:
        """Return what is forbidden in chains of some positions, end to end."""
        count, stops = len(self.start), np.cumsum(lengths)[:, None]
        first = np.flatnonzero(self.start) + (stops - np.array(lengths)[:, None]) * count
        last = np.flatnonzero(self.end) + (stops - 1) * count
        return Forbidden(np.unique(np.concatenate([first.ravel(), last.ravel()])), self.table.reshape(-1))

    def check(self, labeling: Labeling, names: np.ndarray) -> None:
        """Refuse known labels that break the rules, and sets from which no labels can be chosen that keep them."""
        self._check_known(labeling.labels, names)
        possible = labeling.allowed.reshape(-1, len(self.start))
        reached = possible[0] & ~self.start
        for t in range(len(possible)):
            if t > 0:
                reached = possible[t] & (reached[:, None] & ~self.table).any(axis=0)
            if t == len(possible) - 1:
                reached = reached & ~self.end
            if not reached.any():
                raise InputError(f"no labels that the known ones up to position {t} leave keep the constraints.")

    def _check_known(self, labels: np.ndarray, names: np.ndarray) -> None:
        for t, (first, second) in enumerate(pairwise(labels.tolist())):
            if first >= 0 and second >= 0 and self.table[first, second]:
                raise InputError(f"the labels {names[first]} -> {names[second]} at position {t + 1} break the constraints.")
        for label, rule, what in ((labels[0], self.start, "start"), (labels[-1], self.end, "end")):
            if label >= 0 and rule[label]:
                raise InputError(f"the chain {what}s with {names[label]}, which the constraints forbid.")


def rules(constraints: Any, labels: np.ndarray) -> Rules | None:
    """Return the rules of constraints for the labels of a model, in their order; None without constraints."""
    if constraints is None:
        return None
    names = tuple(labels.tolist())
    if isinstance(constraints, str):
        return _of_scheme(constraints, names)
    kind, pairs = _parts(constraints)
    return _of_pairs(kind, tuple(_checked_pair(pair, names) for pair in pairs), names)


def _parts(constraints: Any) -> tuple[str, Iterable[Any]]:
    if isinstance(constraints, dict) and len(constraints) == 1 and set(constraints) <= {"forbidden", "allowed"}:
        kind = next(iter(constraints))
        constraints = constraints[kind]
    else:
        kind = "forbidden"
    if not isinstance(constraints, list | tuple | set | frozenset):
        raise InputError(f"{_NEED}; received {constraints!r}.")
    return kind, constraints


def _checked_pair(pair: Any, names: tuple[Any, ...]) -> tuple[Any, Any]:
    if not isinstance(pair, list | tuple) or len(pair) != 2 or tuple(pair) == (None, None):
        raise InputError(f"{_NEED}; received the pair {pair!r}.")
    for label in pair:
        if label is not None and label not in names:
            raise InputError(f"the constraints name the label {label!r}; there are {', '.join(map(str, names))}.")
    return pair[0], pair[1]


@lru_cache(maxsize=64)
def _of_pairs(kind: str, pairs: tuple[tuple[Any, Any], ...], names: tuple[Any, ...]) -> Rules:
    count, place = len(names), {name: number for number, name in enumerate(names)} | {None: len(names)}
    listed = np.zeros((count + 1, count + 1), dtype=bool)
    for first, second in pairs:
        listed[place[first], place[second]] = True
    if kind == "forbidden":
        return Rules(listed[-1, :-1], listed[:-1, -1], listed[:-1, :-1])
    start, end = (~each if each.any() else each for each in (listed[-1, :-1], listed[:-1, -1]))
    return Rules(start, end, ~listed[:-1, :-1])


@lru_cache(maxsize=64)
def _of_scheme(scheme: str, names: tuple[Any, ...]) -> Rules:
    if scheme not in _INSIDE:
        raise InputError(f"{_NEED}; received {scheme!r}.")
    parts = [tag_and_name(str(name)) for name in names]
    inside = np.array([tag in _INSIDE[scheme] for tag, _ in parts])
    is_open = np.array([tag in _OPEN[scheme] for tag, _ in parts])
    same = np.array([[a == b for _, b in parts] for _, a in parts])
    table = inside[None, :] & ~(is_open[:, None] & same)
    closing = np.zeros(len(names), dtype=bool)
    if scheme == "BIOES":
        table |= is_open[:, None] & ~inside[None, :]
        closing = is_open
    return Rules(inside, closing, table)


def tag_and_name(name: str) -> tuple[str, str]:
    """Return B and X of B-X or B_X; what has another form is outside of all spans."""
    if name[:1] in "BIES" and (len(name) == 1 or name[1:2] in ("-", "_")):
        return name[:1], name[2:]
    return "O", ""
