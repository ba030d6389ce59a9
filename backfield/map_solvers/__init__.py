"""theta -> labels."""

from backfield.map_solvers._base import MapResult as MapResult
from backfield.map_solvers._base import MapSolver as MapSolver
