"""backfield: learn random fields on any graph through the inference that is used at test time."""

from backfield.api import find_map as find_map
from backfield.api import hessian_vector as hessian_vector
from backfield.api import infer as infer
from backfield.api import inference_gradient as inference_gradient
from backfield.api import value_and_gradient as value_and_gradient
from backfield.energies import Network as Network
from backfield.errors import ConvergenceWarning as ConvergenceWarning
from backfield.errors import InputError as InputError
from backfield.estimators import ChainCRF as ChainCRF
from backfield.estimators import Classifier as Classifier
from backfield.estimators import GraphCRF as GraphCRF
from backfield.estimators import GridCRF as GridCRF
from backfield.estimators import GridSample as GridSample
from backfield.estimators import Sample as Sample
from backfield.estimators.model_file import load as load
from backfield.estimators.pack import write_shards as write_shards
from backfield.estimators.shards import open_shards as open_shards
from backfield.graph import Graph as Graph
from backfield.graph import Potentials as Potentials
from backfield.graph import batch as batch

__version__ = "0.1.0"
