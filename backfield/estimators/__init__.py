"""The scikit-learn face."""

from backfield.lazy_names import lazy_names

__getattr__, __dir__, __all__ = lazy_names(__name__)
