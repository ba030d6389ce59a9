import importlib.metadata
import json
import os
import subprocess
import sys

import numpy as np
import pytest

import backfield as bf
from backfield.cli.app import COMMANDS
from backfield.data.formats import read_mar, write_evidence, write_uai
from tests.models import enumerate_model, random_potentials

BP = "tree_reweighted(n_iter=4, rho=1.0)"  # exact on a tree


@pytest.fixture
def tree(tmp_path):
    graph = bf.Graph([2, 3, 2, 2], [(0, 1), (2, 1), (2, 3)])
    theta = random_potentials(graph, np.random.default_rng(0))
    write_uai(theta, tmp_path / "tree.uai")
    return theta, str(tmp_path / "tree.uai")


def one_line(err, *words):
    assert err.startswith("backfield: ") and err.endswith("\n") and err.count("\n") == 1, err
    assert "Traceback" not in err
    for word in words:
        assert word.lower() in err.lower()  # typer writes arguments in capitals, and from 0.29 on in small letters


def test_json(call, tree):
    theta, path = tree
    code, out, err = call("infer", path, "--inference", BP, "--json")
    answer = json.loads(out)
    log_z, mu = enumerate_model(theta)
    assert (code, err) == (0, "")
    assert answer["log_partition"] == pytest.approx(log_z)
    assert answer["converged"] is True and answer["n_iter"] == 4
    for got, expected in zip(answer["marginals"], mu.unary, strict=True):
        np.testing.assert_allclose(got, expected, atol=1e-9)


def test_exact_is_the_default(call, tree):
    theta, path = tree
    code, out, _ = call("infer", path, "--json")
    assert code == 0
    assert json.loads(out)["bound"] == "exact"
    assert json.loads(out)["log_partition"] == pytest.approx(enumerate_model(theta)[0])


def test_evidence_is_used_only_when_asked_for(call, tree, tmp_path):
    theta, path = tree
    observed = np.array([-1, 2, -1, -1])
    write_evidence(observed, tmp_path / "tree.uai.evid")
    code, out, _ = call("infer", path, "--inference", BP, "--json", "--evidence", f"{path}.evid")
    answer = json.loads(out)
    clamped = bf.Potentials(theta.graph, list(theta.unary), list(theta.factors))
    clamped.unary_flat[[2, 3]] = -np.inf
    log_z, mu = enumerate_model(clamped)
    assert code == 0
    assert answer["log_partition"] == pytest.approx(log_z)
    assert answer["marginals"][1] == [0, 0, 1]
    np.testing.assert_allclose(answer["marginals"][3], mu.unary[3])
    _, out, _ = call("infer", path, "--inference", BP, "--json")
    assert json.loads(out)["log_partition"] == pytest.approx(enumerate_model(theta)[0])


def test_marginals_to_a_file(call, tree, tmp_path):
    theta, path = tree
    code, _, _ = call("infer", path, "--inference", BP, "-o", str(tmp_path / "out.MAR"))
    assert code == 0
    np.testing.assert_allclose(read_mar(tmp_path / "out.MAR")[1], enumerate_model(theta)[1].unary[1], atol=1e-9)


def test_table(call, tmp_path):
    theta = bf.Potentials(bf.Graph([2] * 45), np.zeros((45, 2)))
    write_uai(theta, tmp_path / "flat.uai")
    code, out, err = call("infer", str(tmp_path / "flat.uai"), "--inference", BP)
    assert (code, err) == (0, "")
    assert "0.5000 0.5000" in out and "5 more variables" in out and "log Z = 31.19" in out


def test_libdai_files_and_float32(call, tmp_path):
    (tmp_path / "a.fg").write_text("1\n\n2\n0 1\n2 2\n3\n0 1\n1 2\n3 4\n")
    code, out, _ = call("infer", str(tmp_path / "a.fg"), "--inference", BP, "--dtype", "float32", "--json")
    assert code == 0
    np.testing.assert_allclose(json.loads(out)["marginals"], [[1 / 7, 6 / 7], [3 / 7, 4 / 7]], rtol=1e-5)


def test_bad_input_is_one_line_and_two(call, tree, tmp_path):
    _, path = tree
    (tmp_path / "bad.uai").write_text("MARKOV\n2\n2 2\n1\n2 0 5\n4 1 1 1 1")
    (tmp_path / "bad.evid").write_text("1 1 7")
    (tmp_path / "folder.uai").mkdir()
    cases = [
        (["infer", str(tmp_path / "bad.uai")], ["bad.uai, line 5", "variable 5"]),
        (["infer", str(tmp_path / "none.uai")], ["none.uai", "No such file"]),
        (["infer", str(tmp_path / "folder.uai")], ["folder.uai", "directory"]),
        (["infer", "model.txt"], ["model.txt", ".uai or .fg"]),
        (["infer", path, "--inference", "tree_weighted"], ["tree_reweighted"]),
        (["infer", path, "--inference", "tree_reweighted(n_iter=-1)"], ["n_iter"]),
        (["infer", path, "--inference", BP, "--evidence", str(tmp_path / "bad.evid")], ["labels 0 .. 2"]),
        (["infer", path, "--inference", BP, "-o", str(tmp_path / "no" / "out.MAR")], ["No such file"]),
        (["infer", path, "--dtype", "int8"], ["int8"]),
        (["infer", path, "--seconds", "0"], ["seconds must be a positive number"]),
        (["infer", path, "--seconds", "1", "--inference", "exact"], ["--inference or --seconds, not both"]),
        (["infer", path, "--colour"], ["--colour"]),
        (["infer"], ["file"]),
        (["inferr"], ["inferr"]),
        (["list", "kitchen"], ["kitchen", "inference"]),
    ]
    for arguments, words in cases:
        code, out, err = call(*arguments)
        assert (code, out) == (2, ""), arguments
        one_line(err, *words)


def test_unconverged_inference_is_one_line(call, tree):
    code, _, err = call("infer", tree[1], "--inference", "tree_reweighted(n_iter=1, rho=1.0, tol=1e-9)", "--json")
    assert code == 0
    one_line(err, "warning", "n_iter")


@pytest.mark.parametrize(
    ("error", "code", "word"),
    [
        (KeyboardInterrupt(), 130, "interrupted"),
        (RuntimeError("two\nlines"), 1, "RuntimeError"),
        (MemoryError(), 1, "memory"),
        (OSError(28, "No space left on device", "x.MAR"), 1, "x.MAR"),
    ],
)
def test_failures(call, tree, monkeypatch, error, code, word):
    def fail(*args, **kwargs):
        raise error

    monkeypatch.setattr(bf, "infer", fail)
    got, out, err = call("infer", tree[1])
    assert (got, out) == (code, "")
    one_line(err, word)


def test_list(call):
    code, out, err = call("list")
    assert (code, err) == (0, "")
    assert "tree_reweighted" in out and "n_iter=50" in out and "upper" in out
    assert call("list", "inference")[0] == 0


def test_help_is_plain_and_flags_have_no_type(call):
    with_benchmarks = [["bench", "-h"]] if list(importlib.metadata.distributions(name="backfield-benchmarks")) else []
    for arguments in (["-h"], ["predict", "-h"], *with_benchmarks, ["infer", "--help"]):
        code, out, _ = call(*arguments)
        assert code == 0
        assert out.startswith("Usage: backfield") and "-h, --help " in out
        assert "<bool>" not in out
    assert "--install-completion" in call("-h")[1]


def test_shells_complete_commands():
    environment = os.environ | {"_BACKFIELD_COMPLETE": "complete_bash", "COMP_WORDS": "backfield pre", "COMP_CWORD": "1"}
    done = subprocess.run([sys.executable, "-m", "backfield"], env=environment, capture_output=True, text=True)
    assert done.stdout.split() == ["predict"]


def test_help_and_version(call):
    assert call("--version")[1] == f"backfield {bf.__version__}\n"
    for arguments in ([], ["--help"]):
        code, out, _ = call(*arguments)
        assert code == 0
        assert all(name in out for name in COMMANDS)


def test_as_a_process(tree):
    done = subprocess.run(
        [sys.executable, "-m", "backfield.cli", "infer", tree[1], "--inference", BP, "--json"], capture_output=True
    )
    assert (done.returncode, done.stderr) == (0, b"")
    assert len(json.loads(done.stdout)["marginals"]) == 4
    done = subprocess.run([sys.executable, "-m", "backfield.cli", "infer", "none.uai"], capture_output=True)
    assert done.returncode == 2
    one_line(done.stderr.decode(), "none.uai")


def test_infer_in_a_given_time(call, tmp_path, processor_time):
    (tmp_path / "a.bif").write_text(
        "network n { }\nvariable a { type discrete [ 2 ] { x, y }; }\nprobability ( a ) { table 0.25, 0.75; }\n"
    )
    code, out, _ = call("infer", str(tmp_path / "a.bif"), "--seconds", "5", "--json")
    answer = json.loads(out)
    assert code == 0 and answer["bound"] == "exact" and answer["lower"] == answer["upper"] == answer["log_partition"]
    assert answer["marginals"][0] == pytest.approx([0.25, 0.75])
    code, out, _ = call("infer", str(tmp_path / "a.bif"), "--seconds", "5")
    assert code == 0 and "exact: a junction tree" in out


def test_warm_compiles_and_says_where(call):
    code, out, err = call("warm")
    assert (code, err) == (0, "")
    assert "MB in" in out
    assert call("warm", "--quiet") == (0, "", "")
