"""Indices that come from outside: whatever a kernel takes as an index is checked here, where it enters.

Kernels check nothing: an index beyond an array reads or writes memory of others.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from backfield.errors import InputError


def are_pointers(ptr: np.ndarray, count: int) -> bool:
    """Whether ``ptr`` cuts ``count`` entries into runs: integers from 0 to ``count`` that never fall."""
    if ptr.ndim != 1 or ptr.dtype.kind not in "iu" or len(ptr) == 0:
        return False
    return bool(ptr[0] == 0 and ptr[-1] == count and (ptr[1:] >= ptr[:-1]).all())


def are_indices(values: np.ndarray, size: int) -> bool:
    """Whether all values are integers 0 .. ``size`` - 1."""
    if values.dtype.kind not in "iu":
        return False
    return values.size == 0 or bool(values.min() >= 0 and values.max() < size)


def checked_csr(matrix: Any, what: str) -> Any:
    """Return a CSR matrix if its parts go together and its columns are within its shape."""
    rows, columns = matrix.shape
    whole = len(matrix.indptr) == rows + 1 and len(matrix.indices) == len(matrix.data)
    if not (whole and are_pointers(matrix.indptr, len(matrix.indices)) and are_indices(matrix.indices, columns)):
        raise InputError(f"{what} are a sparse matrix whose rows or columns go beyond its shape {matrix.shape}.")
    return matrix
