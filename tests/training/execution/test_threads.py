"""The sum over chunks: one tree for any number of threads, and errors that end it."""

import threading

import numpy as np
import pytest
from threadpoolctl import threadpool_info

from backfield.training.execution.threads import chunk_bounds, one_blas_thread, sum_over_chunks, tree_sum


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


def test_a_sum_inside_a_sum():
    def inner(first, last):
        return sum_over_chunks(lambda a, b: b - a, 10, 2, lambda a, b: a + b) * (last - first)

    result = []
    thread = threading.Thread(target=lambda: result.append(sum_over_chunks(inner, 20, 2, lambda a, b: a + b)), daemon=True)
    thread.start()
    thread.join(30)
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
