"""Contract tests for parts, also those of other packages: ``check_loss(part)`` raises AssertionError if one is broken.

A check takes a part, its class or its spec, runs every contract of the room on small random models and says which one does
not hold. Nothing but the package itself is needed: no pytest, no hypothesis.
"""

from backfield.testing.decoders import check_decoder as check_decoder
from backfield.testing.energies import check_energy as check_energy
from backfield.testing.gradients import check_gradient as check_gradient
from backfield.testing.inference import check_inference as check_inference
from backfield.testing.learners import check_learner as check_learner
from backfield.testing.losses import check_loss as check_loss
from backfield.testing.map_solvers import check_map_solver as check_map_solver
from backfield.testing.objectives import check_objective as check_objective
from backfield.testing.oracles import check_oracle as check_oracle
from backfield.testing.structures import check_structure as check_structure
