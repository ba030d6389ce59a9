"""Where compiled kernels are kept between processes: numba's cache on disk.

The folder is ``NUMBA_CACHE_DIR`` where that is set, else ``__pycache__`` beside each source file, else, where the package
cannot be written to, numba's folder in the user's cache folder. Where none of these can be written to, kernels last as long
as the process. Each process writes files of its own and swaps the index in, so that several may fill the cache at once.
"""

from __future__ import annotations

import atexit
import os
import shutil
import sys
import tempfile
from pathlib import Path

import numba
from numba.core.dispatcher import Dispatcher


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
