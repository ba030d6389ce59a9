"""Runs cases in forked children with limits on time and memory, and sorts out how they ended."""

from __future__ import annotations

import faulthandler
import os
import pickle
import resource
import select
import signal
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from backfield.errors import InputError

#: A child may take so much memory beyond what its parent has.
MEMORY = 2**30
#: And so many seconds of processor time, or ten times as many if it waits for something: the machine may be busy.
TIME = 30
#: Ways in which a case may end well.
GOOD = ("accepted", "refused")


class WrongAnswer(Exception):
    """An input was accepted, but its answer is not that of the original."""


class Campaign(Protocol):
    """One kind of input."""

    name: str

    def prepare(self, folder: Path) -> None:
        """Make valid inputs and warm up what reads them."""

    def case(self, rng: np.random.Generator, folder: Path) -> Callable[[], Any]:
        """Return what the child runs; written to ``folder`` is what a finding keeps."""


@dataclass
class Finding:
    """A case that ended badly."""

    campaign: str
    seed: int
    number: int
    kind: str
    detail: str


@dataclass
class Tally:
    """How the cases of a campaign ended."""

    counts: Counter[str] = field(default_factory=Counter)
    findings: list[Finding] = field(default_factory=list)
    slowest: float = 0.0


def run_campaign(campaign: Campaign, folder: Path, *, seed: int, seconds: float, most: int | None = None) -> Tally:
    """Run cases until the time is over or there were ``most``."""
    tally = Tally()
    source = folder / "source"
    source.mkdir(parents=True, exist_ok=True)
    campaign.prepare(source)
    end, number = time.monotonic() + seconds, 0
    while time.monotonic() < end and (most is None or number < most):
        place = folder / f"case-{number}"
        place.mkdir()
        start = time.monotonic()
        kind, detail = in_child(lambda number=number, place=place: _case(campaign, seed, number, place))  # type: ignore[misc]
        tally.slowest = max(tally.slowest, time.monotonic() - start)
        tally.counts[kind] += 1
        if kind not in GOOD:
            tally.findings.append(Finding(campaign.name, seed, number, kind, detail))
        else:
            _remove(place)
        number += 1
    return tally


def _case(campaign: Campaign, seed: int, number: int, place: Path) -> None:
    os.chdir(place)  # a command may write to any name
    campaign.case(np.random.default_rng([seed, number]), place)()


def in_child(function: Callable[[], Any]) -> tuple[str, str]:
    """Run ``function`` in a forked child; return how it ended and a detail."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(read)
        _child(function, write)
    os.close(write)
    message = _receive(read, child)
    _, status = os.waitpid(child, 0)
    if message is not None:
        kind, detail = pickle.loads(message)
        return str(kind), str(detail)
    if os.WIFSIGNALED(status) and os.WTERMSIG(status) not in (signal.SIGKILL, signal.SIGXCPU):
        return "signal", signal.Signals(os.WTERMSIG(status)).name
    return "hang", f"no answer within {TIME} s"


def _child(function: Callable[[], Any], write: int) -> None:
    """Run in the child, report, and end without unwinding the parent's stack."""
    faulthandler.disable()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_CPU, (TIME, TIME + 1))
    limit = _address_space() + MEMORY
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)
    os.dup2(null, 2)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            function()
        outcome = ("accepted", "")
    except InputError as error:
        outcome = ("refused", str(error)[:200]) if "\n" not in str(error) else ("error", f"two lines: {error!s:.200}")
    except WrongAnswer as error:
        outcome = ("answer", str(error))
    except MemoryError:
        outcome = ("memory", traceback.format_exc(limit=-4))
    except BaseException:
        outcome = ("error", traceback.format_exc(limit=-6))
    os.write(write, pickle.dumps(outcome))
    os._exit(0)


def _receive(read: int, child: int) -> bytes | None:
    """Return what the child wrote, or None if it died or was killed at the end of its time."""
    # Seconds are counted one by one: a machine that stops all processes for a while stops this count, too.
    if not any(select.select([read], [], [], 1)[0] for _ in range(10 * TIME)):
        os.kill(child, signal.SIGKILL)
        os.close(read)
        return None
    with os.fdopen(read, "rb") as pipe:
        message = pipe.read()
    return message or None


def _address_space() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[0]) * resource.getpagesize()


def _remove(folder: Path) -> None:
    for path in sorted(folder.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() and not path.is_symlink() else path.unlink()
    folder.rmdir()
