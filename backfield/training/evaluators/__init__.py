"""What computes value and gradient of a chunk of examples.

``EVALUATORS`` declare which tasks they take; :func:`backfield.training.problem.choose` is the one place that chooses.
"""

from backfield.training.evaluators.general import Evaluator, General, Independent, Sum, Task
from backfield.training.evaluators.stacked import Stacked
from backfield.training.evaluators.tagger import Tagger

#: The last one takes every task with factors.
EVALUATORS: tuple[type[Evaluator], ...] = (Independent, Tagger, Stacked, General)

__all__ = ["EVALUATORS", "Evaluator", "General", "Independent", "Stacked", "Sum", "Tagger", "Task"]
