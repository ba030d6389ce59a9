"""Names of a package whose modules are imported when a name is first asked for: some take longer to import than to use."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import Any


def lazy_names(
    package: str, homes: Mapping[str, tuple[str, ...]]
) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """Return ``__getattr__``, ``__dir__`` and ``__all__`` of a package.

    Parameters
    ----------
    package
        Its name.
    homes
        Module -> names that live there.
    """
    home = {name: module for module, names in homes.items() for name in names}
    scope = vars(importlib.import_module(package))

    def get(name: str) -> Any:
        if name not in home:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        found = scope[name] = getattr(importlib.import_module(home[name]), name)
        return found

    return get, lambda: sorted({*scope, *home}), [*home]
