"""Commands that come later: the parameters of a command are read when it is called, and a package is imported then.

Installed packages bring commands as entry points ``name = "module:function"`` of the group ``backfield.commands``. Help
shows their names without importing them. Their functions look like those of the built-in commands: typer's annotations.
A built-in name is not replaced.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import cached_property
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from backfield.cli.compare import spread

#: Commands of this repository that live in separate packages: name -> (distribution, its folder in the repository).
HOMES = {"bench": ("backfield-benchmarks", "benchmarks"), "reproduce": ("backfield-papers", "papers")}
#: What they do: help does not import them.
HELP = {
    "bench": "Measure speed, memory and start-up; ratios to hand-written C in the same run with --reference.",
    "reproduce": "Measure a table or figure of the papers again and print it beside theirs.",
}


class Commands(TyperGroup):
    """The built-in commands, then those of packages."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names of all commands."""
        built_in = super().list_commands(ctx)
        return [*built_in, *sorted({*HOMES, *self._entry_points} - {*built_in})]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return a command, or a stand-in that knows how to load it."""
        command = super().get_command(ctx, cmd_name)
        if command is not None:
            return command
        if cmd_name in self._entry_points:
            return _plugged_in(self._entry_points[cmd_name])
        return AbsentCommand(cmd_name) if cmd_name in HOMES else None

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Return the command that the arguments name and what is left of them."""
        return super().resolve_command(ctx, spread(args))

    @cached_property
    def _entry_points(self) -> dict[str, Any]:
        from backfield.plugins import COMMANDS, entry_points

        return {point.name: point for point in reversed(entry_points(COMMANDS))}  # the first on the path wins


class LaterCommand(TyperCommand):
    """Stands for a command until it is called: help needs its name and its first sentence."""

    def __init__(self, name: str, text: str | None, load: Callable[[], Callable[..., None]]) -> None:
        super().__init__(name, help=text)
        self.load = load

    def make_context(self, info_name: Any, args: list[str], parent: Any = None, **extra: Any) -> Any:
        """Load the function and let its own command read the arguments."""
        app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)
        app.command(self.name)(self.load())
        return typer.main.get_command(app).make_context(info_name, args, parent=parent, **extra)


def built_in(name: str, function: Callable[..., None]) -> LaterCommand:
    """Return the command of a function."""
    return LaterCommand(name, inspect.getdoc(function), lambda: function)


def _plugged_in(point: Any) -> LaterCommand:
    """Return the command of an entry point."""
    from backfield.plugins import imported, package

    text = HELP.get(point.name, f"Of the package {package(point)}.")
    what = f"the command {point.name} of the installed package {package(point)}"
    return LaterCommand(point.name, text, lambda: imported(what, point.load))


class AbsentCommand(TyperCommand):
    """Stands for a command of this repository that is not installed."""

    def __init__(self, name: str) -> None:
        distribution, folder = HOMES[name]
        super().__init__(
            name,
            help=f"{name!r} is a command of {distribution}, which is not installed; in a clone of the repository: "
            f"pip install -e {folder}.",
        )

    def make_context(self, info_name: Any, args: list[str], parent: Any = None, **extra: Any) -> Any:
        """Say how to get the command."""
        from backfield.errors import InputError

        raise InputError(self.help)
