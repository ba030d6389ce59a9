"""Images -> features of pixels, of edges, of superpixels; tokens -> named features; kept on disk by content."""

from backfield.features.superpixels import superpixels as superpixels  # now: its module has the same name
from backfield.lazy_names import lazy_names

__getattr__, __dir__, __all__ = lazy_names(__name__)
