"""Models whose variables and states have names: queries, files, tables."""

from typing import TYPE_CHECKING, Any

from backfield.models.model import Model as Model
from backfield.models.table import Table as Table

if TYPE_CHECKING:
    from backfield.models.markov_network import MarkovNetwork as MarkovNetwork


def __getattr__(name: str) -> Any:
    if name == "MarkovNetwork":  # an estimator: scikit-learn takes longer to import than a model to answer
        from backfield.models.markov_network import MarkovNetwork

        return MarkovNetwork
    raise AttributeError(f"module 'backfield.models' has no attribute {name!r}")
