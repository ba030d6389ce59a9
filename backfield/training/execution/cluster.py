"""The same sum over chunks on the workers of a Dask scheduler.

An object (a problem) is shared: pickled once, opened on each worker that needs it and kept there. A sum sends parameters
to each worker, which computes the chunks that are at home with it and adds neighbours along the tree; what comes back are
a few nodes per worker, which are added here. So every sum has the bytes that threads on one machine give.

A worker that dies takes nothing with it: Dask runs its tasks elsewhere, where the object is opened again.

Cost of a sum beyond the kernels of the slowest worker: a few messages per worker, O(weights log chunks) bytes each way,
whatever the amount of data (``docs/scale.md``).
"""

from __future__ import annotations

import copy
import hashlib
import operator
import pickle
import platform
import secrets
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import cache, partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np

from backfield.errors import ClusterError, InputError
from backfield.training.execution.threads import N_CHUNKS, Node, chunk_bounds, join, one_blas_thread, set_malloc, total

#: Seconds within which a scheduler must answer.
TIMEOUT = 15.0
#: Seconds after which the list of workers is asked for again.
REFRESH = 5.0
#: Seconds for which there may be no worker at all: a dead one is restarted within a few.
PATIENCE = 60.0
#: How often a task that failed is tried again: two threads of a new worker that import at once can stop each other.
RETRIES = 2
#: What must be the same everywhere, else sums would differ in their last bits, or pickles could not be read.
PACKAGES = ("numpy", "scipy", "numba", "distributed")


class Summable(Protocol):
    """What can be shared: it sums some examples, and adds such sums."""

    def chunk(self, numbers: np.ndarray, *arguments: Any) -> Any:
        """Return the sum over some examples, in order."""

    def add(self, a: Any, b: Any) -> Any:
        """Return a + b."""


class Cost(NamedTuple):
    """What the last sum took; bytes (pickled, of parameters out and sums back) where they are counted."""

    seconds: float
    slowest: float
    kernels: float  # seconds of all tasks together
    tasks: int
    bytes_out: int = 0
    bytes_back: int = 0


class Cluster:
    """The workers of a scheduler."""

    def __init__(self, client: Any, close: Callable[[], None] | None = None) -> None:
        self.client, self._close = client, close
        self.address = str(client.scheduler.address) if client.scheduler is not None else "?"
        self._slots: list[str] = []
        self._asked = -np.inf
        self._known: set[str] = set()

    def slots(self) -> list[str]:
        """Return the address of a worker for each of its threads, in a fixed order."""
        if time.monotonic() - self._asked > REFRESH or not self._slots:
            self._slots = self._ask()
            self._asked = time.monotonic()
        return self._slots

    def _ask(self) -> list[str]:
        with clear_errors(self):
            self.client.wait_for_workers(1, timeout=PATIENCE)
            workers = self.client.scheduler_info(n_workers=-1)["workers"]
        new = sorted(set(workers) - self._known)
        if new:
            self._check_versions(new)
            self._known |= set(new)
        return [address for address in sorted(workers) for _ in range(workers[address]["nthreads"])]

    def _check_versions(self, workers: list[str]) -> None:
        try:
            found = self.client.run(versions, workers=workers, on_error="return")
        except Exception as error:
            raise ClusterError(f"the workers at {self.address} do not answer: {error}.") from error
        here = versions()
        for worker, theirs in sorted(found.items()):
            if isinstance(theirs, BaseException):
                raise InputError(f"the worker {worker} cannot run backfield: {theirs}; install the same version there.")
            differ = [
                f"{name} {here[name]} here, {theirs.get(name)} there" for name in here if theirs.get(name) != here[name]
            ]
            if differ:
                raise InputError(
                    f"versions differ between this machine and the worker {worker}: {'; '.join(differ)}; sums have the same "
                    "bytes only with the same versions: install them there."
                )

    def share(self, thing: Summable, costs: np.ndarray, blocks: list[Any] | None = None) -> Shared:
        """Return a handle on ``thing``, of whose examples the k-th costs about ``costs[k]``.

        ``blocks`` are the parts of it that only those workers need which have to do with them: block k serves the
        examples of chunk k of all.
        """
        return Shared(self, thing, costs.astype(np.float64), blocks)

    def hold(self, thing: Any) -> Any:
        """Return a future of an object that workers open; its bytes stay with the scheduler, so it is never lost."""
        return self.submit(pickle.loads, pickle.dumps(thing, protocol=5))

    def submit(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Return a future of ``function(*arguments)``."""
        import dask

        # Dask warns of large arguments, which would better be in files; docs/scale.md says it where it helps.
        with clear_errors(self), dask.config.set({"distributed.admin.large-graph-warning-threshold": "1 TB"}):
            return self.client.submit(function, *arguments, pure=False, retries=RETRIES)

    def send(self, function: Callable[..., Any], columns: list[Any], workers: list[str]) -> list[Any]:
        """Return futures of ``function(*row)``, each on its worker, or on another if that is gone; one message for all."""
        import dask

        word = secrets.token_hex(8)
        keys = [f"backfield-{word}-{k}" for k in range(len(workers))]
        homes = {key: [worker] for key, worker in zip(keys, workers, strict=True)}
        quiet = dask.config.set({"distributed.admin.large-graph-warning-threshold": "1 TB"})
        with quiet, dask.annotate(workers=partial(operator.getitem, homes), allow_other_workers=True, retries=RETRIES):
            return self.client.map(function, *columns, key=keys)

    def gather(self, futures: list[Any]) -> list[Any]:
        """Return the results; raise if for ``PATIENCE`` seconds there is no worker that could compute them."""
        from distributed import wait

        last = time.monotonic()
        while True:
            try:
                with self.client.as_current():
                    wait(futures, timeout=REFRESH)
                return self.client.gather(futures)
            except TimeoutError:
                workers = self.client.scheduler_info(n_workers=-1)["workers"].values()
                if any(worker.get("status", "running") == "running" for worker in workers):
                    last = time.monotonic()
                elif time.monotonic() - last > PATIENCE:
                    why = "all workers have paused, as their memory is full" if workers else "there are no workers any more"
                    raise ClusterError(f"{why} at {self.address}: waited for {PATIENCE:.0f} s.") from None

    def map(self, function: Callable[..., Any], tasks: Iterable[tuple[Any, ...]], ahead: int = 4) -> Iterator[Any]:
        """Yield ``function(*task)`` of each task in order, a few per thread in advance."""
        from collections import deque

        waiting: deque[Any] = deque()
        with clear_errors(self):
            for task in tasks:
                waiting.append(self.submit(function, *task))
                if len(waiting) >= ahead * len(self.slots()):
                    yield self.gather([waiting.popleft()])[0]
            while waiting:
                yield self.gather([waiting.popleft()])[0]

    def close(self) -> None:
        """Close what was opened here; a client of the user's stays open."""
        if self._close is not None:
            self._close()


class Shared:
    """An object that workers hold."""

    def __init__(self, cluster: Cluster, thing: Summable, costs: np.ndarray, blocks: list[Any] | None) -> None:
        self.cluster, self.add, self.n_examples = cluster, thing.add, len(costs)
        self.last: Cost | None = None
        self.counts_bytes = False
        cluster.slots()  # workers have looked at their versions, and imported all, before the first task comes
        middle = np.cumsum(costs) - costs / 2
        self._place = middle / max(float(costs.sum()), 1e-300)  # in [0, 1): which share of the work is before an example
        self.object = cluster.hold(thing)
        self._blocks = None if blocks is None else [cluster.hold(block) for block in blocks]
        self._ends = np.array([last for _, last in chunk_bounds(self.n_examples)])

    def instead(self, thing: Summable) -> Shared:
        """Return a handle on another object over the same blocks, which are not sent again."""
        other = copy.copy(self)
        other.object, other.last = self.cluster.hold(thing), None
        return other

    def sum(self, chosen: np.ndarray | None, *arguments: Any, n_chunks: int = N_CHUNKS) -> Any:
        """Return the tree sum over the chunks of all examples, or of the chosen ones."""
        return self.fold(_chunks, self.add, chosen, *arguments, n_chunks=n_chunks)

    def fold(
        self, function: Callable[..., Any], add: Callable[..., Any], chosen: Any, *arguments: Any, n_chunks: int = N_CHUNKS
    ) -> Any:
        """Return the tree sum of what ``function(object, numbers of each of some chunks, *arguments)`` yields."""
        start = time.perf_counter()
        tasks = self.tasks(chosen, n_chunks)
        with clear_errors(self.cluster):
            futures = self._submit(tasks, (function, add, arguments))
            results = self.cluster.gather(futures)
        nodes = sorted((node for found, _ in results for node in found), key=lambda node: node.start)
        value = total(join(nodes, add), add)
        times = [seconds for _, seconds in results]
        self.last = Cost(time.perf_counter() - start, max(times), sum(times), len(futures))
        if self.counts_bytes:
            sent = sum(_size((parts, arguments)) for _, parts, _ in tasks)
            self.last = self.last._replace(bytes_out=sent, bytes_back=sum(_size(found) for found, _ in results))
        return value

    def tasks(self, chosen: Any, n_chunks: int) -> list[tuple[str, list[tuple[int, Any]], Any]]:
        """Return a worker, [(number of a chunk, its examples)] and the blocks of these, for each thread that has some."""
        slots = self.cluster.slots()
        homes = self._assign(chosen, n_chunks, len(slots))
        return [(slots[home], parts, self._needed(parts)) for home, parts in sorted(homes.items())]

    def _submit(self, tasks: list[tuple[str, Any, Any]], job: Any) -> list[Any]:
        """Send the tasks (worker, chunks, blocks) in one message, each to its worker, or to another if that is gone."""
        columns = [[self.object] * len(tasks), *zip(*[task[1:] for task in tasks], strict=True), [job] * len(tasks)]
        return self.cluster.send(_partial, columns, [worker for worker, _, _ in tasks])

    def _assign(self, chosen: np.ndarray | None, n_chunks: int, n_slots: int) -> dict[int, list[tuple[int, Any]]]:
        """Return slot -> [(number of a chunk, its examples)]; a chunk goes where its first example is at home."""
        count = self.n_examples if chosen is None else len(chosen)
        homes: dict[int, list[tuple[int, Any]]] = {}
        for c, (first, last) in enumerate(chunk_bounds(count, n_chunks)):
            number = first if chosen is None else int(chosen[first])
            home = min(int(self._place[number] * n_slots), n_slots - 1)
            homes.setdefault(home, []).append((c, range(first, last) if chosen is None else chosen[first:last]))
        return homes

    def _needed(self, parts: list[tuple[int, Any]]) -> dict[int, Any] | None:
        """Return the blocks that hold the examples of some chunks."""
        if self._blocks is None:
            return None
        numbers = np.concatenate([np.asarray(each) for _, each in parts])
        return {int(k): self._blocks[k] for k in np.unique(np.searchsorted(self._ends, numbers, side="right"))}


def _chunks(thing: Summable, parts: list[np.ndarray], *arguments: Any) -> Iterator[Any]:
    return (thing.chunk(numbers, *arguments) for numbers in parts)


def _partial(thing: Any, parts: list[tuple[int, Any]], blocks: dict[int, Any] | None, job: Any) -> Any:
    """Sum some chunks on a worker; return the nodes and the seconds that it took."""
    start = time.perf_counter()
    function, add, arguments = job
    if blocks is not None:
        thing = thing.with_blocks(blocks)
    with one_thread():
        found = function(thing, [np.asarray(numbers) for _, numbers in parts], *arguments)
        nodes = join((Node(c, 0, each) for (c, _), each in zip(parts, found, strict=True)), add)
    return nodes, time.perf_counter() - start


@contextmanager
def one_thread() -> Iterator[None]:
    """Set a worker to compute as threads on one machine do."""
    set_malloc()  # Dask sets glibc to hand every free page back at once
    with one_blas_thread():
        yield


def _size(value: Any) -> int:
    return len(pickle.dumps(value, protocol=5))


def versions() -> dict[str, str]:
    """Return the versions that must agree."""
    found = {"python": ".".join(platform.python_version_tuple()[:2])}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "none"
    from backfield import __version__

    return found | {"backfield": __version__, "backfield's sources": _sources()}


@cache
def _sources() -> str:
    """Return a fingerprint of the package as it was when first asked: an edit under a running fit is another version."""
    root = Path(__file__).parents[1]
    digest = hashlib.blake2b(digest_size=4)
    for file in sorted(root.rglob("*.py")):
        digest.update(f"{file.relative_to(root)}".encode() + file.read_bytes())
    return digest.hexdigest()


@contextmanager
def clear_errors(cluster: Cluster) -> Iterator[None]:
    """Turn what Dask raises into one clear sentence; errors of tasks pass as they are."""
    from concurrent.futures import CancelledError

    from distributed import KilledWorker
    from distributed.comm import CommClosedError

    try:
        yield
    except KilledWorker as error:
        raise ClusterError(
            f"the same part of the work has ended several workers of {cluster.address}, the last one "
            f"{error.last_worker.address}: they may have too little memory."
        ) from error
    except TimeoutError as error:
        raise ClusterError(f"the scheduler at {cluster.address} has no workers, or does not answer any more.") from error
    except (CancelledError, CommClosedError) as error:
        raise ClusterError(f"the scheduler at {cluster.address} is lost.") from error


def open_cluster(cluster: Any) -> Cluster:
    """Return the workers of a Dask client, of the scheduler at an address, or of ``local:N`` processes on this machine."""
    try:
        import distributed
    except ImportError as error:
        raise InputError("a cluster needs Dask: pip install 'backfield[dask]'.") from error
    if isinstance(cluster, Cluster):
        return Cluster(cluster.client)
    if isinstance(cluster, distributed.Client):
        return Cluster(cluster)
    if hasattr(cluster, "scheduler_address"):  # a LocalCluster, or one of SLURM, Kubernetes, ...
        client = _connect(cluster)
        return Cluster(client, client.close)
    if not isinstance(cluster, str):
        raise InputError(
            f"cluster must be a Dask client or cluster, an address or 'local:N', received {type(cluster).__name__}."
        )
    if cluster.startswith("local:"):
        return _local(cluster)
    if not cluster.startswith(("tcp://", "tls://")):
        raise InputError(f"cluster must be local:N, tcp://host:port or tls://host:port, received {cluster!r}.")
    try:
        client = _connect(cluster)
    except TypeError as error:  # Dask's own word for it
        raise InputError(f"{cluster} needs Dask's TLS settings (distributed.comm.tls): {_reason(error)}.") from error
    except Exception as error:  # whatever answers there may send any bytes
        raise InputError(f"no Dask scheduler answers at {cluster} within {TIMEOUT:.0f} s ({_reason(error)}).") from error
    return Cluster(client, client.close)


def when_started(start: Callable[[], Any], attempts: int = 5) -> Any:
    """Return what Dask starts: it asserts that its thread runs within 10 s, which a paused or crowded machine may miss."""
    for _ in range(attempts - 1):
        try:
            return start()
        except AssertionError:
            continue
    return start()


def _connect(target: Any) -> Any:
    import distributed

    return when_started(lambda: distributed.Client(target, timeout=TIMEOUT, set_as_default=False))


def _local(text: str) -> Cluster:
    """Start worker processes of one thread each that nobody outside this machine can reach."""
    import distributed

    count = text.removeprefix("local:")
    if not count.isdecimal() or int(count) < 1:
        raise InputError(f"local:N takes a number of processes >= 1, received {text!r}.")
    options = {"dashboard_address": "127.0.0.1:0", "worker_dashboard_address": "127.0.0.1:0", "silence_logs": 50}
    options |= {"n_workers": int(count), "threads_per_worker": 1, "processes": True, "host": "127.0.0.1"}
    processes = when_started(lambda: distributed.LocalCluster(**options))
    client = _connect(processes)

    def close() -> None:
        client.close()
        processes.close()

    return Cluster(client, close)


def _reason(error: BaseException) -> str:
    while error.__cause__ is not None:
        error = error.__cause__
    return " ".join(str(error).split()) or type(error).__name__
