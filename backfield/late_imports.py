"""Imports that wait: a module that another one names but seldom uses, and work to do once somebody imports a module."""

from __future__ import annotations

import contextlib
import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import sys
import types
from collections.abc import Callable, Iterator, Sequence
from typing import Any


class _StandIn(types.ModuleType):
    """Stands for a module until somebody asks it for anything, and then asks the module."""

    def __getattr__(self, name: str) -> Any:
        if sys.modules.get(self.__name__) is self:
            del sys.modules[self.__name__]
        return getattr(importlib.import_module(self.__name__), name)


@contextlib.contextmanager
def postponed(*names: str) -> Iterator[None]:
    """While this lasts, importing one of these modules takes no time; it is imported when something of it is asked for.

    Afterwards an import statement imports the module as ever. Modules that are there already, or cannot be found, are left
    alone.
    """
    waiting = [name for name in names if name not in sys.modules and importlib.util.find_spec(name) is not None]
    for name in waiting:
        stand_in = sys.modules[name] = _StandIn(name)
        stand_in.__spec__ = importlib.machinery.ModuleSpec(name, None)
        stand_in.__path__ = []
    try:
        yield
    finally:
        for name in waiting:
            if isinstance(sys.modules.get(name), _StandIn):
                del sys.modules[name]


def after_import(name: str, action: Callable[[], Any]) -> None:
    """Do something as soon as a module has been imported: now, or when somebody imports it."""
    if name in sys.modules:
        action()
    else:
        sys.meta_path.insert(0, _Watch(name, action))


class _Watch(importlib.abc.MetaPathFinder):
    """Waits for the import of one module; it finds nothing itself."""

    def __init__(self, name: str, action: Callable[[], Any]) -> None:
        self._name, self._action = name, action

    def find_spec(self, fullname: str, path: Sequence[str] | None, target: Any = None) -> Any:
        """Let the others find the module, and see to it that the action follows its import."""
        if fullname != self._name:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(fullname)
        if spec is not None and spec.loader is not None:
            spec.loader = _LoadThen(spec.loader, self._action)
        return spec


class _LoadThen(importlib.abc.Loader):
    """The loader of a module, and something to do afterwards; the module keeps the loader."""

    def __init__(self, loader: Any, action: Callable[[], Any]) -> None:
        self._loader, self._action = loader, action

    def create_module(self, spec: Any) -> Any:
        """Return what the loader makes."""
        return self._loader.create_module(spec)

    def exec_module(self, module: types.ModuleType) -> None:
        """Run the module, then the action."""
        module.__spec__.loader = module.__loader__ = self._loader  # type: ignore[union-attr]
        self._loader.exec_module(module)
        self._action()
