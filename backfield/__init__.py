"""backfield: learn random fields on any graph through the inference that is used at test time."""

from typing import Any

from backfield.lazy_names import lazy_names

# Nothing is imported before it is asked for, so ``backfield --help`` comes at once.
_get, __dir__, __all__ = lazy_names(__name__)


def __getattr__(name: str) -> Any:
    return _version() if name == "__version__" else _get(name)


def _version() -> str:
    """Return the version that was installed; a folder on the path has none."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("backfield")
    except PackageNotFoundError:
        return "0+unknown"
