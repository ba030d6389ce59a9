"""Images -> features of pixels, of edges, of superpixels; tokens -> named features; kept on disk by content."""

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
from backfield.features.superpixels import superpixels as superpixels
from backfield.features.tokens import Templates as Templates
from backfield.features.tokens import joined as joined
from backfield.features.tokens import window_features as window_features
from backfield.features.tokens import window_template as window_template
from backfield.features.tokens import word_features as word_features
from backfield.features.tokens import word_shape as word_shape
