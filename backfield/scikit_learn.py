"""What we build on of scikit-learn, without the larger part of its import, which nothing here needs.

``sklearn.base`` imports ``scipy.stats``, and pandas where it is installed, for helpers of other modules of scikit-learn: two
thirds of the time. They come when they are used. ``sklearn.metrics`` needs them at once; it comes when somebody scores.
"""

from backfield.late_imports import postponed

with postponed("scipy.stats", "pandas"):
    from sklearn.base import BaseEstimator as BaseEstimator
    from sklearn.base import ClassifierMixin as ClassifierMixin
    from sklearn.base import TransformerMixin as TransformerMixin
    from sklearn.base import clone as clone
    from sklearn.exceptions import ConvergenceWarning as ConvergenceWarning
    from sklearn.exceptions import NotFittedError as NotFittedError
    from sklearn.utils import ClassifierTags as ClassifierTags
    from sklearn.utils import get_tags as get_tags
    from sklearn.utils.validation import check_is_fitted as check_is_fitted
    from sklearn.utils.validation import validate_data as validate_data
