"""backfield: learn random fields on any graph through the inference that is used at test time."""

from backfield.api import find_map as find_map
from backfield.api import infer as infer
from backfield.errors import ConvergenceWarning as ConvergenceWarning
from backfield.errors import InputError as InputError
from backfield.graph import Graph as Graph
from backfield.graph import Potentials as Potentials
from backfield.graph import batch as batch

__version__ = "0.1.0"
