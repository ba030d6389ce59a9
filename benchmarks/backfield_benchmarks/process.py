"""What only a process of its own can show: peak memory, and the time to start with and without compiled kernels."""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from typing import Any

# VmHWM, not getrusage: a child's ru_maxrss starts at what its parent used.
_MEMORY = """
import json, sys
import numpy as np
import backfield as bf
from backfield_benchmarks.workloads import square

def status(key):
    return int(next(line for line in open("/proc/self/status") if line.startswith(key)).split()[1]) / 1024

method, side = sys.argv[1], int(sys.argv[2])
learn = "labels" in sys.argv

def work(theta):
    if learn:
        labels = np.zeros(theta.graph.n_variables, np.int8)
        return bf.value_and_gradient(theta, labels, loss="univariate_logistic", inference=method, dtype="float32")
    return bf.infer(theta, method, dtype="float32")

work(square(8))  # loads the kernels
before = status("VmRSS")
kept = square(side)
run = work(kept)
print(json.dumps(status("VmHWM") - before))
"""

_STARTUP = """
import json, time
start = time.perf_counter()
import numpy as np
import backfield as bf
imported = time.perf_counter()
rng = np.random.default_rng(0)
images = [rng.random((20, 20, 1)) for _ in range(2)]
labels = [(image[..., 0] > 0.5).astype(int) for image in images]
bf.GridCRF(learner="lbfgs(max_iter=3)").fit(images, labels)
print(json.dumps([imported - start, time.perf_counter() - imported]))
"""


def memory(side: int) -> dict[str, Callable[[], float]]:
    """Return functions that measure peaks of memory, by what is done on a binary grid of ``side`` rows and columns.

    A peak is in MB above interpreter and imports, theta and result included.
    """
    runs = {
        "infer, tree_reweighted(n_iter=10)": ["tree_reweighted(n_iter=10)", str(side)],
        "gradient, tree_reweighted(n_iter=40)": ["tree_reweighted(n_iter=40)", str(side), "labels"],
    }
    return {what: partial(_run, _MEMORY, arguments) for what, arguments in runs.items()}


def startup() -> dict[str, Callable[[], dict[str, float]]]:
    """Return functions that measure the first fit of a grid: with no kernel compiled yet, and in a later process."""
    return {
        "first fit of a grid, nothing compiled": _first_fit,
        "first fit of a grid, later process": _later_fit,
    }


def _first_fit() -> dict[str, float]:
    with tempfile.TemporaryDirectory() as cache:
        return _fit(cache)


@functools.cache
def _filled_cache() -> tempfile.TemporaryDirectory[str]:
    """Return a cache that holds the kernels of the fit; it is deleted with the process."""
    cache = tempfile.TemporaryDirectory()
    _fit(cache.name)
    return cache


def _later_fit() -> dict[str, float]:
    return _fit(_filled_cache().name)


def _fit(cache: str) -> dict[str, float]:
    imported, fitted = _run(_STARTUP, [], NUMBA_CACHE_DIR=cache)
    return {"import_s": imported, "compile_s": fitted}


def _run(code: str, arguments: list[str], **environment: str) -> Any:
    command = [sys.executable, "-c", code, *arguments]
    # The child finds the same packages as this process, and not what lies in the current folder.
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "PYTHONSAFEPATH": "1", **environment}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    if done.returncode:
        raise RuntimeError(f"a measuring process failed: {done.stderr.strip().splitlines()[-1]}")
    return json.loads(done.stdout)
