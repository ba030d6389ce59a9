"""What is connected: graphs, potentials, conditioning, labelings."""

from backfield.graph.graph import Graph as Graph
from backfield.graph.potentials import Potentials as Potentials
from backfield.graph.potentials import batch as batch
