"""What the figures of a benchmark are held against: the C kernels, or other rows of the same run.

A row gets ``ratio``, ``bar`` (the largest ratio allowed) and ``versus`` (what it is a ratio to).
"""

from __future__ import annotations

import json
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from backfield.errors import InputError
from backfield_benchmarks.process import COLD, WARM

Row = dict[str, Any]
PROGRAMS = ("limit", "limit_bp", "limit_bp32")
MODELS = ("w1", "w2", "w4", "small")

_GENERIC = "generic-graph CSR node sweep f64"
# (workload, algorithm, family) -> workload of the C kernel, and for each type part of its variant and the bar.
_LIMITS: dict[tuple[str, str, str], tuple[str, dict[str, tuple[str, float]]]] = {
    ("w1", "loopy_bp", "lattice"): ("W1", {"float64": ("ratio-msg f64", 1.5), "float32": ("ratio-msg f32", 2.0)}),
    ("w1", "tree_reweighted(rho=0.5)", "lattice"): (
        "W3",
        {"float64": ("ratio-msg f64", 1.5), "float32": ("ratio-msg f32", 2.0)},
    ),
    ("w1", "mean_field", "lattice"): ("W5", {"float64": ("f64", 2.0), "float32": ("f32", 2.0)}),
    ("w1 as any graph", "loopy_bp", "pairwise"): ("W1", {"float64": (_GENERIC, 1.5), "float32": (_GENERIC, 1.5)}),
    ("w1 as any graph", "tree_reweighted(rho=0.5)", "pairwise"): (
        "W3",
        {"float64": (_GENERIC, 1.5), "float32": (_GENERIC, 1.5)},
    ),
    ("w4", "loopy_bp", "pairwise"): ("W4", {"float64": (_GENERIC, 1.5), "float32": (_GENERIC, 1.5)}),
    ("w2", "loopy_bp", "pairwise"): ("W2", {"float64": ("sweep f64", 1.5), "float32": ("sweep f32", 1.5)}),
}


def run_reference(folder: Path | None, limits: dict[tuple[str, str], float]) -> None:
    """Run the C kernels built in ``folder`` and keep in ``limits`` the best ns of each (workload, variant) so far."""
    if folder is None:
        return
    for name in (*PROGRAMS, *(f"{model}.bin" for model in MODELS)):
        if not (folder / name).exists():
            raise InputError(f"{folder} holds no {name}; build the C kernels and write their models there.")
    with tempfile.TemporaryDirectory() as scratch:
        # They write marginals next to the folder of their models.
        models = Path(scratch, "models")
        for directory in (models, Path(scratch, "marg")):
            directory.mkdir()
        for name in MODELS:
            (models / f"{name}.bin").symlink_to((folder / f"{name}.bin").resolve())
        for program in PROGRAMS:
            command = [str((folder / program).resolve()), str(models)]
            done = subprocess.run(command, capture_output=True, text=True, check=True)
            for row in map(json.loads, done.stdout.splitlines()):
                if "ns_per_unit" in row:
                    key = (row["workload"], row["variant"])
                    limits[key] = min(limits.get(key, np.inf), row["ns_per_unit"])


def compare(rows: list[Row], limits: dict[tuple[str, str], float]) -> list[Row]:
    """Add ratios to the rows that have a bar."""
    return [{**row, **_compared(row, rows, limits)} for row in rows]


def _compared(row: Row, rows: list[Row], limits: dict[tuple[str, str], float]) -> Row:
    for versus, base, value, bar in _bars(row, rows, limits):
        return {"versus": versus, "ratio": value / base, "bar": bar}
    return {}


def _bars(row: Row, rows: list[Row], limits: dict[tuple[str, str], float]) -> Iterator[tuple[str, float, float, float]]:
    """Yield (what, its figure, ours, the bar), the most telling first."""
    case, family, workload = row["case"], row["family"], row["workload"]
    if case == "messages" and (workload, row["algorithm"], family) in _LIMITS:
        name, variants = _LIMITS[workload, row["algorithm"], family]
        variant, bar = variants[row["dtype"]]
        yield from (("C", ns, row["ns"], bar) for ns in _find(limits, name, variant))
    if case == "gradient" and family == "lattice" and "engine" in row["algorithm"]:
        variant = f"{'f64' if row['dtype'] == 'float64' else 'f32'} {row['sweeps']} iters"
        # The fixed costs of five sweeps are not held against anything.
        bar = 2.5 if row["sweeps"] >= 20 else np.inf
        yield from (("C", ns, row["ns"], bar) for ns in _find(limits, "W8", variant))
    if case == "gradient" and family != "lattice":
        yield "forward", 1.0, row["over_forward"], 4.0
    if case in ("messages", "labels") and family == "general":
        yield from (("pairwise", other["ns"], row["ns"], 3.0) for other in _like(row, rows, family="pairwise"))
    if case in ("messages", "labels") and "rho=0.7" in row["algorithm"]:
        others = _like(row, rows, algorithm="tree_reweighted(rho=0.5)")
        yield from (("rho=0.5", other["ns"], row["ns"], 4.0) for other in others)
    if case == "labels" and row["labels"] == 3 and family != "log":
        yield from (("8 labels", other["ns"], row["ns"], 1.0) for other in _like(row, rows, labels=8))
    if case == "scaling" and workload == "1000x1000" and "ns" in row:
        yield from (("100x100", other["ns"], row["ns"], 3.0) for other in _like(row, rows, workload="100x100"))
    if case == "scaling" and workload == "3000x3000":
        yield from (("1000x1000", other["ns"], row["ns"], 1.25) for other in _like(row, rows, workload="1000x1000"))
    if "peak_MB" in row and workload == "1000x1000":
        inference = row["algorithm"].startswith("infer")
        yield ("MB", 1.0, row["peak_MB"], 200.0 if inference else 200.0 + 1024.0)
    if case == "startup":
        bars = WARM if row["workload"] == "later process" else COLD
        yield "s", 1.0, row["processor_s"], bars.get(row["algorithm"], np.inf)


def _find(limits: dict[tuple[str, str], float], name: str, part: str) -> list[float]:
    return [ns for (workload, variant), ns in limits.items() if workload == name and part in variant]


def _like(row: Row, rows: list[Row], **changes: Any) -> list[Row]:
    """Return the rows that differ from ``row`` in ``changes`` only."""
    wanted = {key: row[key] for key in ("case", "workload", "algorithm", "family", "dtype", "labels")} | changes
    return [other for other in rows if "ns" in other and all(other[key] == value for key, value in wanted.items())]
