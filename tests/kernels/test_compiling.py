"""Compiling is seen, timed apart, and works wherever the cache is."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import time
from pathlib import Path

import numba
import numpy as np
import pytest

from backfield.kernels import compiling
from backfield.kernels.setup import SetupKernel


def _compile_one() -> None:
    """Compile a function that no cache holds, as one of ours."""

    def nothing(x):
        return x + 1

    nothing.__module__ = "backfield.nothing"
    numba.njit(nothing)(1)


def test_clock_stands_still_while_kernels_are_compiled():
    kernels, seconds = compiling.compiled()
    _compile_one()
    assert compiling.compiled()[0] == kernels + 1
    assert compiling.compiled()[1] > seconds
    assert time.perf_counter() <= compiling.clock() + compiling.compiled()[1] <= time.perf_counter()


def test_lines_say_what_is_compiled_and_end():
    lines: list[str] = []
    with compiling.shown_by(lines.append):
        _compile_one()
    assert len(lines) == 2
    assert lines[0].startswith("compiling, once: kernel ") and "nothing" in lines[0]
    assert lines[1] == ""


def test_nothing_is_written_where_there_is_no_terminal(capfd):
    _compile_one()
    assert capfd.readouterr() == ("", "")


def test_functions_of_others_are_not_counted():
    before = compiling.compiled()
    numba.njit(lambda x: x + 2)(1)
    assert compiling.compiled() == before


def test_garbage_collection_goes_on_after_a_failure():
    def wrong(x):
        return x.no_such_thing

    wrong.__module__ = "backfield.wrong"
    with pytest.raises(numba.TypingError):
        numba.njit(wrong)(1)
    assert gc.isenabled()


def test_setup_kernels_are_interpreted_at_first_and_give_the_same():
    @SetupKernel
    def running(x, out):
        total = 0
        for i in range(len(x)):
            total += x[i]
            out[i] = total

    running.kernel = numba.njit(running.function)  # functions inside functions are not cached
    for size in (10, 3000, 10):
        x, out = np.arange(size), np.empty(size, np.int64)
        running(x, out)
        assert (out == np.cumsum(x)).all()
    assert len(running.kernel.signatures) == 1
    assert running.work == 6020


_KERNEL = """
import sys
import numpy as np
from backfield.graph.labeling import _first_unknown
print(_first_unknown(np.array([0, 1, 5]).astype(sys.argv[1]), np.array([2, 2, 2])))
"""


# The second kernel is compiled where the first, which it calls, may have been loaded.
_LOADED = """
import sys
import numba
import numpy as np
from backfield.kernels.compile import log_sum_exp
values = np.array([0.0, 1.0]).astype(sys.argv[1])
print(round(float(log_sum_exp(values)), 3), "numba.np.linalg" in sys.modules)
print(round(float(numba.njit(lambda x: log_sum_exp(x.copy()))(values)), 3))
"""


def _run(tmp_path: Path, dtype: str = "int64", code: str = _KERNEL, **environment: str) -> subprocess.Popen[str]:
    kept = {k: v for k, v in os.environ.items() if not k.startswith("NUMBA")}
    environment = kept | {"PYTHONPATH": os.pathsep.join(sys.path), "TMPDIR": str(tmp_path)} | environment
    command = [sys.executable, "-c", code, dtype]
    return subprocess.Popen(command, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def test_several_processes_fill_one_cache_at_once(tmp_path):
    cache = tmp_path / "cache"
    for _ in range(2):
        runs = [_run(tmp_path, dtype, NUMBA_CACHE_DIR=str(cache)) for dtype in ("int64", "int32", "int64")]
        assert [run.communicate() for run in runs] == [("2\n", "")] * 3
    assert list(cache.rglob("*.nbc"))


def test_kernels_of_the_cache_need_nothing_of_the_compiler(tmp_path):
    for dtype, compiles in (("float64", True), ("float64", False), ("float32", True), ("float32", False)):
        run = _run(tmp_path, dtype, _LOADED, NUMBA_CACHE_DIR=str(tmp_path / "cache"))
        assert run.communicate() == (f"1.313 {compiles}\n1.313\n", "")


def test_works_where_no_folder_can_be_written_to(tmp_path):
    # Not permissions, which root does not feel: a file where the folder would have to be.
    (tmp_path / "file").write_text("")
    environment = {"NUMBA_CACHE_DIR": str(tmp_path / "file" / "cache")}
    run = _run(tmp_path, **environment, NUMBA_CACHE_LOCATOR_CLASSES="UserProvidedCacheLocator")
    assert run.communicate() == ("2\n", "")
    assert not list(tmp_path.glob("backfield-kernels-*"))
