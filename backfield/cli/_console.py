"""Where tables go."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console


def console() -> Console:
    """Return standard output for rich; wide where it is a file or a pipe, whose readers can scroll."""
    from rich.console import Console

    return Console(highlight=False, width=None if sys.stdout.isatty() else 160)
