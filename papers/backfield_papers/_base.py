"""What an experiment is: one table or figure of a paper, measured again.

An experiment is a function of a :class:`Context` in a module of this package, named by a decorator::

    @experiment("d13-fig3", "Error of perturbation against the multiplier")
    def run(context: Context) -> Outcome: ...

It returns settings (seeds among them), rows with the paper's figure beside ours (``"paper"``, ``"ours"``; ``None`` where
the paper prints none), and functions that draw pictures. ``context.quick`` asks for a run of seconds; ``context.data`` is a
folder of data, where one is needed (:func:`need_data`). A long one computes its cells through ``context.cell``. Cells of
full runs are kept beside the results, in ``cells/NAME.jsonl``, and committed: a table may take as many runs as it needs.
"""

from __future__ import annotations

import inspect
import json
import multiprocessing
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

from backfield.errors import InputError


@dataclass(frozen=True)
class Context:
    """What the caller wants."""

    data: Path | None = None
    quick: bool = False
    progress: Callable[[str], None] = lambda message: None
    #: Threads over examples, or processes over cells.
    n_jobs: int = 1
    #: The file of finished cells.
    kept: Path | None = None
    #: Compute no cell: take those that are done.
    so_far: bool = False
    #: Keys of the cells that were asked for.
    used: set[str] = field(default_factory=set)

    def cell(self, key: str, compute: Callable[[], Any]) -> Any:
        """Return ``compute()``, which must be plain JSON, or what an earlier run kept under ``key``."""
        self.used.add(key)
        done = self._done()
        if key in done:
            return done[key]["value"]
        if self.so_far:
            raise InputError(f"{key!r} is not done yet and cannot be left out; run without --so-far.")
        self.progress(key)
        return self._keep(key, *_timed(compute))

    def _keep(self, key: str, value: Any, seconds: float) -> Any:
        self.used.add(key)
        if self.kept is not None:
            entry = {"quick": self.quick, "commit": commit(), "key": key, "seconds": round(seconds, 2), "value": value}
            self.kept.parent.mkdir(parents=True, exist_ok=True)
            cut_off = self.kept.exists() and not self.kept.read_bytes().endswith(b"\n")  # a stopped run's last line
            with self.kept.open("a") as file:
                file.write("\n" * cut_off + json.dumps(entry) + "\n")
        return value

    def wanted(self, key: str) -> bool:
        """Whether a cell is to be shown; with ``so_far`` only those that are done."""
        return not self.so_far or key in self._done()

    def cells(self, tasks: dict[str, tuple[Any, ...]], compute: Callable[..., Any]) -> dict[str, Any]:
        """Return ``compute(*arguments)`` for each key, as :meth:`cell` does; ``n_jobs`` processes work at once.

        With ``so_far``, keys that are not done are left out.
        """
        missing = {key: arguments for key, arguments in tasks.items() if key not in self._done()}
        if self.so_far:
            tasks, missing = {key: arguments for key, arguments in tasks.items() if key not in missing}, {}
        if self.n_jobs == 1 or len(missing) <= 1:
            return {key: self.cell(key, partial(compute, *arguments)) for key, arguments in tasks.items()}
        found: dict[str, Any] = {}
        spawn = multiprocessing.get_context("spawn")  # threads of numba, PyTorch and LightGBM do not survive a fork
        with ProcessPoolExecutor(self.n_jobs, spawn) as pool:
            running = {pool.submit(_timed, partial(compute, *arguments)): key for key, arguments in missing.items()}
            for future in as_completed(running):
                found[running[future]] = self._keep(running[future], *future.result())
        return {key: found[key] if key in found else self.cell(key, dict) for key in tasks}

    def commits(self) -> list[str]:
        """Return the commits that the cells were computed with."""
        return sorted({str(entry["commit"]) for entry in self._done().values() if entry["key"] in self.used})

    def seconds(self) -> float:
        """Return the processor seconds of the cells."""
        return float(sum(entry["seconds"] for entry in self._done().values() if entry["key"] in self.used))

    def _done(self) -> dict[str, dict[str, Any]]:
        if self.kept is None or not self.kept.exists():
            return {}
        return {entry["key"]: entry for entry in kept_cells(self.kept) if entry["quick"] == self.quick}


def kept_cells(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the cells of a file, without the line that was being written when a run was stopped."""
    for line in path.read_text().splitlines():
        with suppress(json.JSONDecodeError):
            yield json.loads(line)


def _timed(compute: Callable[[], Any]) -> tuple[Any, float]:
    """Return what was computed and its processor seconds, which other work on the machine does not change."""
    start = time.process_time()
    value = compute()
    return value, time.process_time() - start


@dataclass(frozen=True)
class Outcome:
    """What was measured."""

    settings: dict[str, Any]
    rows: list[dict[str, Any]]
    #: File name -> function that draws the picture to a path.
    pictures: dict[str, Callable[[Path], None]] = field(default_factory=dict)


@dataclass(frozen=True)
class Experiment:
    """A registered experiment."""

    name: str
    title: str
    run: Callable[[Context], Outcome]
    #: The name of the file of its cells; several experiments may share one.
    cells: str
    #: Result -> cells that a run of today has and this result, of older sources, does not.
    lacks: Callable[[dict[str, Any]], list[str]] = lambda found: []

    def kept(self, out: Path, quick: bool = False) -> Path:
        """Return the file of its cells in a folder of results."""
        return out / "cells" / f"{self.cells}{'.quick' if quick else ''}.jsonl"

    def missing(self, found: dict[str, Any]) -> list[str]:
        """Return the cells that a result was written without; those of older sources do not count."""
        return list(dict.fromkeys([*(found["settings"].get("left_out") or []), *self.lacks(found)]))

    def differences(self) -> list[str]:
        """Return the notes "Differs from ..." of the experiment's module and of the private modules that it uses."""
        return [note for module in _used_modules(self.run.__module__) for note in _notes(module)]


def _used_modules(name: str) -> list[ModuleType]:
    """Return a module of this package and the private ones that it imports, itself first."""
    found = [sys.modules[name]]
    for module in found:  # grows while it is walked through
        source = inspect.getsource(module)
        for used in re.findall(r"^from backfield_papers(?:\.(_\w+))? import (\w+)", source, re.MULTILINE):
            private = sys.modules.get(f"backfield_papers.{used[0] or used[1]}")
            if private is not None and private not in found and private.__name__ != __name__:
                found.append(private)
    return found


def _notes(module: ModuleType) -> list[str]:
    pattern = r"^ *# (Differs from .*(?:\n *#(?! Differs from).*)*)"
    found = re.findall(pattern, inspect.getsource(module), re.MULTILINE)
    return [re.sub(r"\s*\n *# ?", " ", note).replace("``", "`").strip() for note in found]


_REGISTRY: dict[str, Experiment] = {}


def experiment(
    name: str,
    title: str,
    cells: str | None = None,
    lacks: Callable[[dict[str, Any]], list[str]] = lambda found: [],
) -> Callable[[Callable[[Context], Outcome]], Callable[[Context], Outcome]]:
    """Register a function as the experiment ``name``; it may share ``cells`` with others.

    ``lacks`` looks through a result that older sources wrote: the cells that it returns are listed as not run.
    """

    def register(run: Callable[[Context], Outcome]) -> Callable[[Context], Outcome]:
        _REGISTRY[name] = Experiment(name, title, run, cells or name, lacks)
        return run

    return register


def names() -> list[str]:
    """Return the names of all experiments."""
    import importlib
    import pkgutil

    import backfield_papers

    for module in pkgutil.iter_modules(backfield_papers.__path__):
        if not module.name.startswith("_"):
            importlib.import_module(f"backfield_papers.{module.name}")
    return sorted(_REGISTRY)


def lookup(name: str) -> Experiment:
    """Return an experiment by its name."""
    if name not in names():
        raise InputError(f"there is no experiment {name!r}; known: {', '.join(names())}.")
    return _REGISTRY[name]


def reproduce(name: str, context: Context) -> tuple[dict[str, Any], Outcome]:
    """Run an experiment; return what is written down, ready for JSON, and the outcome with its pictures."""
    found = lookup(name)
    outcome, seconds = _timed(partial(found.run, context))
    settings = {"quick": context.quick, "title": found.title, **provenance(), "clock": "processor", **outcome.settings}
    if commits := context.commits():
        settings["commits_of_cells"] = commits
        seconds = context.seconds()
    return {"name": name, "settings": settings, "seconds": round(seconds, 3), "rows": outcome.rows}, outcome


def provenance() -> dict[str, Any]:
    """Return the version, and the commit of the sources where they are in a git repository."""
    from backfield import __version__

    return {"version": __version__, "commit": commit()}


def commit() -> str | None:
    """Return the commit of the sources, with a mark if they were changed; None outside of a repository."""
    import backfield

    sources = [str(Path(__file__).parent), str(Path(backfield.__file__).parent)]

    def git(*arguments: str) -> str:
        done = subprocess.run(["git", "-C", sources[0], *arguments], capture_output=True, text=True, timeout=10)
        return done.stdout.strip() if done.returncode == 0 else ""

    try:
        # A repository around an installed copy says nothing about it.
        if not all(git("ls-files", "--", f"{folder}/__init__.py") for folder in sources):
            return None
        changed = git("status", "--porcelain", "--untracked-files=no", "--", *sources)
        return git("rev-parse", "HEAD") + (" with changes" if changed else "")
    except (OSError, subprocess.SubprocessError):
        return None


def need_data(context: Context, what: str) -> Path:
    """Return the folder that holds the data set ``what`` (``--data``, or its parent), or say what has to be there."""
    name = what.split("/")[0]
    if context.data is None:
        raise InputError(f"this experiment needs --data DIR with {what}.")
    if not context.data.is_dir():
        raise InputError(f"{context.data} is not a folder; --data DIR holds {what}.")
    return context.data.parent if context.data.name == name and not (context.data / name).is_dir() else context.data


def need_torch() -> Any:
    """Return PyTorch, or say that it is missing."""
    try:
        import torch
    except ImportError as error:
        raise InputError("this experiment needs PyTorch: pip install 'backfield[torch]'.") from error
    return torch


def figure(rows: int, columns: int, width: float = 3.4, height: float = 2.6) -> tuple[Any, Any]:
    """Return a matplotlib figure and its (rows, columns) axes, drawn without a display."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise InputError("pictures need matplotlib: pip install 'backfield[plots]'.") from error
    made = Figure(figsize=(width * columns, height * rows), layout="constrained")
    return made, made.subplots(rows, columns, squeeze=False)


def save(made: Any, path: Path) -> None:
    """Write a figure as a small PNG."""
    made.savefig(path, dpi=90, metadata={"Software": None})
