"""Names of a package whose modules are imported when a name is first asked for: some take longer to import than to use.

The stub of the package, ``__init__.pyi``, says where each name lives, to type checkers and to us.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
from collections.abc import Callable
from typing import Any


def lazy_names(package: str) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """Return ``__getattr__``, ``__dir__`` and ``__all__`` of a package; its modules are attributes, too."""
    home = homes(package)
    scope = vars(importlib.import_module(package))

    def get(name: str) -> Any:
        if home.get(name, package) != package:
            found = scope[name] = getattr(importlib.import_module(home[name]), name)
            return found
        if not name.startswith("_") and importlib.util.find_spec(f"{package}.{name}") is not None:
            return importlib.import_module(f"{package}.{name}")
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    return get, lambda: sorted({*scope, *home}), [*home]


@functools.cache
def homes(package: str) -> dict[str, str]:
    """Return the public names of a package, and the module of each: one ``from module import name as name`` in each line."""
    with open(f"{importlib.import_module(package).__file__}i", encoding="utf-8") as stub:
        lines = [line.split() for line in stub]
    return {words[3]: words[1] for words in lines if words[:1] == ["from"]}
