from backfield.models.markov_network import MarkovNetwork as MarkovNetwork
from backfield.models.model import Model as Model
from backfield.models.table import Table as Table
