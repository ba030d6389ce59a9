"""Base of all parts: the registry, spec strings, and the check of what a part can do.

A part is a frozen dataclass in one of the rooms (``inference``, ``losses``, ...). Its ``repr`` is its
spec, and the spec parses back to an equal part::

    tree_reweighted(n_iter=20, rho=0.5)

The command line, model files and reports speak this one language. A spec holds Python literals only,
so reading one never runs code. A name that no room has may come from a plugin (see ``backfield.plugins``).
"""

from __future__ import annotations

import ast
import dataclasses
import difflib
import importlib
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np

from backfield import plugins
from backfield.errors import InputError
from backfield.lazy_names import homes

_REGISTRY: dict[str, dict[str, type[Component]]] = {}
#: Rooms all of whose modules are imported.
_OPENED: set[str] = set()


class Component:
    """A named, immutable part of a room.

    Subclass it as ``class TreeReweighted(Inference, name="tree_reweighted")`` and decorate with
    ``@dataclass(frozen=True, repr=False)``; the class is then known to ``get``, ``backfield list``,
    the docs and the contract tests.
    """

    room: ClassVar[str] = ""
    name: ClassVar[str] = ""

    def __init_subclass__(cls, name: str | None = None, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if name is not None:
            cls.name = name
            _refuse_taken(cls)
            _REGISTRY.setdefault(cls.room, {})[name] = cls

    def __repr__(self) -> str:
        shown = [
            f"{field.name}={_literal(getattr(self, field.name))}"
            for field in dataclasses.fields(self)  # type: ignore[arg-type]
            if not _same(getattr(self, field.name), field.default)
        ]
        return f"{self.name}({', '.join(shown)})" if shown else self.name

    def replace(self, **changes: Any) -> Self:
        """Return the same part with some parameters changed."""
        known = [field.name for field in dataclasses.fields(self)]  # type: ignore[arg-type]
        for key in changes:
            if key not in known:
                raise InputError(_unknown_parameter(self.room, self.name, key, known))
        return dataclasses.replace(self, **changes)  # type: ignore[type-var]


def _literal(value: Any) -> str:
    return repr(plain(value))


def plain(value: Any) -> Any:
    """Return numbers of numpy, also those in lists and tuples, as numbers of Python."""
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    if type(value) in (list, tuple):
        return type(value)(plain(each) for each in value)
    return value


def _same(value: Any, default: Any) -> bool:
    if isinstance(value, np.ndarray) or isinstance(default, np.ndarray):
        return False
    return type(value) is type(default) and bool(value == default)


def _refuse_taken(cls: type[Component]) -> None:
    """Refuse the name of another class; the same class, defined again, takes the place of the old one."""
    if not cls.__module__.startswith("backfield."):
        has(cls.room, cls.name)  # ours have their names, also where they were not imported yet
    other = _REGISTRY.get(cls.room, {}).get(cls.name)
    if other is not None and _origin(other) != _origin(cls):
        raise InputError(
            f"the name {cls.name!r} in {cls.room} is taken by {other.__module__}.{other.__qualname__}; "
            f"{cls.__module__}.{cls.__qualname__} needs another one."
        )


def _origin(cls: type) -> tuple[str, str]:
    """Where a class is defined: a file may be imported under two names."""
    module = sys.modules.get(cls.__module__)
    return getattr(module, "__file__", None) or cls.__module__, cls.__qualname__


def names(room: str) -> list[str]:
    """Names of the parts of a room, those of plugins too."""
    _open(room)
    plugins.load_all()
    return sorted(_REGISTRY.get(room, {}))


def rooms() -> list[str]:
    """Names of the rooms that hold registered parts, those of plugins too: packages with a contract, ``base.py``."""
    for contract in Path(__file__).parent.glob("*/base.py"):
        _open(contract.parent.name)
    plugins.load_all()
    return sorted(_REGISTRY)


def _open(room: str, part: str | None = None) -> None:
    """Import the modules of a room, whose parts then register themselves, until there is a ``part``.

    The class of a part usually has its name, so that module comes first.
    """
    if room in _OPENED or not (Path(__file__).parent / room / "base.py").is_file():
        return  # all of it is there, or it is a room of a plugin
    home = homes(f"backfield.{room}")
    likely = "" if part is None else part.replace("_", "")
    for name in sorted(home, key=lambda name: name.lower() != likely):
        if part is not None and part in _REGISTRY.get(room, {}):
            return
        importlib.import_module(home[name])
    _OPENED.add(room)


def lookup(room: str, name: str) -> type[Component]:
    """Return the class registered under ``name`` in ``room``; plugins are loaded if there is none."""
    return _REGISTRY[find_room(name, [room])][name]


def find_room(name: str, among: Sequence[str]) -> str:
    """Return the first of some rooms that has the part ``name``; plugins are loaded if none has."""
    found = next((room for room in among if has(room, name)), None)
    if found is None:
        plugins.load_all()
        found = next((room for room in among if has(room, name)), None)
    if found is None:
        raise InputError(_unknown(name, among))
    return found


def _unknown(name: str, among: Sequence[str]) -> str:
    known = [part for room in among for part in names(room)]
    near = difflib.get_close_matches(name, known, n=1)
    hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(known)}."
    where = f"in {among[0]}" if len(among) == 1 else f"among {' and '.join(among)}"
    return f"there is no {name!r} {where}; {hint} Or is a plugin missing (--plugin, {plugins.ENVIRONMENT})?"


def has(room: str, name: str) -> bool:
    """Whether a room has the part ``name``; plugins are not loaded for it."""
    if name not in _REGISTRY.get(room, {}):
        _open(room, name)
    return name in _REGISTRY.get(room, {})


def parse(spec: str) -> tuple[str, list[Any], dict[str, Any]]:
    """Split ``"name(a=1)"`` into its name, positional and keyword arguments."""
    if spec.isidentifier():
        return spec, [], {}
    try:
        node = ast.parse(spec.strip(), mode="eval").body
    except (SyntaxError, ValueError) as error:
        raise InputError(f"cannot read the spec {spec!r}: write name or name(key=value, ...).") from error
    if isinstance(node, ast.Name):  # between blanks
        return node.id, [], {}
    if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name)):
        raise InputError(f"cannot read the spec {spec!r}: write name or name(key=value, ...).")
    try:
        args = [ast.literal_eval(arg) for arg in node.args]
        kwargs = {str(keyword.arg): ast.literal_eval(keyword.value) for keyword in node.keywords}
    except (ValueError, TypeError) as error:  # TypeError: a dict or set of things that have no hash
        raise InputError(
            f"cannot read the spec {spec!r}: arguments are numbers, lists, True, False, None or quoted text."
        ) from error
    if len(kwargs) < len(node.keywords):
        given = [keyword.arg for keyword in node.keywords]
        twice = next(key for key in given if given.count(key) > 1)
        raise InputError(f"the spec {spec!r} gives {twice!r} twice.")
    return node.func.id, args, kwargs


def _unknown_parameter(room: str, name: str, key: str, known: list[str]) -> str:
    return f"{room} {name!r} has no parameter {key!r}; it takes {', '.join(known) or 'none'}."


def get(room: str, part: Any) -> Any:
    """Return a part of ``room`` from a part, a spec string, or a class of that room."""
    if isinstance(part, type) and issubclass(part, Component) and part.name:
        part = part()
    if isinstance(part, Component):
        if part.room != room:
            raise InputError(f"received {part!r}, which belongs to {part.room}; {room} is needed here.")
        return part
    if not isinstance(part, str):
        got = part.__name__ if isinstance(part, type) else type(part).__name__
        raise InputError(f"received {got} where a part of {room} or its spec string is needed.")
    name, args, kwargs = parse(part)
    cls = lookup(room, name)
    known = [field.name for field in dataclasses.fields(cls) if field.init]  # type: ignore[arg-type]
    for key in kwargs:
        if key not in known:
            raise InputError(_unknown_parameter(room, name, key, known))
    if len(args) > len(known):
        raise InputError(f"{room} {name!r} takes at most {len(known)} parameters, received {len(args)}.")
    for key, value in zip(known, args, strict=False):
        if key in kwargs:
            raise InputError(f"the spec {part!r} gives {key!r} twice.")
        kwargs[key] = value
    return cls(**kwargs)
