"""What is connected: graphs, potentials, conditioning, labelings."""

from backfield.graph.graph import FactorGroup as FactorGroup
from backfield.graph.graph import Graph as Graph
from backfield.graph.groups import Tied as Tied
from backfield.graph.kernel_groups import Kernel as Kernel
from backfield.graph.potentials import Potentials as Potentials
from backfield.graph.potentials import batch as batch
