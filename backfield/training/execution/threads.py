"""A sum over chunks with the same bytes for any number of threads.

Examples are cut into a fixed number of chunks. Each chunk is summed in order, in one thread, with one thread for BLAS;
the sums of chunks are added in a fixed binary tree over the chunk's number. At most log2(chunks) partial sums are alive.

A node (start, height) of the tree is the sum of chunks start .. start + 2^height - 1, start a multiple of 2^height; at the
right end, where the number of chunks is no power of two, the nodes that are left are added from the right. Which chunks are
computed where changes nothing: whoever holds both children of a node adds them, and the bytes are the same.

:func:`using` says who computes: threads here, or the workers of a cluster.

Two things are the process's and not a fit's: the number of BLAS threads, which is counted (the last sum to end restores it),
and how glibc treats freed memory, which cannot be restored (:func:`keep_freed_memory` says when it is changed).
"""

from __future__ import annotations

import ctypes
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from threading import Lock, local
from typing import Any, Generic, NamedTuple, TypeVar

from threadpoolctl import OpenBLASController, ThreadpoolController

T = TypeVar("T")
N_CHUNKS = 64
#: Bytes of an array from which on glibc would hand its memory back whenever it is freed.
LARGE = 2**15


class _BlasLimit:
    """One BLAS thread for as long as anybody needs it: the first to enter sets the limit, the last to leave restores it."""

    def __init__(self) -> None:
        self.lock = Lock()
        self.count = 0  # of all threads
        self.own = local()  # of each
        self.limits: Any = None

    def enter(self) -> None:
        """Set the limit, unless it is set."""
        with self.lock:
            if self.count == 0:
                with _any_thread_may_set():
                    self.limits = _libraries().limit(limits=1)
            self.count += 1
        self.own.count = self._own() + 1

    def leave(self) -> None:
        """Restore the number of threads, if nobody is left."""
        self.own.count = self._own() - 1
        with self.lock:
            self.count -= 1
            if self.count == 0:
                self._restore()

    def _own(self) -> int:
        return int(getattr(self.own, "count", 0))

    def after_fork(self) -> None:
        """Forget the parent's other threads: a child has none of them, and nobody would leave for them."""
        self.lock = Lock()
        if self.count and not self._own():
            self._restore()
        self.count = self._own()

    def _restore(self) -> None:
        with _any_thread_may_set():
            self.limits.restore_original_limits()


@contextmanager
def _any_thread_may_set() -> Iterator[None]:
    """Let this thread set the number of BLAS threads, and others after it.

    Since 3.8, threadpoolctl lets the first thread alone set that of OpenBLAS, and ignores all others silently.
    """
    clear = getattr(OpenBLASController, "clear_controlling_thread", lambda force: None)
    clear(force=True)
    try:
        yield
    finally:
        clear(force=True)


@cache
def _libraries() -> ThreadpoolController:
    return ThreadpoolController()  # looks at every loaded library: once is enough


_blas_limit = _BlasLimit()


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Let BLAS use one thread, so its sums have the same bytes everywhere.

    The number of BLAS threads is one of the process: while a fit runs in one thread, BLAS has one thread in all of them.
    Setting and restoring it takes a tenth of a small step of sgd; inside itself it only counts, so learners of many
    small steps enter it once.
    """
    _blas_limit.enter()
    try:
        yield
    finally:
        _blas_limit.leave()


def keep_freed_memory(n_bytes: int) -> None:
    """Ask glibc to keep freed arrays instead of handing them back to the system, where arrays of ``n_bytes`` come and go.

    This holds for the whole process and cannot be undone, so it is done only where it pays: for large arrays, which would
    be mapped and unmapped at every evaluation (page faults, for which
    threads wait for each other). Whoever sets glibc's own variables
    (``MALLOC_TRIM_THRESHOLD_``, ``MALLOC_MMAP_THRESHOLD_``) has chosen, and nothing is changed.
    """
    if n_bytes >= LARGE and not os.environ.keys() & {"MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_"}:
        set_malloc()


@cache
def set_malloc() -> None:
    """Let glibc keep up to 512 MB of freed memory, and take arrays of up to 32 MB from it."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError):  # not glibc
        return
    mallopt(-3, 2**25)  # M_MMAP_THRESHOLD: the largest that glibc takes
    mallopt(-1, 2**29)  # M_TRIM_THRESHOLD


#: Of the thread (or task) that has opened it: a fit in another one does not use it, and does not die with it.
_ACTIVE: ContextVar[Any] = ContextVar("active cluster", default=None)


def active() -> Any:
    """Return the cluster that a ``using`` around the caller has opened, if any."""
    return _ACTIVE.get()


@contextmanager
def using(cluster: Any) -> Iterator[Any]:
    """Open a cluster for the time of a ``with``; ``None`` is the one that an outer ``using`` has opened, if any."""
    if cluster is None:
        yield active()
        return
    from backfield.training.execution.cluster import open_cluster

    workers = open_cluster(cluster)
    token = _ACTIVE.set(workers)
    try:
        yield workers
    finally:
        _ACTIVE.reset(token)
        workers.close()


def chunk_bounds(n: int, n_chunks: int = N_CHUNKS) -> list[tuple[int, int]]:
    """Cut ``range(n)`` into at most ``n_chunks`` ranges whose sizes differ by one at most."""
    count = max(1, min(n, n_chunks))
    return [(n * c // count, n * (c + 1) // count) for c in range(count)]


def sum_over_chunks(
    evaluate: Callable[[int, int], T], n: int, n_jobs: int, add: Callable[[T, T], T], n_chunks: int = N_CHUNKS
) -> T:
    """Return the tree sum of ``evaluate(first, last)`` over the chunks of ``range(n)``."""
    return sum_over_runs(lambda some: (evaluate(*each) for each in some), chunk_bounds(n, n_chunks), n_jobs, add)


def sum_over_runs(
    evaluate: Callable[[list[tuple[int, int]]], Iterable[T]],
    bounds: list[tuple[int, int]],
    n_jobs: int,
    add: Callable[[T, T], T],
) -> T:
    """Return the tree sum over chunks of which ``evaluate`` yields several, in order: perhaps in one call."""
    with one_blas_thread():
        if n_jobs <= 1 or len(bounds) == 1:
            return tree_sum(evaluate(bounds), add)
        return _Shared(evaluate, bounds, add).run(n_jobs)


def runs(count: int, n_jobs: int) -> Iterator[range]:
    """Yield runs of chunks that threads take in turn: long ones first, for few calls, short ones last, so nobody waits."""
    first = 0
    while first < count:
        last = first - (first - count) // (2 * n_jobs)
        yield range(first, last)
        first = last


def map_in_order(function: Callable[[int], T], n: int, n_jobs: int) -> list[T]:
    """Return ``[function(0), ..., function(n - 1)]``, computed by ``n_jobs`` threads."""
    if n_jobs <= 1 or n <= 1:
        return [function(k) for k in range(n)]
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


class Node(NamedTuple, Generic[T]):
    """The sum of 2^height chunks from ``start`` on."""

    start: int
    height: int
    value: T


def join(nodes: Iterable[Node[T]], add: Callable[[T, T], T]) -> list[Node[T]]:
    """Add nodes, given in rising order, as far as the tree allows, as they come."""
    stack: list[Node[T]] = []
    for node in nodes:
        while stack and _are_siblings(stack[-1], node):
            left = stack.pop()
            node = Node(left.start, node.height + 1, add(left.value, node.value))
        stack.append(node)
    return stack


def _are_siblings(left: Node[T], right: Node[T]) -> bool:
    size = 1 << left.height
    return left.height == right.height and left.start + size == right.start and left.start % (2 * size) == 0


def total(nodes: list[Node[T]], add: Callable[[T, T], T]) -> T:
    """Return the sum of all chunks from nodes that are joined."""
    value = nodes[-1].value
    for node in nodes[-2::-1]:
        value = add(node.value, value)
    return value


def tree_sum(parts: Iterable[T], add: Callable[[T, T], T]) -> T:
    """Add parts in a binary tree over their number, as they come."""
    return total(join((Node(number, 0, part) for number, part in enumerate(parts)), add), add)


class _Shared(Generic[T]):
    """Chunks that several threads take in turn, some at a time, the calling thread among them, and the tree of their sums.

    A thread that has a sum adds its neighbour's in the tree, if that is there, and leaves it there otherwise: nobody waits
    for results, which would cost every chunk two switches of threads.
    """

    def __init__(
        self,
        evaluate: Callable[[list[tuple[int, int]]], Iterable[T]],
        bounds: list[tuple[int, int]],
        add: Callable[[T, T], T],
    ) -> None:
        self.evaluate = evaluate
        self.bounds = bounds
        self.add = add
        self.runs: Iterator[range] = iter(())
        self.ended = False
        self.lock = Lock()
        self.sums: dict[tuple[int, int], T] = {}  # (height, number) -> a sum that waits for its neighbour

    def run(self, n_jobs: int) -> T:
        """Return the sum of all chunks."""
        self.runs = iter(list(runs(len(self.bounds), n_jobs)))
        others = [_pool(n_jobs).submit(self._work) for _ in range(min(n_jobs, len(self.bounds)) - 1)]
        try:
            self._work()
        finally:
            started = [other for other in others if not other.cancel()]
            wait(started)
        for other in started:
            other.result()
        (total,) = self.sums.values()
        return total

    def _work(self) -> None:
        try:
            while (run := next(self.runs, None)) is not None:  # one step of the interpreter: no lock needed
                for chunk, total in zip(run, self.evaluate(self.bounds[run.start : run.stop]), strict=True):
                    self._climb(chunk, total)
                    if self.ended:
                        return
        except BaseException:
            self.ended, self.runs = True, iter(())  # after an error nothing goes on unseen
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
    os.register_at_fork(after_in_child=_blas_limit.after_fork)
