"""theta, labels -> value, d_theta."""

from backfield.losses import Loss as _Loss
from backfield.objectives.base import Objective as Objective
from backfield.objectives.base import Seen as Seen
from backfield.objectives.base import Setting as Setting
from backfield.objectives.base import Target as Target
from backfield.objectives.base import evaluate as evaluate
from backfield.objectives.expectation import ContrastiveDivergence as ContrastiveDivergence
from backfield.objectives.expectation import MaximumMarginal as MaximumMarginal
from backfield.objectives.expectation import PseudoMarginal as PseudoMarginal
from backfield.objectives.expectation import SaddlePoint as SaddlePoint
from backfield.objectives.jgmt import jgmt_alias as jgmt_alias
from backfield.objectives.marginal import Marginal as Marginal
from backfield.objectives.marginal_perturb_and_map import MarginalPerturbAndMap as MarginalPerturbAndMap
from backfield.objectives.max_margin import MaxMargin as MaxMargin
from backfield.objectives.max_margin import SmoothedMaxMargin as SmoothedMaxMargin
from backfield.objectives.perturb_and_map import PerturbAndMapLikelihood as PerturbAndMapLikelihood
from backfield.objectives.piecewise import Piecewise as Piecewise
from backfield.objectives.pseudolikelihood import Pseudolikelihood as Pseudolikelihood
from backfield.objectives.surrogate_likelihood import SurrogateLikelihood as SurrogateLikelihood
from backfield.registry import find_room as _find_room
from backfield.registry import get as _get
from backfield.registry import parse as _parse


def get_objective(loss: object) -> Objective:
    """Return the objective of a loss or objective, given as a part or its spec: ``loss=`` takes both."""
    if isinstance(loss, Objective):
        return loss
    if isinstance(loss, _Loss):
        return Marginal(loss)
    alias = jgmt_alias(loss)
    if alias is not None:
        return get_objective(alias.loss)
    if not isinstance(loss, str):
        return Marginal(_get("losses", loss))
    room = _find_room(_parse(loss)[0], ("losses", "objectives"))
    return _get(room, loss) if room == "objectives" else Marginal(_get(room, loss))
