"""The commands, and what becomes of errors and warnings.

A command is one file with one function, named in ``COMMANDS``. Help must come at once, so a command's file imports
typer only, and all else inside its function.
"""

from __future__ import annotations

import errno
import os
import sys
import warnings
from collections.abc import Callable
from contextlib import contextmanager, suppress
from typing import Annotated, Any

import typer

from backfield.cli._signals import Received, as_interrupts
from backfield.cli.compare import compare
from backfield.cli.convert import convert
from backfield.cli.demo import demo
from backfield.cli.evaluate import evaluate
from backfield.cli.fit import fit
from backfield.cli.gradcheck import gradcheck
from backfield.cli.infer import infer
from backfield.cli.label import label
from backfield.cli.list import list_parts
from backfield.cli.pack import pack
from backfield.cli.plugged import Commands, built_in
from backfield.cli.predict import predict
from backfield.cli.warm import warm
from backfield.errors import ClusterError, ConvergenceWarning, InputError

#: Name -> function. A new command is one file and one line here; other distributions bring theirs as entry points.
COMMANDS: dict[str, Callable[..., None]] = {
    "demo": demo,
    "label": label,
    "pack": pack,
    "fit": fit,
    "predict": predict,
    "evaluate": evaluate,
    "compare": compare,
    "convert": convert,
    "infer": infer,
    "list": list_parts,
    "gradcheck": gradcheck,
    "warm": warm,
}

DONE, FAILED, BAD_INPUT = 0, 1, 2
#: Set this variable to see where an error came from.
TRACEBACK = "BACKFIELD_TRACEBACK"
#: Set by the shell where ``--install-completion`` was run.
COMPLETE = "_BACKFIELD_COMPLETE"
# Errors of the machine rather than of the file name that was given.
_MACHINE = (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.ENOMEM, errno.EMFILE, errno.ENFILE)
# typer carries its own copy of click since 0.20; this finds the class in either.
_UsageError: type[Exception] = typer.BadParameter.__bases__[0]


def run(arguments: list[str]) -> int:
    """Run the command line and return its exit code; errors become one line on standard error."""
    received = Received()
    try:
        with as_interrupts() as received, _plain_warnings():
            return _invoke(arguments)
    except KeyboardInterrupt as stop:
        return _say(str(stop) or "interrupted.", received.code)
    except BrokenPipeError:  # the reader of our output has gone; there is nobody to tell
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED
    except Exception as error:
        if os.environ.get(TRACEBACK):
            raise
        return _explain(error)


def _invoke(arguments: list[str]) -> int:
    # Not app(): that would print errors in a box, and an empty line on Ctrl-C.
    try:
        command = _command()
        if COMPLETE in os.environ:  # a shell asks what may follow
            command.main(prog_name="backfield")
        with command.make_context("backfield", list(arguments), obj=list(arguments)) as context:
            command.invoke(context)
        sys.stdout.flush()
    except typer.Exit as stop:
        return int(stop.exit_code)
    return DONE


def _command() -> Any:
    app = typer.Typer(
        cls=Commands,
        pretty_exceptions_enable=False,
        help=_help(),
        rich_markup_mode=None,  # plain text: boxes take as long to draw as all else, and flags have no type
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback(invoke_without_command=True)(_root)
    group: Any = typer.main.get_command(app)
    group.commands |= {name: built_in(name, function) for name, function in COMMANDS.items()}
    return group


def _help() -> str:
    import backfield

    return backfield.__doc__ or ""


def _root(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Show the version and exit.")] = False,
    plugin: Annotated[
        list[str] | None,
        typer.Option(metavar="FILE.py", help="File or module whose parts to load first; may be repeated."),
    ] = None,
) -> None:
    if version:
        from backfield import __version__

        typer.echo(f"backfield {__version__}")
        raise typer.Exit
    if plugin:
        _load_plugins(context, plugin)
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


def _load_plugins(context: typer.Context, sources: list[str]) -> None:
    """Load plugins, and name them in the environment until the command ends: its worker processes need them, too."""
    from backfield import plugins

    before = os.environ.get(plugins.ENVIRONMENT)
    paths = [os.path.abspath(source) if plugins.is_file(source) else source for source in sources]
    for path in paths:
        plugins.load(path)
    os.environ[plugins.ENVIRONMENT] = os.pathsep.join([*plugins.named(), *paths])
    context.call_on_close(lambda: _restore(plugins.ENVIRONMENT, before))


def _restore(variable: str, value: str | None) -> None:
    if value is None:
        os.environ.pop(variable, None)
    else:
        os.environ[variable] = value


def _explain(error: Exception) -> int:
    """Say in one line what is wrong, and return the exit code."""
    if isinstance(error, InputError):
        return _say(str(error), BAD_INPUT)
    if isinstance(error, _UsageError):
        context: Any = getattr(error, "ctx", None)
        path = context.command_path if context else "backfield"
        return _say(f"{error.format_message()} ('{path} --help' lists the options.)", BAD_INPUT)  # type: ignore[attr-defined]
    if isinstance(error, OSError):
        name = f"{error.filename}: " if error.filename is not None else ""
        code = FAILED if error.errno in _MACHINE else BAD_INPUT
        return _say(f"{name}{error.strerror or error}.", code)
    if isinstance(error, ClusterError):
        return _say(str(error), FAILED)
    if isinstance(error, MemoryError):
        return _say("not enough memory.", FAILED)
    return _say(f"failed with {type(error).__name__}: {error} (set {TRACEBACK}=1 to see where)", FAILED)


def _say(message: str, code: int) -> int:
    line = " ".join(message.split())
    with suppress(OSError):  # the terminal may be gone: SIGHUP says so
        typer.echo(f"backfield: {line}", err=True)
    return code


@contextmanager
def _plain_warnings() -> Any:
    """Show convergence warnings as one line; leave others as they are."""
    with warnings.catch_warnings():
        warnings.simplefilter("always", ConvergenceWarning)
        show = warnings.showwarning

        said: set[str] = set()

        def say(message: Any, category: Any, *args: Any, **kwargs: Any) -> None:
            if issubclass(category, ConvergenceWarning):
                if str(message) not in said:  # once, not once per image
                    _say(f"warning: {message}", 0)
                said.add(str(message))
            else:
                show(message, category, *args, **kwargs)

        warnings.showwarning = say
        yield
