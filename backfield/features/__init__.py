"""Images -> features of pixels, of edges, of superpixels; tokens -> named features; kept on disk by content."""

from typing import TYPE_CHECKING

from backfield.features.superpixels import superpixels as superpixels  # now: its module has the same name
from backfield.lazy_names import lazy_names

if TYPE_CHECKING:
    from backfield.features.boxes import box_labels as box_labels
    from backfield.features.boxes import box_of as box_of
    from backfield.features.cache import FeatureCache as FeatureCache
    from backfield.features.cache import LazyFeatures as LazyFeatures
    from backfield.features.edges import EdgeFeatures as EdgeFeatures
    from backfield.features.filters import FilterBank as FilterBank
    from backfield.features.image import PixelFeatures as PixelFeatures
    from backfield.features.image import as_rgb as as_rgb
    from backfield.features.image import enlarge as enlarge
    from backfield.features.image import histogram_of_gradients as histogram_of_gradients
    from backfield.features.image import sinusoidal_expansion as sinusoidal_expansion
    from backfield.features.image import subsample as subsample
    from backfield.features.lazy import LazyArray as LazyArray
    from backfield.features.local import LocalFeatures as LocalFeatures
    from backfield.features.named import hashed as hashed
    from backfield.features.superpixels import majority_labels as majority_labels
    from backfield.features.superpixels import paint as paint
    from backfield.features.superpixels import region_edges as region_edges
    from backfield.features.superpixels import region_features as region_features
    from backfield.features.tokens import Templates as Templates
    from backfield.features.tokens import joined as joined
    from backfield.features.tokens import window_features as window_features
    from backfield.features.tokens import window_template as window_template
    from backfield.features.tokens import word_features as word_features
    from backfield.features.tokens import word_shape as word_shape

#: Where each name lives. Most are transformers of scikit-learn, which chains of words and named models do without.
__getattr__, __dir__, __all__ = lazy_names(
    __name__,
    {
        "backfield.features.boxes": ("box_labels", "box_of"),
        "backfield.features.cache": ("FeatureCache", "LazyFeatures"),
        "backfield.features.edges": ("EdgeFeatures",),
        "backfield.features.filters": ("FilterBank",),
        "backfield.features.image": (
            "PixelFeatures",
            "as_rgb",
            "enlarge",
            "histogram_of_gradients",
            "sinusoidal_expansion",
            "subsample",
        ),
        "backfield.features.lazy": ("LazyArray",),
        "backfield.features.local": ("LocalFeatures",),
        "backfield.features.named": ("hashed",),
        "backfield.features.superpixels": ("majority_labels", "paint", "region_edges", "region_features"),
        "backfield.features.tokens": (
            "Templates",
            "joined",
            "window_features",
            "window_template",
            "word_features",
            "word_shape",
        ),
    },
)
__all__ += ["superpixels"]
