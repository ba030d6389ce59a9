"""theta -> mu, log Z."""

from backfield.inference.auto.method import Auto as Auto
from backfield.inference.base import Inference as Inference
from backfield.inference.base import Result as Result
from backfield.inference.exact.brute_force import BruteForce as BruteForce
from backfield.inference.exact.chain import Chain as Chain
from backfield.inference.exact.junction import Exact as Exact
from backfield.inference.mean_field.method import MeanField as MeanField
from backfield.inference.message_passing.loopy_bp import LoopyBP as LoopyBP
from backfield.inference.message_passing.tree_reweighted import TreeReweighted as TreeReweighted
from backfield.inference.sampling.gibbs import Gibbs as Gibbs
from backfield.inference.sampling.perturb_and_map import PerturbAndMap as PerturbAndMap
from backfield.inference.smoothed_lp.method import SmoothedLP as SmoothedLP
