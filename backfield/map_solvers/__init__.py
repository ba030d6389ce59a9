"""theta -> labels."""

from backfield.map_solvers.alpha_expansion import AlphaBetaSwap as AlphaBetaSwap
from backfield.map_solvers.alpha_expansion import AlphaExpansion as AlphaExpansion
from backfield.map_solvers.base import MapResult as MapResult
from backfield.map_solvers.base import MapSolver as MapSolver
from backfield.map_solvers.brute_force import BruteForce as BruteForce
from backfield.map_solvers.graph_cut import CutProblem as CutProblem
from backfield.map_solvers.graph_cut import GraphCut as GraphCut
from backfield.map_solvers.icm import Icm as Icm
from backfield.map_solvers.max_product import MaxProduct as MaxProduct
from backfield.map_solvers.mplp import Mplp as Mplp
from backfield.map_solvers.viterbi import Viterbi as Viterbi
