"""An old version beside the new one: every row measured in both by turns, and the median of the ratios of the pairs.

Two processes stay alive, one per tree, and measure a row on request, so machine noise hits both
alike. The first measurement of a row compiles and is not counted; pairs take turns in who is first. A row above the bar is
measured a second time, with several measurements for each side of a pair, of which the best counts: on a machine where one
pair differs from the next by a fifth, one row in six is above the bar by chance. What the second look finds is its ratio.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import statistics
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import backfield
import backfield_benchmarks
from backfield.errors import InputError
from backfield_benchmarks.bench import check
from backfield_benchmarks.cases import Row

#: Rows whose ratio is above this are marked.
LIMIT = 1.05
#: Runs of a row per measurement, of which the best counts.
REPEAT = 3
#: Measurements of each side of a pair in a second look, of which the best counts.
AGAIN = 5


def run(cases: list[str], against: str, pairs: int, quick: bool = False) -> Iterator[Row]:
    """Yield the rows of the cases with ``old``, ``new``, ``ratio`` = new / old and ``bar``, as they are measured."""
    check(cases)
    new = Path(backfield.__file__).resolve().parents[1]
    with ExitStack() as stack:
        old = stack.enter_context(_tree(against, new))
        workers = [stack.enter_context(_worker(tree, cases, quick)) for tree in (old, new)]
        abouts = [worker.read() for worker in workers]
        if abouts[0] != abouts[1]:
            raise InputError(f"{against} has other rows than {new}; both are measured by the same tasks.")
        for number, about in enumerate(abouts[0]):
            yield {**about, **_compared(workers, number, pairs)}


def _compared(workers: list[_Worker], number: int, pairs: int) -> Row:
    """Measure one row in both trees by turns, and once more where the new one seems to be slower."""
    first = _pairs(workers, number, pairs, 1)
    if "error" in first or first["ratio"] <= LIMIT:
        return first
    return {**_pairs(workers, number, pairs, AGAIN), "first_ratio": first["ratio"]}


def _pairs(workers: list[_Worker], number: int, pairs: int, times: int) -> Row:
    """Measure pairs; each side of one is the best of some measurements, old and new by turns."""
    found: list[tuple[Row, Row]] = []
    for pair in range(-1, pairs):
        both: dict[int, list[Row]] = {0: [], 1: []}
        for turn in range(pair, pair + (times if pair >= 0 else 1)):
            for k in (0, 1) if turn % 2 else (1, 0):
                both[k].append(workers[k].measure(number))
        failed = [f"{('old', 'new')[k]}: {row['error']}" for k, rows in both.items() for row in rows if "error" in row]
        if failed:
            return {"error": "; ".join(failed)}
        if pair >= 0:
            found.append((min(both[0], key=figure), min(both[1], key=figure)))
    ratios = [figure(new) / figure(old) for old, new in found]
    return {
        "old": statistics.median(figure(old) for old, _ in found),
        "new": statistics.median(figure(new) for _, new in found),
        "unit": _unit(found[0][0]),
        "ratio": statistics.median(ratios),
        "bar": LIMIT,
        "pairs": ratios,
    }


def figure(row: Row) -> float:
    """Return the number of a row that is compared: ns per message, peak memory, or seconds until the first fit is done."""
    if "ns" in row:
        return float(row["ns"])
    return float(row["peak_MB"] if "peak_MB" in row else row["processor_s"])


def _unit(row: Row) -> str:
    return f"ns / {row['unit']}" if "ns" in row else "MB" if "peak_MB" in row else "s"


class _Worker:
    """A process that measures rows in one tree."""

    def __init__(self, process: subprocess.Popen[str], tree: Path) -> None:
        self.process, self.tree = process, tree

    def measure(self, number: int) -> Row:
        self.send(number)
        row: Row = self.read()
        return row

    def send(self, message: Any) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(message) + "\n")
        self.process.stdin.flush()

    def read(self) -> Any:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"the process that measures {self.tree} has ended")
        return json.loads(line)


@contextmanager
def _worker(tree: Path, cases: list[str], quick: bool) -> Iterator[_Worker]:
    home = Path(backfield_benchmarks.__file__).resolve().parents[1]
    environment = {**os.environ, "PYTHONPATH": f"{tree}{os.pathsep}{home}", "NUMBA_CACHE_DIR": str(_cache(tree))}
    command = [sys.executable, "-m", "backfield_benchmarks.worker"]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment, cwd=tree
    ) as process:
        worker = _Worker(process, tree)
        try:
            worker.send({"cases": cases, "quick": quick, "repeat": REPEAT})
            yield worker
        finally:
            process.kill()


def _cache(tree: Path) -> Path:
    """Return a folder for compiled kernels, named after the sources: numba does not see changes in what a kernel calls."""
    digest = hashlib.sha256()
    for path in sorted((tree / "backfield").rglob("*.py")):
        digest.update(path.read_bytes())
    root = os.environ.get("NUMBA_CACHE_DIR") or os.path.join(tempfile.gettempdir(), "backfield-bench")
    return Path(root) / f"against-{digest.hexdigest()[:16]}"


@contextmanager
def _tree(against: str, new: Path) -> Iterator[Path]:
    """Give the folder of the old version: a checkout, or what ``git`` has under a tag of the new one's repository."""
    given = Path(against).expanduser().resolve()
    if given.is_dir():
        if not (given / "backfield" / "__init__.py").is_file():
            raise InputError(f"{given} is no checkout: it holds no backfield/__init__.py.")
        yield given
        return
    done = subprocess.run(["git", "-C", str(new), "archive", against, "backfield"], capture_output=True)
    if done.returncode:
        raise InputError(f"{against!r} is neither a folder nor a tag or commit of the repository in {new}.")
    with tempfile.TemporaryDirectory() as folder:
        with tarfile.open(fileobj=io.BytesIO(done.stdout)) as archive:
            archive.extractall(folder, filter="data")
        yield Path(folder)
