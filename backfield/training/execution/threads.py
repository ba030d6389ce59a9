"""A sum over chunks with the same bytes for any number of threads.

Examples are cut into a fixed number of chunks. Each chunk is summed in order, in one thread, with one thread for BLAS;
the sums of chunks are added in a fixed binary tree over the chunk's number. At most log2(chunks) partial sums are alive.
"""

from __future__ import annotations

import ctypes
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from functools import cache
from threading import Lock, local
from typing import Generic, TypeVar

from threadpoolctl import ThreadpoolController

from backfield.training.execution.tree import Node, join, total

T = TypeVar("T")
N_CHUNKS = 64


@cache
def _libraries() -> ThreadpoolController:
    return ThreadpoolController()  # looks at every loaded library: once is enough


_limited = local()


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Let BLAS use one thread, so that its sums have the same bytes everywhere.

    Setting and restoring the limit takes a tenth of a small step of sgd; inside itself it does nothing, so that learners of
    many small steps enter it once.
    """
    if getattr(_limited, "inside", False):
        yield
        return
    with _libraries().limit(limits=1):
        _limited.inside = True
        try:
            yield
        finally:
            _limited.inside = False


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
    _keep_freed_memory()
    with one_blas_thread():
        if len(bounds) == 1:
            return evaluate(*bounds[0])
        if n_jobs <= 1:
            return tree_sum((evaluate(first, last) for first, last in bounds), add)
        return _Shared(evaluate, bounds, add).run(n_jobs)


def map_in_order(function: Callable[[int], T], n: int, n_jobs: int) -> list[T]:
    """Return ``[function(0), ..., function(n - 1)]``, computed by ``n_jobs`` threads."""
    if n_jobs <= 1 or n <= 1:
        return [function(k) for k in range(n)]
    _keep_freed_memory()
    return list(_pool(n_jobs).map(function, range(n)))


def in_order(evaluate: Callable[[int, int], T], bounds: list[tuple[int, int]], n_jobs: int) -> Iterator[T]:
    """Yield ``evaluate(first, last)`` of each pair in order, computing at most two per thread in advance."""
    waiting: deque[Future[T]] = deque()
    with ThreadPoolExecutor(n_jobs) as pool:
        try:
            for first, last in bounds:
                waiting.append(pool.submit(evaluate, first, last))
                if len(waiting) > 2 * n_jobs:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:  # after an error, or when nobody wants the rest
            for future in waiting:
                future.cancel()


def tree_sum(parts: Iterable[T], add: Callable[[T, T], T]) -> T:
    """Add parts in a binary tree over their number, as they come."""
    return total(join((Node(number, 0, part) for number, part in enumerate(parts)), add), add)


class _Shared(Generic[T]):
    """Chunks that several threads take in turn, the calling thread among them, and the tree of their sums.

    A thread that has a sum adds its neighbour's in the tree, if that is there, and leaves it there otherwise: nobody waits
    for results, which would cost every chunk two switches of threads.
    """

    def __init__(self, evaluate: Callable[[int, int], T], bounds: list[tuple[int, int]], add: Callable[[T, T], T]) -> None:
        self.evaluate = evaluate
        self.bounds = bounds
        self.add = add
        self.chunks = iter(range(len(bounds)))
        self.lock = Lock()
        self.sums: dict[tuple[int, int], T] = {}  # (height, number) -> a sum that waits for its neighbour

    def run(self, n_jobs: int) -> T:
        """Return the sum of all chunks."""
        others = [_pool(n_jobs).submit(self._work) for _ in range(min(n_jobs, len(self.bounds)) - 1)]
        try:
            self._work()
        finally:
            self.chunks = iter(())  # after an error nothing goes on unseen
            started = [other for other in others if not other.cancel()]
            wait(started)
        for other in started:
            other.result()
        (total,) = self.sums.values()
        return total

    def _work(self) -> None:
        try:
            while (chunk := next(self.chunks, None)) is not None:  # one step of the interpreter: no lock needed
                self._climb(chunk, self.evaluate(*self.bounds[chunk]))
        except BaseException:
            self.chunks = iter(())
            raise

    def _climb(self, number: int, total: T) -> None:
        height, width = 0, len(self.bounds)  # width: how many sums there are at this height
        while width > 1:
            neighbour = number ^ 1
            if neighbour < width:
                with self.lock:
                    other = self.sums.pop((height, neighbour), None)
                    if other is None:
                        self.sums[height, number] = total
                        return
                total = self.add(other, total) if neighbour < number else self.add(total, other)
            height, number, width = height + 1, number // 2, (width + 1) // 2
        self.sums[height, number] = total


@cache
def _pool(n_jobs: int) -> ThreadPoolExecutor:
    """Return threads that stay: starting them for every evaluation would cost as much as a small image."""
    return ThreadPoolExecutor(n_jobs, thread_name_prefix="backfield")


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_pool.cache_clear)  # a child has none of its parent's threads
