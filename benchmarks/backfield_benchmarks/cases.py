"""What is measured: a case is a list of tasks, a task one row of figures.

Figures are nanoseconds per directed message (per variable for mean field) of every algorithm, kernel family and type: the
best processor time of several runs after compiling. Workloads are in ``workloads``. Uses names that the library has had for
long, so an older version can run it, too (``against``).
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from backfield import Potentials, infer, value_and_gradient
from backfield.inference import LoopyBP, MeanField, TreeReweighted
from backfield_benchmarks.process import memory, startup
from backfield_benchmarks.workloads import as_general, square, workload

Row = dict[str, Any]

DTYPES = ("float64", "float32")
MEAN_FIELD = "mean_field"
ALGORITHMS: dict[str, Any] = {
    "loopy_bp": LoopyBP(),
    "tree_reweighted(rho=0.5)": TreeReweighted(rho=0.5),
    "tree_reweighted(rho=0.7)": TreeReweighted(rho=0.7),
    MEAN_FIELD: MeanField(),
}
TRW = "tree_reweighted(rho=0.5)"
#: The kernel families of message passing and of mean field.
FAMILIES = ("lattice", "pairwise", "general", "log")
FACTORISED = ("lattice", "general")


class Task(NamedTuple):
    """One row: what it says about itself, and what measures its figures."""

    about: Row
    measure: Callable[[], Row]


class Effort(NamedTuple):
    """How much work is done."""

    quick: bool = False
    #: Runs of which the best counts.
    repeat: int = 9


def best_of(function: Callable[[], Any], repeat: int) -> float:
    """Return the shortest processor time of several runs."""
    times = []
    for _ in range(repeat):
        start = time.process_time()
        function()
        times.append(time.process_time() - start)
    return min(times)


def bind(algorithm: str, family: str, theta: Potentials) -> Any:
    """Return the engine of an algorithm on ``theta`` with the kernels of one family."""
    return ALGORITHMS[algorithm].replace(family=family).engine(theta)


def _sweeps(algorithm: str, family: str, model: Callable[[], Potentials], sweeps: int, repeat: int) -> Row:
    """Measure the sweeps of one engine; compiling (or reading it from numba's cache) is counted apart."""
    theta = model()

    def first() -> Any:
        engine = bind(algorithm, family, theta)
        engine.sweeps(engine.init(), 0, 1)
        return engine

    start = time.perf_counter()
    engine = first()
    compiled = time.perf_counter() - start
    again = best_of(first, 1)
    state = engine.init()
    seconds = best_of(lambda: engine.sweeps(state, 0, sweeps), repeat) / sweeps
    return {
        "computed_in": str(engine.theta.dtype),  # float64 where products of messages would leave the range of float32
        "ns": 1e9 * seconds / _count(algorithm, theta),
        "unit": "variable" if algorithm == MEAN_FIELD else "message",
        "compile_s": max(0.0, compiled - again),
    }


def _count(algorithm: str, theta: Potentials) -> int:
    return int(theta.graph.n_variables if algorithm == MEAN_FIELD else theta.graph.n_slots)


def _about(workload: str, algorithm: str, family: str, dtype: str, labels: int) -> Row:
    return {"workload": workload, "algorithm": algorithm, "family": family, "dtype": dtype, "labels": labels}


def _families(algorithm: str, lattice: bool) -> tuple[str, ...]:
    known = FACTORISED if algorithm == MEAN_FIELD else FAMILIES
    return known if lattice else known[1:]


def _w1(dtype: str, lattice: bool) -> Potentials:
    theta = workload("w1", dtype)
    return theta if lattice else as_general(theta)


def _messages(effort: Effort) -> Iterator[Task]:
    """Every algorithm and family on w1 as a grid and as any graph, w2 and w4."""
    for name in ("w1", "w1 as any graph", "w2", "w4"):
        for dtype in DTYPES:
            model = partial(_w1, dtype, name == "w1") if name[:2] == "w1" else partial(workload, name, dtype)
            for algorithm in ALGORITHMS:
                for family in _families(algorithm, lattice=name == "w1"):
                    sweeps = 2 if effort.quick else 5 if family == "log" else 50
                    about = _about(name, algorithm, family, dtype, 8 if name == "w2" else 2)
                    yield Task(about, partial(_sweeps, algorithm, family, model, sweeps, effort.repeat))


def _labels(effort: Effort) -> Iterator[Task]:
    """Every algorithm and family on the grid of w2, with other numbers of labels."""
    for count in (2, 3, 5, 8):
        for dtype in DTYPES:
            model = partial(workload, "w2", dtype, count)
            for algorithm in list(ALGORITHMS)[: 1 if effort.quick else None]:
                for family in _families(algorithm, lattice=False)[: 1 if effort.quick else None]:
                    sweeps = 2 if family == "log" else 5 if effort.quick else 20
                    about = _about("60x80", algorithm, family, dtype, count)
                    yield Task(about, partial(_sweeps, algorithm, family, model, sweeps, effort.repeat))


def _gradient(effort: Effort) -> Iterator[Task]:
    """The univariate logistic loss through sweeps of TRW on w1: by the engines alone, and by the library's function."""
    for family in FAMILIES[:3]:
        name = "w1" if family == "lattice" else "w1 as any graph"
        for dtype in DTYPES:
            for sweeps in (5,) if effort.quick else (5, 20, 50):
                for how, seconds in (("engine", _by_engine), ("value_and_gradient", _by_library)):
                    about = _about(name, f"gradient, {how}, {sweeps} sweeps", family, dtype, 2) | {"sweeps": sweeps}
                    yield Task(about, partial(_gradient_row, seconds, family, dtype, sweeps, effort.repeat))


def _gradient_row(seconds: Callable[..., tuple[float, float]], family: str, dtype: str, sweeps: int, repeat: int) -> Row:
    theta = _w1(dtype, family == "lattice")
    forward, total = seconds(family, theta, sweeps, repeat)
    return {
        "ns": 1e9 * total / sweeps / theta.graph.n_slots,
        "unit": "message",
        "total_ms": 1e3 * total,
        "over_forward": total / forward,
    }


def _by_engine(family: str, theta: Potentials, sweeps: int, repeat: int) -> tuple[float, float]:
    """Return seconds forward, with all states kept, and in all: what ``limit_bp`` does."""
    engine = bind(TRW, family, theta)
    tape = [engine.init() for _ in range(sweeps + 1)]
    at = 2 * np.arange(theta.graph.n_variables) + np.arange(theta.graph.n_variables) % 2

    def forward() -> Any:
        for t in range(sweeps):
            tape[t + 1][:] = tape[t]
            engine.sweep(tape[t + 1], t)
        return engine.marginals(tape[-1], factors=False)

    def total() -> Any:
        mu = forward()
        d_unary = np.zeros_like(mu.unary_flat)
        d_unary[at] = -1 / mu.unary_flat[at]
        d_theta, d_state = engine.adjoint(), np.zeros_like(tape[-1])
        engine.marginals_vjp(tape[-1], Potentials.from_flat(mu.graph, d_unary, d_unary[:0]), d_state, d_theta)
        for t in range(sweeps - 1, -1, -1):
            engine.sweep_vjp(tape[t], tape[t + 1], t, d_state, d_theta)
        return d_theta.potentials(mu.graph)

    total()
    return best_of(forward, repeat), best_of(total, repeat)


def _by_library(family: str, theta: Potentials, sweeps: int, repeat: int) -> tuple[float, float]:
    """Return seconds of inference and of the gradient, each with preparing theta."""
    method = ALGORITHMS[TRW].replace(family=family, n_iter=sweeps)
    labels = np.arange(theta.graph.n_variables) % 2
    forward = partial(infer, theta, method, dtype=theta.dtype)
    total = partial(value_and_gradient, theta, labels, loss="univariate_logistic", inference=method, dtype=theta.dtype)
    total()
    forward()
    return best_of(forward, repeat), best_of(total, repeat)


def _threads(effort: Effort) -> Iterator[Task]:
    """Independent copies of w1 in as many threads as there are cores: wall time, all threads together."""
    for dtype in DTYPES:
        for algorithm in ALGORITHMS:
            for family in _families(algorithm, lattice=True):
                sweeps = 5 if family != "lattice" else 20 if effort.quick else 200
                for threads in sorted({1, os.cpu_count() or 1}):
                    about = _about("w1", algorithm, family, dtype, 2) | {"threads": threads}
                    yield Task(about, partial(_in_threads, algorithm, family, dtype, threads, sweeps, effort.repeat))


def _in_threads(algorithm: str, family: str, dtype: str, threads: int, sweeps: int, repeat: int) -> Row:
    """Measure the shortest wall time of a sweep of ``threads`` engines at once."""
    theta = _w1(dtype, family == "lattice")
    row = _sweeps(algorithm, family, lambda: theta, 2, 1)
    engines = [bind(algorithm, family, theta) for _ in range(threads)]
    states = [engine.init() for engine in engines]
    times = []
    with ThreadPoolExecutor(threads) as pool:
        for _ in range(max(1, repeat // 2 + 1)):
            start = time.perf_counter()
            list(pool.map(lambda k: engines[k].sweeps(states[k], 0, sweeps), range(threads)))
            times.append(time.perf_counter() - start)
    return {**row, "ns": 1e9 * min(times) / sweeps / threads / _count(algorithm, theta)}


def _scaling(effort: Effort) -> Iterator[Task]:
    """Time per message, and memory, against the size of a binary grid in float32."""
    for side in (100, 300) if effort.quick else (100, 1000, 3000):
        about = _about(f"{side}x{side}", TRW, "lattice", "float32", 2)
        sweeps = 50 if side == 100 else 3
        yield Task(about, partial(_sweeps, TRW, "lattice", partial(square, side), sweeps, effort.repeat))
    side = 300 if effort.quick else 1000
    for what, megabytes in memory(side).items():
        yield Task(_about(f"{side}x{side}", what, "lattice", "float32", 2), partial(_peak, megabytes))


def _peak(megabytes: Callable[[], float]) -> Row:
    return {"peak_MB": megabytes()}


def _startup(effort: Effort) -> Iterator[Task]:
    """Processor time of what people do first, after installation and in a later process."""
    for (state, what), seconds in startup().items():
        yield Task(_about(state, what, "", "", 2), seconds)


CASES: dict[str, Callable[[Effort], Iterator[Task]]] = {
    "messages": _messages,
    "labels": _labels,
    "gradient": _gradient,
    "threads": _threads,
    "scaling": _scaling,
    "startup": _startup,
}


def tasks(cases: list[str], effort: Effort) -> Iterator[Task]:
    """Yield the tasks of the cases asked for, all without any."""
    for case in cases or CASES:
        for task in CASES[case](effort):
            yield Task({"case": case, **task.about}, task.measure)
