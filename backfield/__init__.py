"""backfield: learn random fields on any graph through the inference that is used at test time."""

import importlib
import importlib.util
from typing import Any

from backfield.lazy_names import lazy_names

# Nothing is imported before it is asked for, so ``backfield --help`` comes at once.
_get, __dir__, __all__ = lazy_names(__name__)


def __getattr__(name: str) -> Any:
    if name == "__version__":
        return _version()
    if name not in __all__ and not name.startswith("_") and importlib.util.find_spec(f"backfield.{name}") is not None:
        return importlib.import_module(f"backfield.{name}")  # a room
    return _get(name)


def _version() -> str:
    """Return the version that was installed; a folder on the path has none."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("backfield")
    except PackageNotFoundError:
        return "0+unknown"
