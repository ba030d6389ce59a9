"""What an argument may be, said once in a table: integers in a range, flags, choices, paths, functions, arrays.

    PARAMETERS = {"n_jobs": (whole(1), exactly(-1), exactly(None)), "dtype": (choice("float32", "float64"),)}
    check(params, PARAMETERS)

A value that no rule of its row takes is refused in one sentence. Rules look at types and ranges only; they never convert.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from backfield.errors import InputError

#: Longest value that a message shows.
SHOWN = 60


@dataclass(frozen=True)
class Rule:
    """What a value may be, in words and as a test."""

    words: str
    accepts: Callable[[Any], bool]


def _is_whole(value: Any) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool | np.bool_)


def _is_real(value: Any) -> bool:
    return _is_whole(value) or isinstance(value, float | np.floating)


def _range(low: float | None, high: float | None) -> str:
    return (f" >= {low}" if low is not None else "") + (f" and <= {high}" if high is not None else "")


def _within(value: Any, low: float | None, high: float | None) -> bool:
    return (low is None or value >= low) and (high is None or value <= high)


def whole(low: int | None = None, high: int | None = None) -> Rule:
    """An integer in a range."""
    return Rule(f"an integer{_range(low, high)}", lambda value: _is_whole(value) and _within(value, low, high))


def real(low: float | None = None, high: float | None = None) -> Rule:
    """A finite number of a range."""
    return Rule(
        f"a finite number{_range(low, high)}",
        lambda value: _is_real(value) and bool(np.isfinite(float(value))) and _within(value, low, high),
    )


def exactly(constant: Any) -> Rule:
    """One value: None, -1, True."""
    return Rule(repr(constant), lambda value: value is constant or (type(value) is type(constant) and value == constant))


def choice(*names: str) -> Rule:
    """One of some names."""
    words = ", ".join(repr(name) for name in names[:-1]) + (" or " if len(names) > 1 else "") + repr(names[-1])
    return Rule(words, lambda value: isinstance(value, str) and value in names)


def is_one_of(value: Any, choices: Iterable[Any]) -> bool:
    """Whether a value is one of some names or numbers; an array or a dict, which ``in`` cannot look up, is none."""
    return isinstance(value, str | int | np.integer) and value in tuple(choices)


def check_choice(name: str, value: Any, choices: Iterable[Any], owner: str = "") -> None:
    """Refuse a value that is not one of some names or numbers."""
    if not is_one_of(value, choices):
        listed = ", ".join(map(str, choices))
        raise InputError(f"{owner + ': ' * bool(owner)}{name} must be one of {listed}; received {shown(value)}.")


def precision(*names: str) -> Rule:
    """A type of numbers, by its name or as numpy's."""
    words = " or ".join(repr(name) for name in names)

    def accepts(value: Any) -> bool:
        if isinstance(value, str):
            return value in names
        return isinstance(value, type | np.dtype) and any(value == np.dtype(name) for name in names)

    return Rule(words, accepts)


def numbers(words: str) -> Rule:
    """Real numbers in an array, or in lists that make one."""

    def accepts(value: Any) -> bool:
        if isinstance(value, str | bytes) or value is None or np.ma.is_masked(value):
            return False
        try:
            return np.asarray(value).dtype.kind in "biuf" and np.ndim(value) > 0
        except (ValueError, TypeError):  # ragged lists
            return False

    return Rule(words, accepts)


def is_sparse(x: Any) -> bool:
    """Whether x is a sparse matrix of scipy; nothing is where nobody has imported those, which takes a while."""
    sparse = sys.modules.get("scipy.sparse")
    return sparse is not None and bool(sparse.issparse(x))


def _is_several(value: Any) -> bool:
    if isinstance(value, str | bytes | Mapping) or not hasattr(value, "__iter__"):
        return False
    return not is_sparse(value) and not (isinstance(value, np.ndarray) and value.ndim == 0)


def several(words: str) -> Rule:
    """A list, a tuple, an array, or an iterator: anything whose entries come one by one, but no text and no mapping."""
    return Rule(words, _is_several)


def instance(words: str, *types: type) -> Rule:
    """An object of some types."""
    return Rule(words, lambda value: isinstance(value, types))


def _is_estimator(value: Any) -> bool:
    return not isinstance(value, type) and all(callable(getattr(value, name, None)) for name in ("fit", "get_params"))


estimator = Rule("an estimator of scikit-learn's kind", _is_estimator)
flag = Rule("True or False", lambda value: isinstance(value, bool | np.bool_))
path = Rule("a path", lambda value: isinstance(value, str | os.PathLike) and "\0" not in str(value) and str(value) != "")
functions = Rule(
    "a list of functions", lambda value: isinstance(value, list | tuple) and all(callable(each) for each in value)
)
pair = Rule("a pair (X, y)", lambda value: isinstance(value, tuple | list) and len(value) == 2)
optional = exactly(None)

Table = Mapping[str, tuple[Rule, ...]]


def check(values: Mapping[str, Any], table: Table, owner: str = "") -> None:
    """Refuse the first value that none of its rules takes; values without a row pass."""
    for name, rules in table.items():
        if name in values and not any(rule.accepts(values[name]) for rule in rules):
            words = [rule.words for rule in rules]
            allowed = " or ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)
            raise InputError(f"{owner}{name} must be {allowed}; received {shown(values[name])}.")


def checked(name: str, value: Any, *rules: Rule) -> Any:
    """Return a value if one of the rules takes it."""
    check({name: value}, {name: rules})
    return value


def shown(value: Any) -> str:
    """Return a value as a message shows it: short, and never failing."""
    try:
        text = repr(value)
    except Exception:
        text = f"an object of type {type(value).__name__}"
    text = " ".join(text.split())
    return text if len(text) <= SHOWN else f"{text[: SHOWN - 3]}..."
