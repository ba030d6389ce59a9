"""How good predictions are, for one labeling per example, of any sizes: numbers, and scorers for scikit-learn.

>>> from sklearn.model_selection import cross_val_score
>>> cross_val_score(crf, images, masks, scoring="accuracy")  # doctest: +SKIP
>>> cross_val_score(crf, images, masks, scoring=bf.metrics.neg_ece)  # doctest: +SKIP
"""

from backfield.lazy_names import lazy_names

__getattr__, __dir__, __all__ = lazy_names(__name__)
