"""What only a process of its own can show: peak memory, and the time to start with and without compiled kernels."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
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


def memory(side: int) -> dict[str, float]:
    """Return the peak in MB above interpreter and imports of work on a binary grid, theta and result included."""
    runs = {
        "infer, tree_reweighted(n_iter=10)": ["tree_reweighted(n_iter=10)", str(side)],
        "gradient, tree_reweighted(n_iter=40)": ["tree_reweighted(n_iter=40)", str(side), "labels"],
    }
    return {what: _run(_MEMORY, arguments) for what, arguments in runs.items()}


def startup() -> Iterator[dict[str, Any]]:
    """Yield the time of the first fit of a grid with an empty cache of compiled kernels, and in the next process."""
    with tempfile.TemporaryDirectory() as cache:
        for what in ("first fit of a grid, nothing compiled", "first fit of a grid, later process"):
            imported, fitted = _run(_STARTUP, [], NUMBA_CACHE_DIR=cache)
            yield {"workload": "20x20", "algorithm": what, "family": "lattice", "dtype": "float64", "labels": 2,
                   "import_s": imported, "compile_s": fitted}  # fmt: skip


def _run(code: str, arguments: list[str], **environment: str) -> Any:
    command = [sys.executable, "-c", code, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **environment}, check=False)
    if done.returncode:
        raise RuntimeError(f"a measuring process failed: {done.stderr.strip().splitlines()[-1]}")
    return json.loads(done.stdout)
