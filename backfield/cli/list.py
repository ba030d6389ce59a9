"""``backfield list``: the parts that spec strings can name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from backfield.registry import Component


def list_parts(
    room: Annotated[str | None, typer.Argument(help="One room, such as inference; all by default.")] = None,
) -> None:
    """List the parts of every room with their parameters."""
    from backfield.cli._console import console
    from backfield.errors import InputError
    from backfield.registry import rooms

    known = rooms()
    if room is not None and room not in known:
        raise InputError(f"there is no room {room!r}; rooms with parts: {', '.join(known)}.")
    out = console()
    for name in [room] if room is not None else known:
        out.print(_table(name))


def _table(room: str) -> Any:
    from rich import box
    from rich.markup import escape
    from rich.table import Table

    from backfield.registry import lookup, names

    extra = ["differentiable", "bound"] if room == "inference" else []
    table = Table(title=room, box=box.SIMPLE, title_justify="left")
    for heading in ["name", "parameters", *extra, "what it is"]:
        table.add_column(heading, overflow="fold")
    for name in names(room):
        part = lookup(room, name)
        cells = [name, parameters(part), *[_word(getattr(part, key)) for key in extra], first_line(part)]
        table.add_row(*map(escape, cells))
    return table


def _word(value: Any) -> str:
    return {True: "yes", False: "no"}.get(value, str(value))


def parameters(part: type[Component]) -> str:
    """Return ``key=default`` for each parameter of a part."""
    import dataclasses

    shown = []
    for field in dataclasses.fields(part):  # type: ignore[arg-type]
        if field.default is not dataclasses.MISSING:
            shown.append(f"{field.name}={field.default!r}")
        elif field.default_factory is not dataclasses.MISSING:
            shown.append(f"{field.name}={field.default_factory()!r}")
        elif field.init:
            shown.append(field.name)
    return ", ".join(shown)


def first_line(part: type[Component]) -> str:
    """Return the first line of a part's docstring, without the markup of references and code."""
    import inspect
    import re

    line = (inspect.getdoc(part) or "").strip().split("\n")[0]
    return re.sub(r"(?::\w+:)?(`+)~?(.+?)\1( s\b)?", lambda found: found[2] + (found[3] or "").strip(), line)
