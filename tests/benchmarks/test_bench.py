"""The benchmark runs, its workloads are those of the C kernels, and its bars are held against the right figures."""

import json

import numpy as np
import pytest

from backfield_benchmarks import bars
from backfield_benchmarks.process import memory
from backfield_benchmarks.workloads import as_general, workload
from tests.installed import run


def test_quick_labels(capsys, tmp_path):
    assert run(["bench", "labels", "--quick", "--json", "--out", str(tmp_path / "new" / "bench.json")]) == 0
    text = capsys.readouterr().out
    rows = json.loads(text)["rows"]
    assert {row["labels"] for row in rows} == {2, 3, 5, 8}
    for row in rows:
        assert row["ns"] > 0 and row["compile_s"] >= 0
        assert {"case", "workload", "algorithm", "family", "dtype", "unit"} <= set(row)
        assert ("bar" in row) == (row["labels"] == 3)
    assert (tmp_path / "new" / "bench.json").read_text() == text


def test_quick_gradient(capsys):
    assert run(["bench", "gradient", "--quick"]) == 0
    out = capsys.readouterr().out
    assert out.count("sweeps") == 2 * 2 * 3 and out.rstrip().endswith("bars reached")


def test_memory_is_that_of_the_child(capsys):
    ballast = np.ones(2**25)
    peak = memory(120)
    assert all(0 < megabytes() < 100 for megabytes in peak.values())
    assert ballast[0] == 1


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
    first = rng.standard_normal((19800, 2, 2))
    np.testing.assert_array_equal(theta.factors[0], first[0])  # edge (0, 1)
    np.testing.assert_array_equal(theta.factors[100 * 99], first[1])  # edge (0, 100)
    general = as_general(theta)
    np.testing.assert_array_equal(general.factors, first)
    assert general.graph.shape is None and general.graph.factors[:3].tolist() == [[0, 1], [0, 100], [1, 2]]


def _reference(folder, ns):
    lines = [
        {"workload": "W1", "variant": "checkerboard ratio-msg f64", "ns_per_unit": ns},
        {"workload": "W8", "variant": "back-TRW checkerboard f64 20 iters rho=0.5", "ns_per_unit": ns},
        {"workload": "machine", "variant": "memcpy"},
    ]
    for name in bars.PROGRAMS:
        # Writes beside the folder of the models, as the C kernels do.
        body = "\n".join(f"echo '{json.dumps(line)}'" for line in lines)
        (folder / name).write_text(f'#!/bin/sh\ntest -f "$1/w1.bin" || exit 1\ntouch "$1/../marg/x"\n{body}\n')
        (folder / name).chmod(0o755)
    for name in bars.MODELS:
        (folder / f"{name}.bin").touch()


def test_ratios_to_the_best_of_the_reference_runs(tmp_path):
    limits = {}
    for ns in (3.0, 2.0, 4.0):
        _reference(tmp_path, ns)
        bars.run_reference(tmp_path, limits)
    assert not (tmp_path.parent / "marg").exists()
    row = {"workload": "w1", "family": "lattice", "dtype": "float64", "labels": 2, "unit": "message", "ns": 5.0}
    rows = [
        {**row, "case": "messages", "algorithm": "loopy_bp"},
        {**row, "case": "messages", "algorithm": "loopy_bp", "dtype": "float32"},
        {**row, "case": "gradient", "algorithm": "gradient, engine, 20 sweeps", "sweeps": 20, "over_forward": 3.0},
    ]
    first, second, third = bars.compare(rows, limits)
    assert (first["versus"], first["ratio"], first["bar"]) == ("C", 2.5, 1.5)
    assert "bar" not in second
    assert (third["ratio"], third["bar"]) == (2.5, 2.5)


def test_ratios_between_rows():
    row = {"case": "messages", "workload": "w4", "dtype": "float64", "labels": 2, "unit": "message"}
    rows = [
        {**row, "algorithm": "tree_reweighted(rho=0.5)", "family": "pairwise", "ns": 2.0},
        {**row, "algorithm": "tree_reweighted(rho=0.5)", "family": "general", "ns": 3.0},
        {**row, "algorithm": "tree_reweighted(rho=0.7)", "family": "pairwise", "ns": 5.0},
    ]
    pairwise, general, power = bars.compare(rows, {})
    assert "ratio" not in pairwise
    assert (general["versus"], general["ratio"]) == ("pairwise", 1.5)
    assert (power["versus"], power["ratio"]) == ("rho=0.5", 2.5)
