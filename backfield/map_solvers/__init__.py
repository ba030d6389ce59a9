"""theta -> labels."""

from backfield.map_solvers._base import MapResult as MapResult
from backfield.map_solvers._base import MapSolver as MapSolver
from backfield.map_solvers.brute_force import BruteForce as BruteForce
from backfield.map_solvers.icm import Icm as Icm
from backfield.map_solvers.max_product import MaxProduct as MaxProduct
from backfield.map_solvers.viterbi import Viterbi as Viterbi
