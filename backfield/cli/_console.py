"""Where tables go."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console


def console() -> Console:
    """Return standard output for rich; wide where it is a file or a pipe, whose readers can scroll."""
    from rich.console import Console

    return Console(highlight=False, width=None if sys.stdout.isatty() else 160)


@contextmanager
def progress_bar(title: str, verbose: bool = True) -> Iterator[Callable[[int, int], None]]:
    """Give a function of (done, all) that moves a bar on standard error."""
    if not verbose:
        yield lambda done, total: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    from backfield.estimators._progress import wipe

    columns = (TextColumn(title), BarColumn(24), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task("", total=None)
        try:
            yield lambda done, total: bar.update(task, completed=done, total=total)
        except BaseException:
            wipe(bar)
            raise
