"""What computes value and gradient of a chunk of examples.

``EVALUATORS`` are asked in turn whether they apply; :func:`backfield.training.problem.choose` is the one place that does.
"""

from backfield.training.evaluators.base import Evaluator, Sum, Task
from backfield.training.evaluators.general import General, Independent
from backfield.training.evaluators.stacked import Stacked

#: The last one takes every task.
EVALUATORS: tuple[type[Evaluator], ...] = (Independent, Stacked, General)

__all__ = ["EVALUATORS", "Evaluator", "General", "Independent", "Stacked", "Sum", "Task"]
