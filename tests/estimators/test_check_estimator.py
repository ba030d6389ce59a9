"""scikit-learn's own checks of estimators, and the list of those that do not apply, with the reason.

A check that is listed and passes is an error, too: the list says what is true.
"""

from unittest import SkipTest

import numpy as np
import pytest
import sklearn
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.utils.estimator_checks import estimator_checks_generator
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

import backfield as bf

pytestmark = pytest.mark.filterwarnings("ignore")
QUICK = {"learner": "lbfgs(max_iter=3)"}
FIELDS = [bf.ChainCRF, bf.GridCRF, bf.VolumeCRF, bf.DenseCRF, bf.GraphCRF]
#: Checks that need no data, and those of data that no estimator takes. All others give a table of rows to ``fit``, and a
#: field takes sequences, images, volumes or graphs: for them, ``Rows`` below makes examples of rows.
WITHOUT_TABLES = {
    "check_decision_proba_consistency", "check_do_not_raise_errors_in_init_or_set_params", "check_estimator_cloneable",
    "check_estimator_repr", "check_estimator_tags_renamed", "check_estimators_unfitted", "check_fit1d",
    "check_get_params_invariance", "check_mixin_order", "check_no_attributes_set_in_init",
    "check_non_transformer_estimators_n_iter", "check_parameters_default_constructible", "check_set_params",
    "check_supervised_y_no_nan", "check_valid_tag_types",
}  # fmt: skip


def failures(estimator, only=None):
    """Return {check: why} of the checks that fail; ``only``: run no others."""
    out, passed = {}, set()
    for made, check in estimator_checks_generator(estimator, legacy=True):
        name = check.func.__name__
        if only is not None and name not in only:
            continue
        try:
            check(made)
        except SkipTest:
            continue
        except Exception as error:
            out[name] = f"{type(error).__name__}: {error}"
        else:
            passed.add(name)
    assert passed
    return out


@pytest.mark.parametrize("kind", FIELDS, ids=lambda kind: kind.__name__)
def test_fields_without_data(kind):
    def tags(self):
        made = kind.__sklearn_tags__(self)
        made.input_tags.two_d_array = True  # else scikit-learn tests next to nothing
        return made

    assert not kind().__sklearn_tags__().input_tags.two_d_array
    estimator = type(kind.__name__, (kind,), {"__sklearn_tags__": tags})(**QUICK)
    assert failures(estimator, WITHOUT_TABLES) == {}


#: Checks of parameters and of unfitted estimators. All others give a table of numbers to ``fit`` and ``predict``:
#: ``Scaled`` takes a list of arrays, and ``MarkovNetwork.predict`` is told which columns.
OF_PARAMETERS = WITHOUT_TABLES - {
    "check_decision_proba_consistency", "check_estimators_unfitted", "check_fit1d",
    "check_non_transformer_estimators_n_iter", "check_supervised_y_no_nan",
}  # fmt: skip


@pytest.mark.parametrize("estimator", [bf.Scaled(), bf.MarkovNetwork(max_seconds=1.0)], ids=["Scaled", "MarkovNetwork"])
def test_parameters_of_others(estimator):
    assert failures(estimator, OF_PARAMETERS) == {}


class Rows(ClassifierMixin, BaseEstimator):
    """A field on a table: each row is an example of one variable."""

    def __init__(self, field=None, shape=(1,)):
        self.field = field
        self.shape = shape

    def _examples(self, X):
        return list(X.reshape(len(X), *self.shape, X.shape[1]))

    def fit(self, X, y, sample_weight=None):
        X, y = validate_data(self, X, y)
        check_classification_targets(y)
        self.classes_, codes = np.unique(y, return_inverse=True)
        field = bf.ChainCRF() if self.field is None else clone(self.field)
        self.field_ = field.fit(self._examples(X), list(codes.reshape(-1, *self.shape)), sample_weight=sample_weight)
        return self

    def predict(self, X):
        best = self.predict_proba(X).argmax(axis=1)
        return self.classes_[best]

    def predict_proba(self, X):
        check_is_fitted(self)
        X = validate_data(self, X, reset=False)
        return np.concatenate([p.reshape(1, -1) for p in self.field_.predict_proba(self._examples(X))])


#: What does not hold for a field on a table, and why.
NOT_FOR_ROWS = {
    "check_sample_weights_not_an_array": "sample_weight is an array or a list of numbers; other objects are refused",
    "check_sample_weight_equivalence_on_dense_data": "the mean is over all rows, also those of weight 0",
}


@pytest.mark.parametrize(
    ("field", "shape"),
    [
        (bf.ChainCRF(learner="lbfgs(max_iter=200, tol=1e-10)"), (1,)),
        (bf.GridCRF(learner="lbfgs(max_iter=200, tol=1e-10)", dtype="float64", inference="mean_field(n_iter=2)"), (1, 1)),
    ],
    ids=["ChainCRF", "GridCRF"],
)
def test_fields_on_rows(field, shape):
    found = failures(Rows(field, shape))
    assert set(found) == set(NOT_FOR_ROWS), found


#: Y is (n, K) of 0 and 1, where scikit-learn gives other labels to some checks, whatever the tags say.
_BINARY = "a label is there or not, 0 or 1; this check gives texts, or numbers up to 2, or a single class"
NOT_FOR_LABEL_SETS = {
    "check_estimators_dtypes": _BINARY,
    "check_sample_weights_pandas_series": _BINARY,
    "check_sample_weights_not_an_array": _BINARY,
    "check_sample_weights_shape": _BINARY,
    "check_sample_weights_not_overwritten": _BINARY,
    "check_dtype_object": _BINARY,
    "check_estimator_sparse_array": _BINARY,
    "check_estimator_sparse_matrix": _BINARY,
    "check_classifier_data_not_an_array": _BINARY,
    "check_classifiers_one_label": _BINARY,
    "check_classifiers_one_label_sample_weights": _BINARY,
    "check_classifiers_classes": _BINARY,
    "check_classifiers_train": _BINARY,
    "check_classifiers_regression_target": "labels that are no classes are refused in other words than scikit-learn's",
    "check_classifier_not_supporting_multiclass": "labels above 1 are refused in other words than scikit-learn's",
    "check_fit2d_1feature": _BINARY,
    "check_requires_y_none": "y=None is refused in other words than scikit-learn's",
    "check_sample_weight_equivalence_on_dense_data": "features are scaled, and the ridge counted, by rows, not by weights",
    "check_sample_weight_equivalence_on_sparse_data": "features are scaled, and the ridge counted, by rows, not by weights",
}


def test_label_sets():
    found = failures(bf.MultiLabelCRF(**QUICK))
    if tuple(map(int, sklearn.__version__.split(".")[:2])) < (1, 7):  # 1.6 gives labels up to 2 to a dozen checks more
        found = {k: why for k, why in found.items() if k in NOT_FOR_LABEL_SETS or "-1 or NaN are labels" not in why}
    assert set(found) == set(NOT_FOR_LABEL_SETS), found
