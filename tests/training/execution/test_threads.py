"""The sum over chunks: one tree for any number of threads, and errors that end it."""

import os
import subprocess
import sys
import threading

import numpy as np
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from backfield.training.execution.threads import chunk_bounds, one_blas_thread, runs, sum_over_chunks, tree_sum


@pytest.mark.parametrize("n", [1, 2, 3, 5, 7, 13, 63, 64, 65, 200])
def test_the_same_tree_for_any_number_of_threads(n):
    def evaluate(first, last):
        return f"[{first}:{last}]"

    def add(a, b):
        return f"({a}+{b})"

    expected = tree_sum((evaluate(*bounds) for bounds in chunk_bounds(n)), add)
    for n_jobs in (1, 2, 3, 8):
        assert sum_over_chunks(evaluate, n, n_jobs, add) == expected


def test_every_example_once():
    values = np.random.default_rng(0).integers(0, 1000, 1000)
    for n_jobs in (1, 4):
        found = sum_over_chunks(lambda a, b: int(values[a:b].sum()), 1000, n_jobs, lambda a, b: a + b)
        assert found == values.sum()


@pytest.mark.parametrize("n_jobs", [1, 3])
def test_an_error_ends_the_sum_and_leaves_the_threads_usable(n_jobs):
    seen = []

    def evaluate(first, last):
        seen.append(first)
        if first == 5:
            raise ValueError("chunk 5")
        return 1

    with pytest.raises(ValueError, match="chunk 5"):
        sum_over_chunks(evaluate, 10_000, n_jobs, lambda a, b: a + b, 10_000)
    assert len(seen) < 10_000
    assert sum_over_chunks(lambda a, b: b - a, 100, n_jobs, lambda a, b: a + b) == 100


@pytest.mark.parametrize(("count", "n_jobs"), [(1, 2), (8, 1), (8, 2), (64, 3)])
def test_runs_are_all_chunks_once_and_end_with_short_ones(count, n_jobs):
    found = list(runs(count, n_jobs))
    assert [chunk for run in found for chunk in run] == list(range(count))
    assert len(found[-1]) == 1 and [len(run) for run in found] == sorted(map(len, found), reverse=True)


def test_a_sum_inside_a_sum():
    def inner(first, last):
        return sum_over_chunks(lambda a, b: b - a, 10, 2, lambda a, b: a + b) * (last - first)

    result = []
    thread = threading.Thread(target=lambda: result.append(sum_over_chunks(inner, 20, 2, lambda a, b: a + b)), daemon=True)
    thread.start()
    thread.join(120)
    assert result == [200]


def test_one_blas_thread_holds_until_the_outermost_one_is_left():
    with one_blas_thread():
        with one_blas_thread():
            pass
        assert sum_over_chunks(lambda first, last: _blas_threads(), 1, 1, set.union) <= {1}
        assert _blas_threads() <= {1}
        with pytest.raises(ZeroDivisionError), one_blas_thread():
            raise ZeroDivisionError
        assert _blas_threads() <= {1}


def _blas_threads() -> set[int]:
    return {each["num_threads"] for each in threadpool_info() if each["user_api"] == "blas"}


def test_the_last_thread_to_leave_restores_the_blas_threads():
    inside, leave, seen = threading.Barrier(3), [threading.Event(), threading.Event()], []

    def hold(k):
        with one_blas_thread():
            inside.wait(120)
            leave[k].wait(120)
            seen.append(_blas_threads())

    with threadpool_limits(limits=3, user_api="blas"):
        before = _blas_threads()
        threads = [threading.Thread(target=hold, args=(k,)) for k in range(2)]
        for thread in threads:
            thread.start()
        inside.wait(120)
        for k in range(2):
            leave[k].set()
            threads[k].join(120)
        assert seen == [{1}, {1}]
        assert _blas_threads() == before


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
@pytest.mark.parametrize("own", [False, True])
def test_a_child_that_is_forked_during_a_fit_has_its_blas_threads(own):
    """The parent's other threads do not hold the limit in the child, its own one does until it leaves."""
    code = """
import os, sys, threading
from threadpoolctl import threadpool_info, threadpool_limits
from backfield.training.execution.threads import one_blas_thread
def count():
    return {each["num_threads"] for each in threadpool_info() if each["user_api"] == "blas"}
import numpy
own = sys.argv[1] == "True"
inside, done = threading.Event(), threading.Event()
def hold():
    with one_blas_thread():
        inside.set()
        done.wait(300)
with threadpool_limits(limits=3, user_api="blas"):
    before = count()
    thread = threading.Thread(target=hold)
    thread.start()
    inside.wait(120)
    limit = one_blas_thread()
    if own:
        limit.__enter__()
    child = os.fork()
    if child == 0:
        good = count() == ({1} if own else before)
        if own:
            limit.__exit__(None, None, None)
            good = good and count() == before
        os._exit(0 if good else 1)
    status = os.waitpid(child, 0)[1]
    done.set()
    thread.join()
sys.exit(os.waitstatus_to_exitcode(status))
"""
    assert subprocess.run([sys.executable, "-W", "ignore", "-c", code, str(own)], timeout=300).returncode == 0


@pytest.mark.parametrize(("size", "variable", "expected"), [(4, False, 0), (100, False, 1), (100, True, 0)])
def test_glibc_is_asked_to_keep_memory_only_where_arrays_are_large(size, variable, expected):
    code = f"""
import numpy as np
import backfield as bf
from backfield.training.execution.threads import set_malloc
assert set_malloc.cache_info().currsize == 0
X = [np.random.default_rng(0).normal(size=({size}, {size}, 2)) for _ in range(2)]
bf.GridCRF(learner="sgd(epochs=1)", start="zero", n_jobs=2).fit(X, [(x[..., 0] > 0).astype(int) for x in X])
assert set_malloc.cache_info().currsize == {expected}
"""
    environment = {key: value for key, value in os.environ.items() if not key.startswith("MALLOC_")}
    environment |= {"MALLOC_TRIM_THRESHOLD_": "131072"} if variable else {}
    assert subprocess.run([sys.executable, "-c", code], env=environment, timeout=300).returncode == 0
