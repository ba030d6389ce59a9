"""Gaussian filters: sums over all pairs of points, exactly, on the permutohedral lattice, or along the axes of a grid."""

from backfield.kernels.gaussian.base import Collector, Filter
from backfield.kernels.gaussian.choose import FILTERS, choose, make_filter
from backfield.kernels.gaussian.exact import Exact
from backfield.kernels.gaussian.lattice import MAX_DIMENSIONS
from backfield.kernels.gaussian.normalise import NORMALISATIONS, Normalised
from backfield.kernels.gaussian.permutohedral import Permutohedral
from backfield.kernels.gaussian.separable import Separable

__all__ = [
    "FILTERS",
    "MAX_DIMENSIONS",
    "NORMALISATIONS",
    "Collector",
    "Exact",
    "Filter",
    "Normalised",
    "Permutohedral",
    "Separable",
    "choose",
    "make_filter",
]
