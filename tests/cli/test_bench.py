"""The benchmark runs, and its workloads are those of the C kernels."""

import json

import numpy as np
import pytest

from backfield.cli.app import run
from backfield.experiments.bench import workload


def test_quick_labels(capsys):
    assert run(["bench", "labels", "--quick", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert {row["labels"] for row in rows} == {2, 3, 5, 8}
    assert all(row["ns"] > 0 for row in rows)


@pytest.mark.parametrize(
    ("arguments", "message"), [(["nonsense"], "no case"), (["labels", "--reference", "/nowhere"], "limit")]
)
def test_bad_input(arguments, message, capsys):
    assert run(["bench", *arguments]) == 2
    assert message in capsys.readouterr().err


def test_workloads_are_drawn_as_the_models_of_the_c_kernels():
    theta = workload("w1")
    rng = np.random.default_rng(1)
    np.testing.assert_array_equal(theta.unary, rng.standard_normal((10000, 2)))
    first = rng.standard_normal((19800, 2, 2))[:2]  # edges (0, 1) and (0, 100)
    np.testing.assert_array_equal(theta.factors[0], first[0])
    np.testing.assert_array_equal(theta.factors[100 * 99], first[1])
