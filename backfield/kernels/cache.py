"""Where compiled kernels are kept between processes: numba's cache on disk.

The folder is ``NUMBA_CACHE_DIR`` where that is set, else ``__pycache__`` beside each source file, else, where the package
cannot be written to, numba's folder in the user's cache folder. Where none of these can be written to, kernels last as long
as the process. Each process writes its own files and swaps the index in, so several may fill the cache at once.
"""

from __future__ import annotations

import atexit
import os
import shutil
import sys
import tempfile
import uuid
from functools import cached_property
from pathlib import Path
from typing import Any

import numba
from numba.core.caching import FunctionCache
from numba.core.dispatcher import Dispatcher
from numba.core.runtime import rtsys


class LazyCache:
    """numba's cache of one kernel, opened when the kernel is first called: a process calls few of its kernels."""

    def __init__(self, function: Any) -> None:
        self._function = function

    @cached_property
    def _cache(self) -> Any:
        cache: Any = FunctionCache(self._function)
        file = cache._cache_file
        # numba counts the files of a kernel: two processes that save two signatures at once would write one file, and the
        # index would name it for the wrong one.
        file._data_name = lambda number: f"{file._index_name.removesuffix('.nbi')}.{uuid.uuid4().hex[:12]}.nbc"
        return cache

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """Return the compiled code of a signature, or None.

        numba's own method first loads all that compiling may need, scipy.linalg too, which takes longer than to load the
        kernels; code that is compiled already needs the runtime alone.
        """
        rtsys.initialize(target_context)
        with self._cache._guard_against_spurious_io_errors():
            return self._cache._load_overload(sig, target_context)
        return None  # where the index or the code cannot be read

    def save_overload(self, sig: Any, data: Any) -> None:
        """Keep the compiled code of a signature."""
        self._cache.save_overload(sig, data)

    def flush(self) -> None:
        """Forget what is kept."""
        self._cache.flush()

    @property
    def cache_path(self) -> str:
        """The folder."""
        return str(self._cache.cache_path)


def _probe() -> None:
    """Something to compile."""


def ensure_place() -> None:
    """Use a folder of this process where numba finds none that can be written to: it would refuse to compile."""
    try:
        numba.njit(_probe, cache=True)
    except RuntimeError:
        folder = tempfile.mkdtemp(prefix="backfield-kernels-")
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
        numba.config.CACHE_DIR = folder  # type: ignore[attr-defined]


def kept() -> tuple[list[Path], int]:
    """Return the folders that hold the kernels of the modules imported so far, and their size in bytes."""
    modules = [module for name, module in sys.modules.items() if name.startswith("backfield.")]
    kernels = {value for module in modules for value in vars(module).values() if isinstance(value, Dispatcher)}
    folders = sorted({Path(kernel.stats.cache_path) for kernel in kernels if kernel.stats.cache_path})
    files = [file for folder in folders for file in folder.glob("*.nb[ci]")]
    return folders, sum(file.stat().st_size for file in files)


def common(folders: list[Path]) -> Path:
    """Return the folder that holds all of these."""
    return Path(os.path.commonpath(folders)) if folders else Path()


ensure_place()
