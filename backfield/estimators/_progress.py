"""The progress bar of a fit."""

from __future__ import annotations

from typing import Any


class Progress:
    """A progress bar through rich, on standard error."""

    def __init__(self, title: str) -> None:
        self.title = title

    def __enter__(self) -> Any:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

        from backfield.kernels.compiling import shown_by

        columns = (TextColumn("{task.description}"), BarColumn(24), MofNCompleteColumn(), TimeElapsedColumn())
        self.bar = Progress(*columns, console=Console(stderr=True))
        self.task = self.bar.add_task(self.title, total=None)
        self.bar.__enter__()
        self._lines = shown_by(self._compiling)
        self._lines.__enter__()
        return self._update

    def _compiling(self, text: str) -> None:
        self.bar.update(self.task, description=text or self.title)

    def _update(self, row: dict[str, Any]) -> None:
        shown = f"objective {row['objective']:.6g}"
        for key in ("validation", "error"):
            value = row.get(key)
            if value is not None and value == value:
                shown += f"  {key} {value:.4f}"
        self.bar.update(self.task, description=shown, completed=row["iteration"], total=row.get("total"))

    def __exit__(self, *error: Any) -> None:
        self._lines.__exit__(*error)
        if error[0] is not None:
            wipe(self.bar)
        self.bar.__exit__(*error)


def wipe(bar: Any) -> None:
    """Let nothing be left of a bar: what went wrong is said in one line, not after half of it."""
    bar.live.transient = True
    bar.console.quiet = not bar.console.is_terminal
