"""Speed: nanoseconds per directed message (per variable for mean field) of every algorithm, kernel family and type.

Times are the best processor time of several runs after compiling. Bars are ratios within one run, since machines differ
and are noisy: to the C kernels of a reference folder, or between rows. Workloads are in ``workloads``.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from backfield.errors import InputError
from backfield.graph import Potentials
from backfield.inference.base import Engine
from backfield.registry import get
from backfield_benchmarks.bars import compare, run_reference
from backfield_benchmarks.process import memory, startup
from backfield_benchmarks.workloads import as_general, square, workload

Row = dict[str, Any]

DTYPES = ("float64", "float32")
BP, TRW, MEAN_FIELD = "loopy_bp", "tree_reweighted(rho=0.5)", "mean_field"
ALGORITHMS = (BP, TRW, "tree_reweighted(rho=0.7)", MEAN_FIELD)
#: The kernel families of message passing and of mean field.
FAMILIES = ("lattice", "pairwise", "general", "log")
FACTORISED = ("lattice", "general")


def run(cases: list[str], reference: Path | None = None, quick: bool = False) -> list[Row]:
    """Return the rows of the cases asked for (all without any), compared with each other and with C."""
    for case in cases:
        if case not in CASES:
            raise InputError(f"there is no case {case!r}; known: {', '.join(CASES)}.")
    rows: list[Row] = []
    limits: dict[tuple[str, str], float] = {}
    run_reference(reference, limits)
    for case in cases or CASES:
        rows += [{"case": case, **row} for row in CASES[case](quick)]
        run_reference(reference, limits)  # again: the machine may have been busy before
    return compare(rows, limits)


def best_of(function: Callable[[], Any], repeat: int = 9) -> float:
    """Return the shortest processor time of several runs."""
    times = []
    for _ in range(repeat):
        start = time.process_time()
        function()
        times.append(time.process_time() - start)
    return min(times)


def bound(algorithm: str, family: str, theta: Potentials) -> Engine:
    """Bind an algorithm to ``theta`` with the kernels of one family."""
    return get("inference", algorithm).replace(family=family).engine(theta)


def _measured(algorithm: str, family: str, theta: Potentials, sweeps: int) -> Row:
    """Measure the sweeps of one engine; compiling (or reading it from numba's cache) is counted apart."""

    def first() -> Engine:
        engine = bound(algorithm, family, theta)
        engine.sweeps(engine.init(), 0, 1)
        return engine

    start = time.perf_counter()
    engine = first()
    compiled = time.perf_counter() - start
    again = best_of(first, 1)
    state = engine.init()
    seconds = best_of(lambda: engine.sweeps(state, 0, sweeps)) / sweeps
    count, unit = theta.graph.n_slots, "message"
    if algorithm == MEAN_FIELD:
        count, unit = theta.graph.n_variables, "variable"
    return {
        "algorithm": algorithm,
        "family": family,
        "dtype": str(theta.dtype),
        "computed_in": str(engine.theta.dtype),  # float64 where products of messages would leave the range of float32
        "labels": theta.graph.n_labels,
        "ns": 1e9 * seconds / count,
        "unit": unit,
        "compile_s": max(0.0, compiled - again),
    }


def _families(algorithm: str, lattice: bool) -> tuple[str, ...]:
    known = FACTORISED if algorithm == MEAN_FIELD else FAMILIES
    return known if lattice else known[1:]


def _messages(quick: bool) -> Iterator[Row]:
    """Every algorithm and family on w1 as a grid and as any graph, w2 and w4."""
    for name in ("w1", "w1 as any graph", "w2", "w4"):
        for dtype in DTYPES:
            theta = workload(name[:2], dtype)
            if name.endswith("graph"):
                theta = as_general(theta)
            for algorithm in ALGORITHMS:
                for family in _families(algorithm, lattice=name == "w1"):
                    sweeps = 2 if quick else 5 if family == "log" else 50
                    yield {"workload": name, **_measured(algorithm, family, theta, sweeps)}


def _labels(quick: bool) -> Iterator[Row]:
    """Every algorithm and family on the grid of w2, with other numbers of labels."""
    for count in (2, 3, 5, 8):
        for dtype in DTYPES:
            theta = workload("w2", dtype, labels=count)
            for algorithm in ALGORITHMS[:1] if quick else ALGORITHMS:
                for family in _families(algorithm, lattice=False)[: 1 if quick else None]:
                    sweeps = 2 if family == "log" else 5 if quick else 20
                    yield {"workload": "60x80", **_measured(algorithm, family, theta, sweeps)}


def _gradient(quick: bool) -> Iterator[Row]:
    """The univariate logistic loss through sweeps of TRW on w1: by the engines alone, and by the library's function."""
    for family in FAMILIES[:3]:
        for dtype in DTYPES:
            theta = workload("w1", dtype) if family == "lattice" else as_general(workload("w1", dtype))
            for sweeps in (5,) if quick else (5, 20, 50):
                for how, measure in (("engine", _by_engine), ("value_and_gradient", _by_library)):
                    forward, total = measure(family, theta, sweeps)
                    yield {
                        "workload": "w1" if family == "lattice" else "w1 as any graph",
                        "algorithm": f"gradient, {how}, {sweeps} sweeps",
                        "family": family,
                        "dtype": dtype,
                        "labels": 2,
                        "sweeps": sweeps,
                        "ns": 1e9 * total / sweeps / theta.graph.n_slots,
                        "unit": "message",
                        "total_ms": 1e3 * total,
                        "over_forward": total / forward,
                    }


def _by_engine(family: str, theta: Potentials, sweeps: int) -> tuple[float, float]:
    """Return seconds forward, with all states kept, and in all: what ``limit_bp`` does."""
    engine = bound(TRW, family, theta)
    tape = [engine.init() for _ in range(sweeps + 1)]
    at = 2 * np.arange(theta.graph.n_variables) + np.arange(theta.graph.n_variables) % 2

    def forward() -> Potentials:
        for t in range(sweeps):
            tape[t + 1][:] = tape[t]
            engine.sweep(tape[t + 1], t)
        return engine.marginals(tape[-1], factors=False)

    def total() -> Potentials:
        mu = forward()
        d_unary = np.zeros_like(mu.unary_flat)
        d_unary[at] = -1 / mu.unary_flat[at]
        d_theta, d_state = engine.adjoint(), np.zeros_like(tape[-1])
        engine.marginals_vjp(tape[-1], Potentials.from_flat(mu.graph, d_unary, d_unary[:0]), d_state, d_theta)
        for t in range(sweeps - 1, -1, -1):
            engine.sweep_vjp(tape[t], tape[t + 1], t, d_state, d_theta)
        return d_theta.potentials(mu.graph)

    total()
    return best_of(forward), best_of(total)


def _by_library(family: str, theta: Potentials, sweeps: int) -> tuple[float, float]:
    """Return seconds of inference and of the gradient, each with preparing theta."""
    from backfield.api import infer, value_and_gradient

    method = get("inference", TRW).replace(family=family, n_iter=sweeps)
    labels = np.arange(theta.graph.n_variables) % 2
    options = {"loss": "univariate_logistic", "inference": method, "dtype": theta.dtype}
    value_and_gradient(theta, labels, **options)
    infer(theta, method, dtype=theta.dtype)
    return (
        best_of(lambda: infer(theta, method, dtype=theta.dtype)),
        best_of(lambda: value_and_gradient(theta, labels, **options)),
    )


def _threads(quick: bool) -> Iterator[Row]:
    """Independent copies of w1 in as many threads as there are cores: wall time, all threads together."""
    cores = os.cpu_count() or 1
    sweeps = 20 if quick else 200
    for dtype in DTYPES:
        grid = workload("w1", dtype)
        for algorithm in ALGORITHMS:
            for family in _families(algorithm, lattice=True):
                theta = grid if family == "lattice" else as_general(grid)
                row = _measured(algorithm, family, theta, 2)
                count = theta.graph.n_variables if algorithm == MEAN_FIELD else theta.graph.n_slots
                for threads in sorted({1, cores}):
                    seconds = _in_threads(threads, algorithm, family, theta, sweeps if family == "lattice" else 5)
                    ns = 1e9 * seconds / threads / count
                    yield {"workload": "w1", **row, "threads": threads, "ns": ns}


def _in_threads(threads: int, algorithm: str, family: str, theta: Potentials, sweeps: int) -> float:
    """Return the shortest wall time of a sweep of ``threads`` engines at once."""
    engines = [bound(algorithm, family, theta) for _ in range(threads)]
    states = [engine.init() for engine in engines]
    times = []
    with ThreadPoolExecutor(threads) as pool:
        for _ in range(5):
            start = time.perf_counter()
            list(pool.map(lambda k: engines[k].sweeps(states[k], 0, sweeps), range(threads)))
            times.append(time.perf_counter() - start)
    return min(times) / sweeps


def _scaling(quick: bool) -> Iterator[Row]:
    """Time per message, and memory, against the size of a binary grid in float32."""
    for side in (100, 300) if quick else (100, 1000, 3000):
        yield {"workload": f"{side}x{side}", **_measured(TRW, "lattice", square(side), 50 if side == 100 else 3)}
    side = 300 if quick else 1000
    for what, megabytes in memory(side).items():
        yield {"workload": f"{side}x{side}", "algorithm": what, "family": "lattice", "dtype": "float32", "labels": 2,
               "peak_MB": megabytes}  # fmt: skip


def _startup(quick: bool) -> Iterator[Row]:
    """The first fit of a grid after installation, and in a later process."""
    yield from startup()


CASES: dict[str, Callable[[bool], Iterator[Row]]] = {
    "messages": _messages,
    "labels": _labels,
    "gradient": _gradient,
    "threads": _threads,
    "scaling": _scaling,
    "startup": _startup,
}


def machine() -> Row:
    """Return what the figures depend on."""
    import numba

    return {
        "cores": os.cpu_count(),
        "cpu": numba.core.codegen.ll.get_host_cpu_name(),
        "python": sys.version.split()[0],
        "numpy": np.__version__,
        "numba": numba.__version__,
    }
