"""Commands that other distributions bring: entry points of the group ``backfield.commands``, name -> function."""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import EntryPoint, entry_points

import typer

GROUP = "backfield.commands"
#: Commands of this repository that are packages of their own: name -> (distribution, its folder in the repository).
HOMES = {"bench": ("backfield-benchmarks", "benchmarks"), "reproduce": ("backfield-papers", "papers")}


def add_commands(app: typer.Typer) -> None:
    """Add the commands that are installed; one that is known but absent says how to get it."""
    installed = {point.name: point for point in entry_points(group=GROUP)}
    for name in sorted({*HOMES, *installed}):
        if name in installed:
            _add(app, installed[name])
        else:
            _refuse(app, name, _absence(name))


def _add(app: typer.Typer, point: EntryPoint) -> None:
    try:
        function: Callable[..., None] = point.load()
    except Exception as error:  # a plug-in that is broken must not break the other commands
        _refuse(app, point.name, f"{point.name!r} ({point.value}) cannot be loaded: {type(error).__name__}: {error}.")
    else:
        app.command(point.name)(function)


def _refuse(app: typer.Typer, name: str, reason: str) -> None:
    """Add a command that takes any arguments and refuses them."""

    def refuse() -> None:
        from backfield.errors import InputError

        raise InputError(reason)

    anything = {"ignore_unknown_options": True, "allow_extra_args": True}
    app.command(name, context_settings=anything, help=reason)(refuse)


def _absence(name: str) -> str:
    distribution, folder = HOMES[name]
    return (
        f"{name!r} is a command of {distribution}, which is not installed; in a clone of the repository: "
        f"pip install -e {folder}."
    )
