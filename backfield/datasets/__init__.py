"""Data sets: read from a folder (``docs/data.md`` says where to get each), or generated."""

from backfield.lazy_names import lazy_names

__getattr__, __dir__, __all__ = lazy_names(__name__)
