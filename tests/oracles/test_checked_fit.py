"""Rows that cannot be used, and oracles that do not do what they must."""

from dataclasses import dataclass, replace

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from backfield import InputError
from backfield.oracles import Linear, Oracle, OracleFunction, OracleTask, checked_fit
from backfield.registry import get
from tests.oracles.rows import rows

X, Y, B = rows(n=400)


class Given(OracleFunction):
    """Scores made by a function of the features."""

    def __init__(self, function, n_classes):
        self.function, self.n_classes = function, n_classes

    def scores(self, features):
        return self.function(features)


@dataclass(frozen=True, repr=False)
class Mine(Oracle, name="mine_for_tests"):
    """An oracle of a user, spoiled in some way."""

    way: str = "good"

    def fit(self, task):
        good = Linear().fit(replace(task, start=getattr(task.start, "good", None)))
        spoiled = {
            "good": good.scores,
            "nan": lambda x: np.full((len(x), task.n_classes), np.nan),
            "shape": lambda x: good.scores(x)[:, 0],
            "text": lambda x: good.scores(x).astype(str),
            "nothing": None,
        }[self.way]
        if spoiled is None:
            return None
        function = Given(spoiled, task.n_classes)
        function.good = good
        return function


@dataclass(frozen=True, repr=False)
class Plain(Oracle, name="plain_for_tests"):
    """scikit-learn's logistic regression, which knows no bias."""

    noise: float = 0.0

    def fit(self, task):
        model = LogisticRegression().fit(task.features, task.labels, sample_weight=task.weight)
        shift = self.noise * np.random.default_rng().normal(size=task.n_classes)
        return Given(lambda x: model.decision_function(x) + shift, task.n_classes)


def test_an_oracle_of_a_user_works_through_the_registry():
    fit = checked_fit(get("oracles", "mine_for_tests"), OracleTask(X, Y, B))
    reference = Linear().fit(OracleTask(X, Y, B))
    np.testing.assert_array_equal(fit.scores, reference.scores(X))
    checked_fit(get("oracles", "mine_for_tests"), OracleTask(X, Y, B, start=fit.function))
    with pytest.raises(InputError, match="Given cannot be saved"):
        fit.function.arrays()


@pytest.mark.parametrize(
    ("way", "message"),
    [
        ("nan", r"returned scores\[0, 0\] is nan"),
        ("shape", r"shape \(400,\); \(400, 3\) numbers are needed"),
        ("text", r"<U"),
        ("nothing", "gave NoneType"),
    ],
)
def test_bad_answers_name_the_oracle(way, message):
    with pytest.raises(InputError, match=rf"oracle 'mine_for_tests'.*{message}"):
        checked_fit(get("oracles", f"mine_for_tests(way={way!r})"), OracleTask(X, Y, B))


@pytest.mark.parametrize("margin", [0, 10])
@pytest.mark.parametrize("noise", [0.0, 0.1])
def test_an_oracle_that_ignores_the_bias_is_caught_at_once(margin, noise):
    x, y, bias = rows(n=5000, margin=margin, bias_scale=0.1)
    with pytest.raises(InputError, match="oracle 'plain_for_tests' ignores the bias"):
        checked_fit(Plain(noise), OracleTask(x, y, bias))


def test_an_oracle_that_ignores_the_bias_is_caught_by_its_loss():
    x, y, _ = rows(n=1000)
    # Says it already, and too loud: more of it does harm.
    bias = 2 * Plain().fit(OracleTask(x, y, np.zeros((1000, 3)))).scores(x)
    start = Given(lambda x: np.zeros((len(x), 3)), 3)
    with pytest.raises(InputError, match="'plain_for_tests' ignores the bias: its fit raises the biased loss"):
        checked_fit(Plain(), OracleTask(x, y, bias, start=start))


def test_a_step_that_is_too_long_is_no_ignored_bias():
    class Long(Mine, name="long_for_tests"):
        def fit(self, task):
            return Given(lambda x: -50 * Linear().fit(OracleTask(X, Y, B)).scores(x), 3)

    fit = checked_fit(Long(), OracleTask(X, Y, B, start=Given(lambda x: np.zeros((len(x), 3)), 3)))
    assert fit.loss > fit.loss_before


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"features": X[:, 0]}, r"features are float64 of shape \(400,\)"),
        ({"features": X[:0]}, "N >= 1"),
        ({"features": np.where(np.arange(1200).reshape(400, 3) == 7, np.nan, X)}, r"features\[2, 1\] is nan"),
        ({"bias": B[:-1]}, r"bias is float64 of shape \(399, 3\); \(400, K\)"),
        ({"bias": B[:, 0]}, r"bias is float64 of shape \(400,\); \(400, K\)"),
        ({"bias": np.where(np.arange(1200).reshape(400, 3) == 7, -np.inf, B)}, r"bias\[2, 1\] is -inf"),
        ({"labels": Y[:-1]}, r"labels are int64 of shape \(399,\)"),
        ({"labels": Y + 0.5}, "labels are float64"),
        ({"labels": np.where(np.arange(400) == 9, 3, Y)}, r"labels\[9\] is 3; 0 \.\. 2"),
        ({"labels": np.where(np.arange(400) == 9, -1, Y)}, r"labels\[9\] is -1"),
        ({"labels": np.full((400, 3), 0.5)}, "soft target 0"),
        ({"labels": np.full((400, 2), 0.5)}, r"soft targets are float64 of shape \(400, 2\)"),
        ({"weight": np.ones(3)}, r"weights are float64 of shape \(3,\)"),
        ({"weight": np.where(np.arange(400) == 9, -1.0, 1.0)}, r"weight\[9\] is -1"),
        ({"weight": np.where(np.arange(400) == 9, np.nan, 1.0)}, r"weight\[9\] is nan"),
        ({"weight": np.zeros(400)}, "all 400 weights are 0"),
        ({"bias": B[:, :1], "labels": 0 * Y}, r"\(400, 1\).*K >= 2 classes"),
    ],
)
def test_bad_rows_are_named(change, message):
    task = replace(OracleTask(X, Y, B), **change)
    with pytest.raises(InputError, match=f"oracle 'linear'.*{message}"):
        checked_fit(Linear(), task)


def test_soft_targets_need_an_oracle_that_takes_them():
    with pytest.raises(InputError, match="oracle 'mine_for_tests' takes labels only"):
        checked_fit(Mine(), OracleTask(X, np.eye(3)[Y], B))
