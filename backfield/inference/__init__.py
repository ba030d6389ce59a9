"""theta -> mu, log Z."""

from backfield.inference._base import Inference as Inference
from backfield.inference._base import Result as Result
from backfield.inference.brute_force import BruteForce as BruteForce
from backfield.inference.chain import Chain as Chain
from backfield.inference.exact import Exact as Exact
from backfield.inference.gibbs import Gibbs as Gibbs
from backfield.inference.loopy_bp import LoopyBP as LoopyBP
from backfield.inference.mean_field import MeanField as MeanField
from backfield.inference.perturb_and_map import PerturbAndMap as PerturbAndMap
from backfield.inference.smoothed_lp import SmoothedLP as SmoothedLP
from backfield.inference.tree_reweighted import TreeReweighted as TreeReweighted
