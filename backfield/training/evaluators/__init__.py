"""What computes value and gradient of a chunk of examples."""

from backfield.training.evaluators.general import Evaluator, General, Independent, Sum, Task
from backfield.training.evaluators.tagger import Tagger

__all__ = ["Evaluator", "General", "Independent", "Sum", "Tagger", "Task"]
