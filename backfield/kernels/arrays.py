"""Products and sums of many short rows, where numpy's own loops are slow or depend on the number of rows."""

from __future__ import annotations

from typing import Any

import numpy as np

from backfield.kernels.compile import kernel

_ROWS_AT_ONCE = 64
#: Below this many rows numpy's loop over them takes less time than the way round it.
_FEW = 1000


def product(a: Any, b: Any) -> np.ndarray:
    """Return a @ b, also of sparse a. Of arrays by ``np.dot``: numpy's ``@`` holds the GIL, so threads would wait."""
    return np.asarray(np.dot(a, b) if isinstance(a, np.ndarray) and isinstance(b, np.ndarray) else a @ b)


def column_sums(array: np.ndarray) -> np.ndarray:
    """Return the sums of narrow columns, by BLAS: several times faster than numpy's sum over rows."""
    return product(np.ones(len(array), array.dtype), array)


def add_row(array: np.ndarray, row: np.ndarray) -> None:
    """Add a row to every row in place; numpy's loop over a short row is slow, so many are taken as one."""
    if len(array) < _FEW:
        array += row
        return
    whole = len(array) - len(array) % _ROWS_AT_ONCE
    wide = array[:whole].reshape(-1, _ROWS_AT_ONCE * len(row))
    wide += np.tile(row, _ROWS_AT_ONCE)
    array[whole:] += row


def row_products(rows: np.ndarray, matrix: np.ndarray, bias: np.ndarray | None = None) -> np.ndarray:
    """Return rows @ matrix + bias; every row has the same bits, whatever rows are around it.

    BLAS adds up the rows at the end of an array in another order than the others, so a tile of an image would not have
    the bits of the whole. It is no faster, either, for less than about ten columns.
    """
    dtype = np.result_type(rows, matrix)
    bias = np.zeros(matrix.shape[1], dtype) if bias is None else bias
    if rows.shape[1] == 0:
        return np.repeat(bias[None], len(rows), axis=0)
    out = np.empty((len(rows), matrix.shape[1]), dtype)
    _row_products(*(np.ascontiguousarray(each, dtype) for each in (rows, matrix.T, bias)), out)
    return out


@kernel
def _row_products(rows, columns, bias, out):
    """Two columns at a time; where their number is odd, the last one twice."""
    length, count = rows.shape[1], len(bias)
    for first in range(0, len(rows), _ROWS_AT_ONCE):  # which stay in the cache for all columns
        last = min(first + _ROWS_AT_ONCE, len(rows))
        for k in range(0, count, 2):
            j = min(k + 1, count - 1)
            for i in range(first, last):
                s, t = bias[k], bias[j]
                for f in range(length):
                    s += rows[i, f] * columns[k, f]
                    t += rows[i, f] * columns[j, f]
                out[i, k] = s
                out[i, j] = t
