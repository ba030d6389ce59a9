"""Named features of the positions of sequences, as rows of a sparse matrix.

A position is a list of names, or a dict {name: value}. A value is a number, or a text: {"word": "the"} is the feature
"word=the" with the separator "="; or a list or dict of more of them, whose names follow after the separator. Dicts of
numbers and texts, and lists of names, are the usual ones: for them, Python runs no code per feature.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple
from zlib import crc32

import numpy as np

from backfield.errors import InputError
from backfield.features.columns import Columns, number_names
from backfield.kernels.python_objects import hashes, read_dicts

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix

#: Values of features that are all 1 share this array.
_ONES = np.ones(2**16)
_ONES.flags.writeable = False
#: Sequences whose names are numbered together.
_AT_ONCE = 256


class Named(NamedTuple):
    """The features of some positions, one position after the other: hashes of their names, values, and how many each has."""

    positions: list[Any]  # as given, or the names of each
    hashes: np.ndarray
    values: np.ndarray
    sizes: np.ndarray
    separator: str

    @classmethod
    def of(cls, positions: list[Any], separator: str) -> Named:
        """Read positions."""
        kinds = set(map(type, positions))
        if kinds == {dict}:
            sizes = _sizes(positions)
            found = read_dicts(positions, int(sizes.sum()), separator)
            if found is not None:
                return cls(positions, *found, sizes, separator)
        if kinds <= {list, tuple}:
            names = list(chain.from_iterable(positions))
            if set(map(type, names)) <= {str}:
                return cls(positions, hashes(names), _ones(len(names)), _sizes(positions), separator)
        pairs = [list(named_features(position, separator)) for position in positions]
        written = [[name for name, _ in each] for each in pairs]
        values = _as_numbers([value for each in pairs for _, value in each])
        return cls(written, hashes(list(chain.from_iterable(written))), values, _sizes(pairs), separator)

    def names(self) -> list[str]:
        """Return the names."""
        keys = list(chain.from_iterable(self.positions))
        if not self.positions or type(self.positions[0]) is not dict:
            return keys
        values = chain.from_iterable(map(dict.values, self.positions))
        return [
            f"{key}{self.separator}{value}" if type(value) is str else key for key, value in zip(keys, values, strict=True)
        ]


def learn_columns(X: Sequence[Any], separator: str, min_count: int = 1) -> Columns:
    """Return the columns of the features that occur at least so many times, in the order of their first use."""
    read = (_read(batch, number * _AT_ONCE, separator) for number, batch in enumerate(_batches(X)))
    return number_names(((each.hashes, each.names) for each in read), min_count)


def _read(batch: list[Any], first: int, separator: str) -> Named:
    """Read sequences, the first of which has the number ``first``."""
    try:
        return Named.of(list(chain.from_iterable(batch)), separator)
    except InputError:
        for number, sequence in enumerate(batch, start=first):
            try:
                Named.of(list(sequence), separator)
            except InputError as error:
                raise InputError(f"example {number}: {error}") from error
        raise


def _batches(X: Sequence[Any]) -> Iterator[list[Any]]:
    for first in range(0, len(X), _AT_ONCE):
        yield [X[number] for number in range(first, min(first + _AT_ONCE, len(X)))]


def feature_matrices(X: Sequence[Any], names: dict[str, int], separator: str) -> Iterator[csr_matrix]:
    """Yield the rows of each of some sequences; those that are read together share their arrays."""
    from scipy.sparse import csr_matrix

    for batch in _batches(X):
        whole = feature_matrix(list(chain.from_iterable(batch)), names, separator)
        stop = 0
        for sequence in batch:
            start, stop = stop, stop + len(sequence)
            first, last = whole.indptr[start], whole.indptr[stop]
            parts = _shared(whole.data[first:last]), whole.indices[first:last], whole.indptr[start : stop + 1] - first
            yield csr_matrix(parts, shape=(len(sequence), len(names)))


def feature_matrix(sequence: Sequence[Any], names: dict[str, int], separator: str) -> csr_matrix:
    """Return named features as rows of a matrix; those that were never seen in training have no weight."""
    from scipy.sparse import csr_matrix

    found = Named.of(list(sequence), separator)
    ptr = np.zeros(len(sequence) + 1, dtype=np.int32)
    np.cumsum(found.sizes, out=ptr[1:])
    columns = names if isinstance(names, Columns) else Columns(names)
    at, data = columns.find(found.hashes), found.values
    known = at >= 0
    if not known.all():
        ptr = np.concatenate([np.zeros(1, dtype=np.int32), np.cumsum(known, dtype=np.int32)])[ptr]
        at, data = at[known], data[known]
    return csr_matrix((_shared(data), at, ptr), shape=(len(sequence), len(names)))


def hashed(sequence: Sequence[Any], n_features: int = 2**18, separator: str = "=") -> csr_matrix:
    """Return named features of a sequence as rows of ``n_features`` columns, whose numbers are hashes of the names.

    No names are kept: a model of hashed features has a fixed size, and features that were never seen share the weights of
    others. ``X = [bf.features.hashed(sentence) for sentence in sentences]``.

    Parameters
    ----------
    sequence : list of dicts or of lists of names
        The features of each position, as :class:`backfield.ChainCRF` takes them.
    n_features : int
        Number of columns; names whose hashes (CRC-32) agree modulo it are one feature.
    """
    from scipy.sparse import csr_matrix

    if isinstance(n_features, bool) or not isinstance(n_features, int | np.integer) or not 1 <= n_features < 2**31:
        raise InputError(f"n_features must be an integer from 1 to 2**31 - 1, received {n_features!r}.")
    found = Named.of(list(sequence), separator)
    ptr = np.concatenate([[0], np.cumsum(found.sizes)]).astype(np.int32)
    codes = (crc32(name.encode("utf-8", "surrogatepass")) for name in found.names())
    at = (np.fromiter(codes, np.int64, int(ptr[-1])) % n_features).astype(np.int32)
    matrix = csr_matrix((found.values.copy(), at, ptr), shape=(len(ptr) - 1, int(n_features)))
    matrix.sum_duplicates()
    return matrix


def named_features(position: Any, separator: str) -> Iterator[tuple[str, Any]]:
    """Yield the names and values of the features of a position."""
    if not isinstance(position, dict):
        yield from ((name, 1.0) for name in _plain_names(position))
        return
    for name, value in position.items():
        if isinstance(value, str):
            yield f"{name}{separator}{value}", 1.0
        elif isinstance(value, dict | list | tuple | set | frozenset):
            for inner, number in named_features(value, separator):
                yield f"{name}{separator}{inner}", number
        else:
            yield name, value


def _plain_names(names: Any) -> list[str] | tuple[str, ...]:
    if isinstance(names, set | frozenset):
        names = sorted(names, key=str)  # the order of a set is another one in each run
    elif not isinstance(names, list | tuple):
        names = [names]
    for name in names:
        if not isinstance(name, str):
            raise InputError(
                f"the features of a position are a dict or a list of strings, received {type(name).__name__} {name!r}."
            )
    return names


def _as_numbers(values: list[Any]) -> np.ndarray:
    try:
        return np.array(values, dtype=np.float64)
    except (TypeError, ValueError):
        raise InputError("values of features must be numbers or strings.") from None


def _sizes(positions: list[Any]) -> np.ndarray:
    return np.fromiter(map(len, positions), np.int64, len(positions))


def _ones(count: int) -> np.ndarray:
    return _ONES[:count] if count <= len(_ONES) else np.ones(count)


def _shared(data: np.ndarray) -> np.ndarray:
    """Return the same numbers; where all are 1, a view of one array."""
    return _ones(len(data)) if (data == 1).all() else data
