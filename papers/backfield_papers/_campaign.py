"""``backfield reproduce --all`` and ``--status``: every experiment, one after the other, and how far they are.

An experiment is *done* when its result holds every cell, from one clean commit. What is missing comes first, in the order of
the papers; then come results that were put together from several commits or from changed sources. Each experiment runs in a
separate process at the lowest priority; a stopped one resumes at the cell where it was.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from backfield.errors import InputError
from backfield_papers._base import commit, names

PAPERS = ("d13", "s11", "k05", "s18", "l13")
State = Literal["done", "mixed commits", "incomplete", "stopped", "quick run", "not run"]
#: What runs first.
URGENT: tuple[State, ...] = ("stopped", "not run", "quick run", "incomplete")


@dataclass(frozen=True)
class Progress:
    """How far one experiment is."""

    name: str
    state: State
    detail: str = ""


def progress(name: str, out: Path) -> Progress:
    """Return how far an experiment is in a folder of results."""
    cells = out / f".{name}.cells"
    if cells.exists():
        return Progress(name, "stopped", f"{sum(1 for _ in cells.open())} cells kept")
    result = out / f"{name}.json"
    if not result.exists():
        return Progress(name, "not run")
    settings = json.loads(result.read_text())["settings"]
    if settings.get("quick"):
        return Progress(name, "quick run")
    if left_out := settings.get("left_out"):
        return Progress(name, "incomplete", f"{len(left_out)} cells missing")
    commits = settings.get("commits_of_cells") or [str(settings.get("commit"))]
    if len(commits) > 1 or "with changes" in commits[0]:
        return Progress(name, "mixed commits", ", ".join(_short(each) for each in commits))
    return Progress(name, "done", _short(commits[0]))


def _short(commit: str) -> str:
    return commit[:8] + ("+" if commit.endswith("with changes") else "")


def status(out: Path) -> list[Progress]:
    """Return how far every experiment is, in the order of the papers."""
    return [progress(name, out) for name in sorted(names(), key=_order)]


def _order(name: str) -> tuple[int, str]:
    paper = name.split("-")[0]
    return (PAPERS.index(paper) if paper in PAPERS else len(PAPERS), name)


def queue(out: Path, resume: bool) -> list[str]:
    """Return what is to run, in order; all of it without ``resume``."""
    found = status(out)
    first = [each.name for each in found if each.state in URGENT]
    rest = [each.name for each in found if each.state == "mixed commits"] if resume else []
    return first + rest if resume else [each.name for each in found]


def run_all(data: Path | None, out: Path, resume: bool, tell: Callable[[str], None]) -> list[str]:
    """Run what is missing; return the names of experiments that failed."""
    clean = commit()
    if clean is not None and clean.endswith("with changes"):
        raise InputError("the sources have uncommitted changes; --all runs from a clean commit: commit them first.")
    waiting = queue(out, resume)
    if not resume:
        for name in waiting:
            (out / f".{name}.cells").unlink(missing_ok=True)
    failed = []
    for k, name in enumerate(waiting):
        tell(f"{name} ({k + 1} of {len(waiting)})")
        if subprocess.run(list(_command(name, data, out)), check=False).returncode:
            failed.append(name)
    return failed


def _command(name: str, data: Path | None, out: Path) -> Iterator[str]:
    if os.name == "posix":
        yield from ("nice", "-n", "19")
    yield from (sys.executable, "-m", "backfield", "reproduce", name, "--out", str(out))
    if data is not None:
        yield from ("--data", str(data))
