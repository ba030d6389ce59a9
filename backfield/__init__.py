"""backfield: learn random fields on any graph through the inference that is used at test time."""

import importlib
import importlib.util
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from backfield.api import find_map as find_map
    from backfield.api import hessian_vector as hessian_vector
    from backfield.api import infer as infer
    from backfield.api import inference_gradient as inference_gradient
    from backfield.api import value_and_gradient as value_and_gradient
    from backfield.data.neighbours import NeighbourMeans as NeighbourMeans
    from backfield.data.packed import open_shards as open_shards
    from backfield.data.packed import write_shards as write_shards
    from backfield.energies import Network as Network
    from backfield.errors import ClusterError as ClusterError
    from backfield.errors import ConvergenceWarning as ConvergenceWarning
    from backfield.errors import InputError as InputError
    from backfield.estimators import CRF as CRF
    from backfield.estimators import ChainCRF as ChainCRF
    from backfield.estimators import Classifier as Classifier
    from backfield.estimators import DenseCRF as DenseCRF
    from backfield.estimators import GraphCRF as GraphCRF
    from backfield.estimators import GridCRF as GridCRF
    from backfield.estimators import GridSample as GridSample
    from backfield.estimators import MultiLabelCRF as MultiLabelCRF
    from backfield.estimators import Sample as Sample
    from backfield.estimators import Scaled as Scaled
    from backfield.estimators import VolumeCRF as VolumeCRF
    from backfield.estimators.model_file import load as load
    from backfield.graph import Graph as Graph
    from backfield.graph import Kernel as Kernel
    from backfield.graph import Potentials as Potentials
    from backfield.graph import Tied as Tied
    from backfield.graph import batch as batch
    from backfield.labelling.notebook import label as label
    from backfield.models import MarkovNetwork as MarkovNetwork
    from backfield.models import Model as Model

    __version__: str

#: Where each public name lives. Nothing is imported before it is asked for, so ``backfield --help`` comes at once.
_HOMES = {
    "backfield.api": ("find_map", "hessian_vector", "infer", "inference_gradient", "value_and_gradient"),
    "backfield.energies": ("Network",),
    "backfield.errors": ("ClusterError", "ConvergenceWarning", "InputError"),
    "backfield.estimators": (
        "CRF",
        "ChainCRF",
        "Classifier",
        "DenseCRF",
        "GraphCRF",
        "GridCRF",
        "GridSample",
        "MultiLabelCRF",
        "Sample",
        "Scaled",
        "VolumeCRF",
    ),
    "backfield.estimators.model_file": ("load",),
    "backfield.data.neighbours": ("NeighbourMeans",),
    "backfield.data.packed": ("open_shards", "write_shards"),
    "backfield.graph": ("Graph", "Kernel", "Potentials", "Tied", "batch"),
    "backfield.labelling.notebook": ("label",),
    "backfield.models": ("MarkovNetwork", "Model"),
}
_HOME = {name: home for home, names in _HOMES.items() for name in names}
__all__ = [*_HOME]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        return _version()
    if name in _HOME:
        found = globals()[name] = getattr(importlib.import_module(_HOME[name]), name)
        return found
    if not name.startswith("_") and importlib.util.find_spec(f"backfield.{name}") is not None:
        return importlib.import_module(f"backfield.{name}")  # a room
    raise AttributeError(f"module 'backfield' has no attribute {name!r}")


def _version() -> str:
    """Return the version that was installed; a folder on the path has none."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("backfield")
    except PackageNotFoundError:
        return "0+unknown"


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOME])
