"""Rows (features, label, bias) -> a function of the features, for the biased logistic loss."""

from backfield.oracles._checked_fit import Fit as Fit
from backfield.oracles._checked_fit import checked_fit as checked_fit
from backfield.oracles.base import Oracle as Oracle
from backfield.oracles.base import OracleFunction as OracleFunction
from backfield.oracles.base import OracleTask as OracleTask
from backfield.oracles.base import Sums as Sums
from backfield.oracles.base import objective as objective
from backfield.oracles.boosted_trees import BoostedTrees as BoostedTrees
from backfield.oracles.constant import Constant as Constant
from backfield.oracles.linear import Linear as Linear
from backfield.oracles.mlp import Mlp as Mlp
from backfield.oracles.zero import Zero as Zero
