"""A sum over chunks with the same bytes for any number of threads.

Examples are cut into a fixed number of chunks. Each chunk is summed in order, in one thread, with one thread for BLAS;
the sums of chunks are added in a fixed binary tree over the chunk's number. At most log2(chunks) partial sums are alive.
"""

from __future__ import annotations

import ctypes
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache
from typing import TypeVar

from threadpoolctl import ThreadpoolController

T = TypeVar("T")
N_CHUNKS = 64


@cache
def _libraries() -> ThreadpoolController:
    return ThreadpoolController()  # looks at every loaded library: once is enough


@cache
def _keep_freed_memory() -> None:
    """Ask glibc to keep freed arrays instead of handing them back to the system.

    Two threads that map and unmap the same arrays at every evaluation wait for each other in the kernel: on 16 images of
    100x100 two threads were no faster than one, and 1.46 times as fast with this.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError):  # not glibc
        return
    mallopt(-3, 2**25)  # M_MMAP_THRESHOLD: the largest that glibc takes
    mallopt(-1, 2**29)  # M_TRIM_THRESHOLD


def chunk_bounds(n: int, n_chunks: int = N_CHUNKS) -> list[tuple[int, int]]:
    """Cut ``range(n)`` into at most ``n_chunks`` ranges whose sizes differ by one at most."""
    count = max(1, min(n, n_chunks))
    return [(n * c // count, n * (c + 1) // count) for c in range(count)]


def sum_over_chunks(
    evaluate: Callable[[int, int], T], n: int, n_jobs: int, add: Callable[[T, T], T], n_chunks: int = N_CHUNKS
) -> T:
    """Return the tree sum of ``evaluate(first, last)`` over the chunks of ``range(n)``."""
    bounds = chunk_bounds(n, n_chunks)
    with _libraries().limit(limits=1):
        if n_jobs <= 1 or len(bounds) == 1:
            return tree_sum((evaluate(first, last) for first, last in bounds), add)
        _keep_freed_memory()
        with ThreadPoolExecutor(n_jobs) as pool:
            return tree_sum(_in_order(pool, evaluate, bounds, 2 * n_jobs), add)


def map_in_order(function: Callable[[int], T], n: int, n_jobs: int) -> list[T]:
    """Return ``[function(0), ..., function(n - 1)]``, computed by ``n_jobs`` threads."""
    if n_jobs <= 1 or n <= 1:
        return [function(k) for k in range(n)]
    _keep_freed_memory()
    with ThreadPoolExecutor(min(n_jobs, n)) as pool:
        return list(pool.map(function, range(n)))


def _in_order(
    pool: ThreadPoolExecutor, evaluate: Callable[[int, int], T], bounds: list[tuple[int, int]], ahead: int
) -> Iterator[T]:
    """Yield results in order, computing at most ``ahead`` of them in advance."""
    waiting: deque[Future[T]] = deque()
    for first, last in bounds:
        waiting.append(pool.submit(evaluate, first, last))
        if len(waiting) > ahead:
            yield waiting.popleft().result()
    while waiting:
        yield waiting.popleft().result()


def tree_sum(parts: Iterable[T], add: Callable[[T, T], T]) -> T:
    """Add parts in a binary tree over their number, as they come."""
    stack: list[tuple[int, T]] = []  # (height, sum), heights falling
    for part in parts:
        height, total = 0, part
        while stack and stack[-1][0] == height:
            total = add(stack.pop()[1], total)
            height += 1
        stack.append((height, total))
    total = stack.pop()[1]
    while stack:
        total = add(stack.pop()[1], total)
    return total
