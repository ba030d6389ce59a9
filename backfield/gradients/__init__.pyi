from backfield.gradients.backpropagation import Backpropagation as Backpropagation
from backfield.gradients.base import Gradient as Gradient
from backfield.gradients.base import Outcome as Outcome
from backfield.gradients.implicit import Implicit as Implicit
from backfield.gradients.perturbation import Perturbation as Perturbation
from backfield.gradients.truncated import Truncated as Truncated
