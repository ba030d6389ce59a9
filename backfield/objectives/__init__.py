"""theta, labels -> value, d_theta."""

from backfield.objectives.base import Objective as Objective
from backfield.objectives.base import Seen as Seen
from backfield.objectives.base import Setting as Setting
from backfield.objectives.base import Target as Target
from backfield.objectives.base import evaluate as evaluate
from backfield.objectives.expectation import ContrastiveDivergence as ContrastiveDivergence
from backfield.objectives.expectation import MaximumMarginal as MaximumMarginal
from backfield.objectives.expectation import PseudoMarginal as PseudoMarginal
from backfield.objectives.expectation import SaddlePoint as SaddlePoint
from backfield.objectives.marginal import Marginal as Marginal
from backfield.objectives.marginal import get_objective as get_objective
from backfield.objectives.marginal import jgmt_alias as jgmt_alias
from backfield.objectives.marginal import make_setting as make_setting
from backfield.objectives.marginal import named_setting as named_setting
from backfield.objectives.marginal_perturb_and_map import MarginalPerturbAndMap as MarginalPerturbAndMap
from backfield.objectives.max_margin import MaxMargin as MaxMargin
from backfield.objectives.max_margin import SmoothedMaxMargin as SmoothedMaxMargin
from backfield.objectives.perturb_and_map import PerturbAndMapLikelihood as PerturbAndMapLikelihood
from backfield.objectives.piecewise import Piecewise as Piecewise
from backfield.objectives.pseudolikelihood import Pseudolikelihood as Pseudolikelihood
from backfield.objectives.surrogate_likelihood import SurrogateLikelihood as SurrogateLikelihood
