"""The oracle in the docs runs: on XGBoost if it is there, else on a stand-in with the same calls."""

import importlib.util
import re
import sys
import types
from pathlib import Path

import numpy as np
import pytest

from backfield.oracles import OracleTask, checked_fit
from backfield.registry import _REGISTRY, get
from tests.oracles.rows import rows, softmax

PAGE = Path(__file__).parents[2] / "docs" / "extend" / "add_an_oracle.md"


class _Rows:
    def __init__(self, data, label=None, weight=None, base_margin=None):
        self.data, self.label, self.base_margin = data, label, base_margin


class _Booster:
    """Constants in the place of trees."""

    def __init__(self, values=None):
        self.values = values

    def predict(self, rows, output_margin=False):
        assert output_margin
        return rows.base_margin + self.values

    def save_raw(self, raw_format):
        assert raw_format == "json"
        return bytearray(self.values.tobytes())

    def load_model(self, raw):
        assert isinstance(raw, bytearray)
        self.values = np.frombuffer(raw)


def _train(parameters, rows, num_boost_round, xgb_model=None):
    values = np.zeros(parameters["num_class"]) if xgb_model is None else xgb_model.values.copy()
    for _ in range(num_boost_round):
        p = softmax(rows.base_margin + values)
        step = (np.eye(parameters["num_class"])[rows.label] - p).mean(axis=0)
        values = values + parameters["learning_rate"] * step
    return _Booster(values)


@pytest.fixture
def page(monkeypatch):
    """Run the page's class, and forget it afterwards."""
    if importlib.util.find_spec("xgboost") is None:
        stand_in = types.ModuleType("xgboost")
        stand_in.DMatrix, stand_in.Booster, stand_in.train = _Rows, _Booster, _train
        monkeypatch.setitem(sys.modules, "xgboost", stand_in)
    code = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)[0]
    module = types.ModuleType("page")
    monkeypatch.setitem(sys.modules, "page", module)
    exec(compile(code, str(PAGE), "exec", dont_inherit=True), module.__dict__)
    yield module
    _REGISTRY["oracles"].pop("xgboost")


def test_the_oracle_of_the_page(page):
    x, y, bias = rows(n=500)
    oracle = get("oracles", "xgboost(n_rounds=3, max_depth=3)")
    first = checked_fit(oracle, OracleTask(x, y, bias))
    second = checked_fit(oracle, OracleTask(x, y, bias, start=first.function))
    assert second.loss < first.loss < first.loss_before
    again = oracle.function_class.from_arrays(second.function.arrays(), second.function.meta())
    np.testing.assert_allclose(again.scores(x), second.scores)
