"""Columns of categories, as DataFrames, dicts or arrays have them, to integer codes and back; -1 is missing."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any

import numpy as np

from backfield.data.formats.named_tables import nearest
from backfield.errors import InputError

#: Columns with more distinct values are probably numbers, not categories.
MAX_CATEGORIES = 200


def as_columns(X: Any) -> dict[str, np.ndarray]:
    """Return columns by name: of a DataFrame, a mapping, or an (N, d) array (then they are x0, x1, ...)."""
    if isinstance(X, Mapping):
        columns = {str(name): np.asarray(values, dtype=object) for name, values in X.items()}
    elif type(X).__module__.split(".")[0] == "pandas":
        columns = {str(name): X[name].to_numpy(dtype=object) for name in X.columns}
    else:
        array = np.asarray(X, dtype=object)
        if array.ndim != 2:
            raise InputError(f"a table is a DataFrame, a dict of columns, or an (N, d) array; received shape {array.shape}.")
        columns = {f"x{k}": array[:, k] for k in range(array.shape[1])}
    flat = next((name for name, values in columns.items() if values.ndim != 1), None)
    if flat is not None:
        raise InputError(f"column {flat!r} must be a list of values, one for each row.")
    lengths = {len(values) for values in columns.values()}
    if len(columns) < 1 or len(lengths) != 1 or lengths == {0}:
        raise InputError(
            f"a table needs at least one column and one row, of one length; received lengths {sorted(lengths)}."
        )
    return columns


def is_missing(value: Any) -> bool:
    """Whether a value stands for none: None, NaN, NaT or pandas' NA."""
    return value is None or (isinstance(value, float) and value != value) or type(value).__name__ in ("NAType", "NaTType")


def states_of(columns: Mapping[str, np.ndarray]) -> dict[str, list[Hashable]]:
    """Return the different values of each column, sorted where they can be."""
    out: dict[str, list[Hashable]] = {}
    for name, values in columns.items():
        try:
            found = {value for value in values.tolist() if not is_missing(value)}
        except TypeError as error:
            raise InputError(f"column {name!r} must hold categories, such as texts or integers: {error}.") from error
        if not found:
            raise InputError(f"column {name!r} has no value at all.")
        if len(found) > MAX_CATEGORIES:
            raise InputError(f"column {name!r} has {len(found)} different values; categories may be {MAX_CATEGORIES}.")
        try:
            out[name] = sorted(found, key=lambda value: (type(value).__name__, value))
        except TypeError:  # complex numbers, say, have no order
            out[name] = sorted(found, key=lambda value: (type(value).__name__, repr(value)))
    return out


def encode(columns: Mapping[str, np.ndarray], states: Mapping[str, list[Hashable]]) -> np.ndarray:
    """Return (N, d) codes in the order of ``states``; absent columns count as missing."""
    for name in columns:
        if name not in states:
            raise InputError(f"there is no column {name!r} in the model; {nearest(name, states)}")
    n = len(next(iter(columns.values())))
    codes = np.full((n, len(states)), -1, dtype=np.int64)
    for k, (name, known) in enumerate(states.items()):
        place = {value: x for x, value in enumerate(known)}
        for row, value in enumerate(columns[name].tolist() if name in columns else []):
            if not is_missing(value):
                x = place.get(value)
                if x is None:
                    raise InputError(f"column {name!r}, row {row}: {value!r} was never seen; {nearest(value, known)}")
                codes[row, k] = x
    return codes
