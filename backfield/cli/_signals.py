"""SIGTERM and SIGHUP end a command as Ctrl-C does: what was done is kept, and a line says how to go on."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

#: Signals that ask a process to end; Windows has not all of them.
ENDINGS = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if name in dir(signal)]


class Received:
    """Which signal came last."""

    number: int = signal.SIGINT

    @property
    def code(self) -> int:
        """The exit code that shells expect."""
        return 128 + self.number


@contextmanager
def handling(handler: Callable[[int, Any], Any]) -> Iterator[None]:
    """Call ``handler`` at each of these signals; those that were switched off (nohup) stay so."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in ENDINGS}
    for number, was in before.items():
        if was is not signal.SIG_IGN:
            signal.signal(number, handler)
    try:
        yield
    finally:
        for number, was in before.items():
            signal.signal(number, was)


@contextmanager
def as_interrupts() -> Iterator[Received]:
    """Let each of the signals raise KeyboardInterrupt."""
    received = Received()

    def interrupt(number: int, frame: Any) -> None:
        received.number = number
        raise KeyboardInterrupt

    with handling(interrupt):
        yield received


@contextmanager
def between_iterations(say: Callable[[str], Any]) -> Iterator[Callable[..., None]]:
    """Let signals act when the callback that this gives is called; a second one acts at once.

    An exception in the midst of compilation can get lost in LLVM's callbacks, or take LLVM down.
    """
    came: list[int] = []
    outer = {number: signal.getsignal(number) for number in ENDINGS}

    def act(number: int) -> None:
        handler = outer[number]
        if callable(handler):
            handler(number, None)
        raise KeyboardInterrupt

    def wait(number: int, frame: Any) -> None:
        came.append(number)
        if len(came) > 1:
            act(number)
        again = "Ctrl-C" if number == signal.SIGINT else signal.Signals(number).name
        say(f"stopping after this iteration; {again} again stops at once.")

    def check(*row: Any) -> None:
        if came:
            act(came[0])

    with handling(wait):
        yield check
