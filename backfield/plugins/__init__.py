"""Parts and commands from outside: installed packages (entry points), and files or modules named in the environment.

Nothing is loaded before a name is not found or a room is listed, so imports, help and ordinary runs cost nothing.

A plugin *file* ``focal.py`` is imported as ``backfield.plugins.focal``. A process that unpickles one of its objects
imports this package first, which finds the file through ``BACKFIELD_PLUGINS``: workers need the variable, no more.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from backfield.errors import InputError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

#: The variable that names plugins: files or modules, separated as in PATH.
ENVIRONMENT = "BACKFIELD_PLUGINS"
#: Entry-point groups: modules whose import registers parts, and functions that are commands.
PARTS, COMMANDS = "backfield.parts", "backfield.commands"

# The files that were loaded by name: module name -> path.
_FILES: dict[str, Path] = {}
_LOADED: set[str] = set()


def load(source: str | os.PathLike[str]) -> ModuleType:
    """Import a plugin, whose parts register themselves.

    Parameters
    ----------
    source
        A file ``FILE.py``, or the dotted name of a module that can be imported. What is loaded already is not loaded
        again.

    Raises
    ------
    InputError
        If there is no such plugin, its import fails, or it brings a name that another class has.
    """
    text = os.fspath(source)
    name = _register(text) if is_file(text) else text
    return imported(f"the plugin {text}", lambda: importlib.import_module(name))


def load_all() -> None:
    """Import what ``BACKFIELD_PLUGINS`` names and all installed plugins, each once."""
    for source in named():
        if source not in _LOADED:
            load(source)
            _LOADED.add(source)
    if PARTS not in _LOADED:
        for point in entry_points(PARTS):
            imported(f"the plugin {point.name} of the installed package {package(point)}", point.load)
        _LOADED.add(PARTS)


def named() -> list[str]:
    """Return the plugins that ``BACKFIELD_PLUGINS`` names."""
    return [source for source in os.environ.get(ENVIRONMENT, "").split(os.pathsep) if source]


def entry_points(group: str) -> list[EntryPoint]:
    """Return the entry points of a group, in the order of the path, without loading any."""
    from importlib.metadata import entry_points

    return list(entry_points(group=group))


def package(point: EntryPoint) -> str:
    """Return the name of the package that brings an entry point."""
    return point.dist.name if point.dist is not None else point.module


def is_file(source: str) -> bool:
    """Whether a plugin is named by its file, not as a module."""
    return source.endswith(".py") or os.sep in source


def imported(what: str, load: Any) -> Any:
    """Return ``load()``; what goes wrong inside is said in one sentence."""
    try:
        return load()
    except InputError as error:
        raise InputError(f"{what}: {error}") from error
    except (Exception, SystemExit) as error:
        reason = ": ".join(filter(None, (type(error).__name__, str(error))))
        raise InputError(f"{what} cannot be imported: {reason}") from error


def _register(source: str) -> str:
    """Make a file known to the finder and return the name of its module."""
    path = _resolved(source)
    if not path.is_file():
        raise InputError(f"there is no plugin file {source}.")
    name = _module_name(path)
    other = _FILES.setdefault(name, path)
    if other != path:
        raise InputError(f"two plugins have the file name {path.name}: {other} and {path}; rename one.")
    return name


def _module_name(path: Path) -> str:
    return f"{__name__}.{path.stem.replace('.', '_')}"


class _Finder:
    """Finds the modules ``backfield.plugins.*``: plugin files that were loaded, or that the environment names."""

    @staticmethod
    def find_spec(name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        """Return where the module ``name`` comes from."""
        if not name.startswith(f"{__name__}."):
            return None
        files = {_module_name(file): file for file in map(_resolved, filter(is_file, named()))} | _FILES
        return importlib.util.spec_from_file_location(name, files[name]) if name in files else None


def _resolved(source: str) -> Path:
    return Path(source).expanduser().resolve()


sys.meta_path.append(_Finder)
