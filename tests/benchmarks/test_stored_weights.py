"""The comparison of two versions sees a difference where there is one, and what it stores is small."""

import copy
import json
from pathlib import Path

import pytest

from backfield_benchmarks import stored_weights

STORED = Path(__file__).parents[2] / "benchmarks" / "stored_weights.json"


@pytest.fixture(scope="module")
def old():
    return json.loads(STORED.read_text())


def test_what_is_stored(old):
    names = [name for name, _ in stored_weights.models(None)]
    assert list(old) == [f"{name}, {dtype}" for name in names for dtype in stored_weights.DTYPES]
    assert all(len(record["points"]) == 5 for record in old.values())
    assert STORED.stat().st_size < 200_000


def test_differences(old, capsys):
    new = copy.deepcopy(old)
    assert stored_weights.agree(old, new)
    assert capsys.readouterr().out.count('"same_bytes": true') == len(old)
    key = "graph, clique logistic, float64"
    new[key]["points"][2]["entries"][7] += 1e-9 * new[key]["points"][2]["largest"]
    new[key]["points"][2]["sha256"] = "other"
    assert not stored_weights.agree(old, new)
    out = [line for line in capsys.readouterr().out.splitlines() if "TOO FAR" in line]
    assert len(out) == 1 and out[0].startswith(key) and '"same_bytes": false' in out[0]


@pytest.mark.parametrize(("change", "good"), [(1e-7, True), (1e-5, False)])
def test_objectives_of_fits(old, change, good):
    new = copy.deepcopy(old)
    new["demo, likelihood, float32"]["fit"]["objective"] *= 1 + change
    assert stored_weights.agree(old, new) is good


def test_another_number_of_weights(old, capsys):
    new = copy.deepcopy(old)
    new["conll, max margin, float64"]["n_weights"] += 1
    assert not stored_weights.agree(old, new)


def test_a_model_gives_the_stored_numbers(old):
    """One of the models, in this tree."""
    found = stored_weights.measure(dict(stored_weights.models(None))["graph, loopy BP"](), "float64")
    assert stored_weights.agree(old, {"graph, loopy BP, float64": found})
