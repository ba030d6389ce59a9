"""Columns of categories, as DataFrames, dicts or arrays have them, to integer codes and back; -1 is missing."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any

import numpy as np

from backfield.data.formats.named_tables import nearest
from backfield.errors import InputError

#: Columns with more distinct values are probably numbers, not categories.
MAX_CATEGORIES = 200


class Columns:
    """A table as columns of objects by name.

    Parameters
    ----------
    X : DataFrame, mapping of columns, or (N, d) array (then columns are x0, x1, ...)

    Attributes
    ----------
    values : dict of name to (N,) objects
    categories : dict of name to list
        The categories that a column declares, where it does (pandas).
    index : the index of a DataFrame, else None
    """

    def __init__(self, X: Any) -> None:
        self.categories: dict[str, list[Hashable]] = {}
        self.index: Any = None
        if isinstance(X, Mapping):
            named = [(str(name), _objects(name, values)) for name, values in X.items()]
        elif type(X).__module__.split(".")[0] == "pandas" and type(X).__name__ == "DataFrame":
            named = [(str(name), X.iloc[:, k].to_numpy(dtype=object)) for k, name in enumerate(X.columns)]
            self.index = X.index
            self.categories = {
                str(name): X.iloc[:, k].cat.categories.tolist()
                for k, name in enumerate(X.columns)
                if type(X.dtypes.iloc[k]).__name__ == "CategoricalDtype"
            }
        else:
            array = np.asarray(X, dtype=object)
            if array.ndim != 2:
                raise InputError(
                    f"a table is a DataFrame, a dict of columns, or an (N, d) array; received shape {array.shape}."
                )
            named = [(f"x{k}", array[:, k]) for k in range(array.shape[1])]
        self.values = dict(named)
        if len(self.values) < len(named):
            names = [name for name, _ in named]
            twice = next(name for name in names if names.count(name) > 1)
            raise InputError(f"two columns have the name {twice!r}.")
        lengths = {len(values) for values in self.values.values()}
        if len(self.values) < 1 or len(lengths) != 1 or lengths == {0}:
            raise InputError(
                f"a table needs at least one column and one row, of one length; received lengths {sorted(lengths)}."
            )
        self.n_rows = lengths.pop()

    def states(self) -> dict[str, list[Hashable]]:
        """Return the states of each column: declared categories, else the different values, sorted where they can be."""
        return {name: self.categories.get(name) or _found(name, values) for name, values in self.values.items()}

    def encode(self, states: Mapping[str, list[Hashable]]) -> np.ndarray:
        """Return (N, d) codes in the order of ``states``; absent columns count as missing."""
        for name in self.values:
            if name not in states:
                raise InputError(f"there is no column {name!r} in the model; {nearest(name, states)}")
        codes = np.full((self.n_rows, len(states)), -1, dtype=np.int64)
        for k, (name, known) in enumerate(states.items()):
            place = {value: x for x, value in enumerate(known)}
            for row, value in enumerate(self.values[name].tolist() if name in self.values else []):
                if not is_missing(value):
                    x = place.get(value) if isinstance(value, Hashable) else None
                    if x is None:
                        raise InputError(f"column {name!r}, row {row}: {value!r} was never seen; {nearest(value, known)}")
                    codes[row, k] = x
        return codes


def _objects(name: Any, values: Any) -> np.ndarray:
    """Return a column as objects, one for each row, whatever they are."""
    if isinstance(values, str) or not np.iterable(values):
        raise InputError(f"column {name!r} must be a list of values, received {values!r:.60}.")
    listed = list(values)
    out = np.empty(len(listed), dtype=object)
    for row, value in enumerate(listed):
        out[row] = value.item() if isinstance(value, np.generic) else value
    return out


def is_missing(value: Any) -> bool:
    """Whether a value stands for none: None, NaN, NaT or pandas' NA."""
    return value is None or (isinstance(value, float) and value != value) or type(value).__name__ in ("NAType", "NaTType")


def _found(name: str, values: np.ndarray) -> list[Hashable]:
    known = [value for value in values.tolist() if not is_missing(value)]
    bad = next((value for value in known if not _is_category(value)), None)
    if bad is not None:
        raise InputError(f"column {name!r} holds {bad!r:.60}; a category is a string, a number or another hashable value.")
    found = set(known)
    if not found:
        raise InputError(f"column {name!r} has no value at all.")
    if len(found) > MAX_CATEGORIES:
        raise InputError(f"column {name!r} has {len(found)} different values; categories may be {MAX_CATEGORIES}.")
    try:
        return sorted(found, key=lambda value: (type(value).__name__, value))
    except TypeError:  # values without an order: as they come
        return list(dict.fromkeys(known))


def _is_category(value: Any) -> bool:
    try:
        hash(value)
    except TypeError:
        return False
    return True
