"""Kernels that set up: interpreted while there is little to do, compiled when there is more."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
from numba.extending import register_jitable

from backfield.kernels.compile import exact_kernel

#: Marks a function that setup kernels of its file call: interpreted in those that are, compiled in those that are.
setup_part: Any = register_jitable(error_model="numpy")

#: Numbers that a kernel is given before it is compiled: some milliseconds of interpreted work.
_PATIENCE = 5000


class SetupKernel:
    """A kernel that is interpreted at first: compiling or loading it would take longer than its work.

    For orders and index arrays of graphs, which are the same to the bit either way. It calls parts marked by
    :data:`setup_part` only, which no other kernel calls.
    """

    def __init__(self, function: Any) -> None:
        functools.update_wrapper(self, function)
        self.function, self.kernel = function, exact_kernel(function)
        self.work = 0

    def __call__(self, *args: Any) -> Any:
        """Run on the arguments."""
        if self.work <= _PATIENCE:
            self.work += sum(arg.size for arg in args if isinstance(arg, np.ndarray))
        if self.work > _PATIENCE:
            return self.kernel(*args)
        with np.errstate(all="ignore"):  # as compiled code does
            return self.function(*args)
