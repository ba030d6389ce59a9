"""Random models and plain reference answers for tests: those of ``backfield.testing``."""

from backfield.testing.models import enumerate_model as enumerate_model
from backfield.testing.models import random_graph as random_graph
from backfield.testing.models import random_paths as random_paths
from backfield.testing.models import random_potentials as random_potentials
from backfield.testing.models import random_tree as random_tree
