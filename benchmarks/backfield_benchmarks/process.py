"""What only a separate process can show: peak memory, and the time to start with and without compiled kernels."""

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

# Processor time, of all threads and since the interpreter began: other work on the machine does not count.
_STARTUP = {
    "GridCRF.fit and predict": """
import numpy as np
import backfield as bf
images = [np.random.default_rng(k).random((20, 20, 1)) for k in range(2)]
bf.GridCRF().fit(images, [(image[..., 0] > 0.5).astype(int) for image in images]).predict(images)
""",
    "ChainCRF.fit and predict": """
import numpy as np
import backfield as bf
X = [np.random.default_rng(k).random((12, 2)) for k in range(4)]
bf.ChainCRF().fit(X, [(x[:, 0] > 0.5).astype(int) for x in X]).predict(X)
""",
    "infer of a UAI file": """
import sys
import backfield as bf
bf.infer(bf.Model.read(sys.argv[1]).theta, "exact")
""",
    "infer of a UAI file, tree_reweighted": """
import sys
import backfield as bf
bf.infer(bf.Model.read(sys.argv[1]).theta, "tree_reweighted(n_iter=20)")
""",
    "backfield infer": """
import sys
from backfield.cli import main
sys.argv[:] = ["backfield", "infer", sys.argv[1]]
try:
    main()
except SystemExit as stop:
    assert not stop.code
""",
    "backfield --help": """
import sys
from backfield.cli import main
sys.argv[:] = ["backfield", "--help"]
try:
    main()
except SystemExit as stop:
    assert not stop.code
""",
    "import backfield": """
import backfield
""",
}
_UAI = "MARKOV\n3\n2 2 2\n3\n2 0 1\n2 1 2\n2 0 2\n" + "4\n1.0 2.0 3.0 1.0\n" * 3
_TIMED = """
import sys, time
sys.stdout = open("/dev/null", "w")
exec(sys.argv.pop(1), {"__name__": "startup"})
print(time.process_time(), file=sys.__stdout__)
"""

#: Seconds of a process with nothing compiled, and of a later one.
COLD = {"GridCRF.fit and predict": 8.0, "ChainCRF.fit and predict": 5.0, "infer of a UAI file": 3.0}
WARM = {
    "GridCRF.fit and predict": 1.6,
    "infer of a UAI file": 0.8,
    "backfield infer": 0.8,
    "backfield --help": 0.15,
    "import backfield": 0.05,
}
#: Settings of the shell that a new user does not have.
_LEFT_OUT = ("PYTHONDONTWRITEBYTECODE", "NUMBA_CACHE_LOCATOR_CLASSES")


def memory(side: int) -> dict[str, Callable[[], float]]:
    """Return functions that measure peaks of memory, by what is done on a binary grid of ``side`` rows and columns.

    A peak is in MB above interpreter and imports, theta and result included.
    """
    runs = {
        "infer, tree_reweighted(n_iter=10)": ["tree_reweighted(n_iter=10)", str(side)],
        "gradient, tree_reweighted(n_iter=40)": ["tree_reweighted(n_iter=40)", str(side), "labels"],
    }
    return {what: partial(_run, _MEMORY, arguments) for what, arguments in runs.items()}


def startup() -> dict[tuple[str, str], Callable[[], dict[str, float]]]:
    """Return functions that measure what people do first: with no kernel compiled yet, and in a later process."""
    found: dict[tuple[str, str], Callable[[], dict[str, float]]] = {}
    for what in (*COLD, "infer of a UAI file, tree_reweighted"):
        found["nothing compiled", what] = partial(_cold, what)
    for what in WARM:
        found["later process", what] = partial(_warm, what)
    return found


def _cold(what: str) -> dict[str, float]:
    _filled(what)  # bytecode is kept with the packages, as pip does: only kernels are missing
    with tempfile.TemporaryDirectory() as folder:
        return {"processor_s": _start(what, folder)}


@functools.cache
def _filled(what: str) -> tempfile.TemporaryDirectory[str]:
    """Return a cache that holds what is compiled; it is deleted with the process."""
    folder = tempfile.TemporaryDirectory()
    _start(what, folder.name)
    return folder


def _warm(what: str) -> dict[str, float]:
    folder = _filled(what).name
    return {"processor_s": min(_start(what, folder) for _ in range(3))}


@functools.cache
def _bytecode() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory()


def _start(what: str, folder: str) -> float:
    model = os.path.join(folder, "model.uai")
    with open(model, "w") as file:
        file.write(_UAI)
    return float(_run(_TIMED, [_STARTUP[what], model], NUMBA_CACHE_DIR=folder, PYTHONPYCACHEPREFIX=_bytecode().name))


def _run(code: str, arguments: list[str], **environment: str) -> Any:
    command = [sys.executable, "-c", code, *arguments]
    # The child finds the same packages as this process, and not what lies in the current folder.
    kept = {name: value for name, value in os.environ.items() if name not in _LEFT_OUT}
    environment = {**kept, "PYTHONPATH": os.pathsep.join(sys.path), "PYTHONSAFEPATH": "1", **environment}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    if done.returncode:
        raise RuntimeError(f"a measuring process failed: {done.stderr.strip().splitlines()[-1]}")
    return json.loads(done.stdout)
