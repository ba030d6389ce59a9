"""What an estimator says of itself to scikit-learn, and who acts on it."""

import importlib
from dataclasses import dataclass
from functools import partial

from backfield.late_imports import after_import
from backfield.scikit_learn import ClassifierTags


@dataclass
class StructuredTags(ClassifierTags):
    """Tags of a classifier whose labels are one array per example."""


# scoring="accuracy" and others score examples of any size.
after_import("sklearn.metrics", partial(importlib.import_module, "backfield.metrics.scorers"))
