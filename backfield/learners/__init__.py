"""Move w: value and gradient of a problem -> weights."""

from backfield.learners.ascent import Ascent as Ascent
from backfield.learners.base import Fit as Fit
from backfield.learners.base import Incremental as Incremental
from backfield.learners.base import Learner as Learner
from backfield.learners.base import step_seed as step_seed
from backfield.learners.frank_wolfe import FrankWolfe as FrankWolfe
from backfield.learners.lbfgs import LBFGS as LBFGS
from backfield.learners.online import PassiveAggressive as PassiveAggressive
from backfield.learners.online import Perceptron as Perceptron
from backfield.learners.oracle_descent import OracleDescent as OracleDescent
from backfield.learners.owlqn import OWLQN as OWLQN
from backfield.learners.self_training import SelfTraining as SelfTraining
from backfield.learners.sgd import SGD as SGD
from backfield.learners.sgd import SGDState as SGDState
from backfield.learners.smd import SMD as SMD
from backfield.learners.stages import Restarts as Restarts
from backfield.learners.stages import Stages as Stages
