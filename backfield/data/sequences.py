"""Sequences whose entries are made on demand, so one of them (per thread) is in memory at a time.

A list, a tuple or a plain array of examples is in memory already: what is made of it is made once and kept. Any other
sequence (``len`` and whole-number indices: memory-mapped arrays, :class:`backfield.features.LazyFeatures`, packed folders,
data sets of other libraries) is lazy: each evaluation asks for each example again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from backfield.constraints import is_sparse
from backfield.errors import InputError


def is_lazy(X: Any) -> bool:
    """Whether entries are made one at a time, on demand."""
    if isinstance(X, np.memmap):
        return True
    return not isinstance(X, list | tuple | np.ndarray | Joined)


def checked_sequence(X: Any, what: str) -> Any:
    """Return X if it can be asked for its length and its k-th entry; iterators become lists."""
    single = isinstance(X, str | bytes | dict) or (isinstance(X, np.ndarray | np.generic) and X.ndim == 0)
    if single or is_sparse(X) or (not hasattr(X, "__iter__") and not hasattr(X, "__getitem__")):
        raise InputError(f"{what} must be a sequence of examples, received {type(X).__name__}.")
    return X if hasattr(X, "__len__") and hasattr(X, "__getitem__") else list(X)


class Lazy(Sequence[Any]):
    """``make(source[k], ..., k)`` for the chosen numbers k (default: all), computed on each request.

    Slices are lazy, too, and keep the numbers of the sources, so messages name the right example.
    """

    def __init__(self, make: Callable[..., Any], *sources: Any, numbers: Sequence[int] | None = None) -> None:
        self.make, self.sources = make, sources
        self.numbers = range(len(sources[0])) if numbers is None else numbers

    def __len__(self) -> int:
        return len(self.numbers)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return Lazy(self.make, *self.sources, numbers=self.numbers[index])
        if not -len(self) <= int(index) < len(self):
            raise IndexError(f"there is no entry {index} among {len(self)}.")
        number = int(self.numbers[int(index)])
        return self.make(*(None if source is None else source[number] for source in self.sources), number)

    def __getstate__(self) -> dict[str, Any]:
        """Pickle, of sources in memory, only the entries that are needed."""
        return self.__dict__ | {"sources": tuple(self._needed(source) for source in self.sources)}

    def _needed(self, source: Any) -> Any:
        if not isinstance(source, list | tuple) or len(self) == len(source):
            return source
        return {int(number): source[number] for number in self.numbers}


class Joined(Sequence[Any]):
    """Entries in memory that lie end to end: consecutive ones are one entry, without a loop over them.

    ``make(first, last)`` returns entries first .. last - 1 as one. One of them alone is made when it is asked for, and kept.
    """

    def __init__(self, make: Callable[[int, int], Any], count: int) -> None:
        self.together = make
        self._single: list[Any] = [None] * count

    def __len__(self) -> int:
        return len(self._single)

    @cached_property
    def whole(self) -> Any:
        """All entries as one."""
        return self.together(0, len(self))

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self[number] for number in range(*index.indices(len(self)))]
        number = range(len(self))[index]
        if self._single[number] is None:
            self._single[number] = self.together(number, number + 1)
        return self._single[number]


def mapped(make: Callable[..., Any], *sources: Any) -> Any:
    """Return ``make`` of each entry of the sources and its number: a list if the first source is one, else lazily.

    A source may be ``None``: each of its entries is.
    """
    lazy = Lazy(make, *sources)
    return lazy if is_lazy(sources[0]) else list(lazy)


def select(values: Any, chosen: Sequence[int]) -> Any:
    """Return some entries of a sequence: a list if it is in memory, else lazily."""
    if not is_lazy(values):
        return [values[k] for k in chosen]
    if isinstance(values, Lazy):
        return Lazy(values.make, *values.sources, numbers=[values.numbers[k] for k in chosen])
    return Lazy(_entry, values, numbers=list(chosen))


def part(values: Any, first: int, last: int) -> Any:
    """Return entries ``first .. last - 1`` for another process: a slice where the sequence has slices."""
    try:
        found = values[first:last]
    except (TypeError, ValueError, KeyError, IndexError):
        return select(values, range(first, last))
    return found if len(found) == last - first else select(values, range(first, last))


def _entry(value: Any, number: int) -> Any:
    return value


class Ragged(list[Any]):
    """One array per example, as a list; ``np.concatenate`` of some makes an object array of all their entries.

    That is how scikit-learn's ``cross_val_predict`` joins the predictions of its folds.
    """

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        if function is np.concatenate:
            entries = [entry for part in args[0] for entry in part]
            joined = np.empty(len(entries), dtype=object)
            for number, entry in enumerate(entries):
                joined[number] = entry
            return joined
        plain = [_plain(each) for each in args]
        return function(*plain, **{key: _plain(each) for key, each in kwargs.items()})


def _plain(value: Any) -> Any:
    """Return lists of numpy's own kind, also inside of a list."""
    if isinstance(value, Ragged):
        return list(value)
    return [_plain(each) for each in value] if type(value) in (list, tuple) else value
