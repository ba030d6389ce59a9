"""theta, labels -> value, d_theta."""

from difflib import get_close_matches as _close

from backfield.errors import InputError as _InputError
from backfield.losses import Loss as _Loss
from backfield.objectives.base import Objective as Objective
from backfield.objectives.base import Seen as Seen
from backfield.objectives.base import Setting as Setting
from backfield.objectives.base import Target as Target
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
from backfield.registry import get as _get
from backfield.registry import names as _names
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
    name = _parse(loss)[0] if isinstance(loss, str) else ""
    if name in _names("objectives"):
        return _get("objectives", loss)
    if name and name not in _names("losses"):
        known = _names("losses") + _names("objectives")
        near = _close(name, known, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(known)}."
        raise _InputError(f"there is no {name!r} among losses and objectives; {hint}")
    return Marginal(_get("losses", loss))
