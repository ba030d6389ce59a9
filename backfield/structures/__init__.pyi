from backfield.structures.base import BlockSize as BlockSize
from backfield.structures.base import Instance as Instance
from backfield.structures.base import Structure as Structure
from backfield.structures.chain import Chain as Chain
from backfield.structures.dense import Dense as Dense
from backfield.structures.graph import AnyGraph as AnyGraph
from backfield.structures.lattice import Grid as Grid
from backfield.structures.lattice import Volume as Volume
