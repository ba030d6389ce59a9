"""What is seen of compiling: a line on a terminal while it lasts, its time, and a clock that stands still meanwhile."""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from numba.core import event

Show = Callable[[str], None]


def _terminal_line(text: str) -> None:
    """Write a line over the last one on standard error; an empty text leaves nothing behind. Only on terminals."""
    if sys.stderr is not None and sys.stderr.isatty():
        sys.stderr.write(f"\r{text}\x1b[K" if text else "\r\x1b[K")
        sys.stderr.flush()


class _Watch(event.Listener):
    """Counts kernels and seconds. Numba compiles one kernel at a time in a process, with those that it calls inside."""

    def __init__(self) -> None:
        self.kernels, self.seconds = 0, 0.0
        self.show: Show = _terminal_line
        self._depth, self._began, self._collect = 0, 0.0, False

    def on_start(self, event: Any) -> None:
        """A kernel is about to be compiled."""
        function = event.data["dispatcher"].py_func
        if self._depth == 0 and not function.__module__.partition(".")[0].startswith("backfield"):
            return  # somebody else's
        self._depth += 1
        if self._depth > 1:
            return
        self.kernels += 1
        self.show(f"compiling, once: kernel {self.kernels}, {function.__name__.strip('_')} ({self.seconds:.0f} s so far)")
        self._began, self._collect = time.perf_counter(), gc.isenabled()
        gc.disable()  # a tenth of the time would go to looking for cycles

    def on_end(self, event: Any) -> None:
        """A kernel has been compiled, or compiling failed."""
        if self._depth == 0:
            return
        self._depth -= 1
        if self._depth == 0:
            self.seconds += time.perf_counter() - self._began
            if self._collect:
                gc.enable()
            self.show("")


_WATCH = _Watch()
event.register("numba:compile", _WATCH)


def compiled() -> tuple[int, float]:
    """Return how many kernels this process has compiled, without those that a cache held, and the seconds it took."""
    return _WATCH.kernels, _WATCH.seconds


def clock() -> float:
    """Return seconds that pass only while nothing is compiled: for times that are reported."""
    return time.perf_counter() - _WATCH.seconds


@contextmanager
def shown_by(show: Show) -> Iterator[None]:
    """Hand the lines about compiling to ``show``, for whom owns the terminal; an empty one means that it is over."""
    before, _WATCH.show = _WATCH.show, show
    try:
        yield
    finally:
        _WATCH.show = before
