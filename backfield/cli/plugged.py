"""Commands that installed packages bring: entry points ``name = "module:function"`` of the group ``backfield.commands``.

Help shows their names without importing them; a command is imported when it is called. Its function looks like those of
the built-in commands: typer's annotations. A built-in name is not replaced.
"""

from __future__ import annotations

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
        return [*built_in, *sorted({*HOMES, *_entry_points()} - {*built_in})]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return a command, or a stand-in that knows how to load it."""
        command = super().get_command(ctx, cmd_name)
        if command is not None:
            return command
        found = _entry_points()
        if cmd_name in found:
            return PluggedCommand(found[cmd_name])
        return AbsentCommand(cmd_name) if cmd_name in HOMES else None

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Return the command that the arguments name and what is left of them."""
        return super().resolve_command(ctx, spread(args))


class PluggedCommand(TyperCommand):
    """Stands for a command of a package until it is called."""

    def __init__(self, point: Any) -> None:
        from backfield.plugins import package

        super().__init__(point.name, help=HELP.get(point.name, f"Of the package {package(point)}."))
        self.point = point

    def make_context(self, info_name: Any, args: list[str], parent: Any = None, **extra: Any) -> Any:
        """Import the function and let its own command read the arguments."""
        return self.load().make_context(info_name, args, parent=parent, **extra)

    def load(self) -> Any:
        """Return the command itself."""
        from backfield.plugins import imported, package

        function = imported(f"the command {self.name} of the installed package {package(self.point)}", self.point.load)
        app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)
        app.command(self.name)(function)
        return typer.main.get_command(app)


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


def _entry_points() -> dict[str, Any]:
    from backfield.plugins import COMMANDS, entry_points

    return {point.name: point for point in reversed(entry_points(COMMANDS))}  # the first on the path wins
