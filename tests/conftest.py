"""Compiled kernels are kept between runs.

Numba compiles anew when the file of a kernel changes, but not when a kernel changes that it calls from another file: a stale
kernel would test yesterday's code. So the cache lies in a folder named after the contents of all files whose kernels others
call.
"""

import hashlib
import os
import re
import signal
import sys
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

ROOT = Path(__file__).parent.parent
#: Files that take long come first: pytest-xdist hands out whole files, and one of them at the end keeps a worker alone.
LONG = (
    "tests/docs/test_tutorials.py",
    "tests/training/execution/test_cluster.py",
    "tests/inference/test_message_passing.py",
    "tests/contracts/test_inference.py",
    "tests/inference/test_smoothed_lp.py",
    "tests/papers/test_experiments.py",
    "tests/gradients/test_truncated.py",
    "tests/inference/test_potts.py",
    "tests/training/test_merging.py",
    "tests/inference/test_message_range.py",
    "tests/inference/test_mean_field.py",
    "tests/fuzz/test_short.py",
    "tests/estimators/test_tiles.py",
    "tests/contracts/test_rooms.py",
    "tests/kernels/test_gaussian.py",
    "tests/training/execution/test_process_globals.py",
    "tests/papers/test_d13.py",
    "tests/papers/test_l13.py",
)
#: What runs a whole page, experiment or campaign, a browser, or other processes: ``make test`` leaves these to
#: ``make test-all``, which CI runs.
END_TO_END = (
    "tests/benchmarks/",
    "tests/cli/test_fit.py",
    "tests/docs/",
    "tests/estimators/test_shards.py",
    "tests/fuzz/",
    "tests/kernels/test_compiling.py",
    "tests/labelling/",
    "tests/learners/test_checkpoint.py",
    "tests/papers/",
    "tests/plugins/",
    "tests/test_late_imports.py",
    "tests/test_lazy_names.py",
    "tests/test_wheel.py",
    "tests/training/execution/test_cluster.py",
    "tests/training/execution/test_process_globals.py",
)


def pytest_collection_modifyitems(items):
    place = {name: number for number, name in enumerate(LONG)}
    items.sort(key=lambda item: place.get(item.nodeid.split("::")[0], len(LONG)))  # the others stay in their order
    for item in items:
        if item.nodeid.startswith(END_TO_END):
            item.add_marker(pytest.mark.end_to_end)


def _shared_kernel_files() -> list[Path]:
    """Files with kernels that other files with kernels import."""
    sources = {path: path.read_text() for path in sorted((ROOT / "backfield").rglob("*.py"))}
    decorated = re.compile(r"^@(kernel|exact_kernel|part|exact_part|inlined|unrolled|numba)", re.M)
    kernels = {path: text for path, text in sources.items() if decorated.search(text)}
    module = {".".join(path.relative_to(ROOT).with_suffix("").parts): path for path in kernels}
    shared = {ROOT / "backfield" / "kernels" / "compile.py"}
    for text in kernels.values():
        for name in re.findall(r"^from (backfield[\w.]*) import", text, re.M):
            if name in module:
                shared.add(module[name])
    return sorted(shared)


def _digest() -> str:
    digest = hashlib.sha256()
    for path in _shared_kernel_files():
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


@pytest.fixture(autouse=True)
def _figures_are_closed():
    """pyplot keeps figures until they are closed and warns at twenty: the tests that came before must not matter."""
    yield
    if "matplotlib.pyplot" in sys.modules:
        sys.modules["matplotlib.pyplot"].close("all")


@pytest.fixture
def processor_time(monkeypatch):
    """Limits of time count processor time: a machine that stands still for a while changes no answer."""
    monkeypatch.setattr(time, "perf_counter", time.process_time)


# A shell starts background jobs with SIGINT ignored, nohup ignores SIGHUP, and children inherit both: tests that send them
# would wait forever.
for _signal, _handler in ((signal.SIGINT, signal.default_int_handler), (getattr(signal, "SIGHUP", None), signal.SIG_DFL)):
    if _signal is not None and signal.getsignal(_signal) is signal.SIG_IGN:
        signal.signal(_signal, _handler)

# How long drawing an example takes is no property of what is tested.
settings.register_profile("any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any machine")
# Many tests start other processes, which would compile every module anew.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
os.environ["NUMBA_CACHE_DIR"] = str(ROOT / ".numba_cache" / _digest())
