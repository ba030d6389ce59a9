"""Examples that are made when they are asked for, so that one of them (per thread) is in memory at a time.

A list, a tuple or a plain array of examples is in memory already: what is made of it is made once and kept. Any other
sequence (``len`` and whole-number indices: memory-mapped arrays, :class:`backfield.features.LazyFeatures`, packed folders,
data sets of other libraries) is lazy: each evaluation asks for each example anew.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from os import PathLike
from typing import Any

import numpy as np

from backfield.errors import InputError
from backfield.estimators.shards import Shards, open_shards


def is_lazy(X: Any) -> bool:
    """Whether examples are asked for one at a time."""
    if isinstance(X, np.memmap):
        return True
    return not isinstance(X, list | tuple | np.ndarray)


def opened(X: Any, y: Any = None) -> tuple[Any, Any]:
    """Return X and y, which a packed folder (or its name) given for X holds both."""
    if isinstance(X, str | PathLike):
        X = open_shards(X)
    return (X.X, X.y if y is None else y) if isinstance(X, Shards) else (X, y)


def checked_sequence(X: Any, what: str) -> Any:
    """Return X if it can be asked for its length and its k-th entry; iterators become lists."""
    if isinstance(X, str | bytes | dict) or (not hasattr(X, "__iter__") and not hasattr(X, "__getitem__")):
        raise InputError(f"{what} must be a sequence of examples, got {type(X).__name__}.")
    return X if hasattr(X, "__len__") and hasattr(X, "__getitem__") else list(X)


class Lazy(Sequence[Any]):
    """``make(source[k], ..., k)``, computed at each asking."""

    def __init__(self, make: Callable[..., Any], *sources: Any) -> None:
        self.make, self.sources = make, sources

    def __len__(self) -> int:
        return len(self.sources[0])

    def __getitem__(self, index: Any) -> Any:
        number = int(index)
        if not 0 <= number < len(self):
            raise IndexError(f"there is no example {number} among {len(self)}.")
        return self.make(*(None if source is None else source[number] for source in self.sources), number)


def mapped(make: Callable[..., Any], *sources: Any) -> Any:
    """Return ``make`` of each entry of the sources and its number: a list if the first source is one, else lazily.

    A source may be ``None``: each of its entries is.
    """
    lazy = Lazy(make, *sources)
    return lazy if is_lazy(sources[0]) else list(lazy)
