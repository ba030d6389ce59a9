"""The only kernels shared between files, and the settings that all kernels are compiled with.

Kernels call only functions of their own file or of this one: numba's cache does not see an edit further away.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np

from backfield.kernels.cache import LazyCache

#: Reordering and contraction are free; NaN and infinities keep their meaning.
FAST_MATH = {"reassoc", "contract", "arcp", "nsz"}


_njit: Any = numba.njit  # whose types leave options out


def compiled_once(function: Any, nogil: bool = True, **options: Any) -> Any:
    """Compile with numba: cached on disk, without the interpreter lock, with numpy's division."""
    # Nobody takes the address of a kernel: no wrapper for callers in C is compiled.
    compiled: Any = _njit(function, nogil=nogil, error_model="numpy", no_cfunc_wrapper=True, **options)
    if compiled is not function:  # as with NUMBA_DISABLE_JIT
        compiled._cache = LazyCache(function)
    return compiled


def kernel(function: Any) -> Any:
    """Compile a kernel whose sums may be reordered."""
    return compiled_once(function, fastmath=FAST_MATH)


def exact_kernel(function: Any) -> Any:
    """Compile a kernel whose sums must be added in the order written (log domain, bounds, sampling)."""
    return compiled_once(function)


def part(function: Any) -> Any:
    """Compile a function that kernels call and Python does not: it needs no wrapper, and no files in the cache."""
    return _part(function, fastmath=FAST_MATH)


def exact_part(function: Any) -> Any:
    """Compile such a function of kernels whose sums must be added in the order written."""
    return _part(function)


def _part(function: Any, **options: Any) -> Any:
    return _njit(function, nogil=True, error_model="numpy", no_cfunc_wrapper=True, no_cpython_wrapper=True, **options)


def label_count(n_labels: int) -> tuple[int, ...]:
    """A tuple whose *length* is the label count.

    Numba compiles a kernel for each length, so loops over labels are unrolled: measured at 8 labels,
    32 instead of 47 ns per message.
    """
    return (0,) * n_labels


@kernel
def log_sum_exp(x):
    """Log of the sum of exponentials; -inf where all are."""
    top = x[0]
    for a in range(1, len(x)):
        if x[a].real > top.real:
            top = x[a]
    if top.real == -np.inf:
        return top
    total = x.dtype.type(0)
    for a in range(len(x)):
        total += np.exp(x[a] - top)
    return top + np.log(total)


def inlined(function: Any) -> Any:
    """Mark a piece of kernels that is written into its callers.

    A call that hands over arrays (a graph's ``Layout`` holds ten) counts references for each of them: 50 to 100 ns,
    more than a message costs.
    """
    return numba.njit(function, inline="always", error_model="numpy")
