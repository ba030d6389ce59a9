"""What computes value and gradient of a chunk of examples.

``EVALUATORS`` are asked in turn whether they apply; :func:`backfield.training.problem.choose` is the one place that does.
"""

from backfield.training.evaluators.base import Evaluator, Sum, Task
from backfield.training.evaluators.chains import StackedChains
from backfield.training.evaluators.general import General, Independent
from backfield.training.evaluators.maxima import StackedMaxima

#: The last one takes every task.
EVALUATORS: tuple[type[Evaluator], ...] = (Independent, StackedChains, StackedMaxima, General)

__all__ = ["EVALUATORS", "Evaluator", "General", "Independent", "StackedChains", "StackedMaxima", "Sum", "Task"]
