"""Move w: value and gradient of a problem -> weights."""

from backfield.learners._base import Fit as Fit
from backfield.learners._base import Learner as Learner
from backfield.learners._base import Problem as Problem
from backfield.learners.lbfgs import LBFGS as LBFGS
