"""Speed: nanoseconds per directed message (per variable for mean field) of every algorithm, kernel family and type.

Workloads: w1 binary 100x100 grid, w2 60x80 grid with 8 labels, w4 random graph of 200 variables and 800 edges; potentials
N(0, 1) from fixed seeds. Times are the best of several runs after compiling; ratios are to the C kernels of a reference
folder in the same run, since machines differ and are noisy.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from backfield._component import get
from backfield.errors import InputError
from backfield.graph import Graph, Potentials
from backfield.inference._base import Engine

CASES = ("messages", "labels", "gradient", "threads", "scaling", "startup")
DTYPES = ("float64", "float32")


class Reference(NamedTuple):
    """Which C figure a row is compared with: (workload, part of its variant), and the largest ratio allowed."""

    workload: str
    variant: str
    bar: float


# (algorithm, spec, family, workload) -> C kernel for float64 and float32.
_LIMITS: dict[tuple[str, str, str], tuple[Reference, Reference | None]] = {
    ("loopy_bp", "lattice", "w1"): (Reference("W1", "ratio-msg f64", 1.5), Reference("W1", "ratio-msg f32", 2.0)),
    ("tree_reweighted(rho=0.5)", "lattice", "w1"): (
        Reference("W3", "ratio-msg f64", 1.5),
        Reference("W3", "ratio-msg f32", 2.0),
    ),
    ("mean_field", "lattice", "w1"): (Reference("W5", "f64", 2.0), Reference("W5", "f32", 2.0)),
    ("loopy_bp", "pairwise", "w1"): (Reference("W1", "generic-graph", 1.5), None),
    ("tree_reweighted(rho=0.5)", "pairwise", "w1"): (Reference("W3", "generic-graph", 1.5), None),
    ("loopy_bp", "pairwise", "w4"): (Reference("W4", "generic-graph", 1.5), None),
    ("loopy_bp", "pairwise", "w2"): (Reference("W2", "sweep f64", 1.5), Reference("W2", "sweep f32", 1.5)),
}


def run(cases: list[str], reference: Path | None = None, quick: bool = False) -> Iterator[dict[str, Any]]:
    """Yield the rows of the cases asked for (all without any)."""
    for case in cases:
        if case not in CASES:
            raise InputError(f"there is no case {case!r}; known: {', '.join(CASES)}.")
    limits = _run_reference(reference) if reference is not None else {}
    measure = {"messages": _messages, "labels": _labels, "gradient": _gradient, "threads": _threads, "scaling": _scaling,
               "startup": _startup}  # fmt: skip
    for case in cases or CASES:
        for row in measure[case](quick):
            yield _compared({"case": case, **row}, limits)


def workload(name: str, dtype: str = "float64", labels: int | None = None) -> Potentials:
    """Return the potentials of w1, w2 or w4 (same seeds as the C kernels' models)."""
    seed = {"w1": 1, "w2": 2, "w4": 4}[name]
    rng = np.random.default_rng(seed)
    if name == "w4":
        pairs = np.array([(i, j) for i in range(200) for j in range(i + 1, 200)])
        edges = pairs[np.sort(rng.choice(len(pairs), 800, replace=False))]
        graph = Graph.from_edges(edges, 200, 2)
        return Potentials(graph, rng.standard_normal((200, 2)), rng.standard_normal((800, 2, 2))).astype(dtype)
    rows, columns, count = (100, 100, 2) if name == "w1" else (60, 80, labels or 8)
    graph = Graph.grid(rows, columns, labels=count)
    unary = rng.standard_normal((rows * columns, count))
    tables = rng.standard_normal((graph.n_factors, count, count))
    drawn = np.lexsort((graph.factors[:, 1], graph.factors[:, 0]))  # the models draw edges sorted by their ends
    factors = np.empty_like(tables)
    factors[drawn] = tables
    return Potentials(graph, unary, factors).astype(dtype)


def _as_general(theta: Potentials) -> Potentials:
    """Return the same model on a graph that does not know that it is a grid."""
    graph = Graph.from_edges(theta.graph.factors, theta.graph.n_variables, theta.graph.n_labels or 2)
    return Potentials.from_flat(graph, theta.unary_flat, theta.factors_flat)


def best_of(function: Callable[[], Any], repeat: int = 7) -> float:
    """Return the shortest processor time of several runs."""
    times = []
    for _ in range(repeat):
        start = time.process_time()
        function()
        times.append(time.process_time() - start)
    return min(times)


def _bound(spec: str, family: str, theta: Potentials) -> Engine:
    return get("inference", spec).replace(family=family).engine(theta)


def _sweep_time(engine: Engine, sweeps: int, repeat: int = 7) -> tuple[float, float]:
    """Return seconds per sweep, and seconds of the first call (compilation, or reading it from the cache)."""
    state = engine.init()
    start = time.process_time()
    engine.sweeps(state, 0, 1)
    first = time.process_time() - start
    return best_of(lambda: engine.sweeps(state, 0, sweeps), repeat) / sweeps, first


def _unit(algorithm: str, theta: Potentials) -> tuple[int, str]:
    if algorithm.startswith("mean_field"):
        return theta.graph.n_variables, "variable"
    return theta.graph.n_slots, "directed message"


def _messages(quick: bool) -> Iterator[dict[str, Any]]:
    algorithms = ("loopy_bp", "tree_reweighted(rho=0.5)", "tree_reweighted(rho=0.7)", "mean_field")
    for name, families in (("w1", ("lattice", "pairwise", "general", "log")), ("w2", ("pairwise", "general")),
                           ("w4", ("pairwise", "general", "log"))):  # fmt: skip
        for algorithm in algorithms:
            for family in families:
                if algorithm == "mean_field" and family in ("pairwise", "log"):
                    continue
                for dtype in DTYPES:
                    theta = workload(name, dtype)
                    if family != "lattice":
                        theta = _as_general(theta)
                    seconds, first = _sweep_time(_bound(algorithm, family, theta), 5 if quick or family == "log" else 50)
                    count, unit = _unit(algorithm, theta)
                    yield {"workload": name, "algorithm": algorithm, "family": family, "dtype": dtype,
                           "labels": theta.graph.n_labels, "ns": 1e9 * seconds / count, "unit": unit,
                           "first_call_s": first}  # fmt: skip


def _labels(quick: bool) -> Iterator[dict[str, Any]]:
    for count in (2, 3, 5, 8):
        for dtype in DTYPES:
            theta = workload("w2", dtype, labels=count)
            seconds, first = _sweep_time(_bound("loopy_bp", "pairwise", theta), 5 if quick else 20)
            yield {"workload": "w2", "algorithm": "loopy_bp", "family": "pairwise", "dtype": dtype, "labels": count,
                   "ns": 1e9 * seconds / theta.graph.n_slots, "unit": "directed message", "first_call_s": first}  # fmt: skip


def _gradient(quick: bool) -> Iterator[dict[str, Any]]:
    for family in ("lattice", "pairwise", "general"):
        for dtype in DTYPES:
            theta = workload("w1", dtype)
            if family != "lattice":
                theta = _as_general(theta)
            engine = _bound("tree_reweighted(rho=0.5)", family, theta)
            labels = np.arange(theta.graph.n_variables) % 2
            for sweeps in (5,) if quick else (5, 20, 50):
                tape = [engine.init() for _ in range(sweeps + 1)]

                def forward(tape: list[np.ndarray] = tape, engine: Engine = engine) -> None:
                    for t in range(len(tape) - 1):
                        tape[t + 1][:] = tape[t]
                        engine.sweep(tape[t + 1], t)

                def both(
                    tape: list[np.ndarray] = tape,
                    engine: Engine = engine,
                    forward: Any = forward,
                    labels: np.ndarray = labels,
                ) -> None:
                    forward()
                    _backward(engine, tape, labels)

                both()
                alone, total = best_of(forward), best_of(both)
                yield {"workload": "w1", "algorithm": f"truncated gradient, {sweeps} sweeps of tree_reweighted(rho=0.5)",
                       "family": family, "dtype": dtype, "labels": 2, "sweeps": sweeps,
                       "ns": 1e9 * total / sweeps / theta.graph.n_slots, "unit": "directed message (forward + backward)",
                       "over_forward": total / alone}  # fmt: skip


def _backward(engine: Engine, tape: list[np.ndarray], labels: np.ndarray) -> Potentials:
    mu = engine.marginals(tape[-1], factors=False)
    d_unary = np.zeros_like(mu.unary_flat)
    at = 2 * np.arange(len(labels)) + labels
    d_unary[at] = -1 / mu.unary_flat[at]
    d_theta, d_state = engine.adjoint(), np.zeros_like(tape[-1])
    engine.marginals_vjp(tape[-1], Potentials.from_flat(mu.graph, d_unary, d_unary[:0]), d_state, d_theta)
    for t in range(len(tape) - 2, -1, -1):
        engine.sweep_vjp(tape[t], tape[t + 1].copy(), t, d_state, d_theta)
    return d_theta.potentials(mu.graph)


def _threads(quick: bool) -> Iterator[dict[str, Any]]:
    count = os.cpu_count() or 1
    theta = workload("w1")
    engines = [_bound("tree_reweighted(rho=0.5)", "lattice", theta) for _ in range(count)]
    states = [engine.init() for engine in engines]
    sweeps = 200 if quick else 1000

    def work(k: int) -> None:
        engines[k].sweeps(states[k], 0, sweeps)

    work(0)
    for threads in sorted({1, count}):
        with ThreadPoolExecutor(threads) as pool:
            start = time.perf_counter()
            list(pool.map(work, range(threads)))
            seconds = time.perf_counter() - start
        yield {"workload": "w1", "algorithm": "tree_reweighted(rho=0.5)", "family": "lattice", "dtype": "float64",
               "labels": 2, "threads": threads, "ns": 1e9 * seconds / threads / sweeps / theta.graph.n_slots,
               "unit": "directed message, all threads together"}  # fmt: skip


def _scaling(quick: bool) -> Iterator[dict[str, Any]]:
    for side in (100, 300) if quick else (100, 1000, 3000):
        rng = np.random.default_rng(0)
        graph = Graph.grid(side, side)
        unary = rng.standard_normal((graph.n_variables, 2), dtype=np.float32)
        theta = Potentials(graph, unary, rng.standard_normal((graph.n_factors, 2, 2), dtype=np.float32))
        seconds, _ = _sweep_time(_bound("tree_reweighted(rho=0.5)", "lattice", theta), 50 if side == 100 else 3, 3)
        yield {"workload": f"{side}x{side}", "algorithm": "tree_reweighted(rho=0.5)", "family": "lattice",
               "dtype": "float32", "labels": 2, "ns": 1e9 * seconds / graph.n_slots, "unit": "directed message"}  # fmt: skip
    side = 300 if quick else 1000
    code = (
        "import resource, numpy as np, backfield as bf;"
        "small = bf.Graph.grid(8, 8); zero = bf.Potentials(small, np.zeros((64, 2)), np.zeros((112, 2, 2)));"
        "bf.infer(zero, 'tree_reweighted(n_iter=2)', dtype='float32');"
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss;"
        f"g = bf.Graph.grid({side}, {side}); r = np.random.default_rng(0);"
        "u = r.standard_normal((g.n_variables, 2), dtype=np.float32);"
        "t = bf.Potentials(g, u, r.standard_normal((g.n_factors, 2, 2), dtype=np.float32));"
        "run = bf.infer(t, 'tree_reweighted(n_iter=10)', dtype='float32');"
        "print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024)"
    )
    peak = float(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout)
    yield {"workload": f"{side}x{side}", "algorithm": "infer, tree_reweighted(n_iter=10)", "family": "lattice",
           "dtype": "float32", "labels": 2, "peak_MB": peak, "bar": 200.0}  # fmt: skip


def _startup(quick: bool) -> Iterator[dict[str, Any]]:
    code = (
        "import time; s = time.perf_counter(); import numpy as np, backfield as bf; i = time.perf_counter() - s;"
        "r = np.random.default_rng(0); X = [r.random((20, 20, 1)) for _ in range(2)];"
        "Y = [(x[..., 0] > .5).astype(int) for x in X];"
        "s = time.perf_counter(); bf.GridCRF(learner='lbfgs(max_iter=3)').fit(X, Y); print(i, time.perf_counter() - s)"
    )
    with tempfile.TemporaryDirectory() as cache:
        for what in ("first fit of a grid, empty cache", "first fit of a grid, later process"):
            done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True,
                                  env={**os.environ, "NUMBA_CACHE_DIR": cache})  # fmt: skip
            imported, fitted = map(float, done.stdout.split())
            yield {"workload": "startup", "algorithm": what, "import_s": imported, "fit_s": fitted,
                   "bar": 20.0 if "empty" in what else 1.0}  # fmt: skip


def _run_reference(folder: Path) -> dict[tuple[str, str], float]:
    """Run the C kernels built in ``folder`` twice and return the best ns of each (workload, variant)."""
    out: dict[tuple[str, str], float] = {}
    for program in ("limit", "limit_bp", "limit_bp32") * 2:
        path = folder / program
        if not path.exists():
            raise InputError(f"{folder} holds no {program}; build it there as its README says.")
        done = subprocess.run([str(path.resolve()), str(folder)], capture_output=True, text=True, check=True)
        for line in done.stdout.splitlines():
            row = json.loads(line)
            if "ns_per_unit" in row:
                key = (row["workload"], row["variant"])
                out[key] = min(out.get(key, np.inf), row["ns_per_unit"])
    return out


def _compared(row: dict[str, Any], limits: dict[tuple[str, str], float]) -> dict[str, Any]:
    """Add the C figure and the ratio where there is one."""
    wanted: Reference | None = None
    if row["case"] == "messages":
        pair = _LIMITS.get((row["algorithm"], row["family"], row["workload"]))
        if pair is not None:
            wanted = pair[0] if row["dtype"] == "float64" else pair[1]
    if row["case"] == "gradient" and row["family"] == "lattice":
        wanted = Reference("W8", f"{'f64' if row['dtype'] == 'float64' else 'f32'} {row['sweeps']} iters", 2.5)
    if wanted is None:
        return row
    for (name, variant), ns in limits.items():
        if name == wanted.workload and wanted.variant in variant:
            return {**row, "C_ns": ns, "ratio": row["ns"] / ns, "bar": wanted.bar}
    return row


def machine() -> dict[str, Any]:
    """Return what the figures depend on."""
    return {"cpu_count": os.cpu_count(), "python": sys.version.split()[0], "numpy": np.__version__,
            "peak_MB": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}  # fmt: skip
