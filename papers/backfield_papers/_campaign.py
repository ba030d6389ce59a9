"""``backfield reproduce --all`` and ``--status``: every experiment, one after the other, and how far they are.

An experiment is *done* when its result holds every cell that its code has now, from one clean commit, or from several where
its account says why that cannot matter. What is missing comes first, in the order of the papers; then come cells of changed
sources, and results whose cells were not kept. Each experiment runs in a separate process at the lowest priority; a stopped
one resumes at the cell where it was.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from backfield.atomic import write_text
from backfield.errors import InputError
from backfield_papers._accounts import ACCOUNTS
from backfield_papers._base import commit, kept_cells, lookup, names

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
    cells = len(_cells(name, out))
    result = out / f"{name}.json"
    if not result.exists():
        return Progress(name, "stopped", f"{cells} cells kept") if cells else Progress(name, "not run")
    found = json.loads(result.read_text())
    settings = found["settings"]
    if settings.get("quick"):
        return Progress(name, "quick run")
    if missing := lookup(name).missing(found):
        return Progress(name, "incomplete", f"{len(missing)} cells missing")
    commits = settings.get("commits_of_cells") or [str(settings.get("commit"))]
    detail = ", ".join(_short(each) for each in commits)
    mixed = len(commits) > 1 and not (name in ACCOUNTS and ACCOUNTS[name].commits)
    return Progress(name, "mixed commits" if mixed or any(map(_changed, commits)) else "done", detail)


def _cells(name: str, out: Path) -> list[dict[str, Any]]:
    path = lookup(name).kept(out)
    return list(kept_cells(path)) if path.exists() else []


def _changed(commit: str) -> bool:
    return commit.endswith("with changes")


def _forget_changed(name: str, out: Path) -> None:
    """Drop cells that were computed with changed sources."""
    cells = _cells(name, out)
    clean = [cell for cell in cells if not _changed(str(cell["commit"]))]
    if len(clean) < len(cells):
        write_text(lookup(name).kept(out), "".join(json.dumps(cell) + "\n" for cell in clean))


def _short(commit: str) -> str:
    return commit[:8] + ("+" if _changed(commit) else "")


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
    if clean is not None and _changed(clean):
        raise InputError("the sources have uncommitted changes; --all runs from a clean commit: commit them first.")
    waiting = queue(out, resume)
    for name in waiting:
        if resume:
            _forget_changed(name, out)
        else:
            lookup(name).kept(out).unlink(missing_ok=True)
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
